"""Messages that are read side by side are what a parser reads of each; what is not alike is left out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import alike
from cdc_assets.formats.alike import find_shape, read_alike

_TEXTS = st.text(st.sampled_from('aß😀 ,:{}[]"\\\n"\\u/'), max_size=6)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False), _TEXTS)
_ROWS = st.fixed_dictionaries({"id": _SCALARS, "a": _SCALARS}, optional={"b": _SCALARS, "nested": st.just({"x": 1})})
_MESSAGES = st.fixed_dictionaries(
    {"row": _ROWS, "key": st.lists(_SCALARS, max_size=2)}, optional={"ts": st.just([1, 2]), "e": st.just({})}
)
_DAMAGE = st.sampled_from(
    [
        *((b'"', b""), (b"}", b"]"), (b",", b",,"), (b":", b": "), (b"1", b"01"), (b"1", b"+1")),
        *((b"\\", b"\\\\"), (b"\\u", b"\\ud"), (b"\\", b"\\x"), (b"\\n", b"\\u000a"), (b'"', b'\\"'), (b"}", b"}\\")),
        *((b"null", b"nul"), (b"a", b"\xff"), (b'{"row"', b' {"row"'), (b"}", b"} ")),
    ]
)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "_FEW", 1)


def at(value: Any, path: alike.Path) -> Any:
    for step in path:
        value = value[step]
    return value


def read(messages: list[bytes | None]) -> dict[int, dict[alike.Path, Any]]:
    found: dict[int, dict[alike.Path, Any]] = {}
    for group in read_alike(pa.array(messages, pa.binary())):
        columns = [(group.texts(n).to_pylist(), group.quoted(n).tolist()) for n in range(len(group.shape.paths))]
        for place, message in enumerate(group.messages.tolist()):
            found[message] = {
                path: texts[place] if quoted[place] or texts[place] is None else json.loads(texts[place])
                for path, (texts, quoted) in zip(group.shape.paths, columns, strict=True)
            }
    return found


@given(
    made=st.lists(_MESSAGES, max_size=12),
    spaced=st.booleans(),
    in_ascii=st.booleans(),
    damaged=st.lists(st.tuples(st.integers(0, 11), _DAMAGE), max_size=3),
)
def test_what_is_read_side_by_side_is_what_a_parser_reads(
    made: list[Any], spaced: bool, in_ascii: bool, damaged: list[tuple[int, tuple[bytes, bytes]]]
) -> None:
    separators = (", ", ": ") if spaced else (",", ":")
    messages = [json.dumps(one, separators=separators, ensure_ascii=in_ascii).encode() for one in made]
    for place, (old, new) in damaged:
        if place < len(messages):
            messages[place] = messages[place].replace(old, new, 1)
    sent = [*messages, None, b"", b"{}"]
    for message, values in read(sent).items():
        parsed = json.loads((sent[message] or b"").decode())
        assert values == {path: at(parsed, path) for path in values}


def test_messages_of_one_shape_are_all_read_whatever_their_values_are() -> None:
    messages = [b'{"a":1,"b":"x"}', b'{"a":null,"b":null}', b'{"a":-1.5e3,"b":true}', '{"a":"é","b":""}'.encode()]
    found = read(list[bytes | None](messages))
    assert [tuple(found[number].values()) for number in range(4)] == [
        (1, "x"), (None, None), (-1500.0, True), ("é", ""),
    ]  # fmt: skip


def test_texts_with_escapes_are_read_side_by_side_too() -> None:
    texts = ["", '"', "\\", '\\"', "a\nb", "ß", "\\u0041", "/"]
    messages = [json.dumps({"a": one, "b": place}).encode() for place, one in enumerate(texts)]
    found = read([*messages, b'{"a":"\\/\\u0041","b":8}'.replace(b'":"', b'": "').replace(b',"b":', b', "b": ')])
    assert [values["a",] for _, values in sorted(found.items())] == [*texts, "/A"]


def test_a_text_without_its_end_has_no_shape_with_what_stands_behind_it() -> None:
    sent: list[bytes | None] = [b'{"a":"x"}', b'{"a":"x\\"}', b'{"a":"\\x"}', b'{"a":"\\ud83d"}', b'{"a":"\\u00"}']
    assert read(sent).keys() == {0}


def test_a_message_with_a_member_twice_has_no_shape() -> None:
    twice = [b'{"a":1,"a":2}', b'{"a":1,"a":{}}', b'{"a":{"b":1},"a":2}', b'{"a":[1],"a":{"b":1}}']
    assert [find_shape(one) for one in twice] == [None] * 4


def test_a_member_that_is_the_same_everywhere_is_no_value() -> None:
    shape = find_shape(b'{"schema":{"type":"int32"},"payload":{"id":1}}', "schema")
    assert shape is not None
    assert shape.paths == (("payload", "id"),)


def test_a_message_without_value_does_not_begin_as_the_next_one_does() -> None:
    message = b'{"schema":{"type":"int32"},"payload":{"id":%d}}'
    sent = [message % 1, None, message % 2, b"", message % 3]
    (found,) = read_alike(pa.array(sent, pa.binary()), "schema")
    assert found.messages.tolist() == [0, 2, 4]
    assert found.values_of(0) == [1, 2, 3]


def test_blocks_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(alike, "_BLOCK_MESSAGES", 4)
    found = read([b'{"a":%d}' % number for number in range(50)])
    assert [values["a",] for _, values in sorted(found.items())] == list(range(50))
    assert np.array_equal(sorted(found), range(50))
