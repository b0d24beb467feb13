"""Settings: what TiCDC got is what the user gives, and nothing secret comes out again."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.settings.config import ChangefeedSettings, Settings, from_flags, load
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources.changefeed_toml import EventFilter
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets_tests.changefeed import option, sink_options, written


def feed(uri: str = "s3://bucket/prefix?protocol=csv", **given: Any) -> ChangefeedSettings:
    return ChangefeedSettings(**{"sink_uri": uri, **given})


def with_toml(directory: Path, text: str, uri: str = "/feed?protocol=csv", **given: Any) -> SinkOptions:
    file = directory / "changefeed.toml"
    file.write_text(text, encoding="utf-8")
    return sink_options(feed(uri, changefeed_config=file, **given))


# --- how the changefeed writes ----------------------------------------------------------------------------------------


def test_without_toml_the_defaults_are_ticdcs() -> None:
    assert feed("/feed?protocol=canal-json").source_options == written("canal-json")


def test_every_option_of_the_toml_arrives(tmp_path: Path) -> None:
    options = with_toml(
        tmp_path,
        r"""
        force-replicate = true
        [sink]
        protocol = "csv"
        terminator = "\n"
        date-separator = "Month"
        enable-partition-separator = false
        file-index-digit = 6
        unheard-of = 1
        [sink.csv]
        delimiter = "||"
        quote = ""
        null = ""
        include-commit-ts = true
        binary-encoding-method = "hex"
        output-old-value = true
        output-handle-key = true
        output-field-header = true
        [sink.cloud-storage-config]
        output-raw-change-event = true
        use-table-id-as-path = true
        file-expiration-days = 7
        [[sink.column-selectors]]
        matcher = ["a.*", "b.c"]
        columns = ["*", "!v"]
        [[filter.event-filters]]
        matcher = ["a.*"]
        ignore-event = ["Truncate Table"]
        ignore-sql = ["^drop"]
        ignore-delete-value-expr = "id > 1"
        """,
        uri="/feed",
        tz="Asia/Shanghai",
    )
    assert options == written(
        terminator="\n",
        date_separator="month",
        enable_partition_separator=False,
        delimiter="||",
        quote="",
        null="",
        include_commit_ts=True,
        binary_encoding_method="hex",
        output_old_value=True,
        output_handle_key=True,
        output_field_header=True,
        output_raw_change_event=True,
        use_table_id_as_path=True,
        file_expiration_days=7,
        column_selectors=((("a.*", "b.c"), ("*", "!v")),),
        event_filters=(EventFilter(("a.*",), ("truncate table",), ("^drop",), ("ignore-delete-value-expr",)),),
        timezone="Asia/Shanghai",
    )


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("[filter]\nrules = ['*.*']\nignore-txn-start-ts = []", ()),
        ("[filter]\nignore_txn_start_ts = [465283345416192024]", (EventFilter(None, rows=("ignore-txn-start-ts",)),)),
        ("[filter]\nrules = ['*.*']\ndo-dbs = ['a']", (EventFilter(None, unknown=("do-dbs",)),)),
        (
            "[[filter.event-filters]]\nmatcher = ['a.*']\nignore-update-only-columns = ['n']\nonly-new = true",
            (EventFilter(("a.*",), rows=("ignore-update-only-columns",), unknown=("only-new",)),),
        ),
    ],
)
def test_what_a_filter_leaves_out_by_keys_known_or_not_is_read(
    toml: str, expected: tuple[EventFilter, ...], tmp_path: Path
) -> None:
    assert with_toml(tmp_path, toml).event_filters == expected


def test_options_spelled_as_the_api_prints_them_are_read(tmp_path: Path) -> None:
    options = with_toml(tmp_path, "[sink]\ndate_separator = 'year'\n[sink.csv]\ninclude_commit_ts = true\n")
    assert (options.date_separator, options.wire.has_commit_ts) == ("year", True)


@pytest.mark.parametrize(
    ("toml", "parameters", "expected"),
    [
        ("protocol = 'csv'", "protocol=canal-json", {"protocol": "canal-json"}),
        ("content-compatible = false", "protocol=canal-json&content-compatible=true", {"content_compatible": True}),
        ("", "protocol=canal-json&content-compatible=true", {"only_output_updated_columns": True}),
        ("", "protocol=canal-json&enable-tidb-extension=T", {"enable_tidb_extension": True}),
        ("[sink.cloud-storage-config]\nuse-table-id-as-path=true", "protocol=csv&use-table-id-as-path=false",
         {"use_table_id_as_path": False}),
        ("date-separator = 'year'", "protocol=csv&date-separator=none", {"date_separator": "year"}),
        ("", "protocol=csv&date-separator=none", {"date_separator": "none"}),
        ("", "protocol=csv&include-commit-ts=true", {"include_commit_ts": False}),
        ("[sink.kafka-config.codec-config]\nenable-tidb-extension=true", "protocol=canal-json",
         {"enable_tidb_extension": True}),
    ],
)  # fmt: skip
def test_the_sink_uri_overrides_the_toml_where_ticdc_lets_it(
    tmp_path: Path, toml: str, parameters: str, expected: dict[str, Any]
) -> None:
    options = with_toml(tmp_path, f"[sink]\n{toml}\n", uri=f"/feed?{parameters}")
    assert {name: getattr(options, name, option(options.wire, name)) for name in expected} == expected


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[sink.csv]\ndelimiter = 'abcd'", "1 to 3 bytes"),
        ("[sink.csv]\nquote = ','", "part of delimiter"),
        ("[sink.csv]\nquote = 'ab'", "one character"),
        ("[sink.csv]\nbinary-encoding-method = 'octal'", "base64 and hex"),
        ("[sink.csv]\nnull = '0'", "NULL is ambiguous"),
        ("[sink]\ndate-separator = 'week'", "none, year, month, day"),
        ("[sink.csv]\ninclude-commit-ts = 'perhaps'", "expected true or false"),
        ("[sink]\nterminator = 1", "expected a text"),
        ("[[sink.column-selectors]]\nmatcher = ['a.b']", r"lists of texts \(matcher, columns\)"),
        ("[filter]\nevent-filters = 3", "event-filters"),
        ("[filter]\nevent-filters = false", "event-filters"),
        ("[[sink.column-selectors]]\nmatcher = 'a.b'\ncolumns = ['*']", "are not tables"),
        ("[[sink.column-selectors]]\nmatcher = ['a.b']\ncolumns = 'id'", "are not tables"),
        ("[sink]\ncolumn-selectors = ''", "are not tables"),
        ("[sink]\ncsv = 'a.csv'", r"`sink\.csv` is a text; expected a \[sink\.csv\] table"),
        ("[sink]\ncloud-storage-config = false", r"\[sink\.cloud-storage-config\] table"),
        ("sink = false", r"`sink` is true or false; expected a \[sink\] table"),
        ("filter = []", r"\[filter\] table"),
        ("[sink", "is not TOML"),
    ],
)
def test_what_ticdc_refuses_is_refused(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        with_toml(tmp_path, toml)


@pytest.mark.parametrize("protocol", ["", "avro", "open-protocol", "nonsense"])
def test_a_protocol_that_cannot_be_read_lists_the_known_ones(protocol: str) -> None:
    with pytest.raises(BadSettings, match="canal-json, csv"):
        feed(f"/feed?protocol={protocol}")


# --- where the bucket is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("s3://bucket/a/b/?protocol=csv", ("s3", "bucket/a/b")),
        ("gcs://bucket?protocol=csv", ("gcs", "bucket")),
        ("gs://bucket/a?protocol=csv", ("gcs", "bucket/a")),
        ("azure://container/a?protocol=csv", ("abfs", "container/a")),
        ("azblob://container/a?protocol=csv", ("abfs", "container/a")),
        ("file:///tmp/my%20feed?protocol=csv", ("file", "/tmp/my feed")),
        ("/tmp/100%25 feed?protocol=csv", ("file", "/tmp/100%25 feed")),
        ("memory://a/b?protocol=csv", ("memory", "/a/b")),
    ],
)
def test_schemes_become_fsspecs(uri: str, location: tuple[str, str]) -> None:
    assert sink_options(feed(uri)).location == location


@pytest.mark.parametrize(
    "uri", ["kafka://a/b?protocol=csv", "file://host/a?protocol=csv", "s3:///a?protocol=csv", "?protocol=csv"]
)
def test_an_address_that_is_no_storage_is_bad_settings(uri: str) -> None:
    with pytest.raises(BadSettings):
        feed(uri)


def test_ticdcs_s3_parameters_become_s3fs_options() -> None:
    uri = "s3://b/p?protocol=csv&access-key=AKID&secret_access_key=a+b/c%3D&endpoint=https://minio:9000&region=eu-1&force-path-style=false"
    assert feed(uri).storage() == {
        "key": "AKID",
        "secret": "a+b/c=",
        "endpoint_url": "https://minio:9000",
        "client_kwargs": {"region_name": "eu-1"},
        "config_kwargs": {"s3": {"addressing_style": "virtual"}},
    }


def test_storage_options_win_over_the_uri_and_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_SECRET", "from env")
    options = {"secret": {"env": "FEED_SECRET"}, "client_kwargs": {"verify": False}}
    settings = feed("s3://b/p?protocol=csv&secret-access-key=old&region=r", storage_options=options)
    assert settings.storage() == {"secret": "from env", "client_kwargs": {"region_name": "r", "verify": False}}


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(BadSettings, match="NO_SUCH_VARIABLE"):
        feed(storage_options={"key": {"env": "NO_SUCH_VARIABLE"}}).storage()


HIDDEN = "v3rys3cr3t"
OVERT = {"name": "a", "sink_uri": f"s3://b/p?protocol=csv&secret-access-key={HIDDEN}"}


@pytest.mark.parametrize(
    "document",
    [
        {"changefeeds": [OVERT["sink_uri"]]},
        {"changefeeds": OVERT["sink_uri"]},
        {"changefeeds": [OVERT, OVERT]},
        {"changefeeds": [{**OVERT, "archive": f"s3://b?session-token={HIDDEN}"}]},
        {"changefeeds": [{**OVERT, "kafka": {"sasl.password": {"value": HIDDEN}}}]},
        {"lake": {"warehouse": "/w", "ledger": [HIDDEN]}, "changefeeds": []},
    ],
)
def test_a_secret_at_a_place_where_it_does_not_belong_is_not_repeated(document: Any, tmp_path: Path) -> None:
    file = tmp_path / "changefeeds.yaml"
    file.write_text(json.dumps({"lake": {"warehouse": "/w"}, **document}))
    with pytest.raises(BadSettings) as raised:
        load(file)
    assert HIDDEN not in str(raised.value)
    assert "ChangefeedSettings(" not in str(raised.value)


def test_secrets_are_in_no_text_that_comes_out() -> None:
    secret = "v3rys3cr3t"
    uri = f"s3://AKIDX:{secret}@b/p?protocol=csv&secret-access-key={secret}"
    settings = from_flags(sink_uri=uri, storage_options={"secret": secret})
    lake = LakeSettings(catalog={"type": "rest", "uri": "http://c", "credential": secret}, warehouse="s3://w")
    texts = [
        repr(settings),
        str(settings),
        settings.model_dump_json(),
        settings.changefeeds[0].uri,
        repr(lake),
        str(lake),
    ]
    texts.append(lake.model_dump_json())
    for wrong in ({"tz": "Mars"}, {"nonsense": 1}, {"policies": {"drop table": secret[:0] or "never"}}):
        with pytest.raises(BadSettings) as raised:
            feed(uri, storage_options={"secret": secret}, **wrong)
        texts.append(f"{raised.value} {raised.value!r}")
    assert not any(secret in text for text in texts)


# --- the lake ---------------------------------------------------------------------------------------------------------


def test_a_warehouse_directory_is_a_sqlite_catalog_in_it_for_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = LakeSettings.from_warehouse("lake dir")
    place = tmp_path.resolve() / "lake dir"
    assert lake.pyiceberg_properties() == {
        "type": "sql",
        "uri": f"sqlite:///{place}/catalog.db",
        "warehouse": f"file://{place}",
    }
    assert lake.spark_properties() == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{place}/catalog.db",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": str(place),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }


@pytest.mark.parametrize(
    ("uri", "sqlalchemy", "java"),
    [
        ("sqlite:////w/catalog.db", "sqlite:////w/catalog.db", {"uri": "jdbc:sqlite:/w/catalog.db"}),
        ("postgresql+psycopg2://u:p%40@h:5432/db", "postgresql+psycopg2://u:p%40@h:5432/db",
         {"uri": "jdbc:postgresql://h:5432/db", "jdbc.user": "u", "jdbc.password": "p@"}),
        ("jdbc:postgresql://h/db?user=u&password=p@", "postgresql+psycopg2://u:p%40@h/db",
         {"uri": "jdbc:postgresql://h/db?user=u&password=p@"}),
    ],
)  # fmt: skip
def test_a_jdbc_address_is_spelled_for_both_sides(uri: str, sqlalchemy: str, java: dict[str, str]) -> None:
    lake = LakeSettings(catalog={"type": "jdbc", "uri": uri}, warehouse="s3://w/x", name="l")
    spark = lake.spark_properties()
    assert lake.pyiceberg_properties()["uri"] == sqlalchemy
    assert {name: spark.get(f"spark.sql.catalog.l.{name}") for name in java} == java


def test_a_rest_catalogs_properties_go_to_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    catalog = {"type": "rest", "uri": "http://c", "token": {"env": "TOKEN"}}
    lake = LakeSettings(catalog=catalog, warehouse="prod")
    expected = {"type": "rest", "uri": "http://c", "token": "t"}
    assert expected.items() <= lake.pyiceberg_properties().items()
    assert {f"spark.sql.catalog.lake.{name}": value for name, value in expected.items()}.items() <= (
        lake.spark_properties().items()
    )


@pytest.mark.parametrize("catalog", [{"type": "hadoop", "uri": "x"}, {"type": "rest"}, {}])
def test_a_catalog_that_is_none_is_bad_settings(catalog: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match=r"lake\.catalog"):
        LakeSettings(catalog=catalog, warehouse="w")


def test_a_bucket_as_warehouse_needs_a_catalog() -> None:
    with pytest.raises(BadSettings, match="catalog"):
        LakeSettings.from_warehouse("s3://bucket/w")


# --- the file ---------------------------------------------------------------------------------------------------------

_FILE = """
lake:
  warehouse: lake
changefeeds:
  - name: shop
    sink_uri: feeds/shop?protocol=csv
    changefeed_config: shop.toml
    tz: Europe/Berlin
    namespace: "mirror_{schema}"
    keys: {shop.log: [day, number]}
    policies: {drop_table: keep, add column: hold}
    quarantine: true
  - sink_uri: s3://bucket/x?protocol=canal-json
"""


def test_the_file_says_all_and_its_paths_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "changefeeds.yaml").write_text(_FILE, encoding="utf-8")
    (tmp_path / "shop.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n", encoding="utf-8")
    monkeypatch.setenv("CDC_ASSETS_CONFIG", str(tmp_path / "changefeeds.yaml"))
    settings = load()
    shop = settings.changefeed("shop")
    assert sink_options(shop).location == ("file", str(tmp_path / "feeds" / "shop"))
    assert shop.source_options == written(include_commit_ts=True, timezone="Europe/Berlin")
    assert settings.needed_lake().warehouse == str(tmp_path / "lake")
    assert settings.lake_of(str(tmp_path / "lake")) == settings.needed_lake()
    with pytest.raises(BadSettings, match=r"names the lake .*/lake, and --warehouse .*/other\. Leave out one"):
        settings.lake_of(str(tmp_path / "other"))
    assert shop.keys["shop.log"] == ("day", "number")
    assert shop.namespace_of("shop") == "mirror_shop"
    assert shop.policies == {"drop table": "keep", "add column": "hold"}
    assert settings.changefeed("default").name == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("changefeeds: []", "the list is empty"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', zone: UTC}]", 'changefeed 1: unknown setting "zone"; known are'),
        ("changefeeds: [{name: a, sink_uri: '/a?protocol=csv', zone: UTC}]", 'changefeed a: unknown setting "zone"'),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', sensor_runing: true}]", "did you mean sensor_running"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv'}, {sink_uri: '/b?protocol=csv'}]", 'are called "default"'),
        ("changefeeds: [{name: a}]", '"sink_uri" is missing'),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', policies: {drop index: hold}}]", "known are create schema"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', policies: {add column: keep}}]", '"keep" is for'),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', namespace: fixed}]", "contain {schema}"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', changefeed_config: none.toml}]", "none.toml cannot be read"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', initial: {dumps: x}}]", 'unknown setting "initial.dumps"'),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', keys: {shop.orders: id}}]", "is 'id': expected a list"),
        ("changefeeds: [{sink_uri: '/a?protocol=csv', keys: shop.orders}]", "expected names with values"),
        ("sinks: []", "unknown setting \"sinks\"; known are changefeeds, lake"),
        ("- a", "no `lake` and `changefeeds`"),
        ("a: [", "line 1"),
        ("changefeeds:\n- privacy: {s.t.a: drop}\n  name: a\n  privacy: {}", "is there twice, line 4, column 3"),
        ("changefeeds: [{privacy: {s.t.a: null, s.t.a: drop}}]", "\"s.t.a\" is there twice"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_clear_message(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "changefeeds.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadSettings, match=message) as raised:
        load(file)
    assert str(file) in str(raised.value)


def test_what_several_changefeeds_merge_may_be_said_otherwise_by_one(tmp_path: Path) -> None:
    file = tmp_path / "changefeeds.yaml"
    file.write_text(
        "changefeeds:\n- &a {name: a, sink_uri: '/a?protocol=csv', privacy: {s.t.a: drop}}\n"
        "- {<<: *a, name: b, privacy: {s.t.b: drop}}\n"
    )
    assert [(changefeed.name, [*changefeed.privacy]) for changefeed in load(file).changefeeds] == [
        ("a", ["s.t.a"]),
        ("b", ["s.t.b"]),
    ]


def test_a_file_in_another_encoding_is_named_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes("lake: {warehouse: Lagerhäuser}".encode("latin-1"))
    with pytest.raises(BadSettings, match=r"c\.yaml is not UTF-8 at byte 25\."):
        load(tmp_path / "c.yaml")


def test_a_missing_file_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="CDC_ASSETS_CONFIG"):
        load(tmp_path / "none.yaml")


def test_paths_of_flags_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSettings, match=re.escape(str(tmp_path / "none.toml"))):
        from_flags(sink_uri="feed?protocol=csv", changefeed_config=Path("none.toml"))
    (tmp_path / "feed.toml").touch()
    (feed,) = from_flags(
        sink_uri="feed?protocol=csv", changefeed_config="feed.toml", initial={"dump": ["dump", "s3://feeds/dump"]}
    ).changefeeds
    assert feed.changefeed_config == tmp_path / "feed.toml"
    assert feed.uri == str(tmp_path / "feed")
    assert [dump.uri.get_secret_value() for dump in feed.initial.dump] == [str(tmp_path / "dump"), "s3://feeds/dump"]


def test_an_unknown_changefeed_lists_the_known_ones() -> None:
    settings = Settings(changefeeds=(feed(name="a"), feed(name="b")))
    with pytest.raises(BadSettings, match="known are a, b"):
        settings.changefeed("c")
    with pytest.raises(BadSettings, match="known are a, b"):
        settings.changefeed()


def test_settings_travel_by_pickle() -> None:
    settings = from_flags(sink_uri="/a?protocol=csv", warehouse="w", keys={"a.b": ("c",)})
    again = pickle.loads(pickle.dumps(settings))
    assert again == settings
    assert again.changefeed().source_options == settings.changefeed().source_options
