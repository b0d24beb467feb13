"""Masked columns: the lake has what the source has after the mask, however the rows came, and nothing else of them."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import note
from hypothesis import strategies as st

from cdc_assets.decoding import PLACE
from cdc_assets.errors import BadSettings, RebuildRefused
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.ledger import Ledger
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan
from cdc_assets.report.explanation import explanation_lines
from cdc_assets.report.landings import describe_landing, describe_unread
from cdc_assets.report.plan_text import describe_plan
from cdc_assets.report.tables import describe_tables
from cdc_assets.report.text import outcome_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.types.families import BINARY
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.canaries import distinctive, found_in, leaks, tokens_of
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.connector_topics import Recording, recordings
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.generated import PICKS, STEPS, STYLES, Feed, each_case, how_many
from cdc_assets_tests.histories import history
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.landing.test_connectors import recorded_feed
from cdc_assets_tests.landing.test_generated_topics import any_history, any_style
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.masked import KEY, differences_of_masked
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.message_writer import marks
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.pipeline.test_bad_streams import Sent, line_of
from cdc_assets_tests.pipeline.test_imported import exchanged
from cdc_assets_tests.replay import pipeline_of, replay, replayed
from cdc_assets_tests.schema_documents import document, file_column, write_schema
from cdc_assets_tests.states import state_differences, states_of
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.topics import Topic, topics
from cdc_assets_tests.writer import Publication, publications

ENCRYPTED: dict[str, Any] = {"privacy_key": {"env": "MASK_KEY"}}
HASHED = {"*.*.*": {"hash": {"key": {"env": "MASK_KEY"}}}}
"""Every column, those of keys too: tables of which something cannot be masked are held, all others must be equal."""

CONFIGS = [
    pytest.param(config, marks=() if number == 0 and place % 3 == 0 else pytest.mark.soak, id=str(config))
    for place, case in enumerate(cases())
    for number, config in enumerate(case.configs)
    if config.options.wire.has_commit_ts
]
OFTEN = {
    "A_all_types/craft", "A_all_types/open-protocol", "A_all_types/canal-json", "D_keys/simple", "D_keys/simple-avro",
    "D_keys/debezium", "A_all_types/avro",
}  # fmt: skip
CUT_OFTEN = {str(case.configs[0]) for case in cases() if case.name == "B_ddl_columns"}
TOPICS = [
    pytest.param(topic, marks=() if str(topic) in OFTEN else pytest.mark.soak, id=str(topic))
    for topic in topics("craft", "open-protocol", "canal-json", "simple", "simple-avro", "debezium", "avro")
]


OF_SHORT_VALUES = ("D_keys/avro", "F_names/")
"""Topics of which no value is distinctive: all that is seen of them is that nothing stops."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)


def stopped(outcome: Outcome) -> dict[str, str]:
    """Return why tables are held, by name."""
    return {str(table.name): table.reason for table in outcome.tables if table.state in (State.HELD, State.FAILED)}


def rows_of(lake: MemoryLake, but_for: Collection[str] = ()) -> dict[TableId, pa.Table]:
    """Return the rows of a lake's tables."""
    tables = lake.tables.values()
    return {table.name: table.rows for table in tables if table.name and str(table.name) not in but_for}


_PLAIN: dict[str, TopicFeed] = {}


def plain_feed(topic: Topic) -> TopicFeed:
    """Return a recorded topic that is landed and applied without masks, once for all tests."""
    if str(topic) not in _PLAIN:
        _PLAIN[str(topic)] = feed = TopicFeed.recording(topic)
        feed.send()
        feed.apply()
    return _PLAIN[str(topic)]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_recorded_changefeed_with_every_column_hashed_is_the_hashed_source(config: Config) -> None:
    final, lake = config.checkpoints[-1], MemoryLake()
    plain, _ = replayed(config, final)
    masking = pipeline_of(config, final, lake, privacy=HASHED)
    held = stopped(masking.apply())
    planned = pipeline_of(config, final, plain).planner.plan()[1]
    equal = rows_of(lake, held)
    assert differences_of_masked(rows_of(plain), equal, planned, masking.settings.masks) == []
    assert equal or all("is to be masked" in reason or "waits" in reason for reason in held.values())


@pytest.mark.parametrize("topic", TOPICS)
def test_a_recorded_topic_with_every_column_hashed_is_the_hashed_source(topic: Topic) -> None:
    plain, masked = plain_feed(topic), TopicFeed.recording(topic, privacy=HASHED, **ENCRYPTED)
    masked.send()
    held = stopped(masked.apply())
    pipeline = Pipeline(plain.settings, plain.source, plain.lake, plain.ledger, landing=plain.landing)
    equal = rows_of(masked.lake, held)
    differing = differences_of_masked(rows_of(plain.lake), equal, pipeline.planner.plan()[1], masked.settings.masks)
    assert differing == []
    assert equal or "is to be masked" in " ".join(held.values())


KILLED_AT = (
    "cdc_assets.pipeline.pipeline:Pipeline.run_step",
    "cdc_assets_tests.memory_lake:MemoryLake.run",
    "cdc_assets_tests.memory_lake:MemoryLake.stage",
    "cdc_assets_tests.memory_lake:MemoryLake.commit",
    "cdc_assets.ledger:Ledger.record_files",
    "cdc_assets.ledger:Ledger.record_schema_files",
)

KINDS: list[Any] = [
    None, "drop", {"redact": "last4"}, {"constant": "x"}, {"redact": "length"}, {"redact": "domain"}, HASHED["*.*.*"],
]  # fmt: skip


def of_every_kind(planned: Plan, turn: int) -> dict[str, Any]:
    """Return masks for all columns that a name can name: hashes of keys, every kind in turn of the others."""
    text_kinds: dict[str, Any] = {}
    for life in planned.history.lives.values():
        schemas = [event.after for event in life.events]
        keys = {fold_name(name) for schema in schemas for name in schema.exact}
        for place, column in enumerate(dict.fromkeys(column for schema in schemas for column in schema.columns)):
            kind = HASHED["*.*.*"] if fold_name(column.name) in keys else KINDS[(place + turn) % len(KINDS)]
            is_text = not (column.type in BINARY and kind in ({"redact": "last4"}, {"redact": "domain"}))
            for name, _, _ in life.names:
                parts = (name.schema, name.table, column.name)
                if all(part.isidentifier() for part in parts):
                    text_kinds.setdefault(fold_name(".".join(parts)), kind if is_text else None)
    return text_kinds


@pytest.mark.parametrize(("config", "turn"), [
    pytest.param(config, turn, marks=() if turn == 0 and str(config) in CUT_OFTEN else pytest.mark.soak)
    for case in cases()
    for number, config in enumerate(case.configs)
    if config.options.wire.has_commit_ts
    for turn in ((3 * step) % len(KINDS) for step in range(2))
], ids=str)  # fmt: skip
def test_masks_of_every_kind_give_the_masked_source_however_it_is_cut_killed_and_rebuilt(
    config: Config, turn: int
) -> None:
    final, cut, once, often = config.checkpoints[-1], *(MemoryLake() for _ in range(3))
    plain, _ = replayed(config, final)
    for checkpoint in (*config.checkpoints, final):  # a writer may have written over files that were read
        replay(config, checkpoint, cut)
    planned = pipeline_of(config, final, plain).planner.plan()[1]
    privacy = of_every_kind(planned, turn)
    masking = pipeline_of(config, final, once, privacy=privacy)
    held = stopped(masking.apply())
    differing = differences_of_masked(rows_of(plain), rows_of(once, held), planned, masking.settings.masks)
    assert differing == []
    for number, checkpoint in enumerate((*config.checkpoints, final)):
        trap = Trap(lambda crossed, _, at=3 * number + 2: crossed == at)  # type: ignore[misc]
        with suppress(Killed), trapped(trap, KILLED_AT):
            pipeline_of(config, checkpoint, often, privacy=privacy).apply()
        last = pipeline_of(config, checkpoint, often, privacy=privacy)
        held |= stopped(last.apply())
    for again in (False, True):
        if again:
            for name in rows_of(often):
                with suppress(RebuildRefused):  # of one that cannot be masked so, or exchanges rows with such a table
                    rebuild(last, MemoryRebuilds(often), [str(name)])
            held = stopped(last.apply())
        expected = rows_of(plain if again else cut)
        differing = differences_of_masked(expected, rows_of(often, held), planned, masking.settings.masks)
        assert differing == [], f"rebuilt: {again}"


# --- nothing of them anywhere -----------------------------------------------------------------------------------------


def everything_said(pipeline: Pipeline, outcome: Outcome, tmp_path: Path) -> None:
    """Write into a directory what people and programs are shown of a run, and what its lake holds."""
    listing, planned = pipeline.planner.plan()
    lake = pipeline.lake
    assert isinstance(lake, MemoryLake)
    printed_texts = [
        repr(outcome.tables),
        *(line for line, _ in outcome_lines(outcome)),
        repr(describe_plan(planned)),
        repr(list(describe_tables(listing, planned.history))),
        repr(pipeline.planner.findings(listing, planned)),
        repr([(step.reading.recipe, step.schema) for step in planned.steps if isinstance(step, ApplyRows)]),
        repr([(table.recipe, table.schema, table.base) for table in lake.tables.values()]),
        repr(list(lake.kept.values())),
    ]
    (tmp_path / "said.txt").write_text("\n".join(printed_texts))
    for number, table in enumerate(lake.tables.values()):
        pq.write_table(table.rows, tmp_path / f"table-{number}.parquet")
    for number, window in enumerate(lake.staged.values()):
        pq.write_table(window.changes, tmp_path / f"stage-{number}.parquet")


def damaged(bucket: Path, to: Path, seed: int) -> Path:
    """Copy a bucket, with bytes of data files changed, and one cut."""
    shutil.copytree(bucket, to)
    chance = random.Random(seed)
    files = sorted(file for file in to.rglob("CDC*") if file.is_file() and file.suffix in (".csv", ".json"))
    for file in files:
        data = bytearray(file.read_bytes())
        for _ in range(3):
            data[chance.randrange(len(data))] = chance.choice(b'x",{0\\')
        file.write_bytes(bytes(data[: -chance.choice((0, 0, 9))] if len(data) > 20 and chance.random() < 0.2 else data))
    return to


SECRET: dict[str, Any] = {"*.*.*": None} | {f"*.*.{key}": HASHED["*.*.*"] for key in ("id", "k", "seq", "a", "b")}
"""Hashes of keys, NULL in the rest."""


@pytest.mark.parametrize("config", CONFIGS)
def test_no_value_of_a_masked_column_of_files_is_left_anywhere(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    final = config.checkpoints[-1]
    tokens = tokens_of(rows_of(replayed(config, final)[0]).values())
    left = tmp_path / "left"
    left.mkdir()
    bucket = damaged(final.bucket, tmp_path / "bucket", 7)
    for privacy, quarantine in ((HASHED, True), (SECRET, False)):
        there = left / str(quarantine)
        there.mkdir()
        ledger = Ledger(f"sqlite:///{there / 'ledger.db'}")
        through = replace(final, bucket=bucket)
        masking = pipeline_of(
            config, through, MemoryLake(), ledger, privacy=privacy, quarantine=quarantine, **ENCRYPTED
        )
        everything_said(masking, masking.apply(), there)
        (there / "log.txt").write_text(caplog.text)
    assert leaks(left, tokens) == []


@pytest.mark.parametrize("kind", ["csv", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("sql", "parquet"))])
def test_no_value_of_a_masked_column_of_dumps_is_left_anywhere(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    config = next(case for case in cases() if case.name == "A_all_types").configs[0]
    begin = next(checkpoint for checkpoint in reversed(config.checkpoints) if checkpoint.expected is not None)
    feed_from(config, config.checkpoints[-1], begin, tmp_path / "feed", "begun")
    dump_of(begin, tmp_path / "dump", kind)

    def applied(to: Path, **more: Any) -> MemoryLake:
        to.mkdir(parents=True)
        settings = joined_settings(config, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
        settings = ChangefeedSettings.model_validate({**settings.model_dump(), **more})
        ledger, lake = Ledger(f"sqlite:///{to / 'ledger.db'}"), MemoryLake()
        pipeline = Pipeline(settings, settings.open_source(), lake, ledger)
        everything_said(pipeline, pipeline.apply(), to)
        return lake

    tokens, chance = tokens_of(rows_of(applied(tmp_path / "plain")).values()), random.Random(7)
    for file in sorted((tmp_path / "dump").glob(f"*.[0-9]*.{kind}")):
        data = bytearray(file.read_bytes())
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice(b"x\",{0\\\n'()")
        file.write_bytes(bytes(data[: -chance.choice((0, 0, 9)) or None]))
    caplog.clear()
    applied(tmp_path / "left" / "quarantined", privacy=HASHED, quarantine=True, **ENCRYPTED)
    applied(tmp_path / "left" / "held", privacy=SECRET, **ENCRYPTED)
    (tmp_path / "left" / "log.txt").write_text(caplog.text)
    assert tokens
    assert leaks(tmp_path / "left", tokens) == []


def leaks_of_topics(masked: TopicFeed, lines: list[dict[str, Any]], tokens: set[bytes], tmp_path: Path) -> list[str]:
    """Return what is left of tokens after a feed's messages, of which some are damaged, were landed and applied."""
    with closing(
        LandingTable(LakeSettings.from_warehouse(tmp_path / "lake"), "shop", EncryptionKey(b"a key"))
    ) as table:
        masked.store, masked.ledger = table, Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
        masked.landing = masked.landed_in()
        masked.lake.may_lack_rows = True  # damaged messages may give a row another key
        chance, sent = random.Random(7), []
        for line in lines:
            value = bytearray(base64.b64decode(line["value_b64"] or ""))
            if len(value) > 60 and chance.random() < 0.1:
                value[chance.randrange(40, len(value))] = chance.choice(b'x",{0')
            sent.append({**line, "value_b64": base64.b64encode(value).decode() if line["value_b64"] else None})
        masked.send(lines=sent)
        outcome = masked.apply()
        pipeline = Pipeline(masked.settings, masked.source, masked.lake, masked.ledger, landing=masked.landing)
        everything_said(pipeline, outcome, tmp_path)
        landed = masked.landing.landed()
        (tmp_path / "landing.txt").write_text(
            repr((describe_unread("shop", landed), describe_landing("s", landed, {})))
        )
    return leaks(tmp_path, tokens)


@pytest.mark.parametrize("topic", TOPICS)
def test_no_value_of_a_masked_column_of_topics_is_left_anywhere(topic: Topic, tmp_path: Path) -> None:
    tokens = tokens_of(rows_of(plain_feed(topic).lake).values())
    masked = TopicFeed.recording(topic, privacy=SECRET, quarantine=True, **ENCRYPTED)
    assert leaks_of_topics(masked, topic.lines, tokens, tmp_path) == []
    assert bool(tokens) != str(topic).startswith(OF_SHORT_VALUES)


YDB: dict[str, Any] = {"shop.orders.*": None} | {
    "shop.orders.a": HASHED["*.*.*"], "shop.orders.b": HASHED["*.*.*"], "shop.orders.mail": HASHED["*.*.*"],
    "shop.orders.free": "drop", "shop.orders.card": {"redact": "length"}, "shop.orders.raw": {"constant": "AA=="},
}  # fmt: skip
YQL = """CREATE TABLE `shop/orders` (a Utf8, b Uint64 NOT NULL, mail Utf8, free Json, card Utf8, raw String, n Int64,
at Timestamp, PRIMARY KEY (a, b));"""


def ydb_row(number: int) -> dict[str, Any]:
    """Return a row of which no value is in another one, its key first."""
    own = f"{number:04d}7{number:04d}"
    return {
        "a": f"key-{own}-ünï", "b": int(f"88{own}"), "mail": f"ann{own}@hidden.example", "free": {"f": f"free-{own}"},
        "card": f'4000 "{own}"', "raw": base64.b64encode(f"raw-{own}".encode()).decode(), "n": int(f"-77{own}"),
        "at": f"2001-02-03T04:05:06.{number:06d}Z",
    }  # fmt: skip


def ydb_tokens(count: int) -> set[bytes]:
    """Return the values of rows as they may be found anywhere."""
    rows = [ydb_row(number) for number in range(count)]
    texts = [row[name] for row in rows for name in ("a", "b", "mail", "card", "n", "raw")]
    moments = [form.format(number) for number in range(count) for form in ("04:05:06.{:06d}", "5, 6, {}, tz")]
    frees, raws = [row["free"]["f"] for row in rows], [base64.b64decode(row["raw"]) for row in rows]
    return {str(value).encode() for value in (*texts, *moments, *frees)} | {*raws}


def ydb_sent(form: str, kind: str, row: dict[str, Any], number: int) -> Sent:
    """Return a change in one of the forms of YDB's changefeeds."""
    key, image = {name: row[name] for name in "ab"}, {name: row[name] for name in row if name not in "ab"}
    stamp = [1000 + number, number]
    if form == "own":
        sides: dict[str, dict[str, Any]] = {
            "update": {"update": image}, "reset": {"reset": image}, "erase": {"erase": {}},
            "image": {"update": {}, "newImage": image, "oldImage": image},
        }  # fmt: skip
        return None, {**sides[kind], "key": [*key.values()], "ts": stamp}
    if form == "debezium":
        source = {"connector": "ydb", "version": "1.0.0", "ts_ms": 1, "step": stamp[0], "txId": 7, "snapshot": False}
        payload = {"op": "d" if kind == "erase" else "u", "source": source, "before": row, "after": row}
        return {"payload": key}, {"payload": payload if kind != "erase" else {**payload, "after": None}}
    kinds = {"b": "N", "n": "N"}
    attributes = {
        name: {kinds.get(name, "S"): json.dumps(value) if name == "free" else str(value)} for name, value in row.items()
    }
    change = {"Keys": {name: attributes[name] for name in "ab"}, "SequenceNumber": f"{number:021d}"}
    change |= {} if kind == "erase" else {"NewImage": attributes, "OldImage": attributes}
    event = "REMOVE" if kind == "erase" else "MODIFY"
    return None, {"eventSource": "ydb:document-table", "eventName": event, "dynamodb": change}


def ydb_damaged(form: str, first: int) -> list[Sent]:
    """Return changes with values of masked columns that cannot be read, each in another way."""
    messages = []
    for number, (name, value) in enumerate(
        [("n", "no-{}"), ("b", "no-{}"), ("at", "no-{}"), ("raw", "no-{}"), ("more", "no-{}"), ("mail", ["no-{}"])]
    ):
        row = ydb_row(first + number)
        messages.append(
            ydb_sent(form, "update", {**row, name: json.loads(json.dumps(value).replace("{}", row["a"]))}, 0)
        )
    key, other = ydb_row(first + 6), ydb_row(first + 7)
    sent_key, value = ydb_sent(form, "image", key, 0)
    text = json.dumps(value)
    messages.append((sent_key, text[: len(text) * 3 // 4].encode()))
    messages.append((sent_key, text.replace('"a"', '"b"').encode()))
    messages.append((sent_key, text.replace(key["mail"], f'{key["mail"]}", "mail": "{other["mail"]}').encode()))
    messages.append((sent_key, text.encode().replace(key["mail"][:4].encode(), b"\xff", 1)))
    messages.append((json.dumps({"payload": {"a": other["a"]}})[:-1].encode(), value))
    messages.append(({"payload": {"a": other["a"], "b": other["b"]}}, value))
    if form == "own":
        messages.append((None, {"key": [key["a"], key["b"], other["a"]], "update": {"mail": key["mail"]}}))
        messages.append((None, {"key": [key["a"], key["b"]], "update": {"a": other["a"]}}))
        messages.append((None, {"key": [key["a"], key["b"]], "update": {"n": 1}, "erase": {}, "ts": [other["a"]]}))
    return messages


@pytest.mark.parametrize(
    ("form", "quarantine"),
    [
        ("own", True),
        pytest.param("own", False, marks=pytest.mark.soak),
        pytest.param("debezium", True, marks=pytest.mark.soak),
        ("document", True),
    ],
)
def test_no_value_of_a_masked_column_of_ydb_s_topics_is_left_anywhere(
    form: str, quarantine: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    (tmp_path / "s.sql").write_text(YQL)
    kinds = ("update", "reset", "image", "erase")
    sound = [ydb_sent(form, kinds[number % 4], ydb_row(number // 2), number) for number in range(24)]
    bad = ydb_damaged(form, 12)
    lines = [
        line_of("shop/orders/feed", number, message) for number, message in enumerate([*sound[:12], *bad, *sound[12:]])
    ]
    given: dict[str, Any] = {"schemas": tmp_path / "s.sql", "history": {"shop.*": ["log", "scd2"]}}
    given["sink_uri"] = "kafka://127.0.0.1:9092/shop/orders/feed?protocol=ydb-json"
    plain = TopicFeed.of(MemoryLog(lines[:12]), **given)
    plain.apply()
    tokens = ydb_tokens(12 + len(bad)) | tokens_of([plain.lake.read(TableId("shop", "orders"))])
    (left := tmp_path / "left").mkdir()
    masked = TopicFeed.of(MemoryLog([]), privacy=YDB, quarantine=quarantine, **given, **ENCRYPTED)
    assert leaks_of_topics(masked, lines, tokens, left) == []
    assert found_in(caplog.text.encode(), tokens) == []
    assert bool(masked.lake.kept) == quarantine
    assert all(table.rows.num_rows for table in masked.lake.tables.values())


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=() if str(topic) == "D_keys/simple" else pytest.mark.soak, id=str(topic))
        for topic in topics("craft", "open-protocol", "canal-json", "simple", "simple-avro")
    ],
)
def test_extracts_of_masked_topics_have_their_rows_and_no_value_of_a_masked_column(
    topic: Topic, tmp_path: Path
) -> None:
    plain, masked = plain_feed(topic), TopicFeed.recording(topic, privacy=SECRET, **ENCRYPTED)
    masked.send()
    held = stopped(masked.apply())
    pipelines = [
        Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing) for feed in (plain, masked)
    ]
    through = pipelines[1].planner.plan()[0].checkpoint
    names = [str(name) for name in rows_of(masked.lake, held)]
    for number, name in enumerate(names):
        wanted, changes = (extract(pipeline, name, 0, through).changes for pipeline in pipelines)
        assert changes.num_rows == wanted.num_rows
        pq.write_table(changes, tmp_path / f"extract-{number}.parquet")
    assert leaks(tmp_path, tokens_of(rows_of(plain.lake).values())) == []
    assert names or held


# --- nothing of a connector's messages, of whatever kind they are -----------------------------------------------------

Line = dict[str, Any]
Message = tuple[str, Sent]
"""Topic, with key and value."""


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of a document, but for names of members."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list):
        for element in value:
            yield from texts_in(element)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


_OWN_WORDS = ("infinity", "__debezium_unavailable_value")
"""What the lake has words of its own for, whatever a row has."""


def values_in(lines: Sequence[Line]) -> set[bytes]:
    """Return the distinctive values of rows that messages have: in images, keys, and what schema changes say."""
    texts, names = set[bytes](), {line["topic"] for line in lines}
    for line in lines:
        parts = [
            json.loads(base64.b64decode(line[name] or "")) if line[name] else {} for name in ("key_b64", "value_b64")
        ]
        key, value = (part.get("payload", part) for part in parts)
        names |= {change["id"] for change in value.get("tableChanges") or ()}
        columns = [
            column.get(name)
            for change in value.get("tableChanges") or ()
            for column in (change.get("table") or {}).get("columns") or ()
            for name in ("enumValues", "defaultValueExpression")
        ]
        keyed = key if "source" in value or not value else None  # that of a schema change names a database
        texts |= {text.encode() for text in texts_in([value.get("before"), value.get("after"), columns, keyed])}
    named = " ".join((*names, *_OWN_WORDS)).encode()
    return {
        text for text in texts if distinctive(text.rstrip(b"0")) and text not in named
    }  # places in a log have zeros


@pytest.mark.soak
@pytest.mark.parametrize("recording", recordings(), ids=str)
def test_no_value_of_a_masked_column_of_recorded_connectors_is_left_anywhere(
    recording: Recording, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (left := tmp_path / "left").mkdir()
    plain = recorded_feed(recording, tmp_path)
    plain.send(lines=recording.lines)
    plain.apply()
    tokens = tokens_of(rows_of(plain.lake).values()) | values_in(recording.lines)
    schemas = {"schemas": tmp_path / "schemas.sql"} if (tmp_path / "schemas.sql").exists() else {}
    masked = recording.feed(privacy=HASHED, quarantine=True, **ENCRYPTED, **schemas)
    caplog.set_level("DEBUG")
    assert leaks_of_topics(masked, recording.lines, tokens, left) == []
    assert found_in(caplog.text.encode(), tokens) == []
    assert len(tokens) > 1000


# --- a connector of which every message is here ----------------------------------------------------------------------

PRIVACY: dict[str, Any] = {
    "shop.users.id": HASHED["*.*.*"], "shop.users.mail": HASHED["*.*.*"], "shop.users.note": None,
    "shop.users.card": {"redact": "length"}, "shop.users.free": "drop", "shop.users.kind": {"constant": "-"},
    "shop.users.late": HASHED["*.*.*"], "shop.signal.*": None, "shop.signal.id": HASHED["*.*.*"],
}  # fmt: skip
MEMBERS = ["member-alpha-7431", "member-omega-8842"]
DEFAULT, LATE = "default-mail-55190", "default-late-55191"
CREATE = (
    f"CREATE TABLE `users` (`id` BIGINT PRIMARY KEY, `mail` VARCHAR(80) DEFAULT '{DEFAULT}', `note` TEXT, "
    f"`card` VARBINARY(80), `free` JSON, `kind` ENUM('{MEMBERS[0]}','{MEMBERS[1]}'), `seen` INT)"
)
ALTER = f"ALTER TABLE `users` ADD COLUMN `late` VARCHAR(80) DEFAULT '{LATE}'"
_STRING = {"type": "string", "optional": True}
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "id": {"type": "int64", "optional": False}, "mail": _STRING, "note": _STRING,
    "card": {"type": "bytes", "optional": True}, "free": {**_STRING, "name": "io.debezium.data.Json"},
    "kind": {**_STRING, "name": "io.debezium.data.Enum", "parameters": {"allowed": ",".join(MEMBERS)}},
    "seen": {"type": "int32", "optional": True}, "late": {**_STRING, "default": LATE},
}  # fmt: skip
_SIGNAL: Mapping[str, Mapping[str, Any]] = {"id": {**_STRING, "optional": False}, "type": _STRING, "data": _STRING}


class Connector:
    """A connector's messages on rows in which no value is twice."""

    def __init__(self, kind: str) -> None:
        self.kind, self.messages, self.place = kind, list[Message](), 0
        self.has_late = False

    def source(self, table: str, phase: str = "false") -> Mapping[str, Any]:
        self.place += 1
        at: Mapping[str, Any] = {"file": "bin.000001", "pos": self.place, "row": 0}
        if self.kind == "postgresql":
            at = {"lsn": self.place, "sequence": json.dumps([str(self.place)] * 2), "schema": "shop"}
        database = "shop" if self.kind == "mysql" else "d"
        made = {"connector": self.kind, "name": "px", "ts_ms": 1000 + self.place, "version": "3.0"}
        return {**made, "db": database, "table": table, "snapshot": phase, **at}

    def image(self, number: int, turn: int = 0) -> dict[str, Any]:
        own = f"{number:03d}7{turn:03d}"
        image: dict[str, Any] = {
            "id": 8800000000 + number, "mail": f"ann{own}@hidden{own}.example", "note": f'say "{own}" never\n{own}',
            "card": base64.b64encode(f"card-{own}-ünï".encode()).decode(), "free": json.dumps({"free": f"free-{own}"}),
            "kind": MEMBERS[number % 2], "seen": 1,
        }  # fmt: skip
        return image | ({"late": f"late-{own}-late"} if self.has_late else {})

    def send(self, op: str, before: Any, after: Any, phase: str = "false", table: str = "users") -> None:
        """Send a change; one of no row is a TRUNCATE."""
        whole = after or before
        payload = {"before": before, "after": after, "source": self.source(table, phase), "op": op, "ts_ms": 1}
        transaction = {"id": "1", "total_order": 1, "data_collection_order": 1} if phase == "false" else None
        types = _SIGNAL if table == "signal" else _FIELDS
        fields = [{**kind, "field": name} for name, kind in types.items() if name in (whole or ())]
        sides = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
        value = {"schema": {"type": "struct", "fields": sides}, "payload": {**payload, "transaction": transaction}}
        key = None if whole is None else {"schema": {"fields": fields[:1]}, "payload": {"id": whole["id"]}}
        self.messages.append((f"px.shop.{table}", (key, value)))
        if op == "d":
            self.messages.append((f"px.shop.{table}", (key, None)))

    def ddl(self, text: str, phase: str = "false", **default: str) -> None:
        if self.kind != "mysql":
            return
        columns = [
            {"name": name, "typeName": "VARCHAR", "defaultValueExpression": default.get(name), "enumValues": MEMBERS}
            for name in _FIELDS
        ]
        table = {"primaryKeyColumnNames": ["id"], "columns": columns, "comment": None}
        change = {"type": "ALTER", "id": '"shop"."users"', "table": table}
        held = {"source": self.source("users", phase), "databaseName": "shop", "ddl": text, "tableChanges": [change]}
        self.messages.append(("px", ({"databaseName": "shop"}, {**held, "ts_ms": 1})))

    def signal(self, number: int) -> None:
        """Ask by the table for signals to read a row once more."""
        signal_data = {
            "type": "incremental",
            "additional-conditions": [{"filter": f"mail = '{self.image(number)['mail']}'"}],
        }
        row = {"id": f"signal-{number:08d}", "type": "execute-snapshot", "data": json.dumps(signal_data)}
        self.send("c", None, row, table="signal")

    def beside(self, number: int) -> None:
        """Send what is of no row: marks of a transaction, a heartbeat, what an application wrote into the log."""
        for status in ("BEGIN", "END"):
            mark = {"status": status, "id": "1", "event_count": 1, "data_collections": None, "ts_ms": 1}
            self.messages.append(("px.transaction", ({"id": "1"}, mark)))
        self.messages.append(("__debezium-heartbeat.px", ({"serverName": "px"}, {"ts_ms": 1})))
        if self.kind == "postgresql":
            logical_message = {
                "prefix": "audit",
                "content": base64.b64encode(self.image(number)["mail"].encode()).decode(),
            }
            message = {"op": "m", "source": self.source(""), "message": logical_message, "ts_ms": 1}
            self.messages.append(("px.message", ({"prefix": "audit"}, message)))

    def damaged(self, number: int) -> None:
        """Send messages with values that cannot be read, each in another way."""
        for name, value in {
            "seen": "no-{}",
            "id": "no-{}",
            "card": "no-{}",
            "more": "no-{}",
            "mail": ["no-{}"],
        }.items():
            row = self.image(number := number + 1)
            self.send("c", None, row | {name: json.loads(json.dumps(value).replace("{}", row["mail"]))})
        for old, new in (
            (b'"mail":', b'"id":'), (b"ann", b"\xff"), (b'"op": "c"', b'"op": "q"'), (b'"free":', b'"free"'),
            (b'"connector"', b'"connected"'), (b'"table": "users"', b'"table": null'), (b'"optional"', b'"defauld"'),
        ):  # fmt: skip
            self.send("c", None, self.image(number := number + 1))
            topic, (key, value) = self.messages.pop()
            self.messages.append((topic, (key, json.dumps(value).encode().replace(old, new, 1))))
        self.send("c", None, self.image(number + 1))
        topic, (key, value) = self.messages.pop()
        self.messages += [
            (topic, (json.dumps(key)[:-9].encode(), value)),
            (topic, (key, json.dumps(value)[:-9].encode())),
        ]

    def lines(self) -> list[Line]:
        counts: dict[str, int] = {}
        messages = []
        for topic, sent in self.messages:
            offset = counts[topic] = counts.get(topic, -1) + 1
            messages.append(line_of(topic, offset, sent))
        return messages


def said_by(kind: str, *, sound: bool) -> Connector:
    """Return a connector that has sent messages of all kinds, `sound` ones alone or damaged ones too."""
    connector = Connector(kind)
    connector.ddl(CREATE, "first", mail=DEFAULT)
    for number, phase in enumerate(("true", "first_in_data_collection", "last_in_data_collection", "last")):
        connector.send("r", None, connector.image(number), phase)
    for number in range(10, 16):
        connector.send("c", None, connector.image(number))
    connector.beside(10)
    connector.signal(11)
    connector.send("r", None, connector.image(11), "incremental")
    connector.send("u", connector.image(12), connector.image(12, 1))
    connector.send("d", connector.image(13), None)
    connector.send("d", connector.image(14), None)  # its key is another one from here on
    connector.send("c", None, connector.image(20))
    if not sound:
        connector.damaged(40)
    connector.ddl(ALTER, mail=DEFAULT, late=LATE)
    connector.has_late = True
    connector.send("u", connector.image(15), connector.image(15, 1))
    connector.send("c", None, connector.image(21))
    unread = "__debezium_unavailable_value" if kind == "postgresql" else connector.image(21)["note"]
    connector.send("u", None, connector.image(21, 1) | {"note": unread})
    connector.send("t", None, None)
    connector.send("c", None, connector.image(22))
    return connector


@pytest.mark.parametrize("sound", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["mysql", "postgresql"])
def test_no_value_of_a_masked_column_of_any_message_of_a_connector_is_left_anywhere(
    kind: str, sound: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = said_by(kind, sound=sound).lines()
    tokens = values_in(said_by(kind, sound=True).lines()) | {text.encode() for text in (*MEMBERS, DEFAULT, LATE)}
    images = [Connector(kind).image(number) for number in range(40, 60)]
    tokens |= {text.encode() for text in texts_in(images) if distinctive(text.encode())}
    given: dict[str, Any] = {
        "sink_uri": "kafka://127.0.0.1:9092/px?protocol=debezium-json", "topics": ["px", "px.*", "__debezium*"],
        "history": {"shop.users": ["log", "scd2"]}, "privacy": PRIVACY, "quarantine": not sound,
    }  # fmt: skip
    masked = TopicFeed.of(MemoryLog([]), **given, **ENCRYPTED)
    caplog.set_level("DEBUG")
    assert leaks_of_topics(masked, lines, tokens, tmp_path) == []
    assert found_in(caplog.text.encode(), tokens) == []
    filled = {(life.born_as.table, life.kind) for life, table in masked.lake.tables.items() if table.rows.num_rows}
    assert filled >= {("users", ""), ("users", "log"), ("users", "scd2"), ("signal", "")}


# --- generated histories ----------------------------------------------------------------------------------------------

BOTH: Mapping[str, Any] = {"*.*": ["log", "scd2"]}


def lives_held(outcome: Outcome) -> set[Life]:
    return {table.life for table in outcome.tables if table.reason}


def rows_by_life(lake: MemoryLake, but_for: Collection[Life]) -> dict[str, Counter[str]]:
    """Return what tables hold, but for where the input of a change is, as files are called otherwise.

    Of rows without a key that masks made equal any may be deleted, so their positions are not compared.
    """
    rows_by_table = {}
    for life, table in lake.tables.items():
        if life not in but_for:
            left_out = {PLACE} if life.kind or table.schema.key else {PLACE, COMMIT_TS}
            rows = [{name: row[name] for name in row.keys() - left_out} for row in table.rows.to_pylist()]
            rows_by_table[f"{life} {table.name}"] = Counter(repr(sorted(row.items())) for row in rows)
    return rows_by_table


def opened(feed: Feed | TopicFeed) -> Pipeline:
    return feed.pipeline() if isinstance(feed, TopicFeed) else feed.pipeline


def compare(made: Callable[..., Any], shows: Sequence[Callable[[Any], None]], turn: int) -> None:
    """Mask feeds that `made` gives, to which each of `shows` shows more of the input, the last one all."""
    plain = made()
    shows[-1](plain)
    opened(plain).apply()
    planned = opened(plain).planner.plan()[1]
    privacy = of_every_kind(planned, turn)
    once, often = (made(privacy=privacy, **ENCRYPTED) for _ in range(2))
    shows[-1](once)
    outcome = opened(once).apply()
    held, held_lives = stopped(outcome), lives_held(outcome)
    named = {table.name for life, table in planned.history.lives.items() if not life.kind}
    mirrors = {name: rows for name, rows in rows_of(once.lake, held).items() if name in named}
    assert differences_of_masked(rows_of(plain.lake), mirrors, planned, once.settings.masks) == []
    for number, show in enumerate(shows):
        show(often)
        trap = Trap(lambda crossed, _, at=2 * number + 2: crossed == at)  # type: ignore[misc]
        with suppress(Killed), trapped(trap, KILLED_AT):
            opened(often).apply()
        held_lives |= lives_held(opened(often).apply())
    assert rows_by_life(often.lake, held_lives) == rows_by_life(once.lake, held_lives)
    for feed in (often, once):
        assert [*fold_differences(feed.lake)] == []
        for table in states_of(feed.lake):
            if table.life not in held_lives and table.life.source not in held_lives:
                assert [*state_differences(table.rows, table.lives, table.mirror)] == []
    for name in rows_of(often.lake):
        with suppress(RebuildRefused, BadSettings):  # held, exchanged with such a table, or gone from the source
            rebuild(opened(often), MemoryRebuilds(often.lake), [str(name)])
    held_lives = lives_held(opened(once).apply()) | lives_held(opened(often).apply())
    assert rows_by_life(often.lake, held_lives) == rows_by_life(once.lake, held_lives), "rebuilt"


def check(case: Mapping[str, Any], tomls: Mapping[str, Path]) -> None:
    style = case["style"]
    source, made = history(case["steps"], style.old_values), list[Feed]()
    note(f"{style}\n{source.script}")

    def feed(**more: Any) -> Feed:
        made.append(Feed(style, tomls[style.rendering], history=BOTH, **more))
        return made[-1]

    def showing(publication: Publication) -> Callable[[Feed], None]:
        return lambda feed: feed.publish(publication)

    shown = publications(source, style, Picks(case["raw"]))
    compare(feed, [showing(publication) for publication in shown], case["turn"])
    for opened_feed in made:
        opened_feed.close()


CASES = st.fixed_dictionaries({"steps": STEPS, "style": STYLES, "raw": PICKS, "turn": st.integers(0, len(KINDS) - 1)})


@how_many(2, 1000)
def test_a_generated_history_is_masked_the_same_however_it_is_cut_killed_and_rebuilt(
    tomls: Mapping[str, Path], count: int
) -> None:
    each_case(count, lambda case: check(case, tomls), CASES, "masked")


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n == 2 else pytest.mark.soak) for n in range(100)])
def test_a_generated_history_in_messages_is_masked_the_same_however_it_is_cut_killed_and_rebuilt(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    (toml := tmp_path / "changefeed.toml").write_text(style.toml)
    log = MemoryLog([])
    ends = [len(log.lines) for _ in marks(source, style, Picks(random.randbytes(600)), log)]

    def feed(**more: Any) -> TopicFeed:
        return TopicFeed.of(MemoryLog([]), sink_uri=style.uri, changefeed_config=toml, name="c", history=BOTH, **more)

    def showing(end: int) -> Callable[[TopicFeed], None]:
        def show(feed: TopicFeed) -> None:
            feed.log.lines = log.lines[:end]

        return show

    compare(feed, [showing(end) for end in ends], seed % len(KINDS))


# --- beside what else tables have -------------------------------------------------------------------------------------

TEXT = file_column("w", "VARCHAR", "40", ColumnDefault="a secret")
NUMBER = file_column("w", "INT", "11", ColumnDefault="5")
BARE = [
    file_column("id", "INT", "11", is_key=True),
    file_column("v", "VARCHAR", "40"),
]


@pytest.mark.parametrize("mask", ["drop", {"redact": "length"}, {"hash": {"key": {"env": "MASK_KEY"}}}], ids=repr)
@pytest.mark.parametrize("first", [TEXT, NUMBER], ids=["one type", "another type"])
def test_the_default_of_a_masked_column_that_comes_back_is_masked_in_history_tables(
    tmp_path: Path, mask: object, first: dict[str, str]
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one")])
    kind = "INT DEFAULT 5" if first is NUMBER else "VARCHAR(40) DEFAULT 'a secret'"
    for at, query, columns in (
        (10, f"ALTER TABLE `t` ADD COLUMN `w` {kind}", [*BARE, first]),
        (20, "ALTER TABLE `t` DROP COLUMN `w`", BARE),
        (30, "ALTER TABLE `t` ADD COLUMN `w` VARCHAR(40) DEFAULT 'a secret'", [*BARE, TEXT]),
    ):
        write_schema(feed.bucket, document("shop", "t", FIRST + at, Query=query, Type=5, TableColumns=columns))
    path = feed.bucket / "shop" / "t" / str(FIRST + 30) / "CDC00000000000000000001.csv"
    path.parent.mkdir()
    path.write_text(f'"I","t","shop",{FIRST + 32},2,"two","a secret"\r\n', newline="")
    feed.publish(FIRST + 40)
    outcome = feed.pipeline_into(lake, ledger, privacy={"shop.t.w": mask}, history={"shop.t": ["log", "scd2"]}).apply()
    assert [table.reason for table in outcome.tables] == ["", "", ""]
    rows_by_kind = {life.kind: table.rows.to_pylist() for life, table in lake.tables.items()}
    assert "a secret" not in repr((rows_by_kind, ledger.journal("little")))
    here = "w" if first is TEXT else "w__2"
    masked = [row.get("w") for row in rows_by_kind[""]]
    assert len(set(masked)) == 1  # of the default as of the row
    assert [row.get(here) for row in rows_by_kind["log"]] == masked
    assert [row.get(here) for row in rows_by_kind["scd2"] if row["__END_AT"] is None] == masked


def test_a_row_from_before_a_mask_is_not_shown_by_explain(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a secret")])
    feed.publish(FIRST + 10)
    plain, masked = feed.settings(), feed.settings(privacy={"shop.t.v": {"constant": "hidden"}})
    Pipeline(plain, plain.open_source(), lake, ledger).apply()
    shown = explain(Pipeline(plain, plain.open_source(), lake, ledger), lake, "shop.t", ["1"])
    assert shown.row == {"id": "1", "v": "a secret"}
    explanation = explain(Pipeline(masked, masked.open_source(), lake, ledger), lake, "shop.t", ["1"])
    assert (explanation.row, [change.changed["v"][1] for change in explanation.changes]) == (None, ["hidden"])
    assert "masked otherwise now" in explanation.gone[-1]
    assert not any("no such row" in line for line in explanation_lines(explanation))


@pytest.mark.parametrize("history", [[], ["log", "scd2"], {"kinds": ["log"], "mirror": False}], ids=repr)
def test_values_from_before_a_mask_that_later_rows_alone_have_are_neither_explained_nor_extracted(
    tmp_path: Path, history: object
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")

    def pipeline(**more: Any) -> Pipeline:
        return feed.pipeline_into(lake, ledger, **({"history": {"shop.t": history}} if history else {}) | more)

    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + at, key, f"secret {at}") for at, key in ((1, 1), (2, 2), (3, 3))])
    feed.publish(FIRST + 10)
    pipeline().apply()
    masked = pipeline(privacy={"shop.t.v": {"constant": "hidden"}})
    release(masked, "shop.t", FIRST + 11, "new-settings")
    printed_texts = []
    for through in (FIRST + 10, FIRST + 20):
        for key in "12" if not isinstance(history, dict) else "":
            explanation = explain(masked, lake, "shop.t", [key])
            printed_texts += [repr(explanation), *explanation_lines(explanation)]
        printed_texts += [
            repr(extract(masked, "shop.t", FIRST, through, net=net).changes.to_pylist()) for net in (False, True)
        ]
        feed.rows("shop.t", FIRST, [("U", FIRST + 12, 1, "secret 12"), ("I", FIRST + 13, 4, "secret 13")])
        feed.publish(FIRST + 20)
        masked.apply()
    later = extract(masked, "shop.t", FIRST + 10, FIRST + 20)
    assert (later.source, later.changes.column("v").to_pylist()) == ("log" if history else "feed", ["hidden"] * 2)
    assert "secret 2" in repr([table.rows.to_pylist() for table in lake.tables.values()])  # as that was agreed to
    assert ("hidden" in repr(printed_texts), "secret" in repr(printed_texts)) == (True, False)


@pytest.mark.parametrize(
    ("query", "kind", "back"),
    [("TRUNCATE TABLE `t`", 11, ""), ("DROP TABLE `t`", 4, ""), ("DROP TABLE `t`", 4, "RECOVER TABLE `t`")],
    ids=["truncate", "drop", "recover"],
)
@pytest.mark.parametrize("history", [["log"], ["log", "scd2"]], ids=repr)
def test_a_ddl_moves_no_row_into_a_history_table_that_its_mirror_has_from_before_the_mask(
    tmp_path: Path, query: str, kind: int, back: str, history: list[str]
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a secret")])
    feed.publish(FIRST + 10)
    feed.pipeline_into(lake, ledger).apply()
    masked = feed.settings(privacy={"shop.t.v": {"constant": "hidden"}}, history={"shop.t": history})
    release(Pipeline(masked, masked.open_source(), lake, ledger), "shop.t", FIRST + 11, "new-settings")
    feed.rows("shop.t", FIRST, [("I", FIRST + 12, 2, "another secret")])
    feed.ddl("shop.t", FIRST + 20, query, kind)
    if back:
        feed.ddl("shop.t", FIRST + 30, back, 25)
    feed.publish(FIRST + 40)
    Pipeline(masked, masked.open_source(), lake, ledger).apply()
    tables = {life.kind: table.rows.to_pylist() for life, table in lake.tables.items()}
    assert len(tables) == 1 + len(history)
    assert "secret" not in repr([rows for of, rows in tables.items() if of])
    assert "hidden" in repr(tables["log"])


@pytest.mark.parametrize("applied", [False, True], ids=["at once", "rows before"])
@pytest.mark.parametrize("masked", ["parted", "plain", "*"])
@pytest.mark.parametrize("history", [["log", "scd2"], {"kinds": ["scd2"], "mirror": False}], ids=repr)
def test_an_exchange_brings_no_value_into_a_table_where_it_is_masked(
    tmp_path: Path, masked: str, applied: bool, history: object
) -> None:
    feed, lake, ledger = exchanged(tmp_path, "parted", "plain"), MemoryLake(), Ledger("sqlite://")
    settings = feed.settings(history={"s.*": history})
    if applied:
        feed.publish(FIRST + 3)
        assert Pipeline(settings, settings.open_source(), lake, ledger).apply().complete
        before = {life: table.rows for life, table in lake.tables.items()}
    settings = feed.settings(privacy={f"s.{masked}.v": {"constant": "hidden"}}, history={"s.*": history})
    if applied:
        released = ["s.parted", "s.plain"] if masked == "*" else [f"s.{masked}"]
        for name in released:
            release(Pipeline(settings, settings.open_source(), lake, ledger), name, FIRST + 4, "new-settings")
    feed.publish(FIRST + 9)
    outcome = Pipeline(settings, settings.open_source(), lake, ledger).apply()
    for life, table in lake.tables.items():
        if masked in ("*", life.born_as.table):
            there = before[life].column("v").to_pylist() if applied else []
            assert {"parted", "plain"} & set(table.rows.column("v").to_pylist()) <= set(there), life
    assert applied or (masked == "*") == outcome.complete, outcome.tables
