"""YDB's records are what they are, whatever stands beside them: read together as each alone."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats import json_records as producers
from cdc_assets.formats.decoded import COMMIT_TS, LINE, UNCHANGED
from cdc_assets.formats.ydb_json import classify, decode, show_columns
from cdc_assets.sources.topics.schemas import tables_by_text
from cdc_assets_tests.formats.test_ydb_keys import SOURCE, TABLE, TOPIC, YQL

OPTIONS = MessageOptions(protocol="ydb-json")
SCHEMA = tables_by_text(YQL, "s", OPTIONS)[TABLE]
VALUES: st.SearchStrategy[Any] = st.sampled_from([None, 0, 1, -1, 1.5, "x", "y", "", True, [], {}, [1], {"a": 1}])
IMAGES = st.dictionaries(st.sampled_from(["a", "b", "v", "w", "z"]), VALUES, max_size=3)
TYPED = st.sampled_from(
    [
        {"N": "1"},
        {"S": "x"},
        {"S": "y"},
        {"B": "AA=="},
        {"BOOL": True},
        {"NULL": True},
        {"N": "1", "S": "x"},
        {},
        {"L": []},
    ]
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b", "v", "w"]), TYPED, max_size=3)
KEYS = (
    st.lists(st.sampled_from([None, 1, 2, "x", "y"]), min_size=1, max_size=3) | st.just([1, "x"]) | st.just([None, "y"])
)


@st.composite
def own(draw: st.DrawFn) -> dict[str, Any]:
    record: dict[str, Any] = {"key": draw(KEYS), draw(st.sampled_from(["update", "reset", "erase"])): draw(IMAGES)}
    record |= draw(
        st.sampled_from([{}, {"ts": [1, 2]}, {"ts": [1]}, {"oldImage": {"v": 1}}, {"erase": {}}, {"key": 1}])
    )
    return record | ({"newImage": draw(IMAGES | st.none())} if draw(st.booleans()) else {})


@st.composite
def flavoured(draw: st.DrawFn) -> dict[str, Any]:
    payload: dict[str, Any] = {"op": draw(st.sampled_from("cudrx")), **json.loads("{" + SOURCE + "}")}
    for side in ("before", "after"):
        if draw(st.booleans()):
            payload[side] = draw(IMAGES | st.none())
    return {"payload": payload}


@st.composite
def document(draw: st.DrawFn) -> dict[str, Any]:
    event = draw(st.sampled_from(["INSERT", "MODIFY", "REMOVE", "X"]))
    images = {side: draw(ATTRIBUTES) for side in ("Keys", "NewImage") if draw(st.integers(0, 5))}
    return {"eventSource": "ydb:document-table", "eventName": event, "dynamodb": images}


OTHERS: st.SearchStrategy[Any] = st.sampled_from(
    [{"resolved": [1, 2]}, {"resolved": [1, -2]}, {}, {"tableChanges": []}, {"key": [1, "x"]}, {"payload": 1}, [], 1]
)
RECORDS = st.one_of(own(), own(), flavoured(), document(), OTHERS).map(json.dumps) | st.sampled_from(
    ['{"key":[1,"x"],"update":{"v":1,"v":2}}', "{", '{"key":[1,"\\ud800"],"reset":{}}']
)
MESSAGE_KEYS = st.none() | st.sampled_from(
    [
        '{"payload":{"a":1,"b":"x"}}',
        '{"a":null,"b":"x"}',
        '{"payload":{"b":"y"}}',
        "{",
        "1",
        '{"payload":{"a":1,"v":1}}',
    ]
)
MESSAGES = st.lists(st.tuples(MESSAGE_KEYS, RECORDS), min_size=1, max_size=12)
Message = tuple[str | None, str]


def batch_of(messages: list[Message]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([TOPIC] * len(messages)),
            "key": pa.array([None if key is None else key.encode() for key, _ in messages], pa.binary()),
            "value": pa.array([value.encode() for _, value in messages], pa.binary()),
            "ordinals": pa.array([[0]] * len(messages), pa.list_(pa.int32())),
        }
    )


def read(messages: list[Message]) -> list[Any]:
    """Return by message what it speaks of, whether it shows columns, and its change or why it is none."""
    batch = batch_of(messages)
    spoken: dict[int, Any] = {message.pop("message"): message for message in classify(batch, OPTIONS).to_pylist()}
    decoded_rows = decode(batch, "split", TABLE, SCHEMA, OPTIONS)
    changes: dict[int, Any] = {
        row.pop(LINE) - 1: {COMMIT_TS: 0, UNCHANGED: None, **row} for row in decoded_rows.changes.to_pylist()
    }
    changes.update({reject.line - 1: reject.reason for reject in decoded_rows.rejects})
    shown = show_columns(batch).to_pylist()
    return [(spoken.get(number), shown[number], changes.get(number)) for number in range(len(messages))]


@pytest.mark.parametrize("few", [1, 192], ids=["by shapes", "by the parser"])
@settings(max_examples=60)
@given(messages=MESSAGES)
def test_a_record_is_the_same_whatever_stands_beside_it(few: int, messages: list[Message]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(producers, "FEW", few)
        together = read(messages)
    assert together == [read([message])[0] for message in messages]
