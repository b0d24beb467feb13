"""A connector's configuration as Kafka Connect has it, in its forms, beside a sink URI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics.options import parse_properties
from cdc_assets.sources.topics.topic_options import TopicOptions
from cdc_assets_tests.connector_topics import recordings

CONFIG = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": 1,
    "database.password": "topsecret",
    "topic.prefix": "shop",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": False,
    "time.precision.mode": "isostring",
    "unavailable.value.placeholder": "hex:c3a9",
    "snapshot.mode": "no_data",
}
MODES = {
    "time.precision.mode": "isostring",
    "unavailable.value.placeholder": "hex:c3a9",
}
FORMS: dict[str, Callable[[dict[str, Any]], str]] = {
    "members": json.dumps,
    "named": lambda config: "\ufeff" + json.dumps({"name": "c", "config": config, "tasks": [], "type": "source"}),
    "properties": lambda config: "# worker\n" + "".join(f"{name} = {value}\n" for name, value in config.items()),
}


def settings(directory: Path, text: str, uri: str = "kafka://h:9092", **given: Any) -> ChangefeedSettings:
    file = directory / "connector"
    file.write_text(text, encoding="utf-8")
    sink_uri = f"{uri}?protocol=debezium-json{given.pop('query', '')}"
    return ChangefeedSettings(**{"sink_uri": sink_uri, "changefeed_config": file, **given})


def options(*args: Any, **given: Any) -> TopicOptions:
    source_options = settings(*args, **given).source_options
    assert isinstance(source_options, TopicOptions)
    return source_options


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [False, True, "FALSE", " True "])
def test_modes_are_read_in_any_case(form: str, value: Any, tmp_path: Path) -> None:
    name = "value.converter.replace.null.with.default"
    config = {**CONFIG, name: value, "decimal.handling.mode": "STRING"}
    modes = dict(options(tmp_path, FORMS[form](config)).messages.connector)
    assert (modes[name], modes["decimal.handling.mode"]) == (str(value).strip().lower(), "string")


@pytest.mark.parametrize("form", FORMS)
def test_a_configuration_says_topics_and_modes_in_each_of_its_forms(form: str, tmp_path: Path) -> None:
    feed_settings = settings(tmp_path, FORMS[form](CONFIG))
    assert isinstance(feed_settings.source_options, TopicOptions)
    assert (feed_settings.source_options.topic, feed_settings.source_options.topics) == ("shop", ("shop", "shop.*"))
    assert dict(feed_settings.source_options.messages.connector) == MODES
    assert (feed_settings.registry(), feed_settings.access()["security.protocol"]) == ({}, "PLAINTEXT")
    assert "topsecret" not in f"{feed_settings!r} {feed_settings.source_options!r} {feed_settings.model_dump_json()}"


def test_parameters_of_the_sink_uri_win(tmp_path: Path) -> None:
    source_options = options(tmp_path, json.dumps(CONFIG), "kafka://h/shop", query="&time.precision.mode=connect")
    assert dict(source_options.messages.connector)["time.precision.mode"] == "connect"


def test_another_delimiter_stands_between_the_prefix_and_the_tables(tmp_path: Path) -> None:
    assert options(tmp_path, json.dumps({**CONFIG, "topic.delimiter": "_"})).topics == ("shop", "shop_*")


POSTGRES = {
    "connector.class": "PostgresConnector",
    "publish.via.partition.root": True,
    "decimal.handling.mode": "string",
    "include.unknown.datatypes": True,
    "event.converting.failure.handling.mode": "fail",
}
LOSSES: dict[str, tuple[dict[str, object], str]] = {
    "truncates, by default": ({}, "skipped.operations = t, Debezium's default"),
    "rows": ({"skipped.operations": "u, t"}, "skipped.operations = u, t"),
    "columns": ({"column.exclude.list": "shop.orders.note"}, "column.exclude.list = shop.orders.note"),
    "parts of values": ({"column.mask.hash.SHA-256.with.salt.topsecret": "shop.orders.note"}, "column.mask.…"),
    "events": ({"event.processing.failure.handling.mode": "warn"}, "event.processing.failure.handling.mode = warn"),
    "records": ({"errors.tolerance": "all"}, "errors.tolerance = all"),
    "DDL": (
        {"schema.history.internal.skip.unparseable.ddl": True},
        "schema.history.internal.skip.unparseable.ddl = true",
    ),
    "names": ({"field.name.adjustment.mode": "avro"}, "field.name.adjustment.mode = avro"),
    "what a transformation drops": ({"transforms": "filter"}, "transforms = filter"),
    "what a converter changes": ({"converters": "own"}, "converters = own"),
    "long bytea": ({**POSTGRES, "binary.handling.mode": "base64-url-safe"}, "binary.handling.mode = base64-url-safe"),
    "changes of partitioned tables": (
        {**POSTGRES, "publish.via.partition.root": False},
        "publish.via.partition.root = false",
    ),
    "changes of partitioned tables, by default": (
        {name: value for name, value in POSTGRES.items() if name != "publish.via.partition.root"},
        "publish.via.partition.root is not set",
    ),
    "columns of unknown types": ({**POSTGRES, "include.unknown.datatypes": False}, "include.unknown.datatypes = false"),
    "numerics that are no number": (
        {**POSTGRES, "decimal.handling.mode": "precise"},
        "decimal.handling.mode = precise",
    ),
    "numerics that are no number, by default": (
        {name: value for name, value in POSTGRES.items() if name != "decimal.handling.mode"},
        "decimal.handling.mode is not set",
    ),
    "long values of some types, by default": (
        {name: value for name, value in POSTGRES.items() if name != "event.converting.failure.handling.mode"},
        "event.converting.failure.handling.mode = warn, Debezium's default",
    ),
    "changes while it stands": ({"slot.drop.on.stop": "true"}, "slot.drop.on.stop = true"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_what_messages_lack_by_a_setting_is_known_from_it(case: str, tmp_path: Path) -> None:
    members, setting = LOSSES[case]
    safe: dict[str, object] = {} if case == "truncates, by default" else {"skipped.operations": "none"}
    losses = options(tmp_path, json.dumps({**CONFIG, **safe, **members})).losses
    assert [name for name, _ in losses] == [setting]
    assert "topsecret" not in str(losses)


def test_a_configuration_that_leaves_nothing_out_is_no_loss(tmp_path: Path) -> None:
    safe = {
        "skipped.operations": "none",
        "event.processing.failure.handling.mode": "fail",
        "errors.tolerance": "none",
        "field.name.adjustment.mode": "none",
        "slot.drop.on.stop": False,
    }
    assert options(tmp_path, json.dumps({**CONFIG, **safe})).losses == ()
    assert options(tmp_path, json.dumps({**CONFIG, **safe, **POSTGRES})).losses == ()
    assert options(tmp_path, json.dumps({"topic.prefix": "shop"})).losses == ()
    assert options(tmp_path, json.dumps({**CONFIG, **safe, "binary.handling.mode": "base64"})).losses == ()


FORMER = {
    "topic.prefix": "database.server.name",
    **{
        f"{kind}.{now}": f"{kind}.{former}"
        for kind in ("database", "schema", "table", "column")
        for now, former in (("include.list", "whitelist"), ("exclude.list", "blacklist"))
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FORMER)
def test_settings_are_known_by_the_names_that_older_connectors_have(name: str, form: str, tmp_path: Path) -> None:
    members = {"topic.prefix": "shop", **CONFIG, name: "shop"}
    older = {FORMER[name] if member == name else member: value for member, value in members.items()}
    assert options(tmp_path, FORMS[form](older)) == options(tmp_path, FORMS[form](members))
    assert options(tmp_path, FORMS[form]({FORMER[name]: "former", **members})) == options(
        tmp_path, FORMS[form](members)
    )


@pytest.mark.parametrize("recording", recordings(), ids=str)
def test_a_recorded_configuration_is_read_as_the_uri_that_says_the_same(recording: Any, tmp_path: Path) -> None:
    config = {**recording.connector, "database.password": "topsecret"}
    for form in FORMS.values():
        source_options = options(tmp_path, form(config))
        assert source_options.topic == recording.connector["topic.prefix"]
        assert {name: recording.connector[name] for name, _ in source_options.messages.connector} == dict(
            source_options.messages.connector
        )


@pytest.mark.parametrize(
    ("text", "uri", "sentence"),
    [
        ('{"topic.prefix": ', "kafka://h", "is not JSON .line 1, column 18."),
        ("[sink]\nprotocol = 1\n", "kafka://h/shop", "neither connector.class nor topic.prefix"),
        ('{"config": {"name": "c"}}', "kafka://h/shop", "neither connector.class nor topic.prefix"),
        ("topic.prefix=shop", "kafka://h/store", 'names the topics of "store".*has topic.prefix "shop"'),
        ("connector.class=c", "kafka://h", "names no topic; expected kafka://host:port/PREFIX"),
        ("topic.prefix=shop\ntime.precision.mode=exact", "kafka://h", 'time.precision.mode is "exact"; known are'),
        (
            "topic.prefix=shop\nvalue.converter=io.confluent.connect.avro.AvroConverter",
            "kafka://h",
            "value.converter is io.confluent.connect.avro.AvroConverter, whose messages cannot be read",
        ),
    ],
)
def test_what_no_connector_has_is_one_sentence(text: str, uri: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=sentence):
        settings(tmp_path, text, uri)


def test_a_configuration_that_does_not_parse_does_not_show_what_is_in_it(tmp_path: Path) -> None:
    for text in (
        '{"database.password": "topsecret"',
        '{"database.password": topsecret}',
        '"database.password=topsecret',
    ):
        with pytest.raises(BadSettings) as caught:
            settings(tmp_path, text)
        assert "topsecret" not in str(caught.value)


def test_names_of_topics_stand_where_a_transformation_changes_them(tmp_path: Path) -> None:
    source_options = options(tmp_path, json.dumps(CONFIG), "kafka://h/store", topics=("store.*",))
    assert source_options.topics == ("store.*",)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\r\nb:2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        ("  a \t=  1 2 ", {"a": "1 2 "}),
        ("# c\\\n! d\na = #1", {"a": "#1"}),
        ("a = 1,\\\n    2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a = 1\\\\\nb = 2", {"a": "1\\", "b": "2"}),
        ("a = 1\\\n\n b = 2", {"a": "1", "b": "2"}),
        ("a\\ b\\:c\\=d=e\\tf=g", {"a b:c=d": "e\tf=g"}),
        ("a = \\u00e9\\u0022 \\q", {"a": 'é" q'}),
        ("a\nb=\na = 2", {"a": "2", "b": ""}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("io.debezium.connector.sqlserver.SqlServerConnector", "SQL Server"),
        ("io.debezium.connector.oracle.OracleConnector", "Oracle"),
        ("io.debezium.connector.db2as400.As400RpcConnector", "Db2 for i"),
        ("io.debezium.connector.db2.Db2Connector", "Db2"),
        ("io.debezium.connector.vitess.VitessConnector", "Vitess"),
        ("MongoDbConnector", "MongoDB"),
    ],
)
def test_a_connector_for_another_server_is_refused_by_the_server_s_name(name: str, server: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=f"for {server}; read are those for MySQL, MariaDB, PostgreSQL alone"):
        options(tmp_path, json.dumps({**CONFIG, "connector.class": name}))
