"""The type table: each type has an answer to every question, and every text becomes its value or a marked row."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.mysql_types import (
    TYPES,
    arrow_schema,
    arrow_type,
    default_text,
    defaults_to_now,
    fidelity,
    iceberg_type,
    implicit_default,
    misfit,
    spark_type,
    type_text,
    values,
    widens,
)
from cdc_assets.types.mysql_values import (
    AMBIGUOUS_TIME,
    BAD_UTF8,
    NO_SUCH_DATE,
    SKIPPED_TIME,
    ZERO_DATE,
    Binary,
    Values,
)
from cdc_assets.types.rules import Grade


def column(kind: str, precision: int | None = None, scale: int | None = None, **more: object) -> Column:
    kind, _, unsigned = kind.partition(" ")
    return Column("c", kind, unsigned=bool(unsigned), precision=precision, scale=scale, **more)  # type: ignore[arg-type]


def read(table_column: Column, *texts: str | bytes | None, timezone: str = "UTC", binary: Binary = "raw") -> Values:
    kind = pa.binary() if any(isinstance(text, bytes) for text in texts) else pa.string()
    return values(pa.array(texts, kind), table_column, timezone=timezone, binary=binary)


def shown(lake_values: Values) -> list[object]:
    """Values, with dates as text because Python has no year 0."""
    kind = lake_values.array.type
    return list((lake_values.array.cast(pa.string()) if pa.types.is_temporal(kind) else lake_values.array).to_pylist())


def bad(lake_values: Values) -> list[int]:
    return [] if lake_values.bad is None else [row for row, wrong in enumerate(lake_values.bad.to_pylist()) if wrong]


@pytest.mark.parametrize("text", ["0e-999999999", "1e-999999999", "-1.5E-0999999999", "1e-100"])
def test_a_decimal_of_an_exponent_far_below_its_digits_is_bad_and_ends_no_process(text: str) -> None:
    lake_values = read(column("DECIMAL", 12, 2), "1.00", text, None, "12e-1")
    assert (shown(lake_values), bad(lake_values)) == ([Decimal("1.00"), None, None, Decimal("1.20")], [1])
    part = values(pa.array(["x", text, "1e-2"]).slice(1), column("DECIMAL", 12, 2))
    assert (shown(part), bad(part)) == ([None, Decimal("0.01")], [0])


def noted(lake_values: Values) -> dict[str, list[int]]:
    return {rule: [row for row, hit in enumerate(mask.to_pylist()) if hit] for rule, mask in lake_values.notes.items()}


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_has_an_answer_to_every_question(kind: str) -> None:
    table_column = column(kind, precision=5)
    lake_values = values(pa.array([implicit_default(table_column), None]), table_column)
    assert lake_values.array.type == arrow_type(table_column)
    assert not bad(lake_values)
    assert all(
        (spark_type(table_column), iceberg_type(table_column), type_text(table_column), fidelity(table_column).rule)
    )
    for binary in get_args(Binary):
        assert values(pa.array([], pa.string()), table_column, binary=binary).array.type == arrow_type(table_column)


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(MalformedData, match="A_TYPE_OF_TOMORROW"):
        arrow_type(column("A_TYPE_OF_TOMORROW"))


def test_a_column_that_only_has_been_seen_asks_for_its_type() -> None:
    with pytest.raises(MalformedData, match=r"has no known type.*the setting schemas"):
        arrow_type(column(""))


LAKE = [
    ("TINYINT", 1, None, "int", "int"),
    ("MEDIUMINT UNSIGNED", 8, None, "int", "int"),
    ("INT", 11, None, "int", "int"),
    ("INT UNSIGNED", 10, None, "bigint", "long"),
    ("BIGINT", 20, None, "bigint", "long"),
    ("BIGINT UNSIGNED", 20, None, "decimal(20,0)", "decimal(20, 0)"),
    ("FLOAT UNSIGNED", 12, None, "float", "float"),
    ("DOUBLE", 22, None, "double", "double"),
    ("DECIMAL", None, None, "decimal(10,0)", "decimal(10, 0)"),
    ("DECIMAL UNSIGNED", 38, 30, "decimal(38,30)", "decimal(38, 30)"),
    ("DECIMAL", 39, 0, "string", "string"),
    ("BIT UNSIGNED", 1, None, "boolean", "boolean"),
    ("BIT UNSIGNED", 63, None, "bigint", "long"),
    ("BIT UNSIGNED", 64, None, "decimal(20,0)", "decimal(20, 0)"),
    ("YEAR UNSIGNED", 4, None, "int", "int"),
    ("DATE", None, None, "date", "date"),
    ("DATETIME", None, 3, "timestamp_ntz", "timestamp"),
    ("TIMESTAMP", None, 6, "timestamp", "timestamptz"),
    ("TIME", None, None, "string", "string"),
    ("VARCHAR", 20, None, "string", "string"),
    ("VARBINARY", 20, None, "binary", "binary"),
    ("ENUM", None, None, "string", "string"),
    ("JSON", None, None, "string", "string"),
    ("VECTOR", None, None, "array<float>", "list<float>"),
]


@pytest.mark.parametrize(("kind", "precision", "scale", "spark", "iceberg"), LAKE)
def test_lake_types_are_those_of_the_table(
    kind: str, precision: int | None, scale: int | None, spark: str, iceberg: str
) -> None:
    table_column = column(kind, precision, scale)
    assert (spark_type(table_column), iceberg_type(table_column)) == (spark, iceberg)


READ = [
    (column("TINYINT"), ["-128", "127"], [-128, 127]),
    (column("INT UNSIGNED"), ["4294967295"], [4294967295]),
    (column("BIGINT UNSIGNED"), ["18446744073709551615"], [Decimal(18446744073709551615)]),
    (column("DECIMAL", 10, 2), ["-1.50", "2"], [Decimal("-1.50"), Decimal("2.00")]),
    (
        column("DECIMAL", 65, 30),
        [f"-{'9' * 35}.{'9' * 30}", "1.5", "0"],
        [f"-{'9' * 35}.{'9' * 30}", f"1.5{'0' * 29}", f"0.{'0' * 30}"],
    ),
    (column("BIT", 1), ["0", "1"], [False, True]),
    (column("BIT", 17), ["131071"], [131071]),
    (column("BIT", 64), ["18446744073709551615"], [Decimal(18446744073709551615)]),
    (column("YEAR", 4), ["0", "2155"], [0, 2155]),
    (column("DATE"), ["0000-01-01", "9999-12-31"], ["0000-01-01", "9999-12-31"]),
    (column("DATETIME", None, 1), ["9999-12-31 23:59:59.9"], ["9999-12-31 23:59:59.900000"]),
    (column("TIMESTAMP"), ["1970-01-01 00:00:01"], ["1970-01-01 00:00:01.000000Z"]),
    (column("TIME", None, 2), ["-838:59:59.00", "00:00:00.5"], ["-838:59:59.00", "00:00:00.50"]),
    (column("JSON"), ["null", '{"a": 1}'], ["null", '{"a": 1}']),
    (column("VECTOR"), ["[1,2.5]", "[]", "[ 1, 2 ]"], [[1.0, 2.5], [], [1.0, 2.0]]),
    (column("CHAR"), ["", "𝒳😀"], ["", "𝒳😀"]),
]


@pytest.mark.parametrize(("table_column", "texts", "expected"), READ)
def test_texts_become_values(table_column: Column, texts: list[str], expected: list[object]) -> None:
    lake_values = read(table_column, None, *texts)
    assert (shown(lake_values), bad(lake_values), noted(lake_values)) == ([None, *expected], [], {})


MISFITS = [
    (column("INT"), ["2147483648", "1.5", "", "abc", b"\xff"]),
    (column("BIGINT"), ["9223372036854775808"]),
    (column("DECIMAL", 10, 2), ["12,50", "1.555", "123456789.00", ""]),
    (column("DECIMAL", 65, 30), ["9" * 36, "nan", f"0.{'0' * 30}1", "1e99"]),
    (column("DOUBLE"), ["1e400", "nan", "-inf"]),
    (column("FLOAT"), ["1e39"]),
    (column("BIT", 1), ["2"]),
    (column("BIT", 17), ["131072", "-1"]),
    (column("DATE"), ["2020-13-01", "2020-1-1", "x", "2020-01-01 00:00:00"]),
    (column("DATETIME"), ["2020-01-01 25:00:00", "2020-01-01 00:00:00.1234567"]),
    (column("TIME"), ["839:00:00", "1:00:00", "00:60:00", "00:00:00.5"]),
    (column("VECTOR"), ["1,2", "[1,]", "[nan]"]),
]


@pytest.mark.parametrize(("table_column", "texts"), MISFITS)
def test_a_value_that_does_not_fit_marks_its_row_only(table_column: Column, texts: list[str | bytes]) -> None:
    good = implicit_default(table_column) if table_column.type not in ("DATE", "DATETIME") else "2020-02-29"
    good = good if table_column.type != "DATETIME" else "2020-02-29 00:00:00"
    lake_values = read(table_column, good, *texts, None, good)
    assert bad(lake_values) == list(range(1, len(texts) + 1))
    assert lake_values.array.null_count == len(texts) + 1


def test_zero_partial_and_impossible_dates_become_null_with_their_rule() -> None:
    lake_values = read(column("DATE"), "0000-00-00", "2020-00-01", "2020-01-00", "2021-02-29", "2020-02-29")
    assert shown(lake_values) == [None, None, None, None, "2020-02-29"]
    assert (bad(lake_values), noted(lake_values)) == ([], {ZERO_DATE: [0, 1, 2], NO_SUCH_DATE: [3]})


def test_invalid_utf8_in_a_text_is_replaced_and_noted() -> None:
    lake_values = read(column("TEXT"), b"good", b"b\xffd", None, b"\xf0\x9f")
    assert (shown(lake_values), bad(lake_values), noted(lake_values)) == (
        ["good", "b�d", None, "�"],
        [],
        {BAD_UTF8: [1, 3]},
    )


def test_the_repeated_and_the_skipped_hour_of_a_zone_are_noted() -> None:
    texts = ("2024-11-03 01:30:00", "2024-03-10 02:30:00", "2024-07-01 00:00:00", None)
    lake_values = read(column("TIMESTAMP"), *texts, timezone="America/New_York")
    assert shown(lake_values)[:3] == [
        f"{text}.000000Z" for text in ("2024-11-03 05:30:00", "2024-03-10 07:00:00", "2024-07-01 04:00:00")
    ]
    assert (bad(lake_values), noted(lake_values)) == ([], {AMBIGUOUS_TIME: [0], SKIPPED_TIME: [1]})


def test_an_offset_is_a_zone_and_an_unknown_zone_is_refused() -> None:
    lake_values = read(column("TIMESTAMP"), "2024-01-01 00:00:00", timezone="+08:00")
    assert shown(lake_values) == ["2023-12-31 16:00:00.000000Z"]
    with pytest.raises(BadSettings, match="Nowhere"):
        read(column("TIMESTAMP"), "2024-01-01 00:00:00", timezone="Nowhere/At_All")


@settings(deadline=None)
@given(
    st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 1)),
    st.sampled_from(["Europe/Berlin", "Asia/Shanghai", "Australia/Lord_Howe"]),
)
def test_an_instant_printed_in_a_zone_is_read_as_itself_or_as_the_earlier_of_two(at: dt.datetime, zone: str) -> None:
    from zoneinfo import ZoneInfo

    local = at.replace(tzinfo=dt.timezone.utc).astimezone(ZoneInfo(zone))
    lake_values = read(column("TIMESTAMP", None, 6), local.strftime("%Y-%m-%d %H:%M:%S.%f"), timezone=zone)
    expected = local.replace(fold=0).astimezone(dt.timezone.utc)
    assert lake_values.array.cast(pa.int64())[0].as_py() == int(
        (expected - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) / dt.timedelta(microseconds=1)
    )


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_read_to_the_bit(number: float) -> None:
    shortest = next(
        text
        for digits in range(1, 18)
        if struct.pack("f", float(text := f"{number:.{digits}g}")) == struct.pack("f", number)
    )
    assert struct.pack("f", read(column("FLOAT"), shortest).array[0].as_py()) == struct.pack("f", number)


@settings(deadline=None)
@given(st.integers(-(10**65) + 1, 10**65 - 1))
def test_a_wide_decimal_keeps_all_its_digits(unscaled: int) -> None:
    digits = str(abs(unscaled)).rjust(31, "0")
    text = f"{'-' * (unscaled < 0)}{digits[:-30]}.{digits[-30:]}"
    assert shown(read(column("DECIMAL", 65, 30), text)) == [text]


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40)))
def test_bytes_survive_every_text_form(raws: list[bytes | None]) -> None:
    import base64

    forms: dict[Binary, list[str | None]] = {
        "base64": [None if raw is None else base64.b64encode(raw).decode() for raw in raws],
        "hex": [None if raw is None else raw.hex() for raw in raws],
        "latin-1": [None if raw is None else raw.decode("latin-1") for raw in raws],
    }
    for binary, texts in forms.items():
        lake_values = values(pa.array(texts, pa.string()), column("BLOB"), binary=binary)
        assert (lake_values.array.to_pylist(), bad(lake_values)) == (raws, [])


def test_a_slice_is_read_like_the_whole() -> None:
    texts = pa.array(["ab", None, "ÿ\x00", "z"], pa.string())
    assert values(texts.slice(1, 2), column("BLOB"), binary="latin-1").array.to_pylist() == [None, b"\xff\x00"]


def test_text_that_is_no_encoding_of_bytes_is_bad() -> None:
    assert bad(read(column("BLOB"), "AA==", "!!", binary="base64")) == [1]
    assert bad(read(column("BLOB"), "00", "0", "zz", binary="hex")) == [1, 2]
    assert bad(read(column("BLOB"), "é", "長", binary="latin-1")) == [1]


def test_defaults_of_a_schema_file_become_texts() -> None:
    cases = [
        (column("INT", default="7"), "7"),
        (column("DATETIME", default=12345678.0), "12345678"),
        (column("FLOAT", default=-0.5), "-0.5"),
        (column("TINYINT", default=True), "1"),
        (column("BIT", 5, default="\x15"), "21"),
        (column("BINARY", 4, default="zz"), b"zz\0\0"),
        (column("VARCHAR", default=""), ""),
        (column("VARCHAR"), None),
    ]
    assert [default_text(table_column) for table_column, _ in cases] == [expected for _, expected in cases]


def test_a_default_that_the_schema_file_cannot_carry_is_refused() -> None:
    with pytest.raises(MalformedData, match="DDL text"):
        default_text(column("BIT", 8, default="\ufffd"))


def test_the_time_of_the_statement_is_no_value() -> None:
    now = column("TIMESTAMP", default="CURRENT_TIMESTAMP")
    assert defaults_to_now(now)
    assert not defaults_to_now(column("VARCHAR", default="CURRENT_TIMESTAMP"))
    with pytest.raises(MalformedData, match="CURRENT_TIMESTAMP"):
        default_text(now)


def test_implicit_defaults_are_mysqls() -> None:
    kinds = [column("ENUM", elems=("p", "q")), column("TIME", None, 3), column("BINARY", 2), column("JSON")]
    assert [implicit_default(kind) for kind in kinds] == ["p", "00:00:00.000", b"\0\0", "null"]


def test_types_are_written_as_people_write_them() -> None:
    kinds = [
        column("DECIMAL UNSIGNED", 10, 2),
        column("DATETIME", None, 3),
        column("VARCHAR", 20),
        column("BIT UNSIGNED", 8),
        column("TEXT", 65535),
    ]
    assert [type_text(kind) for kind in kinds] == [
        "DECIMAL(10,2) UNSIGNED",
        "DATETIME(3)",
        "VARCHAR(20)",
        "BIT(8)",
        "TEXT",
    ]
    assert misfit("12,50", column("DECIMAL", 10, 2)) == '"12,50" is not DECIMAL(10,2)'


def test_fidelity_states_what_is_kept() -> None:
    grades = {kind: fidelity(column(kind, 10)).grade for kind in ("INT", "TIME", "DATETIME", "DECIMAL")}
    assert grades == {"INT": Grade.LOSSLESS, "TIME": Grade.TEXT, "DATETIME": Grade.CHANGED, "DECIMAL": Grade.LOSSLESS}
    assert fidelity(column("DECIMAL", 65)).grade == Grade.TEXT
    assert fidelity(column("INT", virtual=True)).grade == Grade.ABSENT


def test_the_schema_of_a_table_has_its_stored_columns_in_order() -> None:
    schema = TableSchema((Column("b", "INT"), Column("v", "INT", virtual=True), Column("a", "DATE")))
    assert arrow_schema(schema) == pa.schema([("b", pa.int32()), ("a", pa.date32())])


def test_only_what_iceberg_takes_as_metadata_is_a_widening() -> None:
    assert widens(column("INT"), column("BIGINT"))
    assert widens(column("DECIMAL", 10, 2), column("DECIMAL", 12, 2))
    assert widens(column("CHAR", 5), column("TEXT"))
    assert not widens(column("DECIMAL", 10, 2), column("DECIMAL", 12, 3))
    assert not widens(column("INT"), column("VARCHAR"))
