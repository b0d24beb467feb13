"""Names of a dump's files: what Dumpling calls them reads back, whatever a table is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.model.schema import TableId
from cdc_assets.sources.dumpling.directory import (
    DatabaseName,
    DataName,
    IgnoredName,
    Name,
    SchemaName,
    SequenceName,
    StrangeName,
    ViewName,
    escaped,
    format_data_name,
    parse_name,
    unescaped,
)

NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
    st.lists(
        st.sampled_from([".", "/", "%", "-schema", "-SCHEMA-view", "../", "0001", "csv", "gz", "a"]), min_size=1
    ).map("".join),
)


@given(NAMES)
def test_an_escaped_name_holds_nothing_that_a_path_or_a_pattern_reads(name: str) -> None:
    text = escaped(name)
    assert unescaped(text) == name
    assert not set(text) & set('./\\:*?"<>|')
    assert "-schema" not in text.lower()


@given(
    NAMES,
    NAMES,
    st.sampled_from(["", "0", "000000000", "0000000020000"]),
    st.sampled_from([("sql", ""), ("csv", "gzip"), ("csv", "snappy"), ("sql", "zstd"), ("parquet", "")]),
)
def test_the_name_of_a_data_file_reads_back(schema: str, table: str, number: str, how: tuple[str, str]) -> None:
    if not number and table.isascii() and table.isdigit():
        return  # `--sql` writes such a name, without a table in it
    name = DataName(TableId(schema, table), number, *how)
    assert parse_name(format_data_name(name)) == name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop-schema-create.sql", DatabaseName("shop", "")),
        ("shop-schema-create.sql.gz", DatabaseName("shop", "gzip")),
        ("shop.orders-schema.sql", SchemaName(TableId("shop", "orders"), "")),
        ("shop.orders-schema.sql.zst", SchemaName(TableId("shop", "orders"), "zstd")),
        ("shop.v-schema-view.sql", ViewName(TableId("shop", "v"))),
        ("shop.s-schema-sequence.sql.snappy", SequenceName(TableId("shop", "s"))),
        ("shop.orders.000000000.csv", DataName(TableId("shop", "orders"), "000000000", "csv", "")),
        ("test.locations.0000000020000.csv", DataName(TableId("test", "locations"), "0000000020000", "csv", "")),
        ("a%2Fb.x%2Ey.000000003.sql.gz", DataName(TableId("a/b", "x.y"), "000000003", "sql", "gzip")),
        ("s.a%2Dschema-schema.sql", SchemaName(TableId("s", "a-schema"), "")),
        ("s.t.0001.zstd.parquet", DataName(TableId("s", "t"), "0001", "parquet", "")),
        ("s.t.0001.CSV.SNAPPY", DataName(TableId("s", "t"), "0001", "csv", "snappy")),
        ("s.%2E%2E%2Fetc.0.csv", DataName(TableId("s", "../etc"), "0", "csv", "")),
        ("result.000000000.csv", DataName(TableId("result", "000000000"), "", "csv", "")),
    ],
)
def test_names_of_dumpling_and_tidb_cloud_are_known(name: str, expected: Name) -> None:
    assert parse_name(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "p-placement-policy-create.sql",
        "s.t-schema-triggers.sql",
        "s.t-schema-post.sql",
        "s.t.000000000.csv.bak",
        "README.md",
        "s.t.000000000.csv/part",
        "below/s.t.000000000.csv",
        ".s.t.csv.swp",
    ],
)
def test_other_names_mean_no_rows(name: str) -> None:
    assert isinstance(parse_name(name), IgnoredName)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("s.t.000000000.csv.lz4", "cannot be read"),
        ("s.t.000000000.sql.7zip", "not a known compression"),
        ("s.t.000000000.parquet.gz", "compressed as a whole"),
        ("s.t%2.000000000.csv", "a % that escapes nothing"),
        ("s.t%FF.000000000.csv", "not UTF-8"),
    ],
)
def test_names_that_cannot_be_read_hold_their_table(name: str, says: str) -> None:
    parsed_name = parse_name(name)
    assert isinstance(parsed_name, StrangeName)
    assert says in parsed_name.reason
