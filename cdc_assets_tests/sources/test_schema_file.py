"""Schema files: every member is read, what is malformed is named, checksums are those of TiCDC."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc_assets.errors import (
    MalformedSchemaFile,
)
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file, schema_checksum
from cdc_assets_tests.schema_documents import V, document


def parsed(content: Any, path: str = f"db/t/meta/schema_{V}_0000000001.json") -> SchemaFile:
    return parse_schema_file(path, content if isinstance(content, bytes) else json.dumps(content).encode())


def test_every_member_of_a_column_is_read() -> None:
    columns = [
        {"ColumnId": "3", "ColumnName": "Id", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20",
         "ColumnNullable": "false", "ColumnIsPk": "true", "Unheard": {}},
        {"ColumnName": "d", "ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "2", "ColumnDefault": "1"},
        {"ColumnName": "e", "ColumnType": "ENUM", "ColumnElems": ["a", "b,c"], "ColumnDefault": 12345678901234567890},
        {"ColumnName": "j", "ColumnType": "JSON"},
    ]  # fmt: skip
    assert parsed(document(TableColumns=columns)).columns == (
        Column("Id", "BIGINT", unsigned=True, precision=20, nullable=False, is_pk=True, id=3),
        Column("d", "DECIMAL", precision=10, scale=2, default="1"),
        Column("e", "ENUM", default=12345678901234567890, elems=("a", "b,c")),
        Column("j", "JSON"),
    )


def test_the_types_and_lengths_of_the_documents_examples_are_read() -> None:
    columns = [
        {"ColumnName": "price", "ColumnType": "NUMERIC UNSIGNED", "ColumnPrecision": "10", "ColumnScale": "2"},
        {"ColumnName": "first", "ColumnType": "CHAR", "ColumnLength": "64", "ColumnNullable": "true"},
        {"ColumnName": "last", "ColumnType": "VARBINARY", "ColumnLength": "8", "ColumnPrecision": "8"},
        {"ColumnName": "n", "ColumnType": "INTEGER", "ColumnIsPk": "false"},
    ]
    assert parsed(document(TableColumns=columns)).columns == (
        Column("price", "DECIMAL", unsigned=True, precision=10, scale=2),
        Column("first", "CHAR", precision=64),
        Column("last", "VARBINARY", precision=8),
        Column("n", "INT"),
    )


def test_a_database_file_has_no_columns() -> None:
    content = document("db", "", TableColumns=None, Query="DROP DATABASE `db`", Type=2)
    path = f"db/meta/schema_{V}_0012345678.json"
    assert parsed(content, path) == SchemaFile(path, "db", TableId("db", ""), V, "DROP DATABASE `db`", 2, (), 12345678)


@pytest.mark.parametrize(
    ("root", "table"),
    [
        ("sl/x/meta/y", TableId("sl", "x/meta/y")),
        ("sl/x/y", TableId("sl/x", "y")),
        ("112", TableId("db", "a")),
        ("my db/schema_1_0000000001.json", TableId("my db", "schema_1_0000000001.json")),
        ("db/b", TableId("db", "a/..//b")),
        ("db/b", TableId("db", "/b")),
    ],
)
def test_true_names_come_from_the_contents(root: str, table: TableId) -> None:
    file = parsed(document(table.schema, table.table), f"{root}/meta/schema_{V}_0000000001.json")
    assert (file.root, file.table) == (root, table)


def test_schema_json_of_old_versions_has_no_checksum() -> None:
    assert parsed(document(), f"db/t/{V}/schema.json").checksum is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b'{"Table": "t"', "not JSON"),
        (b"\xff\xfe\xff", "not JSON"),
        ([], "expected one JSON object"),
        ({}, "Schema is missing"),
        (document(version=V + 1), "as in its name"),
        (document(table="other"), "expected the table of its directory"),
        (document(TableColumns=["a"]), "list of objects"),
        (document(TableColumnsTotal=5), "length of TableColumns"),
        (document(TableColumns=[{"ColumnName": "a"}]), 'column "a": ColumnType is missing'),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "INT", "ColumnPrecision": "x"}]), "digits in quotes"),
        (
            document(
                TableColumns=[
                    {"ColumnName": "a", "ColumnType": "CHAR", "ColumnLength": "5", "ColumnPrecision": "6"},
                ]
            ),
            "ColumnLength is 5 and ColumnPrecision 6",
        ),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "ENUM", "ColumnElems": [1]}]), "list of texts"),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "INT", "ColumnIsPk": "maybe"}]), '"true" or "false"'),
    ],
)
def test_a_malformed_schema_file_says_what_is_wrong(content: Any, message: str) -> None:
    with pytest.raises(MalformedSchemaFile, match=message) as raised:
        parsed(content)
    assert raised.value.where["file"] == f"db/t/meta/schema_{V}_0000000001.json"


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        ({"Table": "", "Schema": "schema1", "TableColumns": None}, 3233644819),
        (
            {"Table": "table1", "Schema": "schema1", "TableColumns": [
                {"ColumnName": "Id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnDefault": 10,
                 "ColumnNullable": "false", "ColumnIsPk": "true"},
                {"ColumnName": "LastName", "ColumnType": "VARCHAR", "ColumnPrecision": "128",
                 "ColumnDefault": "Default LastName", "ColumnNullable": "false"},
                {"ColumnName": "FirstName", "ColumnType": "VARCHAR", "ColumnPrecision": "64",
                 "ColumnDefault": "Default FirstName"},
                {"ColumnName": "Birthday", "ColumnType": "DATETIME", "ColumnDefault": 12345678},
            ]},
            3752767265,
        ),
        (
            {"Table": "table1", "Schema": "test", "TableColumns": [
                {"ColumnName": "col1", "ColumnType": "INT", "ColumnPrecision": "11"},
                {"ColumnName": "col2", "ColumnType": "VARCHAR", "ColumnPrecision": "5"},
            ]},
            4192708364,
        ),
    ],
)  # fmt: skip
def test_checksums_are_those_of_ticdcs_own_tests(content: dict[str, Any], checksum: int) -> None:
    assert schema_checksum(content) == checksum
