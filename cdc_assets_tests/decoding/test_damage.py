"""Damaged bytes stop their file and nothing else; a file that was cut off is settled by a feed that is repeated."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.decoding.window import Window, decode_window, reduced, rejected
from cdc_assets.errors import CdcError
from cdc_assets.formats import UniformReader, Wire
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.csv import decode as csv
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Reject, Report
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets_tests.formats.test_csv import PLAIN, ROW, SCHEMA, TABLE
from cdc_assets_tests.operations.test_quarantine import COLUMNS, CREATE, TSO, Bucket, row

JSON = CanalJsonOptions(enable_tidb_extension=True)


def json_record(key: int, text: str | None, ts: int, written: int = 1774915083041) -> bytes:
    record: dict[str, Any] = {"id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False}
    record |= {"type": "INSERT", "es": ts >> 18, "ts": written, "sql": "", "sqlType": {"id": 4, "name": 12}}
    record |= {"mysqlType": {"id": "int", "name": "varchar"}, "old": None}
    record |= {"data": [{"id": str(key), "name": text}], "_tidb": {"commitTs": ts}}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode() + b"\r\n"


PAIR = TableSchema(SCHEMA.columns[:2], ("id",))
SOUND = {
    "csv": b"".join(
        b'"I","orders","shop",%d,%d,%s\r\n' % (TSO + n, n, (b'"a ""b""\r\n"', b"\\N", '"ö,"'.encode())[n % 3])
        for n in range(12)
    ),
    "canal-json": b"".join(json_record(n, ('a "b"\r\n', None, "ö,")[n % 3], TSO + n) for n in range(12)),
}


def window_of(files: dict[str, bytes], options: Wire, key: bool = True, quarantine: bool = False) -> Window:
    schema = PAIR if key else TableSchema(tuple(replace(c, is_pk=False) for c in PAIR.columns), ())
    data_files = tuple(
        DataFile(path, "shop/orders", 1, "d", n + 1, len(data), dispatcher=path.rpartition("_")[0])
        for n, (path, data) in enumerate(files.items())
    )
    reading = RowReading({("shop/orders", 1): (TABLE, schema)}, ((TABLE, 0, 1 << 63),))
    step = ApplyRows(Life(TABLE, 1), 1, 1 << 62, data_files, reading, schema, 1)
    return reduced(
        step, [decode_window(replace(step, sets_aside=quarantine), UniformReader(options, files.__getitem__))]
    )


@pytest.mark.parametrize("options", [PLAIN, JSON], ids=lambda options: options.format)
def test_whatever_a_damaged_file_raises_is_an_error_of_the_tree(options: Wire) -> None:
    """1,000 windows, each with one to three bytes changed, lost or added."""
    chooser = random.Random(13)
    sound = SOUND[options.format]
    for _ in range(500):
        data = bytearray(sound)
        for _ in range(chooser.randint(1, 3)):
            at = chooser.randrange(len(data))
            stray = bytes([chooser.choice((*b'\r\n"\\,{}[]:0', 0xFF, 0, chooser.randrange(256)))])
            data[at : at + chooser.randint(0, 1)] = stray * chooser.randint(0, 2)
        try:
            decoded_window = window_of({"a.x": bytes(data)}, options, quarantine=bool(chooser.randint(0, 1)))
        except CdcError:
            continue
        assert decoded_window.changes.num_rows <= 24


@pytest.mark.parametrize(("lo", "stays"), [(-1, "the table has no rows yet"), (TSO, f"the table stays at {TSO}")])
def test_the_error_of_a_window_says_where_its_table_is(lo: int, stays: str) -> None:
    reject = Reject("a.csv", 1, "it does not fit")
    schemas = {("shop/orders", 1): (TABLE, PAIR)}
    step = ApplyRows(Life(TABLE, 1), lo, TSO + 9, (), RowReading(schemas, ((TABLE, 0, 1 << 63),)), PAIR, 1)
    error = rejected(step, Report(rejects=(reject,), reject_count=1))
    assert str(error).startswith(f"a.csv line 1: it does not fit. Nothing of this window was written; {stays}.")


def test_what_a_decoder_raises_concerns_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError(3)

    monkeypatch.setattr(csv, "decode", broken)
    report = window_of({"a.csv": ROW}, PLAIN).report
    assert "a.csv cannot be decoded (KeyError: 3)" in report.rejects[0].reason


# --- files that were cut off ------------------------------------------------------------------------------------------


def two(ts: int, *keys: int) -> bytes:
    return b"".join(b'"I","orders","shop",%d,%d,"a"\r\n' % (ts, key) for key in keys)


FEED: dict[str, tuple[Wire, Callable[..., bytes]]] = {
    "csv": (PLAIN, two),
    "canal-json": (
        JSON,
        lambda ts, *keys: b"".join(json_record(key, "a", ts, 1774915083000 + ts % 97) for key in keys),
    ),
}


@pytest.mark.parametrize("protocol", FEED)
def test_a_cut_that_another_row_begins_with_holds(protocol: str) -> None:
    """What was behind the cut is nowhere, though the next file has a row of the same transaction that begins alike."""
    options, rows_of = FEED[protocol]
    cut = rows_of(TSO, 1) + rows_of(TSO + 1, 1 << 18)[:-40]
    if protocol == "csv":
        cut = rows_of(TSO, 1) + b'"I","orders","shop",%d,2' % (TSO + 1)
    report = window_of({"1.x": cut, "2.x": rows_of(TSO + 1, 20, 21)}, options).report
    assert report.failed
    assert "no terminator after it" in report.rejects[0].reason


@pytest.mark.parametrize("protocol", FEED)
@pytest.mark.parametrize("left", [1, 30, 60])
def test_a_cut_is_settled_by_a_feed_that_is_repeated_from_below_it(protocol: str, left: int) -> None:
    options, rows_of = FEED[protocol]
    begun = rows_of(TSO, 1) + rows_of(TSO + 1, 2)[:left]
    again = (rows_of(TSO, 1) + rows_of(TSO + 1, 2, 3)).replace(b"1774915083", b"1774915099")
    decoded_window = window_of({"1.x": begun, "2.x": again}, options)
    assert not decoded_window.report.failed
    assert sorted(decoded_window.changes.column("id").to_pylist()) == [1, 2, 3]


def test_a_cut_of_which_nothing_is_known_holds() -> None:
    assert window_of({"1.x": b'"I","ord', "2.x": two(TSO, 1)}, PLAIN).report.failed


def test_a_cut_in_a_table_without_key_is_settled_by_an_older_transaction_only() -> None:
    begun = two(TSO, 1) + two(TSO + 1, 2) + two(TSO + 1, 2)[:-4]
    assert window_of({"1.x": begun, "2.x": two(TSO + 1, 2, 2)}, PLAIN, key=False).report.failed
    assert not window_of({"1.x": begun, "2.x": two(TSO, 1) + two(TSO + 1, 2, 2)}, PLAIN, key=False).report.failed


def test_a_repeated_feed_settles_a_cut_on_the_command_line_too(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    bucket.schema(TSO, CREATE, 3, COLUMNS)
    first, second, twelfth = row("I", TSO + 1, 1, 5), row("I", TSO + 2, 12, 6), row("I", TSO + 2, 1, 6)
    file = bucket.path / bucket.data(TSO, 1, first)
    file.write_text(f"{first}\n{twelfth[:-2]}")
    bucket.data(TSO, 2, second)
    assert [table.state for table in bucket.apply(TSO + 200).tables] == ["held"]
    bucket.data(TSO, 3, first, twelfth, second)
    assert [table.state for table in bucket.apply(TSO + 200).tables] == ["applied"]
    assert bucket.rows() == [(1, 6), (12, 6)]
