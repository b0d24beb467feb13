"""Records that are read by their shape are what a parser makes of them, whatever becomes of their bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.decoding.window import decode_window
from cdc_assets.errors import MalformedData
from cdc_assets.formats import LINE, Decoded, Op
from cdc_assets.formats.canal_json import decode as files
from cdc_assets.formats.canal_json import uniform
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.canal_json.parsed import parse_records
from cdc_assets.model.steps import ApplyRows
from cdc_assets.planning.plan import plan
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.changefeed import option, sink_options
from cdc_assets_tests.formats.test_canal_json import (
    EXTENDED,
    PLAIN,
    SCHEMA,
    TSO,
    encode,
    file_of,
    histories,
    images,
    read,
    written,
)

PIECES = [b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"null", b"0", b"1", b"n", b"\n", b"\r\n", b" ", b"\x01"]
PIECES += [b"\xff", b"\xc3", "é".encode(), b"INSERT", b"DELETE", b'"id"', b'"name":', b'":"', b'","', b"\x00", b"old"]


def outcome(data: bytes, schema: Any, options: CanalJsonOptions) -> Any:
    """The whole result of decoding, an error included."""
    try:
        found: Decoded = read(data, schema, options)
    except MalformedData as error:
        return error.message
    return found.changes.to_pylist(), found.changes.schema, found.rejects, found.tail, found.notes


def parsed(data: bytes, schema: Any, options: CanalJsonOptions) -> Any:
    """The same where every record goes through a parser."""
    with patch.object(files, "find_shape", lambda frame, schema: None):
        return outcome(data, schema, options)


@st.composite
def edited(draw: st.DrawFn, records: tuple[bytes, ...]) -> bytes:
    """Change some bytes of a file: put something in, take something out, or over; not among the types of columns."""
    changed = list(records)
    for _ in range(draw(st.integers(1, 3))):
        number, gone = draw(st.integers(0, len(changed) - 1)), draw(st.integers(0, 4))
        record = changed[number]
        types, old = record.find(b'"sqlType":{') + 11, record.find(b'},"old":')
        places = [*range(types - gone - 1), *range(old + 1, len(record) + 1)] if old > types else range(len(record) + 1)
        at = draw(st.sampled_from(places))
        changed[number] = record[:at] + draw(st.sampled_from([b"", *PIECES])) + record[at + gone :]
    return b"".join(changed)


@settings(deadline=None)
@given(history=histories(), end=st.sampled_from(["\r\n", "\n", "|"]), block=st.sampled_from([1, 700, 1 << 20]))
def test_shapes_and_parsers_agree_on_what_is_written_by_the_rules(history: Any, end: str, block: int) -> None:
    schema, events = history
    records = [
        encode(kind, written(row, schema), None if old is None else written(old, schema)) for kind, row, old in events
    ]
    data, options = file_of(*records, end=end.encode()), replace(EXTENDED, terminator=end)
    with patch.object(uniform, "_BLOCK_BYTES", block):
        assert outcome(data, schema, options) == parsed(data, schema, options)


RECORDS = (
    encode(data={"id": "1", "name": "a"}),
    encode("UPDATE", {"id": "1", "name": None}, {"id": "1", "name": "a"}),
    encode(data={"id": "2", "name": "é€"}),
    encode("DELETE", {"id": "1", "name": None}),
    encode("UPDATE", {"id": "2", "name": "null"}, {"id": "2", "name": ""}),
)


@settings(deadline=None, max_examples=300)
@given(data=st.data(), extended=st.booleans(), block=st.sampled_from([1, 900, 1 << 20]))
def test_shapes_and_parsers_agree_on_files_whose_bytes_were_changed(
    data: st.DataObject, extended: bool, block: int
) -> None:
    records = (
        RECORDS if extended else tuple(record.replace(b',"_tidb":{"commitTs":%d}' % TSO, b"") for record in RECORDS)
    )
    options = EXTENDED if extended else PLAIN
    file = data.draw(edited(tuple(file_of(record) for record in (*records, *records))))
    with patch.object(uniform, "_BLOCK_BYTES", block):
        assert outcome(file, SCHEMA, options) == parsed(file, SCHEMA, options)


def test_a_record_that_a_parser_has_to_read_keeps_its_place() -> None:
    odd = encode(data={"id": "7", "name": 'a "quoted" text'})
    found = read(file_of(RECORDS[0], odd, RECORDS[1], odd))
    assert images(found, LINE, "id") == [
        (Op.INSERT, 1, 1),
        (Op.INSERT, 2, 7),
        (Op.DELETE, 3, 1),
        (Op.INSERT, 3, 1),
        (Op.INSERT, 4, 7),
    ]


@pytest.mark.parametrize("place", range(5))
def test_what_is_wrong_in_one_record_is_reported_with_its_line(place: int) -> None:
    records = list(RECORDS)
    records[place] = records[place].replace(b'"data":[{"id":"', b'"data":[{"id":"x')
    found = read(file_of(*records))
    assert [reject.line for reject in found.rejects] == [place + 1]
    assert place + 1 not in found.changes.column(LINE).to_pylist()


def recorded() -> list[Any]:
    return [
        pytest.param(config, id=str(config), marks=pytest.mark.soak if case.name == "H_bank" else ())
        for case in cases()
        for config in case.configs
        if config.options.protocol == "canal-json"
    ]


@pytest.mark.parametrize("config", recorded())
def test_recorded_files_say_the_same_by_shape_and_need_a_parser_for_escapes_and_partial_images_only(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, parse = config.settings(), parse_records
    feed, left = settings.open_source(), list[bytes]()

    def watched(frame: Any, lines: Any, *more: Any) -> Any:
        left.extend(frame[line - 1] for line in lines.tolist())
        return parse(frame, lines, *more)

    steps = [step for step in plan(feed.listing(), {}, fuse=False).steps if isinstance(step, ApplyRows)]
    with monkeypatch.context() as patched:
        patched.setattr(files, "parse_records", watched)
        by_shape = [decode_window(step, feed.reader) for step in steps]
    monkeypatch.setattr(files, "find_shape", lambda frame, schema: None)
    for step, window in zip(steps, by_shape, strict=True):
        other = decode_window(step, feed.reader)
        assert window.changes.equals(other.changes)
        assert (window.rejects, window.report.notes) == (other.rejects, other.report.notes)
    wire = sink_options(settings).wire
    whole = not (option(wire, "only_output_updated_columns") or option(wire, "content_compatible"))
    assert not whole or all(b"\\" in raw for raw in left)
