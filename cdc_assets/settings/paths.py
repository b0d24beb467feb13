"""Paths in `changefeeds.yaml`, which are relative to its directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def is_path(address: str) -> bool:
    """Return whether an address is that of a local file: a path, or a URI such as file:///path."""
    scheme, separator, _ = address.partition("://")
    return not separator or scheme.lower() in ("file", "local")


def with_paths(directory: Path, changefeed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a changefeed with its paths made absolute: they are relative to the file's directory."""
    result = dict(changefeed)
    if isinstance(config := result.get("changefeed_config"), str):
        result["changefeed_config"] = directory / Path(config).expanduser()
    if isinstance(uri := result.get("sink_uri"), str):
        result["sink_uri"] = _absolute(directory, uri)
    if isinstance(initial := result.get("initial"), dict) and "dump" in initial:
        result["initial"] = {**initial, "dump": _with_dump_paths(directory, initial["dump"])}
    if isinstance(schemas := result.get("schemas"), str):
        result["schemas"] = directory / Path(schemas).expanduser()
    registry = result.get("schema_registry")
    if isinstance(registry, str) and is_path(registry):
        result["schema_registry"] = {"file": _absolute(directory, registry)}
    elif isinstance(registry, dict) and isinstance(registry.get("file"), str):
        result["schema_registry"] = {**registry, "file": _absolute(directory, registry["file"])}
    if isinstance(archive := result.get("archive"), dict) and "://" not in str(archive.get("uri") or "://"):
        result["archive"] = {**archive, "uri": str(directory / Path(str(archive["uri"])).expanduser())}
    if isinstance(extracts := result.get("extracts"), dict):
        result["extracts"] = {
            name: {**one, "out": _absolute(directory, one["out"])}
            if isinstance(one, dict) and isinstance(one.get("out"), str)
            else one
            for name, one in extracts.items()
        }
    return result


def _with_dump_paths(directory: Path, dump: Any) -> Any:
    if isinstance(dump, list):
        return [_with_dump_paths(directory, one) for one in dump]
    if isinstance(dump, dict) and isinstance(dump.get("uri"), str):
        return {**dump, "uri": _absolute(directory, dump["uri"])}
    return _absolute(directory, dump) if isinstance(dump, str) else dump


def _absolute(directory: Path, uri: str) -> str:
    return uri if "://" in uri else str(directory / Path(uri).expanduser())
