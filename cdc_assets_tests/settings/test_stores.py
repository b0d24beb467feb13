"""A lake's properties as both readers get them: the same storage, the same catalog, and nothing that guesses."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.settings.lake import LakeSettings

REST = {"type": "rest", "uri": "https://catalog.example"}
PLACE = "s3://lake/tables"
AZURE = "abfss://lake@acc.dfs.core.windows.net/tables"


def sides(catalog: dict[str, Any], warehouse: str = PLACE) -> tuple[dict[str, str], dict[str, str]]:
    lake = LakeSettings(catalog=catalog, warehouse=warehouse)
    prefix = "spark.sql.catalog.lake."
    return lake.pyiceberg_properties(), {
        key.removeprefix(prefix): value for key, value in lake.spark_properties().items()
    }


@pytest.mark.parametrize(
    ("warehouse", "io", "extra"),
    [
        ("s3://lake/tables", "org.apache.iceberg.aws.s3.S3FileIO", ("aws",)),
        ("s3a://lake/tables", "org.apache.iceberg.aws.s3.S3FileIO", ("aws",)),
        ("gs://lake/tables", "org.apache.iceberg.gcp.gcs.GCSFileIO", ("gcp",)),
        ("abfss://lake@account.dfs.core.windows.net/t", "org.apache.iceberg.azure.adlsv2.ADLSFileIO", ("azure",)),
        ("hdfs://name/tables", None, ()),
        ("/lake", None, ()),
    ],
)
def test_icebergs_own_class_and_its_jars_follow_from_the_warehouses_scheme(
    warehouse: str, io: str | None, extra: tuple[str, ...]
) -> None:
    assert sides(REST, warehouse)[1].get("io-impl") == io
    assert LakeSettings(catalog=REST, warehouse=warehouse).extras == extra


@pytest.mark.parametrize("region", [{"s3.region": "eu-west-1"}, {"client.region": "eu-west-1"}], ids=str)
@pytest.mark.parametrize("style", [{"s3.path-style-access": True}, {"s3.force-virtual-addressing": "false"}], ids=str)
def test_region_and_path_style_reach_both_sides_however_they_are_spelled(
    region: dict[str, Any], style: dict[str, Any]
) -> None:
    python, java = sides({**REST, **region, **style})
    assert (python["s3.region"], python["s3.force-virtual-addressing"]) == ("eu-west-1", "false")
    assert (java["client.region"], java["s3.path-style-access"]) == ("eu-west-1", "true")


def test_an_endpoint_of_its_own_asks_nobody_for_a_region_or_for_a_buckets_address() -> None:
    python, java = sides({**REST, "s3.endpoint": "http://127.0.0.1:9"})
    assert (python["s3.region"], python["s3.force-virtual-addressing"]) == ("us-east-1", "false")
    assert (java["client.region"], java["s3.path-style-access"]) == ("us-east-1", "true")


def test_without_endpoint_and_region_each_side_looks_them_up_as_it_always_does() -> None:
    python, java = sides(REST)
    assert not {"s3.region", "s3.force-virtual-addressing"} & set(python)
    assert not {"client.region", "s3.path-style-access"} & set(java)


@pytest.mark.parametrize("prefix", ["s3", "client"])
def test_keys_are_the_same_on_both_sides(prefix: str) -> None:
    keys = {"access-key-id": "AK", "secret-access-key": "sk", "session-token": "st"}
    for side in sides({**REST, **{f"{prefix}.{name}": value for name, value in keys.items()}}):
        assert {name: side[f"s3.{name}"] for name in keys} == keys


def test_a_role_is_assumed_by_both_sides() -> None:
    python, java = sides({**REST, "s3.role-arn": "arn:aws:iam::1:role/r", "s3.region": "eu-west-1"})
    assert python["s3.role-arn"] == java["client.assume-role.arn"] == "arn:aws:iam::1:role/r"
    assert java["client.factory"].endswith("AssumeRoleAwsClientFactory")
    assert java["client.assume-role.region"] == "eu-west-1"


@pytest.mark.parametrize(
    ("given", "place", "sentence"),
    [
        ({"s3.endpoint": "minio:9000"}, PLACE, "has no scheme"),
        ({"gcs.service.host": "emulator:4443"}, "gs://lake/tables", "gcs.service.host .* has no scheme"),
        ({"adls.account-name": "a", "adls.endpoint": "emulator:1"}, AZURE, "adls.endpoint .* has no scheme"),
        ({"uri": "catalog.example:8181"}, PLACE, "uri .* has no scheme"),
        ({"glue.endpoint": "localhost:1"}, PLACE, "glue.endpoint .* has no scheme"),
        ({"type": "hive", "uri": "h:9083"}, PLACE, "the uri 'h:9083'; expected thrift://HOST:PORT"),
        ({"type": "hive", "uri": "thrift://h"}, PLACE, "the uri 'thrift://h'; expected thrift://HOST:PORT"),
        ({"adls.account-key": "k"}, AZURE, "adls.account-name"),
        ({"client.assume-role.external-id": "x"}, PLACE, "external-id"),
    ],
)
def test_what_one_side_would_not_follow_is_refused(given: dict[str, str], place: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        sides({**REST, **given}, place)


def test_a_server_of_google_s_kind_is_asked_without_credentials_unless_a_token_is_given() -> None:
    own = {"gcs.service.host": "http://127.0.0.1:9"}
    python, java = sides({**REST, **own}, "gs://lake/tables")
    assert (java["gcs.no-auth"], java["gcs.project-id"], python["gcs.oauth2.token"]) == ("true", "lake", "none")
    for side in sides({**REST, **own, "gcs.oauth2.token": "t"}, "gs://lake/tables"):
        assert side["gcs.oauth2.token"] == "t"
        assert "gcs.no-auth" not in side
    assert not [name for side in sides(REST, "gs://lake/tables") for name in side if name.startswith("gcs.")]


def test_a_token_of_google_s_without_an_end_has_one_for_python() -> None:
    python, _ = sides({**REST, "gcs.oauth2.token": "t"}, "gs://lake/tables")
    assert int(python["gcs.oauth2.token-expires-at"]) > 4_000_000_000_000


def test_azures_key_token_and_endpoint_are_spelled_for_each_side() -> None:
    name = {"adls.account-name": "acc"}
    _, java = sides({**REST, **name, "adls.account-key": "k"}, AZURE)
    assert (java["adls.auth.shared-key.account.name"], java["adls.auth.shared-key.account.key"]) == ("acc", "k")
    python, java = sides({**REST, **name, "adls.sas-token": "s"}, AZURE)
    assert python["adls.sas-token"] == java["adls.sas-token.acc.dfs.core.windows.net"] == "s"
    vended, _ = sides({**REST, "adls.sas-token.acc.dfs.core.windows.net": "v"}, AZURE)
    assert (vended["adls.account-name"], vended["adls.sas-token"]) == ("acc", "v")
    own = {"adls.endpoint": "http://127.0.0.1:9/acc"}
    python, java = sides({**REST, **name, **own, "adls.account-key": "k"}, AZURE)
    assert java["adls.connection-string.acc.dfs.core.windows.net"] == own["adls.endpoint"]
    assert (python["adls.blob-storage-authority"], python["adls.dfs-storage-scheme"]) == ("127.0.0.1:9", "http")
    assert python["adls.connection-string"] == "AccountName=acc;AccountKey=k;BlobEndpoint=http://127.0.0.1:9/acc"


@pytest.mark.parametrize("path", ["a#b", "a?key=v3rys3cr3t", "a\tb", "a//b", "/a", "a/../b", "./a", "${x}"])
@pytest.mark.parametrize("root", ["s3://bucket", "gs://bucket", "abfss://c@a.dfs.core.windows.net"])
def test_a_location_that_clients_read_differently_is_refused(root: str, path: str) -> None:
    with pytest.raises(BadSettings, match=r"lake\.warehouse .*Name a location without it") as raised:
        LakeSettings(catalog=REST, warehouse=f"{root}/{path}")
    assert "v3rys3cr3t" not in str(raised.value)


@pytest.mark.parametrize("name", ["a?b", "a#b", "50%41", "a\nb", "${env:HOME}"])
@pytest.mark.parametrize("how", ["directory", "uri"])
def test_a_directory_whose_name_addresses_cannot_spell_is_refused(how: str, name: str) -> None:
    place = f"/w/{name}" if how == "directory" else f"file:///w/{quote(name)}"
    with pytest.raises(BadSettings, match=r"lake\.warehouse .*Name a directory without it"):
        LakeSettings.from_warehouse(place)


@pytest.mark.parametrize("path", ["", "/", "/a//", "/50%41", "/a+b c", "/größe/日本", "/k=v/a&b;c", "/[x]{y}*~@$'"])
def test_any_other_location_is_as_it_was_given(path: str) -> None:
    assert LakeSettings(catalog=REST, warehouse=f"s3://bucket{path}").root == f"s3://bucket{path}".rstrip("/")


def test_a_warehouses_name_is_kept_apart_from_its_location() -> None:
    python, java = sides({**REST, "warehouse": "prod"})
    assert python["warehouse"] == java["warehouse"] == "prod"
    assert LakeSettings(catalog={**REST, "warehouse": "prod"}, warehouse=f"{PLACE}/").root == PLACE


def test_a_rest_catalog_is_asked_for_a_tables_credentials_and_sent_no_reports() -> None:
    java = sides(REST)[1]
    assert java["header.X-Iceberg-Access-Delegation"] == "vended-credentials"
    assert java["rest-metrics-reporting-enabled"] == "false"


@pytest.mark.parametrize("given", [{"rest.sigv4-enabled": True}, {"rest.auth.type": "sigv4"}], ids=str)
def test_signed_requests_are_signed_on_both_sides(given: dict[str, Any]) -> None:
    keys = {"rest.access-key-id": "AK", "client.secret-access-key": "sk"}
    python, java = sides({**REST, **given, **keys, "rest.signing-region": "eu-west-1"})
    assert (python["rest.sigv4-enabled"], java["rest.auth.type"]) == ("true", "sigv4")
    assert (python["client.access-key-id"], java["rest.secret-access-key"]) == ("AK", "sk")
    assert python["rest.signing-region"] == java["rest.signing-region"] == "eu-west-1"


def test_glue_takes_names_that_icebergs_own_check_refuses() -> None:
    assert sides({"type": "glue"})[1]["glue.skip-name-validation"] == "true"


def test_drivers_of_databases_are_jars_too() -> None:
    lake = LakeSettings(catalog={"type": "jdbc", "uri": "postgresql://h/db"}, warehouse=PLACE)
    assert lake.extras == ("aws", "postgres")


@pytest.mark.parametrize(
    "catalog",
    [
        {**REST, "credential": "me:sesame"},
        {**REST, "token": "sesame"},
        {**REST, "s3.secret-access-key": "sesame"},
        {"type": "jdbc", "uri": "jdbc:postgresql://h/db", "jdbc.password": "sesame"},
        {"type": "jdbc", "uri": "postgresql://u:sesame@h/db"},
        {"type": "jdbc", "uri": "jdbc:postgresql://h/db?user=u&password=sesame"},
    ],
)
def test_a_lake_knows_which_of_its_values_nobody_may_see(catalog: dict[str, str]) -> None:
    assert "sesame" in LakeSettings(catalog=catalog, warehouse=PLACE).secrets


def test_the_ledger_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEDGER", "postgresql+psycopg2://u:p@h/db")
    given: Any = {"env": "LEDGER"}
    assert LakeSettings(catalog=REST, warehouse=PLACE, ledger=given).ledger == "postgresql+psycopg2://u:p@h/db"
