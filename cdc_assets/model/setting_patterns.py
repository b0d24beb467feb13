"""Patterns of tables and columns that the settings give, and the tables of a feed that they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from cdc_assets.model.gaps import is_complete
from cdc_assets.model.names import fits_pattern, fold_name
from cdc_assets.model.table_history import TableHistory


@dataclass(frozen=True, slots=True)
class SettingPattern:
    """One pattern or name of a setting. `names` are those of a table with which it is compared, `fits` compares."""

    setting: str
    text: str
    fits: Callable[[TableHistory], bool]
    names: Callable[[TableHistory], Iterable[str]]


def of_newest_names(setting: str, patterns: Iterable[str]) -> Iterator[SettingPattern]:
    """Yield patterns that are compared with the newest name of a table."""
    for text in patterns:
        yield SettingPattern(setting, text, partial(_newest_name_fits, text), _newest)


def of_all_names(setting: str, names: Iterable[str]) -> Iterator[SettingPattern]:
    """Yield names that are compared with every name that a table ever had."""
    for text in names:
        yield SettingPattern(setting, text, partial(_had_name, text), _every)


def of_first_names(setting: str, patterns: Iterable[str]) -> Iterator[SettingPattern]:
    """Yield patterns that are compared with the name that a table had when the feed began, or its identity."""
    for text in patterns:
        yield SettingPattern(setting, text, partial(_first_name_fits, text), _first)


def unmatched(patterns: Iterable[SettingPattern], tables: Iterable[TableHistory]) -> Iterator[tuple[str, str]]:
    """Yield each pattern that fits no table as `setting: pattern`, and the name that it resembles most, "" for none."""
    known_tables = tuple(tables)
    for pattern in patterns:
        if not any(pattern.fits(table) for table in known_tables):
            names = {fold_name(name): name for table in known_tables for name in pattern.names(table)}
            alike = get_close_matches(fold_name(pattern.text), names, n=1, cutoff=0.8)
            yield f"{pattern.setting}: {pattern.text}", names[alike[0]] if alike else ""


def _newest_name_fits(pattern: str, table: TableHistory) -> bool:
    return any(fits_pattern(name, pattern) for name in _newest(table))


def _first_name_fits(pattern: str, table: TableHistory) -> bool:
    return is_complete(table.life, [pattern])


def _had_name(name: str, table: TableHistory) -> bool:
    return fold_name(name) in map(fold_name, _every(table))


def _newest(table: TableHistory) -> tuple[str, ...]:
    return (str(table.last_name or table.life.born_as),)


def _first(table: TableHistory) -> tuple[str, ...]:
    return (str(table.life.born_as),)


def _every(table: TableHistory) -> tuple[str, ...]:
    return tuple(str(name) for name in table.every_name)
