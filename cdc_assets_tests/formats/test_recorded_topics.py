"""Every recorded topic, decoded and applied with the DDL of its case, ends equal to the source."""

from __future__ import annotations

from collections import Counter

import pytest

from cdc_assets.formats.messages import Kind
from cdc_assets.formats.protocols import PROTOCOLS
from cdc_assets_tests.cases import differences
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topics import Topic, topics

TOPICS = topics("craft", "open-protocol", "canal-json", "canal-json-compat", "simple", "simple-avro", "debezium")
MARKED = [
    pytest.param(topic, marks=pytest.mark.soak if str(topic)[0] == "H" and topic.name != "craft" else (), id=str(topic))
    for topic in TOPICS
]
"""All of them in the soak; the long case of the bank is always read in one protocol."""
KINDS = {"row events": Kind.ROW, "ddl messages": Kind.DDL, "watermarks": Kind.RESOLVED}


@pytest.mark.parametrize("topic", MARKED)
def test_a_topic_speaks_of_what_was_sent(topic: Topic) -> None:
    spoken = topic.spoken.to_pylist()
    message_counts = Counter(message["kind"] for message in spoken)
    message_counts[Kind.ROW.value] = sum(len(message["ordinals"] or ()) for message in spoken)
    if topic.options.protocol == "simple":
        message_counts.pop(Kind.SCHEMA.value, None)  # how many were sent is not recorded
    counts = {kind.value: topic.recorded["counts"].get(name, 0) for name, kind in KINDS.items()}
    assert {kind: count for kind, count in message_counts.items() if count} == {
        kind: n for kind, n in counts.items() if n
    }


@pytest.mark.parametrize("topic", MARKED)
def test_a_topic_ends_equal_to_the_source(topic: Topic) -> None:
    assert unlike(topic, topic.replay()) == []


FEW = {"craft", "open-protocol"}


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=() if topic.name in FEW and topic.case.name[0] in "BCDE" else pytest.mark.soak)
        for topic in TOPICS
        if (topic.case.name, topic.name) != ("C_ddl_tables", "debezium")  # a RECOVER TABLE is in no message
    ],
    ids=str,
)
def test_the_schemas_in_its_messages_are_enough(topic: Topic) -> None:
    assert unlike(topic, topic.by_text().replay()) == []


def unlike(topic: Topic, lake: MemoryLake) -> list[str]:
    """How the tables differ from the source's, what the wire has lost apart."""
    mismatches = []
    for name, table in topic.case.expected().items():
        if name in topic.allowed.tables or str(name) in topic.recorded["skipped"]:
            continue
        skip = topic.lost(table) | topic.allowed.columns.get(name, frozenset())
        mismatches += differences(table, lake.read(name), skip=skip)
    return mismatches


# --- deletes that only their offset places ----------------------------------------------------------------------------

BY_OFFSET = topics("avro", "avro-string")
UNTOLD = {
    ("B_ddl_columns", "avro-string"): "a delete by a new key comes without the DDL that made the key",
    ("C_ddl_tables", "avro-string"): "a delete comes without the renames that say whose it is",
    ("D_keys", "avro-string"): "no DDL of the tables, whose keys the case's schema files do not state",
}


@pytest.mark.parametrize("topic", BY_OFFSET, ids=str)
def test_a_topic_with_a_registry_speaks_of_what_was_sent(topic: Topic) -> None:
    test_a_topic_speaks_of_what_was_sent(topic)


@pytest.mark.parametrize(
    "topic", [topic for topic in BY_OFFSET if (topic.case.name, topic.name) not in UNTOLD], ids=str
)
def test_a_topic_with_a_registry_ends_equal_to_the_source(topic: Topic) -> None:
    if topic.case.name == "D_keys":
        topic = topic.by_text()  # only the registry has the key of a table from before the changefeed
    assert unlike(topic, topic.replay()) == []


def test_every_protocol_of_messages_has_recorded_topics() -> None:
    others = {"debezium-json", "ydb-json"}  # see landing/test_connectors and test_ydb_json
    assert {topic.options.protocol for topic in (*TOPICS, *BY_OFFSET)} == set(PROTOCOLS) - others
