"""Partition keys survive every name and keep the order of versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import TableId
from cdc_assets.planning.partitions import PartitionKey, format_partition_key, parse_partition_key

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=64)
versions = st.integers(0, 2**64 - 1)


@given(names, st.one_of(st.just(""), names), versions)
def test_a_key_is_read_back_as_it_was(schema: str, table: str, version: int) -> None:
    key = PartitionKey(TableId(schema, table), version)
    assert parse_partition_key(format_partition_key(key)) == key


@given(names, names, versions, versions)
def test_keys_of_one_table_sort_like_their_versions(schema: str, table: str, version: int, other: int) -> None:
    first, second = (format_partition_key(PartitionKey(TableId(schema, table), v)) for v in (version, other))
    assert (first < second) == (version < other)


@given(names, names, versions)
def test_no_sign_of_dagsters_range_grammar_is_in_a_key(schema: str, table: str, version: int) -> None:
    key = format_partition_key(PartitionKey(TableId(schema, table), version))
    assert not set(key) & set(",[] |\n\r\t")
    assert "..." not in key


@pytest.mark.parametrize("text", ["", "shop.orders", "shop.orders@", "shop.orders@x1", "a.b.c@01", "@1"])
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match=r"schema\.table@version"):
        parse_partition_key(text)
