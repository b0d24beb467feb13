"""Records are the same whoever made them: by their shape side by side, or parsed one by one, whatever bytes hold."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import json_records as producer
from cdc_assets.formats.json_records import ParsedRecords, find_shape, json_records, parsed_records, same_shapes
from cdc_assets.formats.records import CellKind, Path, RecordColumn, Records

_TEXTS = st.text(st.sampled_from('aß😀 ,:{}[]"\\\n"\\u/'), max_size=6)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False), _TEXTS)
_NESTED = st.sampled_from([{"x": 1}, {"x": {"y": [1.50, "é", []]}, "z": {}}, [], [[1], {"a": None}], {"x": [True, 2]}])
_ROWS = st.fixed_dictionaries({"id": _SCALARS, "a": _SCALARS}, optional={"b": _SCALARS, "nested": _NESTED})
_MESSAGES = st.fixed_dictionaries(
    {"row": _ROWS, "key": st.lists(_SCALARS, max_size=2)}, optional={"ts": st.just([1, 2]), "e": st.just({})}
)
_DAMAGE = st.sampled_from(
    [
        *((b'"', b""), (b"}", b"]"), (b",", b",,"), (b":", b": "), (b"1", b"01"), (b"1", b"+1"), (b"1", b"1e1")),
        *((b"\\", b"\\\\"), (b"\\u", b"\\ud"), (b"\\", b"\\x"), (b"\\n", b"\\u000a"), (b'"', b'\\"'), (b"}", b"}\\")),
        *((b"null", b"nul"), (b"a", b"\xff"), (b'{"row"', b' {"row"'), (b"}", b"} "), (b"1", b"NaN"), (b"1", b"-0")),
        *((b'"b"', b'"a"'), (b'"x"', b'"x":1,"x"'), (b"{}", b'{"x":{},"x":{}}'), (b"[", b"[["), (b"2", b"9" * 25)),
    ]
)
_EDITED = st.tuples(
    st.lists(_MESSAGES, max_size=12),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 11), _DAMAGE), max_size=3),
)


def edited(
    made: list[Any], spaced: bool, in_ascii: bool, damaged: list[tuple[int, tuple[bytes, bytes]]]
) -> list[bytes | None]:
    separators = (", ", ": ") if spaced else (",", ":")
    messages = [json.dumps(record, separators=separators, ensure_ascii=in_ascii).encode() for record in made]
    for place, (old, new) in damaged:
        if place < len(messages):
            messages[place] = messages[place].replace(old, new, 1)
    return [*messages, None, b"", b"{}", b"[1]"]


def cells(column: RecordColumn) -> list[tuple[int, str | None, bool, bool]]:
    marks = column.have_byte(1, b"a").tolist(), column.have_byte(-1, b"a").tolist()
    return list(zip(column.kinds.tolist(), column.texts.to_pylist(), *marks, strict=True))


def held(records: Records, path: Path = ()) -> list[dict[Path, Any]]:
    """All that records hold, each by the paths that are there."""
    cells_by_path: list[dict[Path, Any]] = [{} for _ in range(len(records))]
    numbers, fits = records.whole_numbers(*path)
    whole = [int(number) if fit else None for number, fit in zip(numbers, fits, strict=True)]
    lengths, objects = records.lengths(*path).tolist(), records.are_objects(*path).tolist()
    for place, cell in enumerate(cells(records.column(*path))):
        assert cell[0] == records.kinds(*path)[place]
        if cell[0] != CellKind.ABSENT:
            cells_by_path[place][path] = (cell, lengths[place], objects[place], whole[place])
    for mask, text in records.by_value(*path):
        for place in np.flatnonzero(mask & (records.kinds(*path) != CellKind.ABSENT)).tolist():
            cells_by_path[place][path + ("value",)] = text  # noqa: RUF005
    for mask in records.by_members(*path):
        for name in records.members(*path):
            assert len(set((records.kinds(*path, name)[mask] == CellKind.ABSENT).tolist())) <= 1
    for step in (*records.members(*path), *range(max(lengths, default=0))):
        for place, deeper in enumerate(held(records, (*path, step))):
            cells_by_path[place] |= deeper
    return cells_by_path


def read(messages: list[bytes | None], few: int, fixed: str = "") -> dict[int, Any]:
    """What messages hold, or why they are refused."""
    contents = dict[int, Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer, "FEW", few)
        for records in json_records(pa.array(messages, pa.binary()), fixed):
            reasons = {place: reason for place, _, reason in records.refused()}
            assert sorted(reasons) == np.flatnonzero(~records.sound).tolist()
            for place, values in enumerate(held(records)):
                message = int(records.messages[place])
                assert message not in contents
                contents[message] = reasons.get(place, values)
    return contents


@given(_EDITED)
def test_records_are_the_same_side_by_side_and_one_by_one(
    made: tuple[list[Any], bool, bool, list[tuple[int, tuple[bytes, bytes]]]],
) -> None:
    sent = edited(*made)
    assert read(sent, 1) == read(sent, 1 << 40)
    assert read(sent, 1).keys() == set(range(len(sent)))


_BLOCKS = st.sampled_from([{"type": "struct", "fields": [{"é": 1.50, "schema": 2}], "n": 3}, {"schema": None}, 7, "x"])


@given(_EDITED, _BLOCKS, st.sampled_from(["first", "last", "within"]))
def test_records_are_the_same_if_they_are_known_to_have_a_member_in_common(
    made: tuple[list[Any], bool, bool, list[tuple[int, tuple[bytes, bytes]]]], block: Any, place: str
) -> None:
    own, (messages, spaced, in_ascii, damaged) = {"schema": block}, made
    whole = [own | row if place == "first" else row | own if place == "last" else {"a": own | row} for row in messages]
    sent = edited(whole, spaced, in_ascii, damaged)
    sent += [b'{"schema":7,"schema":7,"a":1}', b'{"schema":7,}', b'{"a":1,"schema":7}}', b'{"schema":7}']
    plain = read(sent, 1 << 40)
    assert read(sent, 1 << 40, "schema") == plain
    assert read(sent, 1, "schema") == plain


@given(
    _EDITED,
    st.dictionaries(st.text(max_size=3), st.sampled_from(["", "int", 'a"b', "\\", 7, None]), max_size=4),
    st.data(),
)
def test_records_are_the_same_if_members_of_an_object_in_them_stand_in_any_order(
    made: tuple[list[Any], bool, bool, list[tuple[int, tuple[bytes, bytes]]]], held: dict[str, Any], data: st.DataObject
) -> None:
    messages, spaced, in_ascii, _ = made
    orders = [data.draw(st.permutations(list(held))) for _ in messages]
    whole = [
        {**row, "types": {name: held[name] for name in order}} for row, order in zip(messages, orders, strict=True)
    ]
    for few in (1, 1 << 40):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(producer, "FEW", few)
            sent = pa.array(edited(whole, spaced, in_ascii, []), pa.binary())
            for records in json_records(sent, unordered=("types",)):
                for name in records.members("types"):
                    texts = records.column("types", name).texts.to_pylist()
                    assert texts == [None if held[name] is None else str(held[name])] * len(records)


@given(_EDITED, st.data())
def test_some_of_the_records_are_as_they_were_among_all(
    made: tuple[list[Any], bool, bool, list[tuple[int, tuple[bytes, bytes]]]], data: st.DataObject
) -> None:
    sent = edited(*made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer, "FEW", 1)
        for records in json_records(pa.array(sent, pa.binary())):
            size = len(records)
            kept = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
            required = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
            records.require(required, lambda place: f"{place}")
            reasons = {message: reason for _, message, reason in records.refused()}
            some = records.among(kept)
            assert some.messages.tolist() == records.messages[kept].tolist()
            assert held(some) == [record for record, mark in zip(held(records), kept.tolist(), strict=True) if mark]
            assert {m: r for _, m, r in some.refused()} == {m: reasons[m] for m in reasons if m in some.messages}
            assert some.sound.tolist() == records.sound[kept].tolist()


def test_a_strict_parser_says_why_a_message_is_none() -> None:
    sent = [
        b'{"a":1,"a":2}', b'{"a":"\\ud800"}', b'{"a":"\xff"}', b'{"a":NaN}', b'{"a":', b"[1]", b"", None,
        b'{"a":' + b"[" * 500 + b"]" * 500 + b"}", b'{"a":' + b"[" * 50_000,
    ]  # fmt: skip
    (records,) = parsed_records(pa.array(sent, pa.binary()))
    assert [reason for _, _, reason in records.refused()] == [
        'the member "a" appears twice in it',
        "a text in it has half of a surrogate pair, so it is not UTF-8",
        "it is not UTF-8 at byte 6",
        "NaN is not JSON",
        "it is not JSON: Expecting value: line 1 column 6 (char 5)",
        "it is not an object",
        "it is not JSON: Expecting value: line 1 column 1 (char 0)",
        "it has no value",
        "it is nested too deeply",
        "it is nested too deeply",
    ]
    assert not records.sound.any()


def test_numbers_keep_their_digits_and_what_is_within_a_cell_is_compact_json() -> None:
    sent = [b'{"a": 1.50, "b": {"c": [1e2, "\\u00e9", null, {}]}}', b'{"a": 123456789012345678901, "b": []}']
    (records,) = parsed_records(pa.array(sent, pa.binary()))
    assert records.column("a").texts.to_pylist() == ["1.50", "123456789012345678901"]
    assert records.column("b").texts.to_pylist() == ['{"c":[1e2,"é",null,{}]}', "[]"]
    assert records.column("b", "c", 0).texts.to_pylist() == ["1e2", None]


def test_the_first_reason_of_a_record_counts() -> None:
    sound_records, unread = parsed_records(pa.array([b'{"a":1}', b'{"a":2}', b"x"], pa.binary()))
    sound_records.require(sound_records.column("a").are(CellKind.TEXT) | np.array([True, False]), "it is no text")
    for records in (sound_records, unread):
        records.require(False, lambda place: f"the record at {place}")
    assert list(sound_records.refused()) == [(0, 0, "the record at 0"), (1, 1, "it is no text")]
    assert [(message, reason[:14]) for _, message, reason in unread.refused()] == [(2, "it is not JSON")]


_PARTS = st.fixed_dictionaries({}, optional=dict.fromkeys(("a", "b", "é"), _SCALARS | _NESTED))


@given(st.lists(st.tuples(_PARTS, _PARTS), max_size=12), _EDITED)
def test_records_are_the_same_if_an_object_in_them_has_some_members_of_another(
    sides: list[tuple[Any, Any]], made: tuple[list[Any], bool, bool, list[tuple[int, tuple[bytes, bytes]]]]
) -> None:
    whole = [{"old": [old], "new": [old | new], "z": 1} for old, new in sides]
    sent = edited(whole, *made[1:])
    plain = read(sent, 1 << 40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer, "FEW", 1)
        patch.setattr(producer, "_MOST_SHAPES", 4)
        for records in same_shapes(pa.array(sent, pa.binary()), partial=(("old", 0), ("new", 0))):
            for place, values in enumerate(held(records)):
                assert values == plain[int(records.messages[place])]


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "FEW", 1)


def of_one_shape(sent: list[bytes]) -> dict[int, str | None]:
    """The cells `a` of messages that are not left to the parser."""
    texts_by_message = dict[int, str | None]()
    for group in same_shapes(pa.array(sent, pa.binary())):
        texts_by_message |= dict(zip(group.messages.tolist(), group.column("a").texts.to_pylist(), strict=True))
    return texts_by_message


@pytest.mark.usefixtures("few")
def test_messages_of_one_shape_are_all_read_whatever_their_values_are() -> None:
    sent = [b'{"a":1,"b":"x"}', b'{"a":null,"b":null}', b'{"a":-1.5e3,"b":true}', '{"a":"é","b":""}'.encode()]
    (group,) = same_shapes(pa.array(sent, pa.binary()))
    assert group.column("a").texts.to_pylist() == ["1", None, "-1.5e3", "é"]
    assert group.column("b").texts.to_pylist() == ["x", None, "true", ""]
    assert group.kinds("b").tolist() == [CellKind.TEXT, CellKind.NULL, CellKind.BOOL, CellKind.TEXT]


@pytest.mark.usefixtures("few")
def test_texts_with_escapes_are_read_side_by_side_too() -> None:
    texts = ["", '"', "\\", '\\"', "a\nb", "ß", "\\u0041", "/"]
    sent = [json.dumps({"a": text, "b": place}).encode() for place, text in enumerate(texts)]
    texts_by_message = of_one_shape([*sent, b'{"a": "\\/\\u0041", "b": 8}'])
    assert [value for _, value in sorted(texts_by_message.items())] == [*texts, "/A"]


@pytest.mark.usefixtures("few")
def test_one_shape_has_objects_with_whichever_members_of_another_one() -> None:
    olds = ['{"a":"x"}', '{"b":""}', "{}", '{"a":null,"c":"y"}', '{"a":"x","b":"y","c":null}']
    wrong = ['{"c":"y","a":"x"}', '{"a":"x",}', '{"a":"x""b":"y"}', '{,"a":"x"}', '{"a":"x","a":"x"}', '{"a":nul}']
    wrong += ['{"a":1}', '{"d":"x"}', '{"a":{}}', '{"a":"x","b"}', '{"a":"x"']
    message = '{"old":[%s],"new":[{"a":"1","b":"2","c":"3"}]}'
    sent = pa.array([(message % old).encode() for old in (*olds, *wrong)], pa.binary())
    groups = list(same_shapes(sent, partial=(("old", 0), ("new", 0))))
    assert groups[0].messages.tolist() == [0, 1, 2, 3, 4]
    assert groups[0].column("old", 0).texts.to_pylist() == olds
    assert groups[0].column("old", 0, "a").kinds.tolist() == [CellKind.TEXT, 0, 0, CellKind.NULL, CellKind.TEXT]


@pytest.mark.usefixtures("few")
def test_a_text_without_its_end_has_no_shape_with_what_stands_behind_it() -> None:
    sent = [b'{"a":"x"}', b'{"a":"x\\"}', b'{"a":"\\x"}', b'{"a":"\\ud83d"}', b'{"a":"\\u00"}']
    assert of_one_shape(sent).keys() == {0}


def test_a_message_with_a_member_twice_has_no_shape() -> None:
    twice = [b'{"a":1,"a":2}', b'{"a":1,"a":{}}', b'{"a":{"b":1},"a":2}', b'{"a":[1],"a":{"b":1}}', b'{"a":{},"a":{}}']
    assert [find_shape(message) for message in twice] == [None] * 5


def test_a_member_that_is_the_same_everywhere_is_no_value() -> None:
    shape = find_shape(b'{"schema":{"type":"int32"},"payload":{"id":1}}', "schema")
    assert shape is not None
    assert shape.paths == (("payload", "id"),)


@pytest.mark.usefixtures("few")
def test_a_message_without_value_does_not_begin_as_the_next_one_does() -> None:
    message = b'{"schema":{"type":"int32"},"payload":{"id":%d}}'
    sent = [message % 1, None, message % 2, b"", message % 3]
    (records,) = same_shapes(pa.array(sent, pa.binary()), "schema")
    assert records.messages.tolist() == [0, 2, 4]
    assert records.column("payload", "id").texts.to_pylist() == ["1", "2", "3"]
    assert records.column("payload").texts.to_pylist() == ['{"id":1}', '{"id":2}', '{"id":3}']


@pytest.mark.usefixtures("few")
def test_blocks_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_BLOCK_BYTES", 40)
    monkeypatch.setattr(producer, "_BLOCK_MESSAGES", 4)
    texts_by_message = of_one_shape([b'{"a":%d}' % number for number in range(50)])
    assert [value for _, value in sorted(texts_by_message.items())] == [str(number) for number in range(50)]


def test_few_messages_are_left_to_the_parser() -> None:
    assert all(isinstance(block, ParsedRecords) for block in json_records(pa.array([b'{"a":1}'] * 3, pa.binary())))
