"""Avro feeds: names that Avro does not write, tables that begin with deletes, marks, columns that change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from cdc_assets.errors import BadSettings, InputError
from cdc_assets.history.history import read_history
from cdc_assets.model.schema import TableId
from cdc_assets.preflight.topics import findings
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.avro_writer import BIGINT, INT, TEXT, AvroBroker, ddl, mark, tidb
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

URI = "kafka://127.0.0.1:9092/cdc?protocol=avro&enable-tidb-extension=true"
ORDERS = TableId("shop", "orders")


def feed_of(broker: AvroBroker, **given: Any) -> TopicFeed:
    feed = TopicFeed.of(broker, sink_uri=URI, **given)
    feed.landing = feed.landed_in(registry=broker.registry.get)
    return feed


def rows(feed: TopicFeed, table: TableId = ORDERS) -> list[tuple[Any, ...]]:
    columns = [name for name in feed.lake.read(table).column_names if not name.startswith("_cdc_")]
    return sorted(tuple(row.values()) for row in feed.lake.read(table).select(columns).to_pylist())


def stopped(feed: TopicFeed) -> dict[str, str]:
    return {str(table.name): table.reason for table in feed.apply().tables if table.state.stopped}


@pytest.fixture
def broker() -> AvroBroker:
    return AvroBroker()


# --- registries -------------------------------------------------------------------------------------------------------


def test_numbers_of_a_registry_that_was_made_anew_stand_for_nothing_that_is_known(broker: AvroBroker) -> None:
    broker.send(
        0, broker.table("shop", "orders", {"id": INT, "a": INT, "b": INT}, key=("id",)).row(100, id=1, a=1, b=2)
    )
    feed = feed_of(broker)
    assert stopped(feed) == {}
    anew = AvroBroker(lines=broker.lines)
    anew.send(0, anew.table("shop", "orders", {"id": INT, "b": INT, "a": INT}, key=("id",)).row(110, id=2, a=1, b=2))
    feed.log, feed.landing = anew, feed.landed_in(registry=anew.registry.get)
    for _ in range(2):
        with pytest.raises(InputError, match=r"schema 2 .* another one .*\(id, a, b, .* then, .*\(id, b, a, .* now\)"):
            feed.apply()
    assert rows(feed) == [(1, 1, 2)]


def test_a_registry_that_writes_the_same_schema_otherwise_is_the_same(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "a": INT}, key=("id",))
    broker.send(0, orders.row(100, id=1, a=1))
    feed = feed_of(broker)
    feed.apply()
    broker.send(0, orders.row(110, id=2, a=2))
    schema_ids = list[str]()

    def moved(schema_id: str) -> str:
        schema_ids.append(schema_id)
        return json.dumps(json.loads(broker.registry[schema_id]), indent=2)

    feed.landing = feed.landed_in(registry=moved)
    assert stopped(feed) == {}
    broker.send(0, orders.row(120, id=2, a=3))
    assert stopped(feed) == {}
    assert rows(feed) == [(1, 1), (2, 3)]
    assert sorted(schema_ids) == ["1", "2"]  # once by a process


# --- names ------------------------------------------------------------------------------------------------------------

ODD = "CREATE TABLE `my shop`.`order-lines` (`line no` int NOT NULL, `é` varchar(9), PRIMARY KEY (`line no`));"


def recorded(name: str, case: str) -> Topic:
    return next(topic for topic in topics(name) if topic.case.name == case)


def test_names_that_avro_cannot_write_are_those_of_the_ddl() -> None:
    topic = recorded("avro", "F_names")
    feed = TopicFeed.recording(topic)
    feed.send()
    assert not any(table.state.stopped for table in feed.apply().tables)
    assert feed.differences(except_for=topic.recorded["skipped"]) == []


def test_names_and_types_that_avro_cannot_write_are_those_of_the_setting(broker: AvroBroker, tmp_path: Path) -> None:
    (tmp_path / "schemas.sql").write_text(ODD)
    lines = broker.table("my shop", "order-lines", {"line no": INT, "é": TEXT}, ("line no",))
    broker.send(0, lines.row(100, line_no=1, _="a"), lines.row(100, line_no=2), lines.delete(line_no=2))
    feed = feed_of(broker, schemas=tmp_path / "schemas.sql")
    assert stopped(feed) == {}
    assert feed.lake.read(TableId("my shop", "order-lines")).column_names[:2] == ["line no", "é"]
    assert rows(feed, TableId("my shop", "order-lines")) == [(1, "a")]
    assert not any(file.approximate for file in feed.listing().schema_files)
    wider = broker.table("my shop", "order-lines", {"line no": BIGINT, "é": TEXT, "n": INT}, ("line no",))
    broker.send(0, wider.row(200, line_no=1 << 40, _="b", n=7))
    assert stopped(feed) == {}
    assert rows(feed, TableId("my shop", "order-lines")) == [(1, "a", None), (1 << 40, "b", 7)]


def test_names_in_another_letter_case_are_the_same(broker: AvroBroker, tmp_path: Path) -> None:
    (tmp_path / "schemas.sql").write_text("CREATE TABLE Shop.Orders (id int NOT NULL, note text, PRIMARY KEY (id));")
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    broker.send(0, orders.row(100, id=1, note="a"))
    feed = feed_of(broker, schemas=tmp_path / "schemas.sql")
    assert stopped(feed) == {}
    assert rows(feed, TableId("Shop", "Orders")) == [(1, "a")]


TWINS = "".join(f"CREATE TABLE `s`.`{name}` (`id` int NOT NULL, PRIMARY KEY (`id`));" for name in ("a-b", "a_b"))


def test_two_tables_that_avro_writes_alike_are_told_apart_by_their_topics(tmp_path: Path) -> None:
    (tmp_path / "schemas.sql").write_text(TWINS)
    (tmp_path / "feed.toml").write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}"}]\n')
    broker = AvroBroker()
    twin = broker.table("s", "a_b", {"id": INT}, ("id",))
    broker.send(0, twin.row(100, id=1), topic="s_a-b")
    broker.send(0, twin.row(100, id=2), topic="s_a_b")
    feed = feed_of(broker, schemas=tmp_path / "schemas.sql", changefeed_config=tmp_path / "feed.toml")
    assert stopped(feed) == {}
    assert [rows(feed, TableId("s", name)) for name in ("a-b", "a_b")] == [[(1,)], [(2,)]]


def test_two_tables_that_avro_writes_alike_in_one_topic_are_both_held(broker: AvroBroker, tmp_path: Path) -> None:
    (tmp_path / "schemas.sql").write_text(TWINS)
    twin = broker.table("s", "a_b", {"id": INT}, ("id",))
    broker.send(0, twin.row(100, id=1), twin.row(100, id=2))
    reasons_by_table = stopped(feed_of(broker, schemas=tmp_path / "schemas.sql"))
    assert reasons_by_table.keys() == {"s.a-b", "s.a_b"}
    assert "as the names of s.a-b and s.a_b both are" in reasons_by_table["s.a-b"]


# --- deletes without commit-ts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_a_table_whose_first_message_is_a_delete_begins_with_it(broker: AvroBroker, at_once: bool) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    feed = feed_of(broker)
    broker.send(1, orders.delete(id=9))
    if not at_once:
        feed.apply()
    broker.send(0, orders.row(100, id=1, note="a"))
    assert stopped(feed) == {}
    assert rows(feed) == [(1, "a")]


@pytest.mark.parametrize("turns", [1, 2])
def test_what_a_replay_that_begins_with_deletes_deletes_again_stays_as_it_is(broker: AvroBroker, turns: int) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    sent = [
        orders.row(100, id=3, note="a"),
        orders.delete(id=3),
        orders.row(110, id=4, note="b"),
        orders.row(120, id=3, note="c"),
        orders.delete(id=4),
    ]
    feed = feed_of(broker)
    broker.send(0, *sent)
    if turns > 1:
        assert stopped(feed) == {}
    for start in (1, 2, 3):
        broker.send(0, *sent[start:])
        assert stopped(feed) == {}
        assert rows(feed) == [(3, "c")]
    broker.send(0, orders.row(130, id=5, note="d"))
    assert stopped(feed) == {}
    assert rows(feed) == [(3, "c"), (5, "d")]


def test_a_new_delete_behind_a_replay_is_taken_though_the_replay_began_with_one(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    sent = [orders.row(100, id=3, note="a"), orders.delete(id=3), orders.row(110, id=4, note="b")]
    feed = feed_of(broker)
    for part in (sent, sent[1:2], sent[2:], [orders.delete(id=4)]):
        broker.send(0, *part)
        assert stopped(feed) == {}
    assert rows(feed) == []


@pytest.mark.parametrize("at_once", [True, False])
def test_deletes_are_taken_though_the_newest_row_came_again_with_nothing_between(
    broker: AvroBroker, at_once: bool
) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    first, newest = (orders.row(100 + number, id=number, note="a") for number in (1, 2))
    feed = feed_of(broker)
    deletes = [orders.delete(id=1), orders.delete(id=2)]
    for part in ([first, newest], [newest, deletes[0]], [newest, deletes[0]], [deletes[1]]):
        broker.send(0, *part)
        if not at_once:
            assert stopped(feed) == {}
    assert stopped(feed) == {}
    assert rows(feed) == []


def test_no_new_delete_counts_for_one_with_which_a_replay_began(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    row = {number: orders.row(100 + number, id=number, note="a") for number in range(1, 5)}
    delete = {number: orders.delete(id=number) for number in row}
    feed = feed_of(broker)
    replayed = [delete[1], row[4], delete[2]]
    for part in ([row[1], row[2], row[3], *replayed], replayed[:1], [*replayed[1:], delete[3]]):
        broker.send(0, *part)
        assert stopped(feed) == {}
    assert rows(feed) == [(4, "a")]


def test_a_delete_before_the_first_row_of_its_partition_comes_after_the_rename_before_it(broker: AvroBroker) -> None:
    create = "CREATE TABLE old (id INT PRIMARY KEY, note TEXT)"
    old = broker.table("shop", "old", {"id": INT, "note": TEXT}, ("id",))
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    broker.send(0, ddl(100, "shop", "old", create), old.row(110, id=1, note="a"), topic="old")
    broker.send(1, ddl(100, "shop", "old", create), old.row(110, id=2, note="b"), topic="old")
    for partition in (0, 1):
        broker.send(partition, ddl(120, "shop", "orders", "RENAME TABLE old TO orders", 14), topic="old")
    broker.send(1, orders.delete(id=2), orders.row(130, id=3, note="c"), topic="orders")
    feed = feed_of(broker, topics=["old", "orders"])
    assert stopped(feed) == {}
    assert rows(feed) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("rule", ["ts", "columns", 'index-value", index = "by_note'])
def test_a_dispatcher_that_spreads_the_changes_of_a_row_is_refused(rule: str, tmp_path: Path) -> None:
    toml = tmp_path / "feed.toml"
    toml.write_text(f'[sink]\ndispatchers = [{{matcher = ["shop.*"], partition = "{rule}"}}]\n')
    with pytest.raises(BadSettings, match="does not say when it was made"):
        ChangefeedSettings(sink_uri=SecretStr(URI), changefeed_config=toml).source_options  # noqa: B018
    ChangefeedSettings(sink_uri=SecretStr(URI.replace("avro", "simple")), changefeed_config=toml).source_options  # noqa: B018


@pytest.mark.parametrize("rule", ["table", "index-value", "default", 'index-value", index = "PRIMARY'])
def test_a_dispatcher_that_keeps_the_changes_of_a_row_together_is_taken(rule: str, tmp_path: Path) -> None:
    toml = tmp_path / "feed.toml"
    toml.write_text(f'[sink]\ndispatchers = [{{matcher = ["shop.*"], partition = "{rule}"}}]\n')
    assert ChangefeedSettings(sink_uri=SecretStr(URI), changefeed_config=toml).source_options.wire.has_positions


# --- marks ------------------------------------------------------------------------------------------------------------


def test_a_landing_ends_at_the_newest_mark_and_what_is_behind_it_waits_for_the_next(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    broker.send(0, orders.row(100, id=1, note="a"), mark(110), orders.row(120, id=1, note="half"))
    broker.send(1, orders.row(100, id=2, note="a"), mark(110))
    feed = feed_of(broker)
    feed.apply()
    assert rows(feed) == [(1, "a"), (2, "a")]
    broker.send(1, orders.row(120, id=2, note="half"), mark(130))
    broker.send(0, mark(130))
    feed.apply()
    assert rows(feed) == [(1, "half"), (2, "half")]


def test_marks_that_are_switched_off_keep_nothing_back(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    broker.send(0, orders.row(100, id=1, note="a"), mark(110), orders.row(120, id=1, note="b"))
    feed = feed_of(broker)
    feed.apply()
    feed.apply()
    assert rows(feed) == [(1, "b")]


@pytest.mark.parametrize(
    "case",
    [
        "E_partitions",
        pytest.param("B_ddl_columns", marks=pytest.mark.soak),
        pytest.param("C_ddl_tables", marks=pytest.mark.soak),
    ],
)
def test_with_marks_a_topic_that_comes_in_pieces_is_the_source_at_every_checkpoint(case: str) -> None:
    topic = recorded("avro", case)
    feed = TopicFeed.recording(topic)
    for checkpoint in topic.checkpoints:
        feed.send(checkpoint["lines"])
        feed.apply()
        mismatches = feed.differences(topic.case.path / checkpoint["expected"])
        assert (checkpoint["checkpoint_ts"], mismatches) == (checkpoint["checkpoint_ts"], [])


# --- columns ----------------------------------------------------------------------------------------------------------


def test_partitions_that_switch_to_a_new_schema_at_different_offsets_end_equal(broker: AvroBroker) -> None:
    old = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",))
    new = broker.table("shop", "orders", {"id": INT, "note": TEXT, "n": BIGINT}, ("id",))
    broker.send(0, old.row(100, id=1, note="a"), old.row(108, id=2, note="b"), new.row(130, id=1, note="c", n=1))
    broker.send(1, new.row(110, id=3, note="d", n=2))
    broker.send(2, old.row(105, id=5, note="late"))
    feed = feed_of(broker)
    assert stopped(feed) == {}
    assert rows(feed) == [(1, "c", 1), (2, "b", None), (3, "d", 2), (5, "late", None)]


def test_a_type_that_is_not_known_holds_its_table_by_name(broker: AvroBroker) -> None:
    odd = broker.table("shop", "odd", {"id": INT, "v": tidb("string", "HALFVEC")}, ("id",))
    orders = broker.table("shop", "orders", {"id": INT}, ("id",))
    broker.send(0, odd.row(100, id=1, v="[1]"), orders.row(100, id=1))
    feed = feed_of(broker)
    (reason,) = stopped(feed).values()
    assert 'column "v" has the type "HALFVEC": the type table does not know it' in reason
    assert rows(feed) == [(1,)]


def test_what_no_ddl_says_is_a_finding(broker: AvroBroker) -> None:
    orders = broker.table("shop", "orders", {"id": INT, "note": tidb("string", "ENUM", allowed="a,b")}, ("id",))
    broker.send(0, orders.row(100, id=1, note="a"))
    feed = feed_of(broker)
    feed.apply()
    listing = feed.listing()
    history = read_history(listing.schema_files, listing.checkpoint)
    ddl_findings = [
        finding for finding in findings(listing, history, feed.source.options, ()) if finding.rule == "no-ddl"
    ]
    assert [finding.severity.value for finding in ddl_findings] == ["warning"]
    assert [finding.table for finding in ddl_findings] == ["shop.orders"]
    assert "TRUNCATE" in ddl_findings[0].sentence


def test_rows_of_the_old_columns_that_come_after_the_new_ones_are_read(broker: AvroBroker) -> None:
    old = broker.table("shop", "orders", {"id": INT, "note": TEXT, "n": BIGINT}, ("id",))
    new = broker.table("shop", "orders", {"id": INT, "note": TEXT, "m": INT}, ("id",))
    broker.send(0, old.row(100, id=1, note="a", n=1))
    broker.send(1, old.row(100, id=2, note="a", n=2))
    feed = feed_of(broker)
    feed.apply()
    for partition, message in ((0, new.row(120, id=1, note="b", m=5)), (1, old.row(110, id=2, note="late", n=3))):
        broker.send(partition, message)
        assert stopped(feed) == {}
    assert feed.lake.read(ORDERS).select(["id", "note", "n", "m"]).sort_by("id").to_pylist() == [
        {"id": 1, "note": "b", "n": None, "m": 5},
        {"id": 2, "note": "late", "n": 3, "m": None},
    ]
    broker.send(1, new.row(130, id=2, note="c", m=6))
    assert stopped(feed) == {}
    assert feed.lake.read(ORDERS).select(["n", "m"]).to_pylist() == [{"n": None, "m": 5}, {"n": None, "m": 6}]


def test_a_partition_that_lags_behind_a_wider_type_is_read_by_the_wider_one(broker: AvroBroker) -> None:
    old = broker.table("shop", "orders", {"id": INT, "n": INT}, ("id",))
    new = broker.table("shop", "orders", {"id": INT, "n": BIGINT}, ("id",))
    feed = feed_of(broker)
    for partition, message in (
        (0, new.row(120, id=1, n=1 << 40)),
        (1, old.row(110, id=2, n=3)),
        (1, new.row(130, id=3, n=1 << 41)),
    ):
        broker.send(partition, message)
        assert stopped(feed) == {}
    assert rows(feed) == [(1, 1 << 40), (2, 3), (3, 1 << 41)]


# --- rows that name no table ------------------------------------------------------------------------------------------

BY_TABLE = '[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}", partition = "table"}]\n'
BY_SCHEMA = '[sink]\ndispatchers = [{matcher = ["*.*"], topic = "of_{schema}", partition = "table"}]\n'


def _nameless(broker: AvroBroker, topic: str) -> None:
    """Send a row whose schemas have no namespace, so that it names no database."""
    table = broker.table("", "bills", {"id": INT}, ("id",))
    for number, document in (table.key, table.value):
        broker.registry[str(number)] = json.dumps({**document, "namespace": ""})
    broker.send(0, table.row(5, id=1), topic=topic)


def test_a_row_that_names_no_database_concerns_the_table_of_its_topic_alone(broker: AvroBroker, tmp_path: Path) -> None:
    toml = tmp_path / "changefeed.toml"
    toml.write_text(BY_TABLE)
    feed = feed_of(broker, changefeed_config=toml)
    orders = broker.table("shop", "orders", {"id": INT}, ("id",))
    bills = broker.table("shop", "bills", {"id": INT}, ("id",))
    broker.send(0, orders.row(2, id=1), topic="shop_orders")
    broker.send(0, bills.row(3, id=1), topic="shop_bills")
    assert stopped(feed) == {}
    broker.send(0, orders.row(4, id=2), topic="shop_orders")
    _nameless(broker, "shop_bills")
    held = stopped(feed)
    assert list(held) == ["shop.bills"]
    assert 'the dispatcher with the topic "{schema}_{table}"' in held["shop.bills"]
    assert rows(feed) == [(1,), (2,)]


def test_a_table_that_no_row_has_named_yet_stops_no_other(broker: AvroBroker, tmp_path: Path) -> None:
    toml = tmp_path / "changefeed.toml"
    toml.write_text(BY_TABLE)
    feed = feed_of(broker, changefeed_config=toml)
    _nameless(broker, "shop_bills")
    orders = broker.table("shop", "orders", {"id": INT}, ("id",))
    broker.send(0, orders.row(4, id=2), topic="shop_orders")
    outcome = feed.apply()
    assert [str(table.name) for table in outcome.tables if not table.state.stopped] == ["shop.orders"]
    assert any("shop_bills" in place for place in outcome.problems)


def test_in_a_topic_of_several_tables_such_a_row_may_be_of_any(broker: AvroBroker, tmp_path: Path) -> None:
    toml = tmp_path / "changefeed.toml"
    toml.write_text(BY_SCHEMA)
    feed = feed_of(broker, changefeed_config=toml)
    orders = broker.table("shop", "orders", {"id": INT}, ("id",))
    broker.send(0, orders.row(2, id=1), topic="of_shop")
    assert stopped(feed) == {}
    _nameless(broker, "of_shop")
    broker.send(0, orders.row(6, id=2), topic="of_shop")
    feed.apply()
    assert rows(feed) == [(1,)]
