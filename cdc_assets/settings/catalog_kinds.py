"""How both readers of a lake reach its catalog, where Java and PyIceberg spell the same thing in two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["KINDS", "CatalogKind", "signs"]

Properties = Mapping[str, str]

_DELEGATION = "header.X-Iceberg-Access-Delegation"
_KEYS = ("access-key-id", "secret-access-key", "session-token")


@dataclass(frozen=True, slots=True)
class CatalogKind:
    """A type of catalog: what PyIceberg and Java's Iceberg are told beside what was given.

    `folds_names` where it keeps names in lower case; `vends` where a table may come with the storage's credentials, so
    that everything about it has to lie below its own location.
    """

    python: Callable[[Properties], dict[str, str]]
    java: Callable[[Properties], dict[str, str]]
    folds_names: bool = False
    vends: bool = False


def signs(given: Properties) -> bool:
    """Tell whether requests to a REST catalog are signed as Amazon's are."""
    return given.get("rest.sigv4-enabled") == "true" or given.get("rest.auth.type") == "sigv4"


def _tokens(given: Properties) -> dict[str, str]:
    """Say where tokens come from, when they are asked for with a credential; it is where both sides look by default."""
    asks = "credential" in given and "oauth2-server-uri" not in given
    return {"oauth2-server-uri": f"{given['uri'].rstrip('/')}/v1/oauth/tokens"} if asks else {}


def _rest_python(given: Properties) -> dict[str, str]:
    told = {**given, **_tokens(given)}
    if signs(given):
        told.pop("rest.auth.type", None)
        told["rest.sigv4-enabled"] = "true"
        told.update({f"client.{name}": given[f"rest.{name}"] for name in _KEYS if f"rest.{name}" in given})
    return told


def _rest_java(given: Properties) -> dict[str, str]:
    """Reports of scans and commits are requests of their own, so none are sent unless they were asked for."""
    told = {_DELEGATION: "vended-credentials", "rest-metrics-reporting-enabled": "false", **given, **_tokens(given)}
    if signs(given):
        told.pop("rest.sigv4-enabled", None)
        told["rest.auth.type"] = "sigv4"
        told.update({f"rest.{name}": given[f"client.{name}"] for name in _KEYS if f"client.{name}" in given})
    return told


def _glue_python(given: Properties) -> dict[str, str]:
    """PyIceberg hands the number on as it comes, and tries ten times by itself."""
    return {**given, "glue.max-retries": int(given.get("glue.max-retries", 3))}  # type: ignore[dict-item]


def _glue_java(given: Properties) -> dict[str, str]:
    """Names of dropped tables are percent-encoded, which Glue takes and Iceberg's own check of names would not."""
    return {"glue.skip-name-validation": "true", "glue.skip-archive": "true", **given}


KINDS = {
    "jdbc": CatalogKind(dict, dict),
    "rest": CatalogKind(_rest_python, _rest_java, vends=True),
    "glue": CatalogKind(_glue_python, _glue_java, folds_names=True),
    "hive": CatalogKind(dict, dict, folds_names=True),
}
"""The types of catalog by their names in `lake.catalog.type`."""
