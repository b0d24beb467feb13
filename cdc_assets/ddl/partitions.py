"""Partition definitions -> the condition on rows that a partition holds, and what ALTER makes of the definitions.

DROP, TRUNCATE and EXCHANGE PARTITION move rows without row events; only the definition identifies those rows.
A RANGE partition holds what is below its bound and not below the one before it *at that time*: after a DROP PARTITION
the next one takes the range over. NULL is below everything in RANGE, in partition 0 of HASH (`tidb:pkg/table/tables/
partition.go`). A zero date is NULL in the lake and lands where MySQL puts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cdc_assets.ddl.alter import (
    AddPartitionsSpec,
    BoundsSpec,
    CoalesceSpec,
    ExchangeSpec,
    PartitionBySpec,
    PartitionRowsSpec,
    ReorganizeSpec,
    Spec,
    StrangeSpec,
)
from cdc_assets.ddl.clauses import UNKNOWN_PARTITIONS, partition_definitions
from cdc_assets.ddl.expression import (
    compare,
    constant,
    either,
    expression,
    field,
    is_null,
    literal,
    negate,
    number,
    value_of,
)
from cdc_assets.ddl.text import Token, Unreadable, quote, render, tokens
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Partitioning, TablePartition, TableSchema
from cdc_assets.model.schema_changes import Predicate


def partition_predicate(
    partitioning: Partitioning | None, names: tuple[str, ...], schema: TableSchema, *, by_server: bool = False
) -> Predicate:
    """Return the condition that holds for exactly the rows of the named partitions; never NULL.

    `schema` gives the types of the columns that the definition uses. Raises TableHeld where the definition is not known
    (no CREATE TABLE in the feed) or cannot be evaluated outside TiDB (KEY, time zones, case-insensitive texts). With
    `by_server` collations are those of a server's own defaults, most of which are case-insensitive, and not TiDB's.
    """
    if by_server:
        schema = replace(schema, columns=tuple(replace(column, collation=None) for column in schema.columns))
    try:
        if partitioning is None:
            raise Unreadable("the table's partition definition is not in the changefeed")
        rule = _RULES.get(partitioning.kind)
        if rule is None:
            raise Unreadable(
                partitioning.expressions[0]
                if partitioning.kind == UNKNOWN_PARTITIONS
                else f"{partitioning.kind} partitions depend on a hash function of TiDB's own"
            )
        return either(*(rule(partitioning, _place(partitioning, name), schema) for name in names))
    except (Unreadable, ValueError, IndexError) as problem:  # a number or a tuple that is none
        raise TableHeld(f"The rows of partition {', '.join(names)} cannot be identified: {problem}.") from problem


def exchange_predicate(
    partitioning: Partitioning | None, name: str, schema: TableSchema, *, by_server: bool = False
) -> Predicate:
    """Return the condition for the rows of the partition that EXCHANGE PARTITION names; see `partition_predicate`."""
    return partition_predicate(partitioning, (name,), schema, by_server=by_server)


def _place(partitioning: Partitioning, name: str) -> int:
    for place, partition in enumerate(partitioning.partitions):
        if partition.name.lower() == name.lower():
            return place
    names = ", ".join(partition.name for partition in partitioning.partitions)
    raise Unreadable(f"it is not among the known partitions {names}")


# --- conditions -------------------------------------------------------------------------------------------------------


def _range(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    value = expression(partitioning.expressions[0], schema)
    bounds = [partition.less_than[0] for partition in partitioning.partitions]
    parts = []
    if place:
        before = bounds[place - 1]
        if before is None:
            raise Unreadable("no partition can follow MAXVALUE")
        parts.append(compare(">=", value, literal("int", str(constant(before)))))
    bound = bounds[place]
    if bound is not None:
        below = compare("<", value, literal("int", str(constant(bound))))
        parts.append(below if place else either(is_null(value), below))
    return _all(parts)


def _range_columns(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    below = _tuple_below(partitioning, place, schema)
    return _all([below, negate(_tuple_below(partitioning, place - 1, schema))]) if place else below


def _tuple_below(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    """Compare column by column: equal in all before, below in this one. Everything is below MAXVALUE."""
    conditions: list[Predicate] = []
    equal: list[Predicate] = []
    for name, bound in zip(partitioning.expressions, partitioning.partitions[place].less_than, strict=True):
        value = field(name, schema)
        if bound is None:
            conditions.append(_all(equal))
            break
        limit = value_of(bound, value)
        below = either(is_null(value), compare("<", value, limit))
        conditions.append(_all([*equal, below]))
        equal.append(compare("=", value, limit))
    return either(*conditions)


def _list(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    value = expression(partitioning.expressions[0], schema)

    def holds(row: tuple[str, ...]) -> Predicate:
        return is_null(value) if _is_null(row[0]) else compare("=", value, literal("int", str(constant(row[0]))))

    return _listed(partitioning, place, holds)


def _list_columns(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    values = [field(name, schema) for name in partitioning.expressions]

    def holds(row: tuple[str, ...]) -> Predicate:
        pairs = zip(values, row, strict=True)
        return _all([is_null(v) if _is_null(text) else compare("=", v, value_of(text, v)) for v, text in pairs])

    return _listed(partitioning, place, holds)


def _listed(partitioning: Partitioning, place: int, holds: Callable[[tuple[str, ...]], Predicate]) -> Predicate:
    """The values of a partition; DEFAULT takes what no other one has."""
    own = partitioning.partitions[place].values
    predicates = [holds(row) for row in own if row != ("DEFAULT",)]
    if ("DEFAULT",) in own:
        other_rows = [
            row for n, partition in enumerate(partitioning.partitions) if n != place for row in partition.values
        ]
        predicates.append(negate(either(*map(holds, other_rows))))
    return either(*predicates)


def _hash(partitioning: Partitioning, place: int, schema: TableSchema) -> Predicate:
    value = expression(partitioning.expressions[0], schema)
    signed = number("signed64", value) if value.type == "unsigned" else value
    remainder = number("abs", number("mod", signed, literal("int", str(partitioning.count))))
    equal = compare("=", remainder, literal("int", str(place)))
    return equal if place else either(is_null(value), equal)


def _is_null(text: str) -> bool:
    return text.upper() == "NULL"


def _all(parts: Sequence[Predicate]) -> Predicate:
    return parts[0] if len(parts) == 1 else Predicate("and", tuple(parts))


_RULES: Mapping[str, Callable[[Partitioning, int, TableSchema], Predicate]] = {
    "RANGE": _range,
    "RANGE COLUMNS": _range_columns,
    "LIST": _list,
    "LIST COLUMNS": _list_columns,
    "HASH": _hash,
}


# --- what ALTER makes of it -------------------------------------------------------------------------------------------


def repartition(before: Partitioning | None, specs: Sequence[Spec], moved: Mapping[str, str]) -> Partitioning | None:
    """Return the partitioning after the specs; `moved` gives each column's new name by its old one in lower case."""
    partitioning = before
    for spec in specs:
        if isinstance(spec, PartitionBySpec):
            partitioning = spec.partitioning
        elif partitioning is not None and partitioning.kind != UNKNOWN_PARTITIONS:
            try:
                partitioning = _changed(partitioning, spec)
            except Unreadable as problem:
                partitioning = Partitioning(UNKNOWN_PARTITIONS, (str(problem),))
    if partitioning is None or partitioning.kind == UNKNOWN_PARTITIONS:
        return partitioning
    if partitioning.lists_columns:
        return replace(
            partitioning, expressions=tuple(moved.get(name.lower(), name) for name in partitioning.expressions)
        )
    return replace(partitioning, expressions=tuple(_renamed(text, moved) for text in partitioning.expressions))


def _changed(partitioning: Partitioning, spec: Spec) -> Partitioning:
    parts = partitioning.partitions
    if isinstance(spec, AddPartitionsSpec):
        new = partition_definitions(spec.inside, partitioning.kind) if spec.inside else ()
        new = new or tuple(TablePartition(f"p{partitioning.count + number}") for number in range(spec.count))
        if {part.name.lower() for part in parts} & {partition.name.lower() for partition in new}:
            raise Unreadable(f"partition {new[0].name} was there before it was added")
        return _with(partitioning, (*parts, *new))
    if isinstance(spec, PartitionRowsSpec) and spec.drop:
        gone = {name.lower() for name in spec.names}
        return _with(partitioning, tuple(part for part in parts if part.name.lower() not in gone))
    if isinstance(spec, ReorganizeSpec):
        places = [_place(partitioning, name) for name in spec.names]
        first = min(places)
        remaining = [partition for place, partition in enumerate(parts) if place not in places]
        remaining[first:first] = partition_definitions(spec.inside, partitioning.kind)
        return _with(partitioning, tuple(remaining))
    if isinstance(spec, CoalesceSpec):
        return _with(partitioning, parts[: len(parts) - spec.count])
    if isinstance(spec, BoundsSpec) or (isinstance(spec, StrangeSpec) and "PARTITION" in spec.text.upper()):
        raise Unreadable(f"the effect of {spec.text} on the partitions is not known")
    if isinstance(spec, ExchangeSpec) and not spec.validated:
        raise Unreadable("rows came in by EXCHANGE PARTITION … WITHOUT VALIDATION, and may be in any partition")
    return partitioning


def _with(partitioning: Partitioning, parts: tuple[TablePartition, ...]) -> Partitioning:
    return replace(partitioning, partitions=parts, count=len(parts))


def _renamed(text: str, moved: Mapping[str, str]) -> str:
    return render([_renamed_token(token, moved) for token in tokens(text)])


def _renamed_token(token: Token, moved: Mapping[str, str]) -> Token:
    new = moved.get(token.text.lower()) if token.kind in ("name", "word") else None
    return token if new is None or new == token.text else Token("name", new, quote(new))
