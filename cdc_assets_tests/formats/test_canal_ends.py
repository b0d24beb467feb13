"""Canal-JSON messages read by their ends: the same as read whole."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.canal_json import messages
from cdc_assets.formats.canal_json.ends import Ends, read_ends
from cdc_assets.formats.canal_json.messages import classify
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


def read_whole(values: pa.BinaryArray, options: MessageOptions) -> list[dict[str, Any]]:
    """What messages speak of where none of them is read by its ends."""
    nothing, none = np.zeros(0, np.int64), pa.nulls(0, pa.string())
    with patch.object(messages, "read_ends", lambda *_: Ends(nothing, none, none, nothing)):
        return spoken_of(values, options)


def spoken_of(values: pa.BinaryArray, options: MessageOptions) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_arrays([pa.nulls(len(values), pa.binary()), values], ["key", "value"])
    spoken_messages: list[dict[str, Any]] = classify(batch, options).to_pylist()
    return spoken_messages


@given(st.lists(damaged(), max_size=12), st.booleans())
def test_what_is_read_by_its_ends_is_what_the_whole_message_says(
    raw_messages: list[bytes | None], extended: bool
) -> None:
    options, values = BY_EXTENSION[extended], pa.array(raw_messages, pa.binary())
    ends = read_ends(values, extended)
    by_ends, whole = spoken_of(values, options), read_whole(values, options)
    for spoken_message, theirs in zip(by_ends, whole, strict=True):
        assert spoken_message == theirs or (spoken_message["message"] in ends.places and theirs["kind"] == "bad"), (
            spoken_message,
            theirs,
        )


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
    assert spoken == read_whole(values, topic.options)
    ends = read_ends(values, topic.options.enable_tidb_extension)
    assert len(ends.places) == sum(spoken_message["kind"] == "row" for spoken_message in spoken)
