"""The pages on how to set up the producer: their commands run, their configurations and settings are taken."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc_assets.cli import commands
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics.topic_options import TopicOptions
from cdc_assets_tests.pipeline.test_bad_streams import line_of
from cdc_assets_tests.topic_feed import archive_of
from cdc_assets_tests.topics import topics

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "debezium.md").read_text()
(CONNECTOR,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
(TOML,) = re.findall(r"```toml\n(.*?)```", (DOCS / "topics.md").read_text(), re.DOTALL)
LINES = re.findall(r"^cdc-assets .*$", PAGE, re.MULTILINE)
MODES = {
    name: values
    for name, values in re.findall(r"^\| `([a-z.]+\.mode)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE)
    if name not in ("snapshot.mode", "event.converting.failure.handling.mode")  # how values are read, they do not say
}


def inspected(*arguments: str) -> dict[str, Any]:
    cli_result = CliRunner().invoke(commands, ["inspect", *arguments, "--json"], catch_exceptions=False)
    inspection: dict[str, Any] = json.loads(cli_result.stdout)
    return inspection


def options(**given: Any) -> TopicOptions:
    source_options = ChangefeedSettings(**given).source_options
    assert isinstance(source_options, TopicOptions)
    return source_options


def test_commands_with_and_without_the_connectors_file_read_the_same_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decimals are texts and its times have zones, as the page's configuration says."""
    fields = [{"type": "int32", "optional": False, "field": "id"}, {"type": "string", "field": "d"}]
    source = {"connector": "postgresql", "name": "shop", "ts_ms": 1, "db": "shop", "schema": "public", "table": "t"}
    place = {"snapshot": "false", "lsn": 7, "sequence": '["7","7"]'}
    block = {"fields": [{"type": "struct", "fields": fields, "field": "after"}]}
    payload = {"before": None, "after": {"id": 1, "d": "2.50"}, "source": {**source, **place}, "op": "c"}
    key = {"schema": {"type": "struct", "fields": fields[:1]}, "payload": {"id": 1}}
    message = (key, {"schema": block, "payload": payload})
    archive_of([line_of("shop.public.t", 0, message), line_of("shopping.public.t", 0, message)], tmp_path / "archive")
    (tmp_path / "connector.json").write_text(CONNECTOR)
    monkeypatch.chdir(tmp_path)
    assert len(LINES) == 2
    inspections = [inspected(*shlex.split(line)[2:], "--archive", "archive") for line in LINES]
    assert [[(table["table"], table["files"]) for table in each["tables"]] for each in inspections] == [
        [("public.t", 1)]
    ] * 2
    assert "secret" not in json.dumps(inspections)


def test_the_connectors_file_says_what_the_uri_beside_it_says(tmp_path: Path) -> None:
    (tmp_path / "connector.json").write_text(CONNECTOR)
    by_file, by_uri = [shlex.split(line)[shlex.split(line).index("--sink-uri") + 1] for line in LINES]
    from_file = options(sink_uri=by_file, changefeed_config=tmp_path / "connector.json")
    from_uri = options(sink_uri=by_uri)
    assert (from_file.topics, from_file.messages) == (from_uri.topics, from_uri.messages)


@pytest.mark.parametrize("name", MODES)
def test_recommended_modes_are_modes(name: str) -> None:
    for mode in re.split(r", or |, ", MODES[name].strip()):
        source_options = options(sink_uri=f"kafka://h/shop?protocol=debezium-json&{name}={mode}")
        assert dict(source_options.messages.connector) == {name: mode}


def test_the_toml_is_taken(tmp_path: Path) -> None:
    (tmp_path / "feed.toml").write_text(TOML)
    given: dict[str, Any] = {"sink_uri": "kafka://h/cdc?protocol=avro", "changefeed_config": tmp_path / "feed.toml"}
    feed = ChangefeedSettings(**given)
    assert isinstance(feed.source_options, TopicOptions)
    assert feed.source_options.messages.enable_tidb_extension
    assert [rule.topic for rule in feed.source_options.rules] == ["{schema}_{table}"]
    assert feed.registry() == {"url": "https://user:password@registry:8081"}


def test_a_file_of_schemas_is_given_as_a_path_and_as_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = next(topic for topic in topics("avro") if topic.case.name == "E_partitions" and topic.name == "avro")
    archive_of(recorded.lines, tmp_path / "archive")
    file = tmp_path / "schemas of it.json"
    file.write_text(json.dumps({"schemas_by_id": {str(name): text for name, text in recorded.registry.items()}}))
    monkeypatch.chdir(tmp_path)
    uri = f"kafka://h/cdc?{recorded.recorded['sink_uri_params']}"
    given = ["--sink-uri", uri, "--archive", (tmp_path / "archive").as_uri(), "--topics", "*"]
    names = (file.name, file.as_uri(), f"file://{file}")
    table_lists = [inspected(*given, "--schema-registry", name)["tables"] for name in names]
    plain, *others = [
        [(table["table"], table["columns"], table["file_bytes"]) for table in tables] for tables in table_lists
    ]
    assert len(plain) > 5
    assert others == [plain, plain]


def test_a_file_of_schemas_in_settings_is_relative_to_them_or_a_uri(tmp_path: Path) -> None:
    from cdc_assets.settings.config import load

    file = tmp_path / "schemas.json"
    file.write_text('{"schemas_by_id": {}}')
    for given in ("schemas.json", file.as_uri(), {"file": "schemas.json"}, {"file": file.as_uri()}):
        feed = {"sink_uri": "kafka://h/cdc?protocol=avro", "schema_registry": given}
        (tmp_path / "changefeeds.yaml").write_text(json.dumps({"changefeeds": [feed]}))
        (name, path), *others = load(tmp_path / "changefeeds.yaml").changefeed().registry().items()
        assert (name, path.removeprefix("file://"), others) == ("file", str(file), [])


def test_the_statements_of_the_page_about_ydb_describe_its_table(tmp_path: Path) -> None:
    (statement,) = (
        text for text in re.findall(r"```\n(CREATE TABLE .*?)```", (DOCS / "ydb.md").read_text(), re.DOTALL)
    )
    (tmp_path / "schemas.yql").write_text(statement)
    rows = [(None, {"key": [number], "update": {"total": "1.5", "note": "a"}, "ts": [1000, 1]}) for number in (1, 2)]
    archive_of([line_of("shop/orders/feed", offset, row) for offset, row in enumerate(rows)], tmp_path / "archive")
    uri = "kafka://host:2135/shop/orders/feed?protocol=ydb-json"
    archive = ["--archive", str(tmp_path / "archive"), "--schemas", str(tmp_path / "schemas.yql")]
    (table,) = inspected("--sink-uri", uri, *archive)["tables"]
    assert (table["table"], table["key"], table["columns"]) == ("shop.orders", ["id"], 3)
