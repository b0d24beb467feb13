"""Keys of YDB's rows: NULL in them, and where a record has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import OP, Decoded, Op
from cdc_assets.formats.messages import Kind
from cdc_assets.formats.ydb_json import classify, decode
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.schemas import tables_by_text
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

OPTIONS = MessageOptions(protocol="ydb-json")
TABLE, TOPIC = TableId("shop", "orders"), "shop/orders/updates"
YQL = "CREATE TABLE `shop/orders` (a Int32, b Utf8 NOT NULL, v Int64, w Utf8, PRIMARY KEY (a, b));"
SOURCE = '"source":{"connector":"ydb","version":"1.0.0","ts_ms":1,"step":1755883683690,"txId":7,"snapshot":false}'


def decoded(*records: tuple[str | None, str], text: str = YQL) -> Decoded:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([TOPIC] * len(records)),
            "key": pa.array([None if key is None else key.encode() for key, _ in records], pa.binary()),
            "value": pa.array([value.encode() for _, value in records], pa.binary()),
            "ordinals": pa.array([[0]] * len(records), pa.list_(pa.int32())),
        }
    )
    assert set(classify(batch, OPTIONS).column("kind").to_pylist()) == {Kind.ROW}
    return decode(batch, "split", TABLE, tables_by_text(text, "s", OPTIONS)[TABLE], OPTIONS)


def rows(decoded_rows: Decoded) -> list[tuple[Any, ...]]:
    return [(row[OP], row["a"], row["b"], row["v"]) for row in decoded_rows.changes.to_pylist()]


def test_a_key_column_may_be_null_unless_it_says_not_null() -> None:
    (schema,) = tables_by_text(YQL, "s", OPTIONS).values()
    assert [(column.name, column.nullable) for column in schema.columns] == [
        ("a", True), ("b", False), ("v", True), ("w", True),
    ]  # fmt: skip


# --- where keys are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "after"),
    [
        ('{"payload":{"a":1,"b":"x"}}', '{"a":1,"b":"x","v":5}'),
        ('{"payload":{"a":1,"b":"x"}}', '{"v":5}'),
        ('{"payload":{"a":1,"b":"x"}}', '{"b":"x","v":5}'),
        ('{"a":1,"b":"x"}', '{"v":5}'),
        (None, '{"a":1,"b":"x","v":5}'),
    ],
)
def test_a_row_in_debezium_s_form_has_its_key_in_the_message_s_key_or_in_itself(key: str | None, after: str) -> None:
    decoded_rows = decoded((key, f'{{"payload":{{"op":"u",{SOURCE},"after":{after}}}}}'))
    assert (rows(decoded_rows), decoded_rows.rejects) == ([(Op.INSERT, 1, "x", 5)], ())


@pytest.mark.parametrize(
    ("key", "change", "reason"),
    [
        (None, '"op":"u","after":{"b":"x","v":5}', 'neither it nor the key of its message has the column "a"'),
        ('{"payload":{"b":"x"}}', '"op":"u","after":{"v":5}', 'has the column "a" of the key'),
        ('{"payload":{"b":"x"}}', '"op":"d"', 'has the column "a" of the key'),
        (None, '"op":"d"', 'has the column "a" of the key'),
        ('{"payload":{"a":2,"b":"x"}}', '"op":"u","after":{"a":1,"b":"x"}', 'its column "a" is 1, and 2 in the key'),
        ('{"payload":{"a":null,"b":"x"}}', '"op":"u","after":{"a":1,"b":"x"}', "and null in the key of its message"),
        ('{"payload":{"a":1,"b":"x","a":2}}', '"op":"u","after":{"v":1}', 'the member "a" appears twice in it'),
        ('{"payload":{"a":NaN,"b":"x"}}', '"op":"u","after":{"v":1}', "NaN is not JSON"),
        ('{"payload":{"a":1,"b":"x","v":2}}', '"op":"u","after":{"v":2}', "the table's has the columns a, b"),
        ('{"payload":[1]}', '"op":"d"', "the key of its message cannot be read: it is [1]"),
        ("[1]", '"op":"d"', "the key of its message cannot be read: it is not an object"),
        ('{"payload"', '"op":"d"', "the key of its message cannot be read: it is not JSON"),
    ],
)
def test_a_key_that_is_missing_or_contradicts_its_row_is_named(key: str | None, change: str, reason: str) -> None:
    decoded_rows = decoded((key, f'{{"payload":{{{change},{SOURCE}}}}}'))
    assert decoded_rows.changes.num_rows == 0
    assert reason in decoded_rows.rejects[0].reason


def test_a_document_leaves_out_what_is_null_of_its_key() -> None:
    def record(event: str, keys: Mapping[str, Any], **images: Any) -> tuple[None, str]:
        change = {"Keys": keys, "SequenceNumber": "000000000000000000001", **images}
        return None, json.dumps({"eventSource": "ydb:document-table", "eventName": event, "dynamodb": change})

    key = {"b": {"S": "x"}}
    decoded_rows = decoded(
        record("MODIFY", key, NewImage={**key, "v": {"N": "5"}}),
        record("REMOVE", key),
        record("REMOVE", {**key, "v": {"N": "1"}}),
    )
    assert rows(decoded_rows) == [(Op.INSERT, None, "x", 5), (Op.DELETE_KEY, None, "x", None)]
    assert [reject.reason for reject in decoded_rows.rejects] == [
        'it is not a row of a YDB changefeed: its key is {"b":{"S":"x"},"v":{"N":"1"}}, and '
        "the table's has the columns a, b"
    ]


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"key":[1,"x"],"update":{"a":2,"v":5}}', 'its column "a" is 2, and 1 in its key'),
        ('{"key":[1,"x"],"reset":{"b":"y"}}', 'its column "b" is y, and x in its key'),
        ('{"key":[null,"x"],"update":{},"newImage":{"a":0,"v":5}}', 'its column "a" is 0, and null in its key'),
        ('{"eventSource":"ydb:document-table","eventName":"MODIFY","dynamodb":{"Keys":{"b":{"S":"x"}},'
         '"NewImage":{"a":{"N":"1"},"b":{"S":"x"}}}}', 'its column "a" is 1, and nothing in its key'),
        ('{"eventSource":"ydb:document-table","eventName":"MODIFY","dynamodb":{"Keys":{"b":{"S":"x"}},'
         '"NewImage":{"b":{"S":"y"}}}}', 'its column "b" is y, and x in its key'),
    ],
)  # fmt: skip
def test_a_row_that_contradicts_its_key_is_named(record: str, reason: str, count: int) -> None:
    decoded_rows = decoded(*[(None, record)] * count)
    assert (decoded_rows.changes.num_rows, len(decoded_rows.rejects)) == (0, count)
    assert reason in decoded_rows.rejects[0].reason


@pytest.mark.parametrize("count", [1, 300])
def test_a_row_may_repeat_its_key(count: int) -> None:
    record = '{"key":[1,"x"],"update":{},"newImage":{"a":1,"b":"x","v":5}}'
    decoded_rows = decoded(*[(None, record)] * count)
    assert rows(decoded_rows) == [(Op.INSERT, 1, "x", 5)] * count


def test_a_table_whose_key_nobody_gave_takes_no_row() -> None:
    """Without a key each change would be one row more."""
    text = "shop/orders:\n  a: Int32\n  b: Utf8\n  v: Int64\n"
    value = f'{{"payload":{{"op":"u",{SOURCE},"after":{{"a":1,"b":"x","v":5}}}}}}'
    decoded_rows = decoded(('{"payload":{"a":1,"b":"x"}}', value), text=text)
    assert decoded_rows.changes.num_rows == 0
    assert "as CREATE TABLE with its PRIMARY KEY" in decoded_rows.rejects[0].reason


@pytest.mark.parametrize(
    "record",
    [
        '{"update":{"v":1},"key":[1,"x"],"update":{"v":2}}',
        '{"update":{"v":1,"v":2},"key":[1,"x"]}',
        '{"update":{},"update":{"v":2},"key":[1,"x"]}',
        '{"key":[1,"x"],"key":[2,"x"],"erase":{}}',
        '{"resolved":[1,2],"resolved":[2,2]}',
    ],
)
@pytest.mark.parametrize("count", [1, 300])
def test_a_member_that_stands_in_a_record_twice_makes_it_bad(record: str, count: int) -> None:
    """Of many messages the first ones give the shape that all others are read by."""
    batch = pa.RecordBatch.from_pydict({"topic": [TOPIC] * count, "value": [record.encode()] * count})
    spoken = classify(batch, OPTIONS).to_pylist()
    assert {message["kind"] for message in spoken} == {Kind.BAD}
    assert "appears twice in it" in spoken[0]["reason"]


# --- NULL in keys -----------------------------------------------------------------------------------------------------

Operation = tuple[str, tuple[int | None, str], dict[str, Any]]
KEYS = st.tuples(st.none() | st.integers(-2, 2), st.sampled_from(["x", "y"]))
OPERATIONS: st.SearchStrategy[list[Operation]] = st.lists(
    st.tuples(
        st.sampled_from(["update", "update", "reset", "erase"]),
        KEYS,
        st.fixed_dictionaries({}, optional={"v": st.none() | st.integers(0, 9), "w": st.none() | st.text(max_size=2)}),
    ),
    min_size=1,
    max_size=40,
)


def line_of(number: int, operation: Operation) -> dict[str, Any]:
    """Return a change as a message of the topic."""
    kind, key, image = operation
    record = {kind: {} if kind == "erase" else image, "key": list(key), "ts": [1000 + number, number]}
    value = base64.b64encode(json.dumps(record).encode()).decode()
    place = {"topic": TOPIC, "partition": 0, "offset": number, "timestamp_ms": 0}
    return {**place, "key_b64": None, "value_b64": value, "headers": []}


def table_after(operations: Iterable[Operation]) -> dict[tuple[int | None, str], dict[str, Any]]:
    """Return the rows of the table as YDB has them."""
    images: dict[tuple[int | None, str], dict[str, Any]] = {}
    for kind, key, image in operations:
        if kind == "erase":
            images.pop(key, None)
        else:
            base = images.get(key, {}) if kind == "update" else {}
            images[key] = {"v": None, "w": None, **base, **image}
    return images


def rows_by_key(table: pa.Table) -> dict[tuple[int | None, str], dict[str, Any]]:
    """Return the rows of a lake's table; each key is there once."""
    lake_rows = table.to_pylist()
    rows = {(row["a"], row["b"]): {"v": row["v"], "w": row["w"]} for row in lake_rows}
    assert len(rows) == len(lake_rows)
    return rows


def feed_of(text: str, directory: Path, lines: Sequence[dict[str, Any]] = (), **given: Any) -> TopicFeed:
    """Return a feed of the topic, whose table a text describes."""
    (directory / "s.sql").write_text(text)
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    return TopicFeed.of(MemoryLog(list(lines)), sink_uri=uri, name="ydb", schemas=directory / "s.sql", **given)


def reasons(feed: TopicFeed) -> list[str]:
    """Apply what is there; return why tables are held."""
    return [table.reason for table in feed.apply().tables if table.reason]


def some_operations(seed: int, count: int) -> list[Operation]:
    """Return changes of few keys, some of which are NULL."""
    random, operations = Random(seed), list[Operation]()
    for _ in range(count):
        kind = random.choice(["update", "update", "reset", "erase"])
        key = random.choice([None, None, 1, 2, 3]), random.choice("xy")
        names = random.choice([("v",), ("w",), ("v", "w")])
        image = {name: random.choice([None, {"v": 7, "w": "w"}[name]]) for name in names}
        operations.append((kind, key, image))
    return operations


@settings(max_examples=50)
@given(operations=OPERATIONS, cuts=st.lists(st.integers(0, 40), max_size=3), partitions=st.integers(1, 2))
def test_rows_are_those_of_the_source_however_landings_are_cut(
    tmp_path_factory: pytest.TempPathFactory, operations: list[Operation], cuts: Sequence[int], partitions: int
) -> None:
    """NULL in keys, and keys alone: these wait for the first row that has columns, wherever it comes."""
    feed = feed_of(YQL, tmp_path_factory.getbasetemp())
    offsets, lines = [0] * partitions, list[dict[str, Any]]()
    for number, operation in enumerate(operations):
        partition = "xy".index(operation[1][1]) % partitions
        lines.append({**line_of(number, operation), "partition": partition, "offset": offsets[partition]})
        offsets[partition] += 1
    for count in sorted({min(max(cut, 1), len(lines)) for cut in cuts} | {len(lines)}):
        feed.log.lines = lines[:count]
        hold_reasons = reasons(feed)
        written = [image for kind, _, image in operations[:count] if kind != "erase"]
        if any(written) or not written:
            assert hold_reasons == []
            assert rows_by_key(feed.lake.read(TABLE)) == table_after(operations[:count])
        else:
            (reason,) = hold_reasons
            assert "it has its key alone" in reason


def test_a_table_that_its_own_schema_records_describe_has_their_key(tmp_path: Path) -> None:
    columns = {"a": "Int32", "b": "Utf8", "v": "Int64", "w": "Utf8"}
    stated = {"tableChanges": [{"table": {"columns": columns, "primaryKeyColumnNames": ["a", "b"]}}], "ts": [1, 1]}
    operations = some_operations(2, 30)
    lines = [line_of(number + 1, operation) for number, operation in enumerate(operations)]
    value = base64.b64encode(json.dumps(stated).encode()).decode()
    lines.insert(0, {**lines[0], "offset": 0, "value_b64": value})
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    feed = TopicFeed.of(MemoryLog(lines), sink_uri=uri, name="ydb")
    assert [table.reason for table in feed.apply().tables if table.reason] == []
    assert rows_by_key(feed.lake.read(TABLE)) == table_after(operations)


def test_null_in_a_key_that_may_not_be_null_holds_the_table(tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text(YQL)
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    first: Operation = ("update", (1, "x"), {"v": 1})
    lines = [line_of(0, first), line_of(1, ("update", (1, None), {"v": 1}))]  # type: ignore[arg-type]  # the fault
    feed = TopicFeed.of(MemoryLog(lines), sink_uri=uri, name="ydb", schemas=tmp_path / "s.sql")
    (table,) = feed.apply().tables
    assert "NULL in a column that is" in table.reason


# --- keys alone -------------------------------------------------------------------------------------------------------


ADD = "ALTER TABLE `shop/orders` ADD CHANGEFEED updates WITH (FORMAT = 'JSON', MODE = '{}', INITIAL_SCAN = TRUE);"
ALONE: list[Operation] = [("update", (None, "x"), {}), ("reset", (1, "y"), {}), ("erase", (1, "z"), {})]
LATER: list[Operation] = [("update", (2, "x"), {"v": 1}), ("update", (1, "y"), {"w": "w"})]


@pytest.mark.parametrize("quarantine", [False, True])
@pytest.mark.parametrize("landings", [(1, 2, 3, 4, 5), (3, 5), (5,), (4, 5)])
def test_rows_with_their_key_alone_wait_for_a_row_of_their_topic_that_has_columns(
    landings: tuple[int, ...], quarantine: bool, tmp_path: Path
) -> None:
    operations = [*ALONE, *LATER]
    lines = [line_of(number, operation) for number, operation in enumerate(operations)]
    feed = feed_of(YQL, tmp_path, quarantine=quarantine)
    for count in landings:
        feed.log.lines = lines[:count]
        hold_reasons = reasons(feed)
        if count <= len(ALONE):
            (reason,) = hold_reasons
            assert "offset 0: it has its key alone" in reason
            assert "ADD CHANGEFEED" in reason
            assert "Wait for one" in reason
        else:
            assert hold_reasons == []
            assert rows_by_key(feed.lake.read(TABLE)) == table_after(operations[:count])
    assert feed.lake.quarantined() == []


@pytest.mark.parametrize("mode", ["UPDATES", "NEW_IMAGE", "new_and_old_images", "KEYS_ONLY", "OLD_IMAGE"])
def test_the_changefeed_s_statement_says_whether_a_key_alone_is_a_row(mode: str, tmp_path: Path) -> None:
    lines = [line_of(number, operation) for number, operation in enumerate(ALONE)]
    feed = feed_of(f"{YQL}\n{ADD.format(mode)}", tmp_path, lines)
    hold_reasons = reasons(feed)
    if mode in ("KEYS_ONLY", "OLD_IMAGE"):
        (reason,) = hold_reasons
        assert "of which no table can be built" in reason
    else:
        assert hold_reasons == []
        assert rows_by_key(feed.lake.read(TABLE)) == table_after(ALONE)


@pytest.mark.parametrize(
    "statement",
    [
        ADD.format("UPDATES").replace("updates", "another"),
        ADD.format("UPDATES") + "ALTER TABLE `shop/orders` DROP CHANGEFEED updates;",
        ADD.format("UPDATES").replace("MODE = 'UPDATES', ", ""),
    ],
)
def test_a_statement_of_another_changefeed_says_nothing(statement: str, tmp_path: Path) -> None:
    feed = feed_of(f"{YQL}\n{statement}", tmp_path, [line_of(0, ALONE[0])])
    (reason,) = reasons(feed)
    assert "it has its key alone" in reason


@pytest.mark.parametrize("landings", [(1, 2), (2,)])
def test_two_changefeeds_of_a_table_hold_it(landings: tuple[int, ...], tmp_path: Path) -> None:
    """What the slower one sends would undo what the other has brought."""
    lines = [line_of(0, LATER[0]), {**line_of(0, LATER[0]), "topic": "shop/orders/other"}]
    feed = feed_of(YQL, tmp_path, topics=["shop/*"])
    for count in landings:
        feed.log.lines = lines[:count]
        hold_reasons = reasons(feed)
    (reason,) = hold_reasons
    assert "shop.orders has rows in the topics shop/orders/" in reason


def test_a_table_that_is_its_key_has_whole_rows(tmp_path: Path) -> None:
    text = "CREATE TABLE `shop/orders` (a Int32, b Utf8 NOT NULL, PRIMARY KEY (a, b));"
    feed = feed_of(text, tmp_path, [line_of(number, operation) for number, operation in enumerate(ALONE)])
    assert reasons(feed) == []
    lake_rows = feed.lake.read(TABLE).to_pylist()
    assert {(row["a"], row["b"]) for row in lake_rows} == {(None, "x"), (1, "y")}


def test_rows_as_they_were_do_not_show_that_a_key_alone_is_a_row(tmp_path: Path) -> None:
    old = {"update": {}, "key": [1, "x"], "oldImage": {"v": 1}}
    value = base64.b64encode(json.dumps(old).encode()).decode()
    feed = feed_of(YQL, tmp_path, [line_of(0, ALONE[0]), {**line_of(1, ALONE[0]), "value_b64": value}])
    (reason,) = reasons(feed)
    assert "it has its key alone" in reason
