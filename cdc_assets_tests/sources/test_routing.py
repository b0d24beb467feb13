"""Tables go to the topics that TiCDC sends them to, and every topic that a rule can give is known as the feed's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import Kind
from cdc_assets.model.schema import TableId
from cdc_assets.sources.given import FeedInputs
from cdc_assets.sources.topics.options import topic_options
from cdc_assets.sources.topics.routing import Routing
from cdc_assets.sources.topics.topic_options import TopicOptions, TopicRule
from cdc_assets_tests.topics import Topic, topics

RECORDED = topics("canal-json", "craft", "open-protocol", "simple")


def routing(*rules: TopicRule, topic: str = "cdc", **more: Any) -> Routing:
    return Routing(
        TopicOptions(brokers="b", topic=topic, messages=MessageOptions(protocol="craft"), rules=rules, **more)
    )


@pytest.mark.parametrize("recorded", RECORDED, ids=str)
def test_rows_of_recorded_topics_lie_where_their_tables_go(recorded: Topic) -> None:
    rule = recorded.recorded.get("topic_rule", "")
    rules = (TopicRule(("*.*",), rule),) if rule else ()
    topic_routing = routing(*rules, topic=recorded.recorded.get("default_topic", "gogen"))
    lies = [recorded.lines[line]["topic"] for line in recorded.spoken.column("message").to_pylist()]
    rows = [pair for pair in zip(recorded.spoken.to_pylist(), lies, strict=True) if pair[0]["kind"] == Kind.ROW.value]
    assert rows
    assert [topic_routing.topic_of(TableId(message["schema"], message["table"])) for message, _ in rows] == [
        topic for _, topic in rows
    ]
    assert all(topic_routing.concerns(topic) for topic in lies)


WHOLE_TABLES = [recording for recording in RECORDED if recording.recorded.get("partition_rule") == "table"]


@pytest.mark.parametrize("recorded", WHOLE_TABLES, ids=str)
def test_rows_of_whole_tables_lie_in_the_partition_that_ticdc_computes(recorded: Topic) -> None:
    topic_routing, count = routing(TopicRule(("*.*",), "", "table")), recorded.recorded["partitions"]
    rows = [message for message in recorded.spoken.to_pylist() if message["kind"] == Kind.ROW.value]
    assert rows
    lies = [recorded.lines[row["message"]]["partition"] for row in rows]
    assert [topic_routing.partition_of(TableId(row["schema"], row["table"]), count) for row in rows] == lies


def test_where_a_rule_spreads_a_table_no_partition_is_its_own() -> None:
    table = TableId("part", "r")
    assert routing().partition_of(table, 3) == routing(TopicRule(("*.*",), "", "Default")).partition_of(table, 3) == 2
    assert [routing(TopicRule(("*.*",), "", rule)).partition_of(table, 3) for rule in ("index-value", "ts")] == [
        None
    ] * 2


def test_recorded_topics_of_an_expression_are_those_of_the_tables_that_lived() -> None:
    """Avro's topics, which are named `{schema}_{table}`; tables without a key are in none."""
    named = [topic for topic in topics("avro") if topic.recorded.get("topic_rule")]
    assert named
    for recorded in named:
        topic_routing = routing(
            TopicRule(("*.*",), recorded.recorded["topic_rule"]), topic=recorded.recorded["default_topic"]
        )
        files = recorded.case.configs[0].settings().open_source().listing().schema_files
        lived = {topic_routing.topic_of(file.table) for file in files}
        there = {line["topic"] for line in recorded.lines}
        assert there <= lived | {recorded.recorded["default_topic"]}
        assert all(topic_routing.concerns(topic) for topic in lived)


@pytest.mark.parametrize(
    ("expression", "table", "topic"),
    [
        ("{schema}{table}", TableId("数据库", "表格"), "_____"),
        ("{schema}_{table}", TableId("数据库", "表格"), "______"),
        ("{schema}_{table}", TableId("my db", "a{b}c"), "my_db_a_b_c"),
        ("x.{schema}-{table}.y", TableId("A", "b.c"), "x.A-b.c.y"),
        ("{schema}", TableId(".", "t"), "_"),
        ("{schema}", TableId("..", "t"), "__"),
        ("only-one", TableId("a", "b"), "only-one"),
        ("{table}", TableId("a", "b"), "b"),
        ("", TableId("a", "b"), "cdc"),
        ("p" * 245 + "{schema}", TableId("abcdef", "t"), "p" * 245 + "abcd"),
    ],
)
def test_names_stand_in_expressions_as_ticdc_writes_them(expression: str, table: TableId, topic: str) -> None:
    topic_routing = routing(TopicRule(("*.*",), expression))
    assert topic_routing.topic_of(table) == topic
    assert topic_routing.concerns(topic)


def test_the_first_rule_that_fits_decides_and_what_none_fits_goes_to_the_default_topic() -> None:
    topic_routing = routing(
        TopicRule(("shop.*", "!shop.log*"), "orders"),
        TopicRule(("shop.log_[ab]", "`odd.name`.t"), "logs"),
        TopicRule(("/^arch_\\d+$/.?",), "archive_{schema}"),
    )
    tables = [("shop", "a"), ("SHOP", "A"), ("shop", "log_a"), ("shop", "log_c"), ("odd.name", "t"), ("arch_7", "x")]
    tables += [("arch_7", "xy"), ("shopping", "a"), ("shop", "")]
    routed = [topic_routing.topic_of(TableId(*table)) for table in tables]
    assert routed == ["orders", "orders", "logs", "cdc", "logs", "archive_arch_7", "cdc", "cdc", "cdc"]


def test_case_counts_where_the_changefeed_says_so() -> None:
    topic_routing = routing(TopicRule(("Shop.*",), "orders"), case_sensitive=True)
    assert [topic_routing.topic_of(TableId(schema, "t")) for schema in ("Shop", "shop")] == ["orders", "cdc"]


@pytest.mark.parametrize("topic", ["a b", "{schema", "{table}_{schema}", "ü", "{schema}_{schema}_{table}"])
def test_topics_that_ticdc_refuses_are_refused(topic: str) -> None:
    with pytest.raises(BadSettings, match="of a dispatcher is neither a name nor an expression"):
        routing(TopicRule(("*.*",), topic))


def test_a_matcher_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(BadSettings, match="is not a pattern"):
        routing(TopicRule(("/(/.*",), "a"))


def test_topics_of_others_are_not_the_feeds() -> None:
    topic_routing = routing(TopicRule(("shop.*", "!shop.x"), "{schema}_{table}"), TopicRule(("*.audit",), "audit"))
    known = {name: topic_routing.concerns(name) for name in ("cdc", "shop_a", "SHOP_A", "audit")}
    foreign = {
        name: topic_routing.concerns(name) for name in ("other_a", "ashop_a", "audit2", "__consumer_offsets", "cdc2")
    }
    assert (set(known.values()), set(foreign.values())) == ({True}, {False})


def test_kafkas_own_topics_are_nobodys() -> None:
    assert not routing(TopicRule(("*.*",), "{schema}_{table}")).concerns("__transaction_state")


def test_patterns_of_the_settings_decide_alone() -> None:
    topic_routing = routing(TopicRule(("*.*",), "{schema}"), topics=("shop.*", "cdc-[12]"))
    assert [topic_routing.concerns(name) for name in ("shop.a", "cdc-2", "cdc", "other")] == [True, True, False, False]


NAMES = st.text("aZ09_.- {}é表\\*", min_size=1, max_size=8) | st.text(min_size=1, max_size=64)
PIECES = st.sampled_from(["{schema}", "{table}", "_", ".", "a-", "x" * 120])
MATCHERS = st.sampled_from(["*.*", "?*.*", "[a-z]*.*", "/a/.*", "a*.*", "!a*.*", "Z.*", "`é`.*", "\\\\.*", "é?.[!b]*"])


@given(
    st.lists(PIECES, max_size=4).map("".join), st.lists(MATCHERS, min_size=1, max_size=3), NAMES, NAMES, st.booleans()
)
@example("x" * 360, ["*.*"], "0", "0", False)
def test_the_topic_of_every_table_concerns(
    expression: str, matchers: list[str], schema: str, table: str, sensitive: bool
) -> None:
    try:
        topic_routing = routing(TopicRule(tuple(matchers), expression), case_sensitive=sensitive)
    except BadSettings:
        return
    topic = topic_routing.topic_of(TableId(schema, table))
    assert topic_routing.concerns(topic)
    assert 0 < len(topic) <= 249


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('dispatchers = [{matcher = "shop.*", topic = "a"}]', r"lists of texts \(matcher\)"),
        ("dispatchers = false", "are not tables"),
        ('kafka-config = "required-acks=1"', r"`sink\.kafka-config` is a text; expected a \[sink\.kafka-config\]"),
        ("kafka-config.codec-config = 1", r"\[sink\.kafka-config\.codec-config\] table"),
    ],
)
def test_sections_of_another_type_than_ticdc_has_are_refused(toml: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "feed.toml").write_text(f"[sink]\n{toml}\n")
    with pytest.raises(BadSettings, match=message):
        topic_options("kafka://b:1/cdc?protocol=craft", tmp_path / "feed.toml", "UTC", FeedInputs())
