"""Canal-JSON messages read by their ends: the same as by patterns, and as by a parser."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats.canal_json.ends import read_ends
from cdc_assets.formats.canal_json.messages import _one, _plain_rows, classify
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets_tests.formats.test_canal_messages import message
from cdc_assets_tests.topics import Topic, topics

TSO = 459_565_298_200_000_007
BY_EXTENSION = {
    extended: MessageOptions(protocol="canal-json", enable_tidb_extension=extended) for extended in (True, False)
}

names = st.sampled_from(["t", "t1", 'a"b', "back\\", "表", ']","isDdl":false,"type":"', "", ","])
stamps = st.sampled_from([TSO, TSO + 5, 7, 10**17, 10**18 - 1, 10**18])


def written(name: str, kind: str, stamp: int | None, text: str) -> bytes:
    extension = {} if stamp is None else {"commitTs": stamp}
    return message({"id": "1", "v": text}, name, kind, **extension)


rows = st.builds(
    written,
    names,
    st.sampled_from(["INSERT", "UPDATE", "DELETE", "CREATE"]),
    stamps | st.none(),
    st.sampled_from(["", "x", '"}],"_tidb":{"commitTs":459565298200000007}}', "]}"]),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes | None:
    whole = draw(rows)
    kind = draw(st.sampled_from(["whole", "whole", "cut", "byte", "none"]))
    if kind == "none":
        return None
    if kind == "cut":
        first = draw(st.integers(0, len(whole)))
        return whole[first : draw(st.integers(first, len(whole)))]
    if kind == "byte":
        at = draw(st.integers(0, len(whole) - 1))
        return whole[:at] + bytes([draw(st.sampled_from([0x2F, 0x3A, 0xFA, 0x20, 0x22, 0x39]))]) + whole[at + 1 :]
    return whole


@given(st.lists(damaged(), max_size=12), st.booleans())
def test_what_is_read_by_its_ends_is_what_patterns_read(found: list[bytes | None], extended: bool) -> None:
    options, values = BY_EXTENSION[extended], pa.array(found, pa.binary())
    ends = read_ends(values, extended)
    lines, plain = _plain_rows(values, np.arange(len(values)), options)
    assert plain[ends.places].all()
    theirs = {one["message"]: (one["schema"], one["table"], one["commit_ts"]) for one in lines.to_pylist()}
    stamps = ends.numbers if extended else ends.numbers << 18
    mine = zip(ends.places.tolist(), ends.schemas.to_pylist(), ends.tables.to_pylist(), stamps.tolist(), strict=True)
    assert {place: tuple(said) for place, *said in mine} == {place: theirs[place] for place in ends.places.tolist()}


@pytest.mark.parametrize("shift", [0, 3])
def test_messages_of_any_tables_are_read_by_their_ends(shift: int) -> None:
    written = [message({"id": str(n), "v": "x" * n}, f"t{'0' * (n % 13)}", commitTs=TSO + n) for n in range(40)]
    values = pa.array([b"x" * 9, *written], pa.binary()).slice(1 + shift)
    ends = read_ends(values, True)
    assert ends.places.tolist() == list(range(40 - shift))
    assert ends.numbers.tolist() == [TSO + n for n in range(shift, 40)]
    assert ends.tables.to_pylist() == [f"t{'0' * (n % 13)}" for n in range(shift, 40)]


@pytest.mark.parametrize("topic", [*topics("canal-json"), *topics("canal-json-noext")], ids=str)
def test_recorded_rows_speak_of_what_a_parser_finds(topic: Topic) -> None:
    spoken = classify(topic.messages, topic.options).to_pylist()
    values = topic.messages.column("value")
    parsed = [_one(place, values[place].as_py(), topic.options) for place in range(len(values))]
    assert [(one["message"], one["kind"], one["schema"], one["table"], one["commit_ts"]) for one in spoken] == [
        (one.message, one.kind.value, one.table and one.table.schema, one.table and one.table.table, one.commit_ts)
        for one in parsed
    ]
    ends = read_ends(values, topic.options.enable_tidb_extension)
    assert len(ends.places) == sum(one["kind"] == "row" for one in spoken)
