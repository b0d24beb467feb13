"""Every recorded topic, decoded and applied with the DDL of its case, ends equal to the source."""

from __future__ import annotations

from collections import Counter

import pytest

from cdc_assets.formats import MESSAGE_FORMATS
from cdc_assets.formats.messages import Kind
from cdc_assets_tests.cases import ExpectedTable, differences
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topics import Topic, topics

TOPICS = topics("craft", "open-protocol", "canal-json", "canal-json-compat", "simple", "simple-avro")
KINDS = {"row events": Kind.ROW, "ddl messages": Kind.DDL, "watermarks": Kind.RESOLVED}


def lost(topic: Topic, table: ExpectedTable) -> set[str]:
    """The columns whose values the wire has lost: Craft's FLOAT, also where it has become another type since."""
    if topic.name != "craft":
        return set()
    floats = {column.name for file in topic.listing.schema_files for column in file.columns if column.type == "FLOAT"}
    return floats & {column["name"] for column in table.columns}


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_topic_speaks_of_what_was_sent(topic: Topic) -> None:
    spoken = topic.spoken.to_pylist()
    found = Counter(one["kind"] for one in spoken)
    found[Kind.ROW.value] = sum(len(one["ordinals"] or ()) for one in spoken)
    if topic.options.protocol == "simple":
        found.pop(Kind.SCHEMA.value, None)  # how many were sent is not recorded
    told = {kind.value: topic.recorded["counts"].get(name, 0) for name, kind in KINDS.items()}
    assert {kind: count for kind, count in found.items() if count} == {kind: n for kind, n in told.items() if n}


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_topic_ends_equal_to_the_source(topic: Topic) -> None:
    assert unlike(topic, topic.replay()) == []


FEW = {"craft", "open-protocol"}


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=() if topic.name in FEW and topic.case.name[0] in "BCDE" else pytest.mark.soak)
        for topic in TOPICS
    ],
    ids=str,
)
def test_what_its_messages_tell_of_schemas_is_enough(topic: Topic) -> None:
    assert unlike(topic, topic.by_text().replay()) == []


def unlike(topic: Topic, lake: MemoryLake) -> list[str]:
    """How the tables differ from the source's, what the wire has lost apart."""
    found = []
    for name, table in topic.case.expected().items():
        if name in topic.allowed.tables:
            continue
        skip = lost(topic, table) | topic.allowed.columns.get(name, frozenset())
        found += differences(table, lake.read(name), skip=skip)
    return found


def test_every_protocol_of_messages_has_recorded_topics() -> None:
    assert {topic.options.protocol for topic in TOPICS} == set(MESSAGE_FORMATS)
