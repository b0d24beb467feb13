"""Any table and its contents for properties, and what reading a dump of them has to give, by the type table alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st

from cdc_assets.features.dumps.formats import dump_format
from cdc_assets.formats.changes import NULL_OR_TEXT, SIX_DIGITS
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Decoded
from cdc_assets.formats.dump import blocks
from cdc_assets.formats.dump.parquet import NULL_OR_ZERO_DATE
from cdc_assets.model.dumps import DumpFile, DumpOptions, DumpSplit
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_types import arrow_schema, values
from cdc_assets.types.mysql_values import LOSSY
from cdc_assets_tests.dump_writer import COMPRESSORS, Cell, Row, dumped

__all__ = ["AT", "TABLE", "assert_reads_back", "contents", "expected", "file_of", "read", "splits_of"]

TABLE = TableId("s", "t")
AT = 434217889191428107

_TEXTS = st.text(
    st.one_of(st.sampled_from("a,|+<>\"'\\nN0r\r\n\0\x1a\t ;()x`-%"), st.characters(exclude_categories=["Cs"])),
    max_size=12,
)
_BINARY = st.binary(max_size=9) | st.sampled_from([b"\\N", b"\r\n", b'"', b"\0", b"\\", b"x'00'"])
_NUMBERS = st.integers(-100, 100).map(str)

_KINDS: tuple[tuple[Column, st.SearchStrategy[Cell]], ...] = (
    (Column("i", "INT"), st.integers(-(2**31), 2**31 - 1).map(str)),
    (Column("u", "BIGINT", True), st.integers(0, 2**64 - 1).map(str)),
    (Column("f", "FLOAT"), st.sampled_from(["1.5", "0", "-3.4028235e38", "1e15", "1000000"])),
    (Column("d", "DOUBLE"), st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    (Column("n", "DECIMAL", False, 10, 2), st.integers(-999, 999).map(lambda n: f"{n}.50")),
    (Column("w", "DECIMAL", False, 65, 0), st.integers(0, 10**60).map(str)),
    (Column("c", "CHAR", precision=20), _TEXTS),
    (Column("t, x", "TEXT"), _TEXTS),
    (Column('q"`\\', "VARCHAR", precision=20), _TEXTS),
    (Column("y", "YEAR", True, 4), st.sampled_from(["0000", "1901", "2155"])),
    (Column("da", "DATE"), st.sampled_from(["0000-00-00", "2024-02-29", "9999-12-31"])),
    (Column("dt", "DATETIME", scale=3), st.sampled_from(["0000-00-00 00:00:00.000", "2024-02-29 23:59:59.999"])),
    (Column("ts", "TIMESTAMP"), st.sampled_from(["1970-01-01 00:00:01", "2038-01-19 03:14:07"])),
    (Column("ti", "TIME", scale=1), st.sampled_from(["-838:59:59.0", "00:00:00.5"])),
    (Column("e", "ENUM", elems=("", "a,b", "it's")), st.sampled_from(["", "a,b", "it's"])),
    (Column("j", "JSON"), st.sampled_from(["null", '{"a": "b\\"c\\\\n"}', "[1, 2]", '"x, y"'])),
    (Column("v", "VECTOR"), st.sampled_from(["[]", "[1,2.5]"])),
    (Column("b", "BLOB"), _BINARY),
    (Column("bi", "BINARY", precision=4), st.binary(min_size=4, max_size=4)),
    (Column("b1", "BIT", True, 1), st.sampled_from([b"\0", b"\1"])),
    (Column("b64", "BIT", True, 64), st.binary(min_size=8, max_size=8)),
    (Column("g", "INT", virtual=True, generated="`i` + 1"), _NUMBERS),
    (Column("s", "INT", generated="`i` * 2"), _NUMBERS),
)


@st.composite
def contents(draw: st.DrawFn) -> tuple[TableSchema, list[Row]]:
    """A table of some of the columns, and rows for the columns that a dump of it has."""
    chosen = draw(st.lists(st.sampled_from(range(len(_KINDS))), unique=True, min_size=1, max_size=8))
    schema = TableSchema(tuple(_KINDS[place][0] for place in chosen))
    cells = {column.name: strategy for column, strategy in _KINDS}
    row = st.tuples(*(st.none() | cells[column.name] for column in dumped(schema)))
    return schema, list(draw(st.lists(row, max_size=6)))


def expected(schema: TableSchema, rows: Sequence[Row], zone: str = "UTC") -> pa.Table:
    """The lake's values of the rows, each column by itself."""
    fields, arrays = [], []
    kinds = arrow_schema(schema)
    for place, column in enumerate(dumped(schema)):
        cells = [row[place] for row in rows]
        if column.type == "BIT":
            cells = [None if cell is None else str(int.from_bytes(_raw(cell), "big")) for cell in cells]
        binary = any(isinstance(cell, bytes) for cell in cells)
        texts = pa.array(cells, pa.binary() if binary else pa.string())
        fields.append(kinds.field(column.name))
        arrays.append(values(texts, column, timezone=zone).array)
    return pa.table(arrays, schema=pa.schema(fields))


def _raw(cell: Cell) -> bytes:
    assert isinstance(cell, bytes)
    return cell


def file_of(data: bytes, kind: str, compression: str = "") -> tuple[DumpFile, bytes]:
    """A file of these contents, and its bytes."""
    stored = COMPRESSORS[compression](data)
    return DumpFile(f"s.t.000000000.{kind}", TABLE, kind, compression, "000000000", len(stored)), stored


def splits_of(file: DumpFile, cuts: Sequence[int] = ()) -> list[DumpSplit]:
    """The file cut at these offsets."""
    bounds = sorted({0, file.size, *(cut for cut in cuts if cut < file.size)})
    return [DumpSplit(file, start, end) for start, end in pairwise(bounds)] or [DumpSplit(file, 0, 0)]


def read(
    file: DumpFile,
    data: bytes,
    schema: TableSchema,
    options: DumpOptions,
    cuts: Sequence[int] = (),
    block_bytes: int | None = None,
) -> list[Decoded]:
    """All blocks of a file; with `block_bytes` in blocks, and pieces, as small as that."""
    with ExitStack() as small:
        if block_bytes:
            small.enter_context(patch.object(blocks, "BLOCK_BYTES", block_bytes))
            small.enter_context(patch.object(blocks, "_PIECE_BYTES", block_bytes))
        decoded_blocks: list[Decoded] = []
        for split in splits_of(file, cuts):
            decoded_blocks += dump_format(file.kind).read(
                split, lambda start, end: data[start:end], TABLE, schema, options, AT
            )
        return decoded_blocks


def assert_reads_back(
    decoded_blocks: Sequence[Decoded], schema: TableSchema, rows: Sequence[Row], zone: str = "UTC"
) -> None:
    """Assert that the blocks hold exactly these rows, in order, and nothing was rejected."""
    assert [reject for block in decoded_blocks for reject in block.rejects] == []
    for block in decoded_blocks:
        assert set(block.changes.column(COMMIT_TS).to_pylist()) <= {AT}
        assert set(block.changes.column(OP).to_pylist()) <= {1}
    tables = [block.changes.drop_columns([OP, COMMIT_TS, LINE]) for block in decoded_blocks]
    assert {rule for block in decoded_blocks for _, rule in block.notes} <= {
        *LOSSY,
        SIX_DIGITS,
        NULL_OR_TEXT,
        NULL_OR_ZERO_DATE,
    }
    assert sum(table.num_rows for table in tables) == len(rows)
    wanted = expected(schema, rows, zone)
    if tables and wanted.num_columns:
        assert pa.concat_tables(tables).combine_chunks().equals(wanted), tables
