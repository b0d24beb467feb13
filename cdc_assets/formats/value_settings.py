"""Settings that decide which values a table's texts become: what matters for its columns, and what a change would do.

Each format says, column by column, what its decoder makes of a setting (`Wire.read_by`): a zone of TIMESTAMP texts, the
form of decimals. Settings are compared by that, not by their words: another name of the same zone is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc_assets.formats import Wire
from cdc_assets.model.schema import Column

__all__ = ["deciding", "read_otherwise"]


def deciding(wire: Wire, columns: Iterable[Column]) -> dict[str, str]:
    """Return the settings on which values of these columns depend, by the names that a person gives them."""
    names = {name for column in columns for name in wire.read_by(column)}
    return {name: value for name, value in wire.settings.items() if name in names}


def read_otherwise(wire: Wire, then: Mapping[str, str], columns: Iterable[Column]) -> dict[str, tuple[str, ...]]:
    """Return which columns were read otherwise with these former settings, by setting; {} where none was."""
    every, found = tuple(columns), dict[str, tuple[str, ...]]()
    for name in then.keys() & wire.settings.keys():
        before = wire.having({name: then[name]})
        changed = (column for column in every if wire.read_by(column).get(name) != before.read_by(column).get(name))
        found[name] = tuple(column.name for column in changed)
    return {name: found[name] for name in sorted(found) if found[name]}
