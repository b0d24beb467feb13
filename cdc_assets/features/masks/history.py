"""Find the masked columns of a history: by the patterns of the settings, and by the later fate of each column.

A mask belongs to a column, not to its name: it is that of the first name of the column, in the first table name, for
which the policy has a line, and it stays when column or table are renamed. It counts from the column's beginning,
so that a rebuild gives what the policy says now; a table that stands is held if that is another mask than it has.

    applied       a history whose columns have their masks, in what tables look like and in how rows are read
    mask_holds    tables of which a column cannot be masked as the policy says
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from cdc_assets.ddl import concealed, names_in, quote
from cdc_assets.errors import MalformedData
from cdc_assets.history.policies import ways_out
from cdc_assets.model.masks import Mask, MaskPolicy
from cdc_assets.model.names import fold_name
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import RetypeColumn
from cdc_assets.model.splits import Import
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.table_history import Event, Exchanged, Held, History, Names, TableHistory
from cdc_assets.types.conversions import zone_matters
from cdc_assets.types.families import BINARY
from cdc_assets.types.masks import same_masked
from cdc_assets.types.mysql_types import type_text

__all__ = ["applied", "mask_holds"]

"""Name of a column -> its origin."""


def applied(history: History, policy: MaskPolicy) -> History:
    """Return the history with the mask of every column that the policy speaks of."""
    if not policy:
        return history
    lives = {life: _with_masks(table, policy) for life, table in history.lives.items()}
    unneeded = {life: _with_masks(table, policy) for life, table in history.unneeded.items()}
    tables = [*lives.values(), *unneeded.values()]
    # The masks of columns by every name that their tables ever had.
    by_name: dict[TableId, dict[str, Mask]] = {}
    for table in tables:
        table_masks = {c.name: c.mask for event in table.events for c in event.after.columns if c.mask is not None}
        for own_name in {own_name.folded for own_name, _, _ in table.names}:
            by_name[own_name] = {**table_masks, **by_name.get(own_name, {})}
    private = {name.folded for table in lives.values() if _is_private(table, policy) for name, _, _ in table.names}

    def read(name: TableId, schema: TableSchema) -> TableSchema:
        masks = by_name.get(name.folded, {})
        column_masks = {column.name: masks.get(column.name) for column in schema.columns}
        column_masks = {
            column: mask or policy.of(name.schema, name.table, column) for column, mask in column_masks.items()
        }
        named_masks = {column: mask for column, mask in column_masks.items() if mask is not None}
        return _masked(schema, named_masks, name.folded in private or policy.concerns(name.schema, name.table))

    decoding = {
        where: tuple((name, read(name, schema)) for name, schema in tables)
        for where, tables in history.decoding.items()
    }
    concealed_files = tuple(
        replace(file, query=concealed(file.query, policy.may_mean)[0]) for file in history.other_files
    )
    return replace(history, lives=lives, unneeded=unneeded, decoding=decoding, other_files=concealed_files)


def _with_masks(table: TableHistory, policy: MaskPolicy) -> TableHistory:
    traced = table.origins
    masks: dict[str, Mask] = {}
    for event, before, after in traced:
        own = () if isinstance(event, Exchanged) else (event.file.table,)  # that of the other table, maybe
        tables = (*own, *([event.name] if event.name is not None else []))
        for name, origin in (*before.items(), *after.items()):
            candidates = (policy.of(table_id.schema, table_id.table, name) for table_id in tables)
            mask = next((candidate for candidate in candidates if candidate is not None), None)
            if mask is not None and origin not in masks:
                masks[origin] = replace(mask, origin=origin)

    traced = traced[len(table.earlier) :]
    types = _types(traced, {origin for origin, mask in masks.items() if mask.leaves_types})
    for origin, had in types.items():
        masks[origin] = replace(masks[origin], types=had, as_type=type_text(had[-1][0]))

    def of(names: Names) -> dict[str, Mask]:
        return {name: masks[origin] for name, origin in names.items() if origin in masks}

    private = _is_private(table, policy)
    masked = (
        replace(
            event, before=_masked(event.before, of(before), private), after=_masked(event.after, of(after), private)
        )
        for event, before, after in traced
    )
    events = tuple(_without_values(event, policy) for event in masked)
    return replace(table, events=events, brought=_brought(table.brought, of(traced[0][2]), private))


def _is_private(table: TableHistory, policy: MaskPolicy) -> bool:
    return any(policy.concerns(name.schema, name.table) for name, _, _ in table.names)


def _types(
    traced: Sequence[tuple[Event, Names, Names]], origins: Collection[str]
) -> dict[str, tuple[tuple[Column, ...], ...]]:
    """Return the types of each column in which its values are masked otherwise, oldest first.

    A column has none here whose types all mask alike, or whose values cannot be turned from each into the next: by the
    zone of a session that no file tells, by a guess, or as a type came back, so that it is not known of which time its
    rows are.
    """
    type_lists: dict[str, list[list[Column]]] = {}
    newest: dict[str, Column] = {}
    lost: set[str] = set()
    for event, before, after in traced:
        guesses = {
            change.new.name for change in event.changes if isinstance(change, RetypeColumn) and change.approximate
        }
        lost |= {after[name] for name in guesses if name in after}
        for schema, names in ((event.before, before), (event.after, after)):
            for column in schema.columns:
                origin = names[column.name]
                if origin not in origins or newest.get(origin) == column:
                    continue
                bare = replace(column, default=None, comment="", generated="", computed="", mask=None)
                types, last = type_lists.setdefault(origin, [[bare]]), newest.get(origin, bare)
                newest[origin] = column
                try:
                    alike = same_masked(last, bare)
                except MalformedData:  # of a type that nobody knows: its table is held for that
                    lost.add(origin)
                    continue
                if not alike:
                    lost |= {origin} if zone_matters(last, bare) else set()
                    types.append([bare])
                elif not any(known_column.decodes_like(bare) for known_column in types[-1]):
                    types[-1].append(bare)
    return {
        origin: tuple(map(tuple, types))
        for origin, types in type_lists.items()
        if len(types) > 1 and origin not in lost and not _comes_back(types)
    }


def _comes_back(types: Sequence[Sequence[Column]]) -> bool:
    """Return whether a type is the same as one before another."""
    return any(
        column.decodes_like(other)
        for place, alike in enumerate(types)
        for later in types[place + 1 :]
        for column in alike
        for other in later
    )


def _brought(table: Import | None, masks: Mapping[str, Mask], private: bool) -> Import | None:
    """Return the table of a dump with its masks; the text that the lake keeps of it has no values of these columns."""
    if table is None or not private:
        return table
    query, _ = concealed(table.base.query, {fold_name(name) for name in masks}.__contains__)
    promised = None if table.promised is None else _masked(table.promised, masks, private)
    return replace(
        table, base=replace(table.base, query=query), schema=_masked(table.schema, masks, private), promised=promised
    )


def _without_values(event: Event, policy: MaskPolicy) -> Event:
    """Return an event whose text and reason show no default, no member and no bound of a masked column.

    A DDL that is held may be of a column that the table does not have yet.
    """
    names = {fold_name(c.name) for schema in (event.before, event.after) for c in schema.columns if c.mask is not None}
    if not event.file.query or not (names or isinstance(event, Held)):
        return event
    tables = (event.file.table, *([] if event.name is None else [event.name]))
    if any(_parted_by(schema) & names for schema in (event.before, event.after)):
        names.add("partition")  # whatever it says of one may have a bound

    def is_masked(name: str) -> bool:
        return name in names or any(policy.of(table.schema, table.table, name) is not None for table in tables)

    query, values = concealed(event.file.query, is_masked)
    shown = replace(event, file=replace(event.file, query=query))
    if not isinstance(shown, Held):
        return shown
    columns = [c for c in (*event.file.columns, *event.after.columns) if is_masked(fold_name(c.name))]
    stated = {str(c.default) for c in columns if c.default is not None}
    members = {member for column in columns for member in column.elems or ()}
    head, *rest = shown.reason.split(event.file.query)
    problem = query.join(rest) if rest else head
    for value in sorted({*values, *stated, *members} - {""}, key=len, reverse=True):
        forms = (re.escape(form) for form in (value, value.encode().hex()))
        problem = re.sub(rf"(?i)(?<!\w)(?:{'|'.join(forms)})(?!\w)", "***", problem)
    return replace(shown, reason=f"{head}{query}{problem}" if rest else problem)


def _masked(schema: TableSchema, masks: Mapping[str, Mask], private: bool) -> TableSchema:
    """Return the columns with their masks; what virtual ones are made of shows no value that a masked one may have."""
    if not masks:
        return replace(schema, private=private) if private else schema
    is_masked = {fold_name(name) for name in masks}.__contains__
    columns = (replace(column, mask=masks.get(column.name)) for column in schema.columns)
    bare = (replace(c, generated=concealed(c.generated, is_masked)[0]) if c.virtual else c for c in columns)
    return replace(schema, columns=tuple(bare), private=True)


# --- what cannot be masked --------------------------------------------------------------------------------------------


def mask_holds(history: History) -> Iterator[HoldTable]:
    """Yield the tables of which a column cannot be masked as the policy says, from the version that makes it so."""
    for life, table in history.lives.items():
        for event in table.events:
            reason = _refused(event.after) or _exchanged(event, history)
            if reason:
                yield HoldTable(life, event.at, f"{reason}.", ("change the setting privacy",))
                break
            if reason := _compared_otherwise(event):
                base = f"base the table on a dump from after it: cdc-assets rebuild '{life.born_as}'"
                yield HoldTable(life, event.at, f"{reason}.", ("change the setting privacy", base))
                break
            if reason := _may_be_renamed(event):
                ways = ways_out(table.last_name or life, event.at, ("as written",))
                yield HoldTable(life, event.at, f"{reason}.", ("change the setting privacy", *ways), releasable=True)


def _refused(schema: TableSchema) -> str:
    """Return the reason why the masks of a table cannot be carried out, "" if they can."""
    masked = {fold_name(column.name): column for column in schema.columns if column.mask is not None}
    if not masked:
        return ""
    keyed = {fold_name(name) for name in schema.exact}
    for name, column in masked.items():
        assert column.mask is not None
        doubt = f'the column "{column.name}" is to be masked by {column.mask} ("{column.mask.pattern}")'
        if name in keyed and not column.mask.keeps_keys:
            return f"{doubt}, but rows are told apart by it: columns of a key can be masked by hash alone"
        if column.mask.way == "redact" and column.type in BINARY and column.mask.detail != "length":
            return f"{doubt}, but it has bytes, no text: give hash, null, drop, constant or redact: length"
    for name in sorted(_parted_by(schema) & masked.keys()):
        return (
            f'the column "{masked[name].name}" is to be masked ("{_pattern(masked[name])}"), but the partitions of '
            "the table are made by it: which rows a partition has could not be told any more"
        )
    for column in schema.stored:
        for name in () if column.mask is not None or not column.generated else _read(column.generated, schema):
            if name in masked:
                return (
                    f'the column "{masked[name].name}" is to be masked ("{_pattern(masked[name])}"), but the stored '
                    f'column "{column.name}" is generated from it and is not: mask both, or neither'
                )
        for name in () if column.mask is not None or not column.computed else _read(column.computed, schema):
            if name in masked:
                return (
                    f'the column "{masked[name].name}" is to be masked ("{_pattern(masked[name])}"), but the default '
                    f'of "{column.name}" is made of it, and that is not: mask both, or neither'
                )
    return ""


def _compared_otherwise(event: Event) -> str:
    """Return the hashed column whose collation changes, so that equal values of old rows would have other hashes."""
    old = {c.mask.origin: c for c in event.before.columns if c.mask is not None}
    for column in event.after.columns:
        past = None if column.mask is None else old.get(column.mask.origin)
        if past is None or column.mask is None or column.mask.way != "hash" or column.mask.types:
            continue
        if past.compares_by != column.compares_by and past.type == column.type and not same_masked(past, column):
            return (
                f'the column "{column.name}" has the collation {column.compares_by or "that nothing tells"} instead of '
                f"{past.compares_by or 'one that nothing told'}, and is masked by hash: the hashes of rows that are "
                "there would be others, which cannot be made of them"
            )
    return ""


def _may_be_renamed(event: Event) -> str:
    """Return the reason why a column that came as a masked one went may be the same, where rows alone show columns."""
    if not event.file.grows or event.release is not None:
        return ""
    old, new = ({c.name: c for c in schema.columns if not c.kept} for schema in (event.before, event.after))
    gone = [name for name, column in old.items() if column.mask is not None and name not in new]
    come = [name for name, column in new.items() if column.mask is None and name not in old]
    if not gone or not come:
        return ""
    return (
        f'the masked column "{gone[0]}" is gone, and "{come[0]}" has come with the same row: the feed does not tell '
        f'whether it is that column under another name. If it is, or may be, give a line for "{come[0]}" too'
    )


def _pattern(column: Column) -> str:
    return "" if column.mask is None else column.mask.pattern


def _parted_by(schema: TableSchema) -> set[str]:
    """Return the columns by which the partitions of a table are made, folded."""
    parts = schema.partitioning
    if parts is None:
        return set()
    columns = parts.expressions or tuple(schema.exact)
    texts = map(quote, columns) if parts.lists_columns else columns
    return {name for text in texts for name in _read(text, schema)}


def _read(text: str, schema: TableSchema) -> set[str]:
    """Return the columns that an expression reads, those that its virtual columns are made of included."""
    own = {fold_name(column.name): column for column in schema.columns}
    names: set[str] = set()
    texts = [text]
    while texts:
        for name in {fold_name(column_name) for column_name in names_in(texts.pop())} & own.keys() - names:
            names.add(name)
            texts += [own[name].generated] if own[name].generated else []
    return names


def _exchanged(event: Event, history: History) -> str:
    """Return the reason why rows cannot be exchanged with another table, whose columns are masked otherwise."""
    if not isinstance(event, Exchanged):
        return ""
    other = history.lives.get(event.other)
    if other is None:
        return ""
    partner_schema = next(
        (other_event.before for other_event in other.events if other_event.at == event.at), other.schema
    )
    own_masks, masks = (
        {fold_name(c.source_name): c.mask for c in schema.columns if c.mask is not None and not c.kept}
        for schema in (event.before, partner_schema)
    )
    different = sorted(name for name in own_masks.keys() | masks.keys() if own_masks.get(name) != masks.get(name))
    if not different:
        return ""
    return (
        f'EXCHANGE PARTITION takes rows from {other.life.source}, in which the column "{different[0]}" is masked '
        "otherwise: give both tables the same masks"
    )
