"""Records that are read side by side are what a parser makes of them, whatever becomes of their bytes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.decoding.window import decode_window
from cdc_assets.errors import MalformedData
from cdc_assets.formats import json_records
from cdc_assets.formats.canal_json import decode as files
from cdc_assets.formats.canal_json.file_records import file_records
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.decoded import LINE, Decoded, Op
from cdc_assets.model.steps import ApplyRows
from cdc_assets.planning.plan import plan
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.default_rules import TABLE_RULES
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

_NEVER = 1 << 40
PIECES = [b'"', b"\\", b":", b",", b"{", b"}", b"[", b"]", b"null", b"0", b"1", b"n", b"\n", b"\r\n", b" ", b"\x01"]
PIECES += [b"\xff", b"\xc3", "é".encode(), b"INSERT", b"DELETE", b'"id"', b'"name":', b'":"', b'","', b"\x00", b"old"]


def outcome(data: bytes, schema: Any, options: CanalJsonOptions, few: int, *, as_file: bool = False) -> Any:
    """The whole result of decoding, an error included, where so many records of a shape are read side by side.

    Or `as_file`, as those of a file that are all alike.
    """
    own = file_records if as_file else lambda frame, schema: iter(())
    patches = ((json_records, "FEW", few), (files, "file_records", own))
    with ExitStack() as stack:
        for module, name, value in patches:
            stack.enter_context(patch.object(module, name, value))
        try:
            decoded_rows: Decoded = read(data, schema, options)
        except MalformedData as error:
            return error.message
    return (
        decoded_rows.changes.to_pylist(),
        decoded_rows.changes.schema,
        decoded_rows.rejects,
        decoded_rows.tail,
        decoded_rows.notes,
    )


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
@given(history=histories(), end=st.sampled_from(["\r\n", "\n", "|"]))
def test_shapes_and_parsers_agree_on_what_is_written_by_the_rules(history: Any, end: str) -> None:
    schema, events = history
    records = [
        encode(kind, written(row, schema), None if old is None else written(old, schema)) for kind, row, old in events
    ]
    data, options = file_of(*records, end=end.encode()), replace(EXTENDED, terminator=end)
    plain = outcome(data, schema, options, _NEVER)
    assert outcome(data, schema, options, 1) == plain
    assert outcome(data, schema, options, 1, as_file=True) == plain


@settings(deadline=None)
@given(history=histories(), data=st.data())
def test_rows_whose_old_has_other_columns_are_what_a_parser_makes_of_them(history: Any, data: st.DataObject) -> None:
    schema, events = history
    records = []
    for kind, row, old in events:
        before = None if old is None else written(old, schema)
        if before:
            names = data.draw(st.sets(st.sampled_from(sorted(before)), min_size=1))
            before = {name: value for name, value in before.items() if name in names}
        records.append(encode(kind, written(row, schema), before))
    options = replace(EXTENDED, content_compatible=True)
    changed = edited(tuple(file_of(record) for record in records)) if records else st.nothing()
    file = data.draw(st.just(file_of(*records)) | changed)
    assert outcome(file, schema, options, 1) == outcome(file, schema, options, _NEVER)


RECORDS = (
    encode(data={"id": "1", "name": "a"}),
    encode("UPDATE", {"id": "1", "name": None}, {"id": "1", "name": "a"}),
    encode(data={"id": "2", "name": "é€"}),
    encode("DELETE", {"id": "1", "name": None}),
    encode("UPDATE", {"id": "2", "name": "null"}, {"id": "2", "name": ""}),
)


@settings(deadline=None, max_examples=150)
@given(data=st.data(), extended=st.booleans())
def test_shapes_and_parsers_agree_on_files_whose_bytes_were_changed(data: st.DataObject, extended: bool) -> None:
    records = (
        RECORDS if extended else tuple(record.replace(b',"_tidb":{"commitTs":%d}' % TSO, b"") for record in RECORDS)
    )
    options = EXTENDED if extended else PLAIN
    file = data.draw(edited(tuple(file_of(record) for record in (*records, *records))))
    plain = outcome(file, SCHEMA, options, _NEVER)
    assert outcome(file, SCHEMA, options, 1) == plain
    assert outcome(file, SCHEMA, options, 1, as_file=True) == plain


def test_a_record_of_another_shape_keeps_its_place() -> None:
    odd = encode(data={"id": "7", "name": 'a "quoted" text'})
    decoded_rows = read(file_of(RECORDS[0], odd, RECORDS[1], odd))
    assert images(decoded_rows, LINE, "id") == [
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
    decoded_rows = read(file_of(*records))
    assert [reject.line for reject in decoded_rows.rejects] == [place + 1]
    assert place + 1 not in decoded_rows.changes.column(LINE).to_pylist()


LONG = ("C_ddl_tables", "E_partitions", "G_redelivery", "H_bank", "K_big_txn", "L_crash")
"""Cases with as many records, of the shapes that the others have."""


def recorded() -> list[Any]:
    return [
        pytest.param(config, id=str(config), marks=() if config.name in often else pytest.mark.soak)
        for case in cases()
        for often in [set() if case.name in LONG else {"canal-ext"}]
        for config in case.configs
        if config.options.protocol == "canal-json"
    ]


@pytest.mark.parametrize("config", recorded())
def test_recorded_files_say_the_same_by_shape_and_need_no_parser(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, parse = config.settings(), json_records.parsed_records
    feed, left = settings.open_source(), list[bytes]()

    def watched(values: Any, *more: Any) -> Any:
        left.extend(values.to_pylist())
        return parse(values, *more)

    steps = [step for step in plan(feed.listing(), {}, TABLE_RULES).steps if isinstance(step, ApplyRows)]
    with monkeypatch.context() as patched:
        patched.setattr(json_records, "FEW", 1)
        patched.setattr(json_records, "_MOST_SHAPES", _NEVER)
        patched.setattr(json_records, "parsed_records", watched)
        by_shape = [decode_window(step, feed.reader) for step in steps]
    monkeypatch.setattr(json_records, "FEW", _NEVER)
    monkeypatch.setattr(files, "file_records", lambda frame, schema: iter(()))
    for step, window in zip(steps, by_shape, strict=True):
        other = decode_window(step, feed.reader)
        assert window.changes.equals(other.changes)
        assert (window.rejects, window.report.notes) == (other.rejects, other.report.notes)
    assert not left
