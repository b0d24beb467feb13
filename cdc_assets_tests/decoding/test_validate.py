"""The validate: what a schema file promises is held, what breaks it is named by line and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.decoding import validate
from cdc_assets.decoding.validate import RULES, CheckedRows, check
from cdc_assets.errors import MalformedData
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Op
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.connect_types import CONNECT_TYPES, SERVER_TYPES
from cdc_assets.types.mysql_types import TYPES, arrow_type
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets.types.ydb_types import YDB_TYPES

ID = Column("id", "BIGINT", nullable=False, is_pk=True)


def changes(column: Column, values: Sequence[Any], ops: Sequence[Op] | None = None, ids: Any = None) -> pa.Table:
    """A file whose record n holds the n-th value."""
    count = len(values)
    return pa.table(
        {
            OP: pa.array(ops or [Op.INSERT] * count, pa.int8()),
            COMMIT_TS: pa.array(range(100, 100 + count), pa.int64()),
            LINE: pa.array(range(1, count + 1), pa.int64()),
            "id": pa.array(ids or range(count), pa.int64()),
            column.name: pa.array(values, arrow_type(column)),
        }
    )


def run(column: Column, values: Sequence[Any], **more: Any) -> CheckedRows:
    return check(changes(column, values, **more), TableSchema((ID, column), key=("id",)), "f.csv")


KEPT_AND_BROKEN: list[tuple[Column, list[Any], list[Any]]] = [
    (Column("c", "TINYINT"), [-128, 127], [-129, 128]),
    (Column("c", "TINYINT", unsigned=True), [0, 255], [-1, 256]),
    (Column("c", "SMALLINT"), [-32768, 32767], [-32769, 32768]),
    (Column("c", "SMALLINT", unsigned=True), [0, 65535], [-1, 65536]),
    (Column("c", "MEDIUMINT"), [-8388608, 8388607], [-8388609, 8388608]),
    (Column("c", "MEDIUMINT", unsigned=True), [0, 16777215], [-1, 16777216]),
    (Column("c", "INT"), [-(1 << 31), (1 << 31) - 1], []),
    (Column("c", "INT", unsigned=True), [0, (1 << 32) - 1], [-1, 1 << 32]),
    (Column("c", "BIGINT"), [-(1 << 63), (1 << 63) - 1], []),
    (Column("c", "BIGINT", unsigned=True), [0, (1 << 64) - 1], [-1, 1 << 64]),
    (Column("c", "YEAR"), [0, 1901, 2155], [1900, 2156, -1]),
    (Column("c", "BIT", precision=1), [True, False], []),
    (Column("c", "BIT", precision=9), [0, 511], [-1, 512]),
    (Column("c", "BIT", precision=64), [0, (1 << 64) - 1], [-1, 1 << 64]),
    (Column("c", "FLOAT", unsigned=True), [0.0, 1.5], [-1.5]),
    (Column("c", "DOUBLE", unsigned=True), [0.0, 1e300], [-1e-300]),
    (Column("c", "DECIMAL", precision=5, scale=2), [Decimal("-999.99")], []),
    (Column("c", "DECIMAL", unsigned=True, precision=5, scale=2), [Decimal("0.00")], [Decimal("-0.01")]),
    (
        Column("c", "DECIMAL", precision=40, scale=2),
        ["-1.00", "9" * 38 + ".99"],
        ["9" * 39 + ".99", "1.0", "01.00", ""],
    ),
    (Column("c", "DECIMAL", unsigned=True, precision=40, scale=0), ["0", "9" * 40], ["-1", "9" * 41, "1."]),
    (Column("c", "CHAR", precision=2), ["", "éé", "😀😀"], ["abc"]),
    (Column("c", "VARCHAR", precision=2), ["", "éé"], ["a  "]),
    (Column("c", "TINYTEXT", precision=255, collation="utf8mb4_bin"), ["a" * 255, "é" * 255], ["é" * 256]),
    (Column("c", "TINYTEXT", precision=255), ["é" * 255], ["a" * 256]),
    (Column("c", "BINARY", precision=2), [b"\0\0"], [b"abc"]),
    (Column("c", "VARBINARY", precision=2), [b"", b"\xff\xff"], [b"abc"]),
    (Column("c", "TINYBLOB", precision=255), [b"a" * 255], [b"a" * 256]),
    (Column("c", "ENUM", elems=("a", "b,c")), ["a", "b,c", ""], ["A", "b", "a "]),
    (Column("c", "ENUM"), ["anything"], []),
    (Column("c", "SET", elems=("a", "b", "w.w", "n\n")), ["", "a", "a,w.w", "n\n"], ["a,", "wxw", "a\n", "c", ",a"]),
    (Column("c", "SET"), ["anything"], []),
    (Column("c", "DATE"), [date(1, 1, 1)], []),
]


@pytest.mark.parametrize(("column", "kept", "broken"), KEPT_AND_BROKEN, ids=lambda value: getattr(value, "type", None))
def test_values_beyond_their_type_are_rejected_and_those_within_are_not(
    column: Column, kept: list[Any], broken: list[Any]
) -> None:
    validation = run(column, [*kept, None, *broken])
    assert validation.changes["c"].to_pylist() == [*kept, None]
    assert [reject.line for reject in validation.rejects] == [len(kept) + 2 + n for n in range(len(broken))]
    assert validation.total == len(broken)


def test_every_type_of_the_type_table_has_its_rules() -> None:
    assert RULES.keys() == {*TYPES, *CONNECT_TYPES, *YDB_TYPES, *SERVER_TYPES}


@settings(deadline=None)  # the first example loads pandera
@given(st.lists(st.integers(-300, 300) | st.none(), max_size=30))
def test_a_rule_splits_the_rows_in_two(values: list[int | None]) -> None:
    validation = run(Column("c", "TINYINT"), values)
    good = [line for line, value in enumerate(values, 1) if value is None or -128 <= value <= 127]
    assert validation.changes[LINE].to_pylist() == good
    assert {reject.line for reject in validation.rejects} == set(range(1, len(values) + 1)) - set(good)


def test_a_reject_says_where_and_why() -> None:
    (reject,) = run(Column("c", "TINYINT", unsigned=True), [1, 300]).rejects
    assert (reject.path, reject.line, reject.column, reject.commit_ts) == ("f.csv", 2, "c", 101)
    assert reject.reason == '"300" is not TINYINT UNSIGNED: it is outside 0 to 255'


def test_null_is_refused_where_the_schema_says_not_null() -> None:
    (reject,) = run(Column("c", "INT", nullable=False), [1, None]).rejects
    assert (reject.line, reject.reason) == (2, "NULL in a column that is INT NOT NULL")


def test_images_that_leave_only_have_to_name_their_key() -> None:
    column = Column("c", "TINYINT", nullable=False)
    ops = [Op.DELETE, Op.DELETE_KEY, Op.DELETE, Op.UPDATE]
    validation = run(column, [None, None, 300, 300], ops=ops)
    assert [reject.line for reject in validation.rejects] == [4]
    keyless = run(column, [None, 1], ops=[Op.DELETE_KEY, Op.INSERT], ids=[None, 1])
    assert [(reject.line, reject.column) for reject in keyless.rejects] == [(1, "id")]


def test_images_that_leave_are_checked_apart_only_where_a_key_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    frames, broken = list[int](), validate._broken

    def counted(frame: Any, schema: Any) -> Any:
        frames.append(len(frame))
        return broken(frame, schema)

    monkeypatch.setattr(validate, "_broken", counted)
    column, ops = Column("c", "TINYINT"), [Op.DELETE, Op.INSERT]
    assert not run(column, [1, 2], ops=ops).rejects
    assert frames == [1]
    assert [reject.line for reject in run(column, [1, 2], ops=ops, ids=[None, 1]).rejects] == [1]
    assert frames == [1, 1, 2]


def test_a_broken_image_takes_the_other_image_of_its_record_along() -> None:
    table = changes(Column("c", "TINYINT"), [1, 300, 2], ops=[Op.DELETE, Op.INSERT, Op.INSERT])
    table = table.set_column(2, LINE, pa.array([1, 1, 2], pa.int64()))
    validation = check(table, TableSchema((ID, Column("c", "TINYINT")), key=("id",)), "f")
    assert validation.changes[LINE].to_pylist() == [2]


def test_null_dates_are_refused_only_where_decoding_made_none() -> None:
    schema = TableSchema((ID, Column("c", "DATE", nullable=False)), key=("id",))
    table = changes(schema.columns[1], [None])
    assert check(table, schema, "f").total == 0
    assert check(table, schema, "f", notes={("c", ZERO_DATE): 1}).total == 0
    assert check(table, schema, "f", notes={}).total == 1


def test_all_rejects_are_counted_and_the_first_are_given() -> None:
    table = changes(Column("c", "TINYINT"), [300] * 50)
    schema = TableSchema((ID, Column("c", "TINYINT")), key=("id",))
    validation = check(table, schema, "f", limit=3)
    assert ([reject.line for reject in validation.rejects], validation.total) == ([1, 2, 3], 50)
    assert len(check(table, schema, "f", limit=None).rejects) == 50


def test_hidden_columns_are_not_missed() -> None:
    schema = TableSchema((ID, Column("hidden", "INT", nullable=False), Column("c", "TINYINT")), key=("id",))
    assert check(changes(schema.columns[2], [1]), schema, "f").total == 0


@pytest.mark.parametrize("name", ["^.*$", "*", "a.b", 'q"', "", "_cdc_row", "#0", "ÿ😀"])
def test_any_name_is_checked(name: str) -> None:
    assert run(Column(name, "TINYINT"), [1, 300]).total == 1


def test_an_empty_file_keeps_all_promises() -> None:
    assert run(Column("c", "TINYINT", nullable=False), []).total == 0


def test_a_column_of_another_type_than_the_lakes_is_refused() -> None:
    table = changes(Column("c", "TINYINT"), [1])
    with pytest.raises(MalformedData, match="lake type of VARCHAR"):
        check(table, TableSchema((ID, Column("c", "VARCHAR", precision=9)), key=("id",)), "f")


def test_checks_cannot_be_turned_off_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDERA_VALIDATION_ENABLED", "False")
    assert run(Column("c", "TINYINT"), [300]).total == 1


def test_the_pandera_schema_of_a_table_is_built_once_whatever_its_defaults_are() -> None:
    column = Column("c", "TINYINT", default=["no", "hash"])
    assert run(column, [300]).total == 1
    built = validate._pandera_schema.cache_info().misses
    assert run(column, [300]).total == 1
    assert validate._pandera_schema.cache_info().misses == built
