"""What is reported of topics before they apply: the producer's settings, columns by rows, values that are lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cdc_assets.formats.messages import Kind
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.report.tables import Inspection
from cdc_assets_tests.topic_feed import archive_of, settings_of
from cdc_assets_tests.topics import Topic, topics


def recorded(case: str, protocol: str) -> Topic:
    return next(one for one in topics(protocol) if one.case.name == case)


def without_ddl(topic: Topic) -> list[dict[str, Any]]:
    """Return the lines of a topic that begins after its tables were made, offsets anew."""
    offsets: dict[tuple[str, int], int] = {}
    found = []
    for line, kind in zip(topic.lines, topic.spoken.column("kind").to_pylist(), strict=False):
        if kind != Kind.DDL.value:
            place = line["topic"], line["partition"]
            offsets[place] = offsets.get(place, -1) + 1
            found.append({**line, "offset": offsets[place]})
    return found


def inspected(topic: Topic, directory: Path, lines: list[dict[str, Any]] | None = None, **given: Any) -> Inspection:
    archive_of(topic.lines if lines is None else lines, directory)
    return inspect_changefeed(settings_of(topic, archive={"uri": str(directory), "layout": "records"}, **given))


def test_what_craft_has_lost_is_reported_by_column(tmp_path: Path) -> None:
    found = inspected(recorded("A_all_types", "craft"), tmp_path)
    (cause,) = (one for one in found.findings if one.sentence.startswith("FLOAT became null"))
    assert [one.detail.startswith('"f": ') for one in cause.subjects if one.table == "types.defaults"] == [True]


def test_columns_that_are_known_from_rows_only_are_reported_so(tmp_path: Path) -> None:
    topic = recorded("B_ddl_columns", "open-protocol")
    found = inspected(topic, tmp_path, without_ddl(topic))
    rules = {finding.rule for finding in found.findings if "--schemas" in finding.sentence}
    assert rules == {"inferred-columns", "members"}
    assert any("taken from rows" in column.rule for table in found.tables for column in table.fidelity)


def test_acknowledgements_that_prove_nothing_are_warned_of(tmp_path: Path) -> None:
    topic = recorded("D_keys", "simple")
    uri = f"kafka://127.0.0.1:9092/{topic.recorded['topic']}?{topic.recorded['sink_uri_params']}&required-acks=1"
    found = inspected(topic, tmp_path, sink_uri=uri)
    assert any("required-acks is 1" in one.sentence for one in found.findings)


def test_a_message_that_names_no_table_and_cannot_be_read_is_a_problem_of_the_feed(tmp_path: Path) -> None:
    topic = recorded("D_keys", "simple")
    damaged = {**topic.lines[40], "value_b64": "Z2FyYmFnZQ=="}
    found = inspected(topic, tmp_path, [*topic.lines[:40], damaged, *topic.lines[41:]])
    place = f"{damaged['topic']}[{damaged['partition']}] offset {damaged['offset']}"
    assert [one.startswith(f"{place} cannot be read") for one in found.problems.values()] == [True]
