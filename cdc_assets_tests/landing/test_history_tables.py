"""Logs of tables of topics: each change once however often it comes, with its place, leading to the mirror."""

from __future__ import annotations

import re

import pytest

from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.landing.test_recorded_feeds import TOPICS, some_often
from cdc_assets_tests.topic_feed import TopicFeed, sent_again
from cdc_assets_tests.topics import Topic, topics

PLACE = re.compile(r"(.+\[\d+\] offset \d+|DDL of version \d+)")


@pytest.mark.parametrize(
    "topic",
    some_often((*TOPICS, *topics("avro")[:3]), {"D_keys/simple", "C_ddl_tables/craft", "B_ddl_columns/avro"}),
)
def test_the_log_of_what_is_sent_again_leads_to_its_mirror(topic: Topic) -> None:
    feed = TopicFeed.recording(topic, history={"*.*": "log"}, accept_unordered=True)
    lines, count = sent_again(topic.lines, len(topic.lines) // 4, 3 * len(topic.lines) // 4), len(topic.lines)
    for cut in (3 * count // 4, count, 5 * count // 4, None):
        feed.send(cut, lines)
        feed.apply()
    assert fold_differences(feed.lake) == []
    logs = [table.rows for life, table in feed.lake.tables.items() if life.kind]
    assert {
        place for rows in logs for place in rows.column("_cdc_place").to_pylist() if not PLACE.fullmatch(place)
    } == set()
    fidelity = {
        str(life): [
            fidelity.rule
            for fidelity in feed.ledger.fidelity(feed.settings.name, life)
            if fidelity.column == "_change_type"
        ]
        for life in feed.lake.tables
        if life.kind
    }
    assert {bool(rules) for rules in fidelity.values()} == {topic.name == "avro"}, fidelity
    words = {word for rows in logs for word in rows.column("_change_type").to_pylist()}
    assert words >= ({"UPDATE_AFTER", "DELETE"} if topic.name == "avro" else {"INSERT", "UPDATE_AFTER", "DELETE"})
