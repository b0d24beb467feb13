"""Schema registries: the id that a message names -> the text of its schema.

    connect(given, toml) -> Registry

confluent   the API of Confluent's registry, which others have too
glue        AWS Glue
file        schemas in a file, where no registry is in reach

Callers cache the answers for ever: an id never means another schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from cdc_assets.errors import BadSettings

__all__ = ["KINDS", "Registry", "connect", "kind_of"]

KINDS: Mapping[str, str] = {
    "confluent": "cdc_assets.sources.topics.registry.confluent",
    "glue": "cdc_assets.sources.topics.registry.glue",
    "file": "cdc_assets.sources.topics.registry.file",
}
"""Kind of a registry -> module with `connect(options) -> Registry`."""


class Registry(Protocol):
    """Location of registered schemas. No secret is in any error."""

    def schema(self, schema_id: str) -> str | None:
        """Return the text of a schema, None where there is none of this id.

        Raises StorageUnavailable where the registry does not answer (again later), BucketMissing where it refuses.
        """


def kind_of(options: Mapping[str, Any]) -> str:
    """Return the kind of registry that options are of; raises BadSettings."""
    kinds = [kind for name, kind in (("url", "confluent"), ("glue", "glue"), ("file", "file")) if options.get(name)]
    if len(kinds) != 1:
        raise BadSettings(
            f"schema_registry says {' and '.join(kinds) or 'nothing of where it is'}; expected one of url (a registry "
            "with Confluent's API), glue ({region: …}) and file (a file of schemas by their ids)."
        )
    return kinds[0]


def connect(options: Mapping[str, Any]) -> Registry:
    """Return the registry that options name; nothing is asked of it yet. Raises BadSettings."""
    kind = kind_of(options)
    try:
        plug = import_module(KINDS[kind])
    except ModuleNotFoundError as error:
        raise BadSettings(f"schemas cannot be read from {kind}: {error.name} is not installed. Install it.") from None
    registry: Registry = plug.connect(options)
    return registry
