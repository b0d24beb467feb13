from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets import ddl
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.splits import SchemaFile

COLUMNS = (
    Column("id", "INT"),
    Column("n", "BIGINT", nullable=False),
    Column("u", "BIGINT", True),
    Column("d", "DATE", nullable=False),
    Column("dt", "DATETIME"),
    Column("ts", "TIMESTAMP"),
    Column("s", "VARCHAR", precision=10),
    Column("b", "VARBINARY", precision=10),
    Column("ci", "VARCHAR", precision=10),
)
TEXTS = "`id` INT,`n` BIGINT,`u` BIGINT,`d` DATE,`dt` DATETIME,`ts` TIMESTAMP,`s` VARCHAR(10),`b` VARBINARY(10)"


def file(query: str, kind: int) -> SchemaFile:
    return SchemaFile("s/t/meta/schema.json", "s/t", TableId("s", "t"), 1, query, kind, COLUMNS)


def table(partitions: str) -> TableSchema:
    text = f"CREATE TABLE `t` ({TEXTS},`ci` VARCHAR(10) COLLATE UTF8MB4_GENERAL_CI) PARTITION BY {partitions}"
    return ddl.create(file(text, 3), None, None)


def rows(schema: TableSchema, partition: str, **values: list[object]) -> list[bool]:
    """Return which rows the partition holds, by polars over the lake's types."""
    kinds = {
        "id": pa.int32(),
        "n": pa.int64(),
        "u": pa.decimal128(20, 0),
        "d": pa.date32(),
        "dt": pa.timestamp("us"),
        "ts": pa.timestamp("us", "UTC"),
        "s": pa.string(),
        "b": pa.binary(),
    }
    frame = pl.DataFrame(pa.table({name: pa.array(some, kinds[name]) for name, some in values.items()}))
    predicate = ddl.partition_predicate(schema.partitioning, (partition,), schema)
    return frame.select(held=ddl.polars_expr(predicate))["held"].to_list()


RANGE = "RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (0),PARTITION `p1` VALUES LESS THAN (100),PARTITION `p2` VALUES LESS THAN MAXVALUE)"  # noqa: E501


def test_null_is_in_the_lowest_range_and_bounds_belong_to_the_next() -> None:
    ids: list[object] = [None, -1, 0, 99, 100, 2**31 - 1]
    held = [rows(table(RANGE), name, id=ids) for name in ("p0", "P1", "p2")]
    assert held == [
        [True, True, False, False, False, False],
        [False, False, True, True, False, False],
        [False, False, False, False, True, True],
    ]


@pytest.mark.parametrize(
    ("definition", "named"),
    [
        ("RANGE (YEAR(`d`)) (PARTITION `p0` VALUES LESS THAN (2020))", ["d"]),
        ("RANGE COLUMNS (`d`) (PARTITION `p0` VALUES LESS THAN ('2020-01-01'))", ["d"]),
        ("HASH (MONTH(`dt`)) PARTITIONS 4", ["dt"]),
        ("RANGE (UNIX_TIMESTAMP(`ts`)) (PARTITION `p0` VALUES LESS THAN (1577836800))", []),
        ("RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9))", []),
    ],
)
def test_rows_without_a_date_are_in_no_partition_that_is_known(definition: str, named: list[str]) -> None:
    schema = table(definition)
    missing = ddl.undated(ddl.partition_predicate(schema.partitioning, ("p0",), schema))
    assert [node.args[0].value for node in ([missing] if missing else [])] == named


def altered(schema: TableSchema, clause: str) -> tuple[TableSchema, object]:
    after, changes = ddl.evolve(schema, file(f"ALTER TABLE `t` {clause}", 61), None)
    return after, changes


def test_after_a_drop_the_next_range_takes_its_rows_over() -> None:
    after, _ = altered(table(RANGE), "DROP PARTITION `p1`")
    assert rows(after, "p2", id=[-1, 0, 99, 100]) == [False, True, True, True]


def test_drop_and_truncate_delete_what_the_partitions_hold_before() -> None:
    schema = table(RANGE)
    wanted = ddl.partition_predicate(schema.partitioning, ("p0", "p1"), schema)
    for verb in ("DROP", "TRUNCATE"):
        assert altered(schema, f"{verb} PARTITION `p0`, `p1`")[1] == (DeleteRows(wanted),)
    assert altered(schema, "TRUNCATE PARTITION ALL")[1] == (DeleteRows(None),)


def test_a_definition_in_the_text_stands_for_one_that_the_feed_lacks() -> None:
    schema = table(RANGE)
    wanted = ddl.partition_predicate(schema.partitioning, ("p1",), schema)
    for verb, names in (("DROP", ["p0", "p2"]), ("TRUNCATE", ["p0", "p1", "p2"])):
        after, changes = altered(TableSchema(COLUMNS), f"PARTITION BY {RANGE}, {verb} PARTITION `p1`")
        assert changes == (DeleteRows(wanted),)
        assert after.partitioning is not None
        assert [partition.name for partition in after.partitioning.partitions] == names


@pytest.mark.parametrize(
    ("before", "clause", "names"),
    [
        (RANGE, "REORGANIZE PARTITION `p0`, `p1` INTO (PARTITION `x` VALUES LESS THAN (100))", ["x", "p2"]),
        (RANGE, "DROP PARTITION `p0`", ["p1", "p2"]),
        (RANGE, "TRUNCATE PARTITION `p0`", ["p0", "p1", "p2"]),
        (RANGE, "REMOVE PARTITIONING", None),
        (RANGE, "PARTITION BY HASH (`id`) PARTITIONS 2", ["p0", "p1"]),
        ("HASH (`id`) PARTITIONS 2", "ADD PARTITION PARTITIONS 2", ["p0", "p1", "p2", "p3"]),
        ("HASH (`id`) PARTITIONS 4", "COALESCE PARTITION 3", ["p0"]),
        ("LIST (`id`) (PARTITION `a` VALUES IN (1))", "ADD PARTITION (PARTITION `b` VALUES IN (2,3))", ["a", "b"]),
    ],
)
def test_alter_changes_the_definitions(before: str, clause: str, names: list[str] | None) -> None:
    partitioning = altered(table(before), clause)[0].partitioning
    assert (partitioning and [partition.name for partition in partitioning.partitions]) == names


def test_a_renamed_column_is_renamed_in_the_definition() -> None:
    now = (Column("k", "INT"), *COLUMNS[1:])
    for kind in ("RANGE (`id` + 1)", "RANGE COLUMNS (`id`)"):
        before = table(f"{kind} (PARTITION `p0` VALUES LESS THAN (5))")
        text = SchemaFile("p", "s/t", TableId("s", "t"), 2, "ALTER TABLE `t` RENAME COLUMN `id` TO `k`", 12, now)
        after, _ = ddl.evolve(before, text, None)
        assert "`k`" in ddl.spark_sql(ddl.partition_predicate(after.partitioning, ("p0",), after))


NUMBERS = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))


@settings(deadline=None, max_examples=50)
@given(st.lists(NUMBERS, min_size=1), st.integers(1, 7))
def test_hash_is_the_remainder_without_sign_and_null_is_in_partition_0(ids: list[object], count: int) -> None:
    schema = table(f"HASH (`id`) PARTITIONS {count}")
    held = [rows(schema, f"p{place}", id=ids) for place in range(count)]
    places = [[flags[row] for flags in held].index(True) for row in range(len(ids))]
    assert places == [0 if number is None else abs(int(str(number))) % count for number in ids]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_hash_takes_big_unsigned_numbers_for_negative_ones_as_tidb_does(numbers: list[int]) -> None:
    schema = table("HASH (`u`) PARTITIONS 5")
    signed = [number - 2**64 if number >= 2**63 else number for number in numbers]
    assert rows(schema, "p3", u=[Decimal(number) for number in numbers]) == [abs(n) % 5 == 3 for n in signed]


def cut(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize(
    ("expression", "meaning"),
    [
        ("`n` DIV 3", lambda n: cut(n, 3)),
        ("MOD(`n`, 5)", lambda n: n - cut(n, 5) * 5),
        ("`n` % 5 + 1", lambda n: n - cut(n, 5) * 5 + 1),
        ("ABS(`n` - 4) * -2", lambda n: abs(n - 4) * -2),
        ("(2 + 3) * `n` - (1 - 6)", lambda n: 5 * n + 5),
    ],
)
@settings(deadline=None, max_examples=50)
@given(numbers=st.lists(st.integers(-50, 50), min_size=1))
def test_integer_expressions_cut_towards_zero(
    expression: str, meaning: Callable[[int], int], numbers: list[object]
) -> None:
    schema = table(f"LIST ({expression}) (PARTITION `a` VALUES IN (0,1,-2,10),PARTITION `rest` DEFAULT)")
    assert rows(schema, "a", n=numbers) == [meaning(int(str(n))) in (0, 1, -2, 10) for n in numbers]


DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1))


@pytest.mark.parametrize(
    ("expression", "meaning"),
    [
        ("YEAR(`d`)", lambda d: d.year),
        ("MONTH(`d`)", lambda d: d.month),
        ("DAYOFMONTH(`d`)", lambda d: d.day),
        ("QUARTER(`d`)", lambda d: (d.month + 2) // 3),
        ("DAYOFWEEK(`d`)", lambda d: d.isoweekday() % 7 + 1),
        ("WEEKDAY(`d`)", lambda d: d.weekday()),
        ("DAYOFYEAR(`d`)", lambda d: d.timetuple().tm_yday),
        ("TO_DAYS(`d`)", lambda d: (d - date(1970, 1, 1)).days + 719528),
        ("EXTRACT(YEAR_MONTH FROM `d`)", lambda d: d.year * 100 + d.month),
        ("DATEDIFF(`d`, '1900-01-01')", lambda d: (d - date(1900, 1, 1)).days),
        ("TO_SECONDS(`d`)", lambda d: ((d - date(1970, 1, 1)).days + 719528) * 86400),
    ],
)
@settings(deadline=None, max_examples=50)
@given(days=st.lists(DAYS, min_size=1))
def test_parts_of_dates(expression: str, meaning: Callable[[date], int], days: list[object]) -> None:
    schema = table(f"HASH ({expression}) PARTITIONS 3")
    assert rows(schema, "p1", d=days) == [isinstance(d, date) and meaning(d) % 3 == 1 for d in days]


def test_ranges_of_dates_by_function_by_column_and_by_instant() -> None:
    moments: list[object] = [
        None,
        datetime(2023, 12, 31, 23, 59, 59, 999999),
        datetime(2024, 1, 1),
        datetime(9999, 1, 1),
    ]
    parts = "(PARTITION `p0` VALUES LESS THAN ({}),PARTITION `p1` VALUES LESS THAN (MAXVALUE))"
    by_days = table("RANGE (TO_DAYS(`dt`)) " + parts.format("TO_DAYS('2024-01-01')"))
    by_column = table("RANGE COLUMNS (`dt`) " + parts.format("'2024-01-01'"))
    by_instant = table("RANGE (UNIX_TIMESTAMP(`ts`)) " + parts.format("1704067200"))
    assert rows(by_days, "p1", dt=moments) == [False, False, True, True]
    assert rows(by_column, "p1", dt=moments) == [False, False, True, True]
    assert rows(by_instant, "p1", ts=moments) == [False, False, True, True]


PAIRS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.integers(0, 3)), min_size=1)


@settings(deadline=None, max_examples=50)
@given(PAIRS)
def test_ranges_over_columns_compare_as_tuples_with_null_lowest(pairs: list[tuple[int | None, int]]) -> None:
    schema = table(
        "RANGE COLUMNS (`id`,`n`) (PARTITION `p0` VALUES LESS THAN (1,2),PARTITION `p1` VALUES LESS THAN (2,MAXVALUE),"
        "PARTITION `p2` VALUES LESS THAN (MAXVALUE,MAXVALUE))"
    )
    ids, numbers = [a for a, _ in pairs], [b for _, b in pairs]
    keys = [(-1 if a is None else a, b) for a, b in pairs]
    expected = [0 if key < (1, 2) else 1 if key < (3, 0) else 2 for key in keys]
    for place in range(3):
        assert rows(schema, f"p{place}", id=list(ids), n=list(numbers)) == [
            expected_place == place for expected_place in expected
        ]


def test_lists_know_null_tuples_and_the_default() -> None:
    schema = table(
        "LIST COLUMNS (`id`,`s`) (PARTITION `a` VALUES IN ((1,'x'),(NULL,'y')),PARTITION `b` VALUES IN ((2,NULL)),"
        "PARTITION `c` DEFAULT)"
    )
    values: dict[str, list[object]] = {"id": [1, 1, None, 2, None, 9], "s": ["x", "y", "y", None, None, "it's"]}
    assert rows(schema, "a", **values) == [True, False, True, False, False, False]
    assert rows(schema, "b", **values) == [False, False, False, True, False, False]
    assert rows(schema, "c", **values) == [False, True, False, False, True, True]


def test_padded_texts_ignore_trailing_spaces_and_bytes_do_not() -> None:
    texts = table("LIST COLUMNS (`s`) (PARTITION `p` VALUES IN ('a ','it''s'))")
    assert rows(texts, "p", s=["a", "a  ", " a", "it's"]) == [True, True, False, True]
    raw = table("RANGE COLUMNS (`b`) (PARTITION `p` VALUES LESS THAN (x'6120'))")
    assert rows(raw, "p", b=[b"a", b"a ", b"\xff", None]) == [True, False, False, True]


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ("KEY (`id`) PARTITIONS 3", "hash function of TiDB's own"),
        ("LINEAR HASH (`id`) PARTITIONS 3", "LINEAR HASH"),
        ("RANGE COLUMNS (`ci`) (PARTITION `p0` VALUES LESS THAN ('b'))", "utf8mb4_general_ci"),
        ("RANGE (UNIX_TIMESTAMP(`ts`)) (PARTITION `p0` VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-01')))", "time zone"),
        ("RANGE (`id`) SUBPARTITION BY HASH (`n`) (PARTITION `p0` VALUES LESS THAN (1))", "SUBPARTITION"),
        ("RANGE (`id`) INTERVAL (9) FIRST PARTITION LESS THAN (9) LAST PARTITION LESS THAN (90)", "INTERVAL"),
        ("HASH (YEARWEEK(`d`)) PARTITIONS 3", "YEARWEEK"),
        ("HASH (`u` + 1) PARTITIONS 3", "below 2\\^63"),
        ("HASH (`n` DIV `id`) PARTITIONS 3", "constant"),
        ("LIST COLUMNS (`id`) (PARTITION `p0` VALUES IN ('x'))", "invalid literal"),
        ("LIST (`id`) (PARTITION `other` VALUES IN (1))", "not among the known partitions other"),
    ],
)
def test_what_cannot_be_evaluated_holds_the_table_when_it_matters_and_not_before(partitions: str, words: str) -> None:
    schema = table(partitions)
    with pytest.raises(TableHeld, match=words):
        ddl.exchange_predicate(schema.partitioning, "p0", schema)
    with pytest.raises(TableHeld, match=words):
        altered(schema, "TRUNCATE PARTITION `p0`")


def test_partitions_of_a_table_that_was_there_before_the_changefeed_are_not_known() -> None:
    with pytest.raises(TableHeld, match="not in the changefeed"):
        altered(TableSchema(COLUMNS), "DROP PARTITION `p0`")


def test_an_exchange_without_validation_makes_the_partitions_unknown() -> None:
    after, _ = altered(table(RANGE), "EXCHANGE PARTITION `p0` WITH TABLE `x` WITHOUT VALIDATION")
    with pytest.raises(TableHeld, match="WITHOUT VALIDATION"):
        ddl.exchange_predicate(after.partitioning, "p0", after)


def test_a_partition_ddl_whose_text_is_not_read_makes_the_partitions_unknown() -> None:
    after, changes = ddl.evolve(table(RANGE), file("ALTER TABLE `t` REORGANIZE PARTITION 'x", 64), None)
    assert changes == ()
    with pytest.raises(TableHeld, match="cannot be read"):
        ddl.exchange_predicate(after.partitioning, "p0", after)


@pytest.mark.parametrize(
    ("clause", "kind"),
    [
        ("SPLIT MAXVALUE PARTITION LESS THAN (200)", 64),
        ("SPLIT PARTITION `p1` INTO (PARTITION `x` VALUES LESS THAN (50), PARTITION `y` VALUES LESS THAN (100))", 0),
        ("MERGE FIRST PARTITION LESS THAN (100)", 64),
        ("LAST PARTITION LESS THAN (300)", 19),
        ("last partition less than (300)", 0),
        ("COMMENT = 'x'", 64),
        ("ADD PARTITION (PARTITION `p1` VALUES LESS THAN (900))", 19),
    ],
)
def test_a_partition_ddl_that_is_not_understood_makes_the_partitions_unknown(clause: str, kind: int) -> None:
    after, changes = ddl.evolve(table(RANGE), file(f"ALTER TABLE `t` {clause}", kind), None)
    assert changes == ()
    with pytest.raises(TableHeld, match="cannot be identified"):
        altered(after, "TRUNCATE PARTITION `p2`")


@pytest.mark.parametrize("clause", ["FIRST PARTITION LESS THAN (0)", "WHATEVER PARTITION `p0`"])
def test_a_partition_ddl_that_may_delete_rows_is_held_and_leaves_the_partitions_unknown(clause: str) -> None:
    text = file(f"ALTER TABLE `t` {clause}", 20)
    with pytest.raises(TableHeld, match="is not known"):
        ddl.evolve(table(RANGE), text, None)
    after, changes = ddl.follow(table(RANGE), text, None)
    assert changes == ()
    with pytest.raises(TableHeld, match="cannot be identified"):
        ddl.exchange_predicate(after.partitioning, "p1", after)


@pytest.mark.parametrize("behind", [" UPDATE INDEXES (`i` GLOBAL,`j` LOCAL)", ""])
def test_what_follows_the_partitions_is_known_or_they_are_not(behind: str) -> None:
    schema = table(RANGE + behind)
    assert schema.partitioning is not None
    assert schema.partitioning.kind == "RANGE"
    strange = table(RANGE + " INTO SOMETHING")
    with pytest.raises(TableHeld, match='"INTO" is not known'):
        ddl.exchange_predicate(strange.partitioning, "p0", strange)


def test_a_partition_clause_behind_a_column_is_held() -> None:
    for clause in ("REMOVE PARTITIONING", "PARTITION BY HASH (`id`) PARTITIONS 2"):
        with pytest.raises(TableHeld, match="is not known"):
            altered(table(RANGE), f"MODIFY COLUMN `id` INT {clause}")


def test_spark_reads_odd_names_and_texts() -> None:
    columns = (Column("q`x", "VARCHAR", precision=9, nullable=False, collation="binary"),)
    file_ = SchemaFile(
        "p", "r", TableId("s", "t"), 1,
        "CREATE TABLE `t` (`q``x` VARCHAR(9) COLLATE utf8mb4_0900_bin) PARTITION BY LIST COLUMNS (`q``x`) "
        "(PARTITION `p` VALUES IN ('it''s \\'))", 3, columns,
    )  # fmt: skip
    schema = ddl.create(file_, None, None)
    text = ddl.spark_sql(ddl.partition_predicate(schema.partitioning, ("p",), schema))
    value = b"it's \\"
    assert text == f"(`q``x` = CAST(X'{value.hex()}' AS STRING))"
