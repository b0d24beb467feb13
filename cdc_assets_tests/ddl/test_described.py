"""The setting `schemas` in the words of PostgreSQL and of YDB: columns, keys, changefeeds."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cdc_assets.ddl import changefeed_options, described_tables
from cdc_assets.errors import BadSettings
from cdc_assets.formats.debezium_json.columns import ConnectorSettings, columns_of
from cdc_assets.formats.values.connect import Field
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.connect_types import BITS, DECIMAL, VARIABLE_DECIMAL
from cdc_assets.types.postgres_types import postgres_column
from cdc_assets.types.ydb_types import ydb_column


def of_postgres(text: str) -> dict[TableId, TableSchema]:
    def read(name: str, declared: str, own: Mapping[str, str]) -> Column:
        return postgres_column(name, declared, {}, own)

    return described_tables(text, "s.sql", read, "public", folds_names=True)


def of_ydb(text: str) -> dict[TableId, TableSchema]:
    return described_tables(
        text, "s.yql", lambda name, declared, _: ydb_column(name, declared), "default", nulls_in_key=True
    )


def types(schemas: Mapping[TableId, TableSchema]) -> dict[str, dict[str, str]]:
    return {
        str(table): {column.name: column.type.rpartition(".")[2] for column in schema.columns}
        for table, schema in schemas.items()
    }


POSTGRES = {
    "a quote in a comment": (
        "-- it's\nCREATE TABLE t (a int /* don't */, b text);",
        {"public.t": {"a": "int32", "b": "string"}},
    ),
    "a semicolon in a text and in a function": (
        "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN x; END; $$ LANGUAGE plpgsql;\n"
        "CREATE TABLE t (a text DEFAULT 'x;''y', b text DEFAULT E'it\\'s;');",
        {"public.t": {"a": "string", "b": "string"}},
    ),
    "names in quotes": (
        'CREATE TABLE IF NOT EXISTS "s.x"."Or""ders" ("primary" int, "index" text, "a b" bytea);',
        {'s.x.Or"ders': {"primary": "int32", "index": "string", "a b": "bytes"}},
    ),
    "names without quotes, which are in small letters": (
        'CREATE TABLE Public.Orders (ID bigint, "Total" Numeric(12,2), ÄMT int);'
        'ALTER TABLE public.ORDERS ADD Note TEXT; CREATE TABLE "Orders" (id int);',
        {
            "public.orders": {"id": "int64", "Total": "Decimal", "Ämt": "int32", "note": "string"},
            "public.Orders": {"id": "int32"},
        },
    ),
    "types that a connector sends as bytes": (
        "CREATE TABLE t (a box, b int4multirange, c pg_lsn, d own);",
        {"public.t": {"a": "bytes", "b": "bytes", "c": "bytes", "d": ""}},
    ),
    "a numeric of hundreds": (
        "CREATE TABLE t (a numeric(5, -2), b numeric);",
        {"public.t": {"a": "Decimal", "b": "VariableScaleDecimal"}},
    ),
    "intervals with what they hold": (
        "CREATE TABLE t (a interval, b interval year, c INTERVAL DAY TO SECOND (3), d interval(2)[]);",
        {"public.t": {"a": "MicroDuration", "b": "MicroDuration", "c": "MicroDuration", "d": "array"}},
    ),
    "types of their own": (
        "CREATE TYPE public.mood AS ENUM ('a', 'b');\nCREATE DOMAIN public.price AS numeric(12,2) CHECK (VALUE > 0);\n"
        "CREATE TABLE t (m mood DEFAULT 'a'::mood, p public.price, l mood[]);",
        {"public.t": {"m": "Enum", "p": "Decimal", "l": "array"}},
    ),
    "types of several words": (
        'CREATE TABLE t (a character varying(20) COLLATE "C", b timestamp(3) with time zone NOT NULL DEFAULT now(), '
        "c double precision, d time without time zone);",
        {"public.t": {"a": "string", "b": "ZonedTimestamp", "c": "double", "d": "MicroTime"}},
    ),
    "what pg_dump writes": (
        "\\restrict x\nSET lock_timeout = 0;\nCREATE TABLE public.t (a integer NOT NULL);\n"
        "COPY public.t (a) FROM stdin;\nO'Brien\t\"\n\\.\n\nCREATE UNLOGGED TABLE public.u (a integer);\n"
        "ALTER TABLE ONLY public.t ADD CONSTRAINT t_pkey PRIMARY KEY (a);\n"
        "ALTER TABLE public.t ADD COLUMN IF NOT EXISTS b int8, ADD c boolean;\n\\unrestrict x\n",
        {"public.t": {"a": "int32", "b": "int64", "c": "boolean"}, "public.u": {"a": "int32"}},
    ),
    "what has no columns": (
        "CREATE TABLE p PARTITION OF t FOR VALUES FROM (1) TO (2); CREATE TABLE t (LIKE u, a int, CHECK (a > 0), "
        "FOREIGN KEY (a) REFERENCES v (a)) PARTITION BY RANGE (a);",
        {"public.t": {"a": "int32"}},
    ),
}


@pytest.mark.parametrize("case", POSTGRES)
def test_statements_of_postgresql_give_columns_and_types(case: str) -> None:
    text, expected = POSTGRES[case]
    assert types(of_postgres(text)) == expected


@pytest.mark.parametrize("clause", ["a bigint PRIMARY KEY, b int", "a bigint, b int, CONSTRAINT x PRIMARY KEY (a)"])
def test_a_key_of_postgresql_is_never_null(clause: str) -> None:
    (schema,) = of_postgres(f"CREATE TABLE t ({clause});").values()
    assert (schema.key, [column.nullable for column in schema.columns]) == (("a",), [False, True])


def test_statements_of_ydb_give_columns_keys_and_modes() -> None:
    text = """--!syntax_v1
    CREATE TABLE `shop/orders` (
        a Int32, b Utf8? NOT NULL, `index` Optional<Decimal(22,9)>, d String FAMILY f, e Utf8 DEFAULT 'it\\'s',
        PRIMARY KEY (b, a), INDEX i GLOBAL SYNC ON (d) COVER (e), FAMILY f (DATA = 'ssd', COMPRESSION = 'lz4'),
        CHANGEFEED gone WITH (MODE = 'KEYS_ONLY')
    ) PARTITION BY HASH(a) WITH (STORE = ROW, TTL = Interval("PT0S") ON e);
    ALTER TABLE `shop/orders` ADD COLUMN g Timestamp, ADD CHANGEFEED `updates` WITH (
        FORMAT = 'JSON', RETENTION_PERIOD = Interval('PT12H'), MODE = 'UPDATES');
    ALTER TABLE `shop/orders` DROP CHANGEFEED gone;
    CREATE TABLE items (k Uint64 NOT NULL, CHANGEFEED images WITH (MODE = 'new_image'), PRIMARY KEY (k));
    """
    schemas = of_ydb(text)
    orders = schemas[TableId("shop", "orders")]
    assert [column.type for column in orders.columns] == ["Int32", "Utf8", "Decimal", "String", "Utf8", "Timestamp"]
    assert orders.key == ("b", "a")
    assert [column.name for column in orders.columns if not column.nullable] == ["b"]
    assert schemas[TableId("default", "items")].key == ("k",)
    assert changefeed_options(text, "s.yql") == {
        "shop/orders/updates": {"MODE": "UPDATES"},
        "items/images": {"MODE": "NEW_IMAGE"},
    }


def test_lines_give_columns_and_types() -> None:
    text = "# tables\nshop/orders:\n  id: Uint64\n  `a:b`: Utf8  # a note\n\nshop.items:\n  k: Decimal(22,9)\n"
    expected = {"shop.orders": {"id": "Uint64", "a:b": "Utf8"}, "shop.items": {"k": "Decimal"}}
    assert types(of_ydb(text)) == expected
    assert changefeed_options(text, "s.txt") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE TABLE t (a int, b text DEFAULT 'x);", "s.sql: a quote is not closed"),
        ("CREATE TABLE t (a int, b text", "s.sql: CREATE TABLE t ( a int , b text: the text ends too early"),
        ("CREATE TABLE t (a int, 5 text);", 'expected a name, found "5"'),
        ("CREATE VIEW v AS SELECT 1;", "no table is described in it"),
        ("", "no table is described in it"),
    ],
)
def test_a_text_that_gives_no_table_is_named(text: str, reason: str) -> None:
    with pytest.raises(BadSettings, match="CREATE TABLE") as caught:
        of_postgres(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        ("numeric(12,2)", Field("bytes", DECIMAL, {"scale": "2", "connect.decimal.precision": "12"})),
        ("numeric(3,5)", Field("bytes", DECIMAL, {"scale": "5", "connect.decimal.precision": "3"})),
        ("bit(3)", Field("bytes", BITS, {"length": "3"})),
        ("bit varying", Field("bytes", BITS, {"length": "2147483647"})),
        ("numeric", Field("struct", VARIABLE_DECIMAL)),
    ],
)
def test_a_column_of_postgres_is_what_a_schema_block_has_of_it(declared: str, field: Field) -> None:
    (column,) = of_postgres(f"CREATE TABLE t (c {declared});")[TableId("public", "t")].columns
    assert (column,) == columns_of({"c": field}, ConnectorSettings())
