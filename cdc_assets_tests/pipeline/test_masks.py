"""Masked columns: the lake has what the source has after the mask, however the rows came, and nothing else of them."""

from __future__ import annotations

import base64
import json
import random
import shutil
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.errors import RebuildRefused
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.ledger import Ledger
from cdc_assets.model.masks import SealKey
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan
from cdc_assets.report.landings import describe_landing, describe_unread
from cdc_assets.report.plan_text import describe_plan
from cdc_assets.report.tables import describe_tables
from cdc_assets.report.text import outcome_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.types.families import BINARY
from cdc_assets_tests.canaries import found_in, leaks, tokens_of
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.masked import KEY, differences_of_masked
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.pipeline.test_bad_streams import Sent, line_of
from cdc_assets_tests.replay import pipeline_of, replay, replayed
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.topics import Topic, topics

SEALED: dict[str, Any] = {"privacy_key": {"env": "MASK_KEY"}}
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
    plain, masked = plain_feed(topic), TopicFeed.recording(topic, privacy=HASHED, **SEALED)
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
        repr([(step.recipe, step.schema) for step in planned.steps if isinstance(step, ApplyRows)]),
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
        masking = pipeline_of(config, through, MemoryLake(), ledger, privacy=privacy, quarantine=quarantine, **SEALED)
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
    applied(tmp_path / "left" / "quarantined", privacy=HASHED, quarantine=True, **SEALED)
    applied(tmp_path / "left" / "held", privacy=SECRET, **SEALED)
    (tmp_path / "left" / "log.txt").write_text(caplog.text)
    assert tokens
    assert leaks(tmp_path / "left", tokens) == []


def leaks_of_topics(masked: TopicFeed, lines: list[dict[str, Any]], tokens: set[bytes], tmp_path: Path) -> list[str]:
    """Return what is left of tokens after a feed's messages, of which some are damaged, were landed and applied."""
    with closing(LandingTable(LakeSettings.from_warehouse(tmp_path / "lake"), "shop", SealKey(b"seal"))) as table:
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
    masked = TopicFeed.recording(topic, privacy=SECRET, quarantine=True, **SEALED)
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
    masked = TopicFeed.of(MemoryLog([]), privacy=YDB, quarantine=quarantine, **given, **SEALED)
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
    plain, masked = plain_feed(topic), TopicFeed.recording(topic, privacy=SECRET, **SEALED)
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
