"""Check the rows of a file against its schema: pandera schemas on the polars backend, run in the decoding pass.

    TableSchema ──rules──▶ pandera schema ──check──▶ rows that keep it, rejects for those that do not
    files of a window ──validated──▶ the same without the records that do not fit

The schema is that of the file's own version: rows of before an ADD NOT NULL lie in an older version's directory and are
held to what was true there. Values are promised of rows that enter the table. Images that leave it only have to name
their key: an old value that breaks today's rule must still be removable, and a delete may hold nothing but the key.

pandera is imported with the first check, because it takes more than a second and most of this package never needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.split import MAX_REJECTS, Split, concerning_file
from cdc_assets.errors import MalformedData
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import LINE, OP
from cdc_assets.formats.redaction import NOT_SHOWN
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.connect_types import CONNECT_TYPES, MAY_BE_NULL, SERVER_TYPES
from cdc_assets.types.families import BINARY, CHARACTER
from cdc_assets.types.key_digests import encoded_keys
from cdc_assets.types.mysql_types import arrow_schema, misfit, type_text
from cdc_assets.types.ydb_types import MADE_NULL, YDB_TYPES

if TYPE_CHECKING:
    from pandera.errors import SchemaError
    from pandera.polars import DataFrameSchema

MAX_CASES = 1000
"""Rejects that `check` gives in full by default; all are counted."""

_ROW = "#row"


class CheckedRows(NamedTuple):
    """Rows of sound records, the first records that are not sound, and how many those are in all."""

    changes: pa.Table
    rejects: tuple[Reject, ...]
    total: int


class Rule(NamedTuple):
    """`holds` makes of a column's expression one that is true where its values are as promised; NULL always is."""

    text: str
    holds: Callable[[pl.Expr], pl.Expr]


# --- rules ------------------------------------------------------------------------------------------------------------


def _between(low: int, high: int) -> Rule:
    bounds = (Decimal(low), Decimal(high)) if high >= 1 << 63 else (low, high)
    return Rule(f"outside {low} to {high}", lambda values: values.is_between(*bounds))


def _integer(bits: int) -> Callable[[Column], list[Rule]]:
    def rule(column: Column) -> list[Rule]:
        return [_between(0, (1 << bits) - 1) if column.unsigned else _between(-1 << bits - 1, (1 << bits - 1) - 1)]

    return rule


def _whole(low: int, high: int) -> Callable[[Column], list[Rule]]:
    return lambda _: [_between(low, high)]


def _year(_: Column) -> list[Rule]:
    return [Rule("neither 0 nor 1901 to 2155", lambda values: (values == 0) | values.is_between(1901, 2155))]


def _bit(column: Column) -> list[Rule]:
    width = column.precision or 1
    return [_between(0, (1 << width) - 1)] if width > 1 else []


def _decimal(column: Column) -> list[Rule]:
    digits, scale = column.precision if column.precision is not None else 10, column.scale or 0
    if digits <= 38:
        return _not_negative(column)
    whole = rf"(?:0|[1-9]\d{{0,{digits - scale - 1}}})" if digits > scale else "0"
    form = rf"^-?{whole}[.]\d{{{scale}}}$" if scale else rf"^-?{whole}$"
    wide = Rule(f"not of {digits - scale} digits and {scale} after the point", lambda values: values.str.contains(form))
    return [wide, Rule("negative", lambda values: ~values.str.starts_with("-"))] if column.unsigned else [wide]


def _not_negative(column: Column) -> list[Rule]:
    return [Rule("negative", lambda values: values >= 0)] if column.unsigned else []


def _characters(column: Column) -> list[Rule]:
    """TEXT types too: TiDB counts their bytes, but counted characters before 6.0, and such rows live on."""
    size = column.precision
    if size is None:
        return []
    return [Rule(f"longer than {size} characters", lambda values: values.str.len_chars() <= size)]


def _bytes(column: Column) -> list[Rule]:
    size = column.precision
    if size is None:
        return []
    return [Rule(f"longer than {size} bytes", lambda values: values.bin.size() <= size)]


def _enum(column: Column) -> list[Rule]:
    """The empty text is what an invalid value is stored as, whatever the members are."""
    if column.elems is None:
        return []
    names = ["", *column.elems]
    return [Rule(f"none of {_listed(column.elems)}", lambda values: values.is_in(names))]


def _set(column: Column) -> list[Rule]:
    if column.elems is None:
        return []
    member_pattern = "|".join(pl.escape_regex(name) for name in column.elems)
    form = rf"(?s)\A(?:(?:{member_pattern})(?:,(?:{member_pattern}))*)?\z"
    return [Rule(f"not made of {_listed(column.elems)}", lambda values: values.str.contains(form))]


def _listed(names: Iterable[str]) -> str:
    shown = [f'"{name}"' for name in names]
    return ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "")


def _nothing(_: Column) -> list[Rule]:
    return []


RULES: Mapping[str, Callable[[Column], list[Rule]]] = {
    "TINYINT": _integer(8),
    "SMALLINT": _integer(16),
    "MEDIUMINT": _integer(24),
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "YEAR": _year,
    "BIT": _bit,
    "FLOAT": _not_negative,
    "DOUBLE": _not_negative,
    "DECIMAL": _decimal,
    **dict.fromkeys(CHARACTER, _characters),
    **dict.fromkeys(BINARY, _bytes),
    "ENUM": _enum,
    "SET": _set,
    **dict.fromkeys(("DATE", "DATETIME", "TIMESTAMP", "TIME", "JSON", "VECTOR", "NULL"), _nothing),
    **dict.fromkeys((*CONNECT_TYPES, *YDB_TYPES, *SERVER_TYPES), _nothing),
    **{f"int{bits}": _whole(-1 << bits - 1, (1 << bits - 1) - 1) for bits in (8, 16)},
    **{f"Int{bits}": _whole(-1 << bits - 1, (1 << bits - 1) - 1) for bits in (8, 16)},
    **{f"Uint{bits}": _whole(0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
}
"""`Column.type` -> what its values keep beyond their lake type. The last line's types are settled by decoding."""

_MADE_NULL = ("DATE", "DATETIME", "TIMESTAMP", "FLOAT", *MAY_BE_NULL, *MADE_NULL)
"""Types of which decoding makes null what the lake, or the wire, cannot keep: it notes that."""


def rules(column: Column) -> tuple[Rule, ...]:
    """Return the rules that a column's values keep beyond its type. Raises KeyError for a type of a later TiDB."""
    return tuple(RULES[column.type](column))


# --- pandera ----------------------------------------------------------------------------------------------------------


def _bare(column: Column) -> Column:
    return replace(column, default=None)  # a default is any JSON, which a cache cannot look up


@lru_cache(maxsize=256)
def _pandera_schema(columns: tuple[tuple[str, Column, bool], ...]) -> DataFrameSchema:
    """Build from (name in the frame, column, whether NULL is refused)."""
    import pandera.polars as pandera

    def checked(rule: Rule) -> pandera.Check:
        def holds(data: Any) -> Any:
            return data.lazyframe.select(rule.holds(pl.col(data.key)))

        return pandera.Check(holds, name=rule.text, error=rule.text)

    kinds = pl.from_arrow(arrow_schema(TableSchema(tuple(column for _, column, _ in columns))).empty_table())
    assert isinstance(kinds, pl.DataFrame)
    return pandera.DataFrameSchema(
        {
            name: pandera.Column(
                kind,
                checks=[checked(rule) for rule in _needed(column, kind)],
                nullable=not required,
                required=False,
                description=type_text(column),
            )
            for (name, column, required), kind in zip(columns, kinds.dtypes, strict=True)
        }
    )


def _needed(column: Column, kind: pl.DataType) -> tuple[Rule, ...]:
    """Leave out the ranges that the lake type has by itself."""
    own = {"INT": pl.Int32, "BIGINT": pl.Int64}.get(column.type)
    return () if own is not None and kind == own else rules(column)


def _broken(frame: pl.DataFrame, schema: DataFrameSchema) -> list[SchemaError]:
    from pandera.config import ValidationDepth, config_context
    from pandera.errors import SchemaErrors

    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        try:
            schema.validate(frame, lazy=True)
        except SchemaErrors as found:
            return list(found.schema_errors)
    return []


# --- checking a batch -------------------------------------------------------------------------------------------------


def check(
    changes: pa.Table,
    schema: TableSchema,
    path: str,
    *,
    notes: Mapping[tuple[str, str], int] | None = None,
    limit: int | None = MAX_CASES,
    leaving_too: bool = False,
) -> CheckedRows:
    """Sort out the records of one file that break a promise of the schema file of its version.

    All images of a broken record are left out of `changes`. `rejects` are the first `limit` records by line, each with
    its first broken rule and without raw bytes, which are not known here. With the `notes` of decoding, NOT NULL is
    asked of dates too, unless decoding turned some of the column into null. `leaving_too` asks the same of images that
    leave. Raises MalformedData for columns of a wrong type.
    """
    places = [
        (f"#{place}", column) for place, column in enumerate(schema.stored) if column.name in changes.column_names
    ]
    by_place = dict(places)
    # Columns go by position: polars takes a name such as `^a$` for a pattern.
    arrays = [changes.column(OP), *(changes.column(column.name) for _, column in places)]
    frame = pl.from_arrow(pa.table(arrays, names=[OP, *(place for place, _ in places)]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_row_index(_ROW)
    leaving = pc.any(pc.less(changes.column(OP), 0), min_count=0).as_py()
    entering = frame.filter(pl.col(OP) > 0) if leaving and not leaving_too else frame
    noted = None if notes is None else {name for name, _ in notes}
    full = tuple((place, _bare(column), _refuses_null(column, schema, noted)) for place, column in places)
    keys = tuple(part for part in full if part[1].name in schema.exact and part[2] and frame[part[0]].null_count())
    errors = [(error, entering) for error in _broken(entering, _pandera_schema(full))]
    if leaving and keys:
        broken = _broken(frame, _pandera_schema(keys))
        errors += [(error, frame) for error in broken if error.check == "not_nullable"]
    reasons: dict[int, tuple[str, str]] = {}
    for error, where in errors:
        _collect(reasons, error, where, by_place, path, quoted=not schema.confidential)
    if not reasons:
        return CheckedRows(changes, (), 0)
    return _sorted_out(changes, reasons, path, limit, schema.key)


def _refuses_null(column: Column, schema: TableSchema, noted: set[str] | None) -> bool:
    if column.name in schema.exact:
        return not column.nullable or column.is_pk
    return not column.nullable and (column.type not in _MADE_NULL or (noted is not None and column.name not in noted))


def _collect(
    reasons: dict[int, tuple[str, str]],
    error: SchemaError,
    frame: pl.DataFrame,
    places: Mapping[str, Column],
    path: str,
    *,
    quoted: bool,
) -> None:
    """Note the rows that one rule found, by position in the file's changes; the first rule counts.

    A value is `quoted` where none of its table is masked: damage may have moved one from its column into another.
    """
    place = str(error.column_name)
    column = places[place]
    passed = error.check_output
    if not isinstance(passed, pl.DataFrame):
        raise MalformedData(
            f'{path}: column "{column.name}" was decoded as {frame.schema[place]}, which is not the lake type of '
            f"{type_text(column)}: {error}",
            path=path,
            column=column.name,
        )
    failed = frame.select(_ROW, place).filter(~passed.to_series().fill_null(value=True))
    for row, value in failed.iter_rows():
        if row not in reasons:
            reasons[row] = (column.name, _reason(value, column, error, quoted=quoted))


def _reason(value: Any, column: Column, error: SchemaError, *, quoted: bool) -> str:
    if value is None:
        return f"NULL in a column that is {type_text(column)} NOT NULL"
    rule = getattr(error.check, "name", error.check)
    if not quoted:
        return f"a value is not {type_text(column)}: it is {rule}; {NOT_SHOWN}"
    shown = value.hex() if isinstance(value, bytes) else str(value)
    return f"{misfit(shown, column)}: it is {rule}"


def _sorted_out(
    changes: pa.Table, reasons: Mapping[int, tuple[str, str]], path: str, limit: int | None, key: Sequence[str]
) -> CheckedRows:
    lines, stamps = (changes.column(name).to_pylist() for name in (LINE, position_column(changes)))
    by_line: dict[int, Reject] = {}
    for row, (column, reason) in sorted(reasons.items()):
        by_line.setdefault(lines[row], Reject(path, lines[row], reason, b"", column, stamps[row]))
    broken = pc.is_in(changes.column(LINE), pa.array(by_line, pa.int64()))
    first = [
        replace(by_line[line], keys=encoded_keys(changes.filter(pc.equal(changes.column(LINE), line)), key))
        for line in sorted(by_line)[:limit]
    ]
    return CheckedRows(changes.filter(pc.invert(broken)), tuple(first), len(by_line))


# --- files of a window ------------------------------------------------------------------------------------------------


def validated(splits: Sequence[Split], every: bool = False, leaving_too: bool = False) -> list[Split]:
    """Sort out the records of files that break a promise; `every` asks for all of these and not just the first.

    Files are checked together first: a check costs as much for ten rows as for ten thousand.
    """

    def stage(split: Split) -> Split:
        limit = None if every else MAX_REJECTS
        path, notes = split.file.path, split.decoded.notes
        checked_rows = check(split.changes, split.schema, path, notes=notes, limit=limit, leaving_too=leaving_too)
        rejects, count = (*split.rejects, *checked_rows.rejects), split.reject_count + checked_rows.total
        return replace(split, changes=checked_rows.changes, rejects=rejects, reject_count=count)

    sound = _sound(splits, leaving_too)
    return [split if place in sound else split.through(stage) for place, split in enumerate(splits)]


def _sound(splits: Sequence[Split], leaving_too: bool) -> set[int]:
    """Return the places of files that need no check of their own: they are sound together, or have no rows."""
    sound: set[int] = set()
    alike: dict[tuple[str, int], list[int]] = {}
    for place, split in enumerate(splits):
        if not split.changes.num_rows:
            sound.add(place)
        elif split.refused is None and not split.decoded.notes:
            # What decoding noted of one file would loosen the check of the others.
            alike.setdefault((split.file.root, split.file.version), []).append(place)
    for places in alike.values():
        if len(places) > 1 and _sound_together([splits[place] for place in places], leaving_too):
            sound.update(places)
    return sound


def _sound_together(splits: list[Split], leaving_too: bool) -> bool:
    tables = [split.changes for split in splits]
    if any(table.schema != tables[0].schema for table in tables):
        return False
    try:
        with concerning_file(splits[0].file, quoted=not splits[0].confidential):
            together = pa.concat_tables(tables)
            return not check(together, splits[0].schema, "", notes={}, limit=1, leaving_too=leaving_too).total
    except MalformedData:
        return False
