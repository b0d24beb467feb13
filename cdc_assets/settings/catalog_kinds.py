"""Options of a lake's catalog, for Java and for PyIceberg, which spell the same option in two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Properties = Mapping[str, str]

_DELEGATION = "header.X-Iceberg-Access-Delegation"
_KEYS = ("access-key-id", "secret-access-key", "session-token")


@dataclass(frozen=True, slots=True)
class CatalogKind:
    """A type of catalog: the options of PyIceberg and of Java's Iceberg beside the given ones.

    `folds_names` if it stores names in lower case; `plain_names` if these have letters, digits and "_" only; `vends`
    if an answer about a table may include credentials for the storage, so that all of its files must lie below its own
    location.
    """

    python: Callable[[Properties], dict[str, str]]
    java: Callable[[Properties], dict[str, str]]
    folds_names: bool = False
    plain_names: bool = False
    vends: bool = False


def signs(given: Properties) -> bool:
    """Return whether requests to a REST catalog are signed as Amazon's are."""
    return given.get("rest.sigv4-enabled") == "true" or given.get("rest.auth.type") == "sigv4"


def _tokens(given: Properties) -> dict[str, str]:
    """Return the token endpoint for requests with a credential; it is the default of both sides."""
    asks = "credential" in given and "oauth2-server-uri" not in given
    return {"oauth2-server-uri": f"{given['uri'].rstrip('/')}/v1/oauth/tokens"} if asks else {}


def _rest_python(given: Properties) -> dict[str, str]:
    options = {**given, **_tokens(given)}
    if signs(given):
        options.pop("rest.auth.type", None)
        options["rest.sigv4-enabled"] = "true"
        options.update({f"client.{name}": given[f"rest.{name}"] for name in _KEYS if f"rest.{name}" in given})
    return options


def _rest_java(given: Properties) -> dict[str, str]:
    """Reports of scans and commits are requests of their own, so they are off by default.

    Answers are kept for a second: with five minutes, the default, vended credentials would be used after their end.
    """
    options = {
        _DELEGATION: "vended-credentials",
        "rest-metrics-reporting-enabled": "false",
        "rest-table-cache.expire-after-write-ms": "1000",
        **given,
        **_tokens(given),
    }
    if "credential" in given:  # else a new token is asked for with the present one, which few services answer
        options.setdefault("token-exchange-enabled", "false")
    if signs(given):
        options.pop("rest.sigv4-enabled", None)
        options["rest.auth.type"] = "sigv4"
        options.update({f"rest.{name}": given[f"client.{name}"] for name in _KEYS if f"client.{name}" in given})
    return options


def _glue_python(given: Properties) -> dict[str, str]:
    """PyIceberg passes the number on as it is, and retries ten times by default."""
    return {**given, "glue.max-retries": int(given.get("glue.max-retries", 3))}  # type: ignore[dict-item]


def _glue_java(given: Properties) -> dict[str, str]:
    """Names of dropped tables are percent-encoded, which Glue accepts and Iceberg's own check of names would not."""
    return {"glue.skip-name-validation": "true", "glue.skip-archive": "true", **given}


def _hive_java(given: Properties) -> dict[str, str]:
    """Iceberg waits three minutes for a lock, and five times in a row; a commit holds one for less than a second."""
    return {**dict.fromkeys(_HIVE_WAITS, "15000"), **given}


_HIVE_WAITS = ("hadoop.iceberg.hive.lock-timeout-ms", "hadoop.iceberg.hive.lock-creation-timeout-ms")

KINDS = {
    "jdbc": CatalogKind(dict, dict),
    "rest": CatalogKind(_rest_python, _rest_java, vends=True),
    "glue": CatalogKind(_glue_python, _glue_java, folds_names=True),
    "hive": CatalogKind(dict, _hive_java, folds_names=True, plain_names=True),
}
"""The types of catalog by their names in `lake.catalog.type`."""
