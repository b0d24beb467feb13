"""TiCDC's changefeed TOML: its tables and members, spelled with dashes or underscores, its protocol and filters."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_filter import ColumnSelectors, decided

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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


_KINDS = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list"}


def table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the table below some names, {} where it is not there; raises BadSettings where one is not a table."""
    section = document
    for depth, name in enumerate(names, 1):
        section = section.get(name, {})
        if not isinstance(section, dict):
            path, kind = ".".join(names[:depth]), _KINDS.get(type(section), "a time")
            raise BadSettings(f"changefeed TOML: `{path}` is {kind}; expected a [{path}] table.")
    return section


def rules(
    section: Mapping[str, Any], name: str, example: str, lists: Sequence[str], more: Sequence[str] = ()
) -> Sequence[Mapping[str, Any]]:
    """Return the rules of a section; each has `lists` of texts, and may have `more`, which may also be texts.

    Raises BadSettings for any others.
    """
    entries: list[Mapping[str, Any]] = section.get(name, [])
    is_sound = isinstance(entries, list) and all(
        isinstance(rule, dict)
        and all(_is_texts(rule.get(key)) for key in lists)
        and all(isinstance(rule.get(key, ""), str) or _is_texts(rule[key]) for key in more)
        for rule in entries
    )
    if not is_sound:
        with_lists = f" with lists of texts ({', '.join(lists)})" if lists else ""
        raise BadSettings(f"{name} in the changefeed TOML are not tables{with_lists}. Expected {example}.")
    return entries


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _dashed(value: Any) -> Any:
    # `cdc cli changefeed query` and the HTTP API print the same options with underscores.
    if isinstance(value, dict):
        return {key.replace("_", "-"): _dashed(member) for key, member in value.items()}
    return [_dashed(member) for member in value] if isinstance(value, list) else value


def known_protocol(text: Any, protocols: Collection[str], place: str, example: str) -> str:
    """Return the name of a protocol as the table of plugs has it.

    `place` is what messages call the kind of sink. Raises BadSettings where none is given or known.
    """
    names = ", ".join(sorted(protocols))
    if not text:
        raise BadSettings(
            f"the sink URI has no protocol parameter and the changefeed TOML no [sink] protocol; known are {names}. "
            f"Give the sink URI exactly as TiCDC has it, for example {example}."
        )
    protocol = str(text).lower()
    if protocol not in protocols:
        raise BadSettings(
            f'protocol "{text}" cannot be read from {place}; known are {names}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    return protocol


def misspelt(names: Iterable[str], parameter_names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the parameters that are called nearly as one that decides how rows are read, with that one."""
    for name in sorted(set(names).difference(parameter_names)):
        yield from ((name, known_name) for known_name in get_close_matches(name, parameter_names, n=1, cutoff=0.8))


def column_selectors(document: Mapping[str, Any]) -> ColumnSelectors:
    """Return the column selectors of a changefeed; raises BadSettings for what are none."""
    example = '[[sink.column-selectors]] with matcher = ["db.table"] and columns = ["*", "!hidden"]'
    selectors = rules(table(document, "sink"), "column-selectors", example, ("matcher", "columns"))
    return tuple((tuple(selector["matcher"]), tuple(selector["columns"])) for selector in selectors)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Rows and DDL that a changefeed leaves out of tables: kinds of events, DDL by their text, rows by `rows`.

    `rows` are the keys of the filter that leave rows out, `unknown` the keys of which nothing is known here. `matcher`
    is None for the table [filter] itself, which is about all tables.
    """

    matcher: tuple[str, ...] | None
    events: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


_EXPRESSIONS = tuple(f"ignore-{rows}-value-expr" for rows in ("delete", "insert", "update-old", "update-new"))
_LEAVING_ROWS_OUT = (*_EXPRESSIONS, "ignore-update-only-columns", "ignore-txn-start-ts")
_FILTER_KEYS = frozenset(("rules", "event-filters", "ignore-txn-start-ts"))
_EVENT_FILTER_KEYS = frozenset(
    ("matcher", "ignore-event", "ignore-sql", *_EXPRESSIONS, "ignore-update-only-columns")
)  # `pkg/config/filter.go` of pingcap/ticdc


def event_filters(document: Mapping[str, Any]) -> tuple[EventFilter, ...]:
    """Return the event filters of a changefeed, and [filter] itself where it leaves out more than its rules do.

    A key without a value ([] or "") leaves nothing out. Raises BadSettings for what are no event filters.
    """

    def texts(rule: Mapping[str, Any], name: str) -> tuple[str, ...]:
        value = rule.get(name) or []
        return tuple([value] if isinstance(value, str) else value)

    def keys(toml_table: Mapping[str, Any], key_names: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
        present = [key for key, value in toml_table.items() if value or value is False or value == 0]
        rows = tuple(key for key in _LEAVING_ROWS_OUT if key in present and key in key_names)
        return {"rows": rows, "unknown": tuple(key for key in present if key not in key_names)}

    section = table(document, "filter")
    example = '[[filter.event-filters]] with matcher = ["db.table"] and ignore-event = ["truncate table"]'
    whole = EventFilter(None, **keys(section, _FILTER_KEYS))
    filters = tuple(
        EventFilter(
            texts(rule, "matcher"),
            tuple(text.lower() for text in texts(rule, "ignore-event")),
            texts(rule, "ignore-sql"),
            **keys(rule, _EVENT_FILTER_KEYS),
        )
        for rule in rules(section, "event-filters", example, (), sorted(_EVENT_FILTER_KEYS))
    )
    return (*filters, whole) if whole.rows or whole.unknown else filters


def hides_inserts(filters: Iterable[EventFilter], name: TableId) -> bool:
    """Return whether filters may leave out the insert of a row, or an update that gives it another key."""
    return any(
        (event_filter.rows or event_filter.unknown or {"all dml", "insert", "update"} & {*event_filter.events})
        and (event_filter.matcher is None or decided(event_filter.matcher, (name.schema, name.table)))
        for event_filter in filters
    )
