"""TiCDC's changefeed TOML: its tables and members, spelled with dashes or underscores, and its protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["document", "known_protocol", "member", "table"]


def document(path: str | os.PathLike[str] | None) -> Mapping[str, Any]:
    """Return the TOML at a path, {} without one; raises BadSettings where it cannot be read."""
    if path is None:
        return {}
    try:
        parsed = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadSettings(
            f"changefeed TOML {path} cannot be read ({error.strerror}). Correct changefeed_config or --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"changefeed TOML {path} is not TOML: {error}. Give the file that TiCDC has; "
            "that of a Debezium connector goes with protocol=debezium-json."
        ) from None
    dashed: dict[str, Any] = _dashed(parsed)
    return dashed


def table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table of a document, {} where it is not there; raises BadSettings where it is not a table."""
    found = document.get(name) or {}
    if not isinstance(found, dict):
        raise BadSettings(f"changefeed TOML: `{name}` is {found!r}; expected a [{name}] table.")
    return found


def _dashed(value: Any) -> Any:
    # `cdc cli changefeed query` and the HTTP API print the same options with underscores.
    if isinstance(value, dict):
        return {key.replace("_", "-"): _dashed(member) for key, member in value.items()}
    return [_dashed(member) for member in value] if isinstance(value, list) else value


def member(value: Any, names: tuple[str, ...]) -> Any:
    """Return what stands below some names, None where nothing does."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def known_protocol(given: Any, known: Collection[str], place: str, example: str) -> str:
    """Return the name of a protocol as the table of plugs has it.

    `place` is what messages call the kind of sink. Raises BadSettings where none is given or known.
    """
    names = ", ".join(sorted(known))
    if not given:
        raise BadSettings(
            f"the sink URI has no protocol parameter and the changefeed TOML no [sink] protocol; known are {names}. "
            f"Give the sink URI exactly as TiCDC has it, for example {example}."
        )
    protocol = str(given).lower()
    if protocol not in known:
        raise BadSettings(
            f'protocol "{given}" cannot be read from {place}; known are {names}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    return protocol
