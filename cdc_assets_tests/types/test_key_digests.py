"""Digests of keys: equal for keys that are the same to a table, and for no others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.key_digests import key_digests, key_form
from cdc_assets.types.mysql_types import arrow_type

KEY = b"00" * 32


def digests(columns: list[Column], *keys: tuple[Any, ...]) -> list[str]:
    schema = TableSchema(columns=tuple(columns), key=tuple(column.name for column in columns))
    values = {c.name: pa.array([key[at] for key in keys], arrow_type(c)) for at, c in enumerate(columns)}
    key_digest_texts: list[str] = key_digests(pa.table(values), schema, KEY).to_pylist()
    return key_digest_texts


def test_parts_of_a_key_stay_apart_and_null_is_a_value_of_its_own() -> None:
    two = [Column("a", "VARCHAR", collation="utf8mb4_bin"), Column("b", "VARCHAR", collation="utf8mb4_bin")]
    keys = [("a", "bc"), ("ab", "c"), (None, "x"), ("null", "x"), ("a", None), ("x", None)]
    assert len(set(digests(two, *keys))) == len(keys)


def test_a_key_has_one_digest_however_wide_its_column_is_and_however_it_is_spelled() -> None:
    assert digests([Column("a", "INT")], (5,)) == digests([Column("a", "BIGINT")], (5,))
    folded = [Column("a", "VARCHAR", collation="utf8mb4_general_ci")]
    assert len(set(digests(folded, ("bee",), ("BEE",), ("bee ",)))) == 1


def test_forms_tell_columns_and_collations_apart_and_not_names() -> None:
    def form(column: Column, origin: str) -> tuple[str, ...]:
        return key_form(TableSchema(columns=(column,), key=(column.name,)), {column.name: origin})

    assert form(Column("a", "INT"), "a") == form(Column("b", "BIGINT"), "a") != form(Column("a", "INT"), "b")
    binary, folded = (
        Column("a", "VARCHAR", collation=collation) for collation in ("utf8mb4_bin", "utf8mb4_general_ci")
    )
    assert form(binary, "a") != form(folded, "a")
