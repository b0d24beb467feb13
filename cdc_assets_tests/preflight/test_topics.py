"""What is reported of topics before they apply: the producer's settings, columns by rows, values that are lost."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.formats.messages import Kind
from cdc_assets.history.history import read_history
from cdc_assets.model.findings import Finding
from cdc_assets.model.splits import Listing
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.preflight.topics import findings
from cdc_assets.report.tables import Inspection
from cdc_assets.report.text import inspection_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.given import FeedInputs
from cdc_assets.sources.topics.options import topic_options
from cdc_assets_tests.connector_topics import recordings
from cdc_assets_tests.topic_feed import archive_of, settings_of
from cdc_assets_tests.topics import Topic, topics


def recorded(case: str, protocol: str) -> Topic:
    return next(topic for topic in topics(protocol) if topic.case.name == case)


def without_ddl(topic: Topic) -> list[dict[str, Any]]:
    """Return the lines of a topic that begins after its tables were made, offsets anew."""
    offsets: dict[tuple[str, int], int] = {}
    lines = []
    for line, kind in zip(topic.lines, topic.spoken.column("kind").to_pylist(), strict=False):
        if kind != Kind.DDL.value:
            place = line["topic"], line["partition"]
            offsets[place] = offsets.get(place, -1) + 1
            lines.append({**line, "offset": offsets[place]})
    return lines


def inspected(topic: Topic, directory: Path, lines: list[dict[str, Any]] | None = None, **given: Any) -> Inspection:
    archive_of(topic.lines if lines is None else lines, directory)
    return inspect_changefeed(settings_of(topic, archive={"uri": str(directory), "layout": "records"}, **given))


def test_what_craft_has_lost_is_reported_by_column(tmp_path: Path) -> None:
    inspection = inspected(recorded("A_all_types", "craft"), tmp_path)
    (cause,) = (finding for finding in inspection.findings if "FLOAT became null" in finding.sentence)
    assert [subject.detail.startswith('"f": ') for subject in cause.subjects if subject.table == "types.defaults"] == [
        True
    ]


def test_columns_that_are_known_from_rows_only_are_reported_so(tmp_path: Path) -> None:
    topic = recorded("B_ddl_columns", "open-protocol")
    inspection = inspected(topic, tmp_path, without_ddl(topic))
    rules = {finding.rule for finding in inspection.findings if "--schemas" in finding.sentence}
    assert rules == {"inferred-columns", "members"}
    assert any("taken from rows" in column.rule for table in inspection.tables for column in table.fidelity)


def test_acknowledgements_that_prove_nothing_are_warned_of(tmp_path: Path) -> None:
    topic = recorded("D_keys", "simple")
    uri = f"kafka://127.0.0.1:9092/{topic.recorded['topic']}?{topic.recorded['sink_uri_params']}&required-acks=1"
    inspection = inspected(topic, tmp_path, sink_uri=uri)
    assert any("required-acks is 1" in finding.sentence for finding in inspection.findings)


RAW = "[sink.kafka-config]\noutput-raw-change-event = true\n"


@pytest.mark.parametrize(
    ("protocol", "toml", "rule"),
    [
        ("open-protocol", RAW + "[sink.open]\noutput-old-value = false\n", "raw-updates"),
        ("open-protocol", RAW, ""),
        ("debezium", RAW + "[sink.debezium]\noutput-old-value = false\n", "raw-updates"),
        ("debezium", "[sink.debezium]\noutput-old-value = false\n", ""),
        ("avro", RAW, "raw-updates"),
        ("avro", RAW + "[sink.kafka-config.codec-config]\navro-include-before-value = true\n", ""),
        ("canal-json", RAW, ""),
    ],
)
def test_changed_keys_that_leave_the_row_of_before_are_warned_of(protocol: str, toml: str, rule: str) -> None:
    rules = {finding.rule for finding in of_settings(f"protocol={protocol}", toml)}
    assert rules == ({rule} if rule else set())


@pytest.mark.parametrize(
    ("protocol", "event", "says"),
    [
        ("simple", "drop column", "DROP COLUMN: the column stays"),
        ("canal-json", "alter table", "members of ENUM and SET"),
        ("avro", "insert", "leaves out rows"),
        ("avro", "truncate table", ""),
        ("simple", "add column", ""),
    ],
)
def test_what_event_filters_hide_from_topics_is_told(protocol: str, event: str, says: str) -> None:
    toml = f'[[filter.event-filters]]\nmatcher = ["s.*"]\nignore-event = ["{event}"]\n'
    told_findings = of_settings(f"protocol={protocol}", toml)
    assert [finding.rule for finding in told_findings] == (["event-filters"] if says else [])
    assert all(says in finding.sentence for finding in told_findings)


def test_a_parameter_that_is_nearly_one_is_told_where_ticdc_writes() -> None:
    (finding,) = of_settings("protocol=canal-json&enable-tidb-extention=true&max-message-bytes=1&compression=lz4")
    assert (finding.rule, finding.detail) == ("sink-parameters", "enable-tidb-extention (like enable-tidb-extension)")
    assert of_settings("protocol=ydb-json&enable-tidb-extention=true") == []


@pytest.mark.parametrize(
    ("name", "protocol"), [("default", "open-protocol"), ("Flat-Avro", "avro"), ("craft", "craft")]
)
def test_a_protocol_has_the_names_that_ticdc_takes(name: str, protocol: str) -> None:
    assert topic_options(f"kafka://b:9/cdc?protocol={name}", None, "UTC", FeedInputs()).protocol == protocol


def of_settings(parameters: str, toml: str = "") -> list[Finding]:
    """What is found of a topic without messages."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(toml)
        file.flush()
        options = topic_options(f"kafka://b:9/cdc?{parameters}", Path(file.name), "UTC", FeedInputs())
    return list(findings(Listing(1, (), ()), read_history(()), options, ()))


def test_a_message_that_names_no_table_and_cannot_be_read_is_a_problem_of_the_feed(tmp_path: Path) -> None:
    topic = recorded("D_keys", "simple")
    damaged = {**topic.lines[40], "value_b64": "Z2FyYmFnZQ=="}
    inspection = inspected(topic, tmp_path, [*topic.lines[:40], damaged, *topic.lines[41:]])
    place = f"{damaged['topic']}[{damaged['partition']}] offset {damaged['offset']}"
    assert [problem.startswith(f"{place} cannot be read") for problem in inspection.problems.values()] == [True]


@pytest.mark.parametrize(("protocol", "has_option"), [("craft", False), ("open-protocol", False), ("canal-json", True)])
def test_names_of_members_come_by_what_the_protocol_has(protocol: str, has_option: bool, tmp_path: Path) -> None:
    topic = recorded("A_all_types", protocol)
    (finding,) = (
        finding for finding in inspected(topic, tmp_path, without_ddl(topic)).findings if finding.rule == "members"
    )
    assert "--schemas" in finding.sentence
    assert ("content-compatible" in finding.sentence) is has_option


def test_what_rows_leave_open_is_said_once_a_table_and_in_one_sentence(tmp_path: Path) -> None:
    topic, registry = recorded("B_ddl_columns", "avro-string"), tmp_path / "schemas.json"
    registry.write_text(json.dumps({"schemas_by_id": dict(topic.registry)}))
    inspection = inspected(topic, tmp_path / "archive", schema_registry=str(registry))
    (finding,) = (finding for finding in inspection.findings if finding.rule == "inferred-columns")
    assert [subject.table for subject in finding.subjects] == sorted({table.table for table in inspection.tables})
    assert "names with other characters than letters" in finding.sentence
    (table,) = (subject for subject in finding.subjects if subject.table == "cols.pkadd")
    assert table.detail == '"a", "b", "c": which integer of 4 bytes or less it is'


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(recording, marks=() if recording.variant == "default" else pytest.mark.soak, id=str(recording))
        for recording in recordings()
        if not recording.postgres
    ],
)
def test_only_of_tidb_it_is_open_whether_texts_compare_by_their_collation(recording: Any, tmp_path: Path) -> None:
    archive_of(recording.lines, tmp_path)
    given: dict[str, Any] = {"sink_uri": recording.uri, "archive": {"uri": str(tmp_path), "layout": "records"}}
    inspection = inspect_changefeed(ChangefeedSettings(**given))
    assert any(table.key == ("code",) for table in inspection.tables)
    assert {finding.rule for finding in inspection.findings} & {"text-key", "approximate-key"} == set()
    assert not any("TiDB" in line or "TiCDC" in line for line in inspection_lines(inspection))


@pytest.mark.parametrize("recording", recordings(), ids=str)
def test_what_a_connector_leaves_out_is_told_from_its_configuration(recording: Any, tmp_path: Path) -> None:
    archive_of(recording.lines[:40], tmp_path / "archive")
    (tmp_path / "connector.json").write_text(json.dumps(dict(recording.connector)))
    given: dict[str, Any] = {"sink_uri": "kafka://any:9092?protocol=debezium-json"}
    given |= {"archive": {"uri": str(tmp_path / "archive"), "layout": "records"}}
    inspection = inspect_changefeed(ChangefeedSettings(**given, changefeed_config=tmp_path / "connector.json"))
    sentences = [finding.sentence for finding in inspection.findings if finding.rule == "connector-settings"]
    leaves_out = recording.connector.get("skipped.operations") != "none"
    in_base64 = recording.postgres and recording.connector.get("binary.handling.mode", "").startswith("base64")
    in_precise = recording.connector.get("decimal.handling.mode", "precise") == "precise"
    expected_counts = {
        "every TRUNCATE": leaves_out,
        "long bytea": in_base64,
        "rows of a partitioned table": recording.postgres,  # its connector sends them only if it is told to
        "types that it does not know": recording.postgres,
        "no stand-in for long arrays": recording.postgres,
        "NaN and infinity in numeric": recording.postgres and in_precise,
    }
    assert {words: sum(words in sentence for sentence in sentences) for words in expected_counts} == expected_counts
    assert len(sentences) == sum(expected_counts.values())


def test_topics_without_commit_ts_are_in_the_order_of_their_offsets_and_their_places_are_offsets(
    tmp_path: Path,
) -> None:
    topic = recorded("A_all_types", "canal-json")
    uri = f"kafka://127.0.0.1:9092/{topic.recorded['topic']}?protocol=canal-json"
    findings_by_rule = {finding.rule: finding for finding in inspected(topic, tmp_path, sink_uri=uri).findings}
    assert "their order is that of the offsets" in findings_by_rule["commit-ts"].sentence
    details = [subject.detail for subject in findings_by_rule["decoding"].subjects]
    assert all(
        re.match(r"\S+\[\d+\] offsets \d+ to \d+: the records have a member _tidb", detail) for detail in details
    )
