"""Buckets of each cloud, at servers that speak their protocols: read by TiCDC's sink URI, or refused in a sentence."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, StorageUnavailable
from cdc_assets.io.drivers import endpoint_of
from cdc_assets.io.storage import Opener
from cdc_assets.io.storage_uri import opener, storage
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.postgres import free_port
from cdc_assets_tests.servers.azure import ACCOUNT, ACCOUNT_KEY, CONTAINER
from cdc_assets_tests.servers.azure import azure as running_azure

FILES = {"feed/metadata": b'{"checkpoint-ts":7}', "feed/a b/CDC1.csv": b"1,2\n"}
CREDENTIALS = re.compile(f"v3rys3cr3t|AKIDREADER|{re.escape(ACCOUNT_KEY)}")


def opened(uri: str, **more: Any) -> Opener:
    return opener(uri, {**storage(uri), **more}, "sink URI")


def contents(feed: Opener) -> dict[str, bytes]:
    """What a copy of the opener reads, as an executor has it."""
    there: Opener = pickle.loads(pickle.dumps(feed))
    return {f"feed/{path}": there.read(path) for path, *_ in there.entries()}


def refusal(uri: str, kind: type[CdcError], **more: Any) -> str:
    with pytest.raises(kind) as refused:
        opened(uri, **more).read("metadata")
    text = str(refused.value)
    assert "\n" not in text
    assert not CREDENTIALS.search(text)
    return text


# --- S3 ---------------------------------------------------------------------------------------------------------------


def boto3_client(url: str) -> Any:
    import boto3

    who = {"aws_access_key_id": "w", "aws_secret_access_key": "w"}
    return boto3.client("s3", endpoint_url=url, region_name="us-east-1", **who)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A server of S3 and of roles."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3_client(url)
    client.create_bucket(Bucket="bucket")
    for key, content in FILES.items():
        client.put_object(Bucket="bucket", Key=key, Body=content)
    yield url
    server.stop()


@pytest.fixture
def s3_uri(s3: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3)
    return f"s3://bucket/feed?access-key=AKIDREADER&secret-access-key=v3rys3cr3t&endpoint={s3}&region=us-east-1"


def roles_assumed(s3: str) -> list[tuple[str, str]]:
    """(role, external id) of every role that was assumed."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.sts.models import sts_backends

    backend = sts_backends[DEFAULT_ACCOUNT_ID]["aws"]
    return [(role.role_arn, role.external_id or "") for role in backend.assumed_roles]


def test_a_bucket_in_s3_is_read_by_its_sink_uri(s3_uri: str) -> None:
    assert contents(opened(s3_uri)) == FILES
    assert contents(opened(s3_uri + "&force-path-style=true&provider=minio")) == FILES


def test_objects_are_listed_page_by_page_and_no_page_is_asked_for_before_its_turn(s3: str, s3_uri: str) -> None:
    client = boto3_client(s3)
    client.create_bucket(Bucket="many")
    client.put_object(Bucket="many", Key="feed/d/", Body=b"")
    keys = [f"a/{number} +%.csv" for number in range(5)]
    for key in keys:
        client.put_object(Bucket="many", Key=f"feed/{key}", Body=b"x")
    feed, methods = opened(s3_uri.replace("//bucket/", "//many/")), list[str]()
    call = feed.file_system.call_s3

    def counted(method: str, **how: Any) -> Any:
        methods.append(method)
        return call(method, **how, MaxKeys=2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.file_system, "call_s3", counted)
        entries = feed.entries()
        first = next(entries)
        assert len(methods) == 1
        assert [path for path, *_ in (first, *entries)] == keys
        assert len(methods) == 3


def test_a_file_is_read_by_one_request(s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, methods = opened(s3_uri), list[str]()
    call = feed.file_system._call_s3

    async def counted(method: str, *given: Any, **how: Any) -> Any:
        methods.append(method)
        return await call(method, *given, **how)

    monkeypatch.setattr(feed.file_system, "_call_s3", counted)
    assert feed.read("metadata") == FILES["feed/metadata"]
    assert methods == ["get_object"]


def test_a_role_of_the_sink_uri_is_assumed(s3: str, s3_uri: str) -> None:
    role = "arn:aws:iam::123456789012:role/reader"
    assert contents(opened(f"{s3_uri}&role-arn={role}&external-id=tidb-7")) == FILES
    assert (role, "tidb-7") in roles_assumed(s3)
    assert contents(opened(s3_uri, role_arn=role + "2")) == FILES
    assert (role + "2", "") in roles_assumed(s3)


def test_a_role_that_cannot_be_assumed_is_named_once_with_the_service_and_without_a_trace(
    s3: str, s3_uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    for number, (service, error) in enumerate(
        [(f"http://127.0.0.1:{port}", StorageUnavailable), (f"127.0.0.1:{port}", BadSettings), (f"{s3}/x", BadSettings)]
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service)
        sentence = refusal(f"{s3_uri}&role-arn=arn:aws:iam::123456789012:role/other{number}", error)
        assert "AWS_ENDPOINT_URL_STS" in sentence
        assert f"role/other{number}" in sentence
    assert not [record for record in caplog.records if record.exc_info]


def test_an_external_id_wants_its_role(s3_uri: str) -> None:
    with pytest.raises(BadSettings, match="role-arn"):
        opened(f"{s3_uri}&external-id=x")


def test_the_endpoint_may_stand_in_two_places(s3: str, s3_uri: str) -> None:
    assert contents(opened(s3_uri, client_kwargs={"endpoint_url": s3, "region_name": "us-east-1"})) == FILES


# --- Google Cloud Storage ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gcs() -> Iterator[str]:
    from gcp_storage_emulator.server import create_server

    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket")
    server.start()
    url = f"http://127.0.0.1:{port}"
    writer = opened(f"gs://bucket?endpoint={url}", token="anon").file_system
    for key, content in FILES.items():
        writer.pipe_file(f"bucket/{key}", content)
    yield url
    server.stop()


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
@pytest.mark.parametrize("path", ["", "/storage/v1/"])
def test_a_bucket_in_google_cloud_is_read_by_its_sink_uri(gcs: str, scheme: str, path: str) -> None:
    assert contents(opened(f"{scheme}://bucket/feed?endpoint={gcs}{path}", token="anon")) == FILES


def test_a_credentials_file_travels_by_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    key = {"type": "service_account", "client_email": "a@b", "private_key": "v3rys3cr3t", "token_uri": "https://t"}
    file.write_text(json.dumps(key))
    assert storage(f"gs://bucket/feed?credentials-file={file}") == {"token": key}
    assert "v3rys3cr3t" not in repr(opened(f"gs://bucket/feed?credentials-file={file}"))


@pytest.mark.parametrize("content", [None, "no JSON", "[]", '{"type": "service_account"}'])
def test_a_credentials_file_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadSettings, match=r"credentials-file .*key\.json"):
        storage(f"gs://bucket/feed?credentials-file={file}")


# --- Azure ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Azure's own emulator with the files in a container."""
    from azure.storage.blob import BlobServiceClient

    with running_azure(tmp_path_factory.mktemp("azurite")) as url:
        client = BlobServiceClient(url, credential=ACCOUNT_KEY)
        for key, content in FILES.items():
            client.get_blob_client(CONTAINER, key).upload_blob(content)
        yield url


def _shared_access(azure: str) -> str:
    from azure.storage.blob import generate_container_sas

    until = datetime.now(timezone.utc) + timedelta(hours=1)
    return "sas-token=" + quote(
        generate_container_sas(ACCOUNT, CONTAINER, account_key=ACCOUNT_KEY, permission="rl", expiry=until)
    )


@pytest.mark.soak
@pytest.mark.parametrize("login", [lambda _: f"account-key={quote(ACCOUNT_KEY)}", _shared_access], ids=["key", "token"])
@pytest.mark.parametrize("scheme", ["azure", "azblob", "abfs"])
def test_a_container_in_azure_is_read_by_its_sink_uri(azure: str, scheme: str, login: Callable[[str], str]) -> None:
    assert contents(opened(f"{scheme}://bucket/feed?account-name={ACCOUNT}&endpoint={azure}&{login(azure)}")) == FILES


@pytest.mark.soak
def test_azure_takes_the_names_of_tidbs_environment(azure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", ACCOUNT_KEY)
    assert contents(opened(f"azure://bucket/feed?endpoint={azure}")) == FILES


@pytest.mark.soak
def test_a_wrong_key_of_azure_is_a_refusal(azure: str) -> None:
    base = f"azure://bucket/feed?account-name={ACCOUNT}&endpoint={azure}"
    assert "credentials" in refusal(f"{base}&account-key=AAAA{quote(ACCOUNT_KEY[4:])}", BucketMissing)
    assert "credentials" in refusal(f"{base}&account-key=z", BucketMissing)


def test_an_endpoint_of_azure_wants_its_account() -> None:
    with pytest.raises(BadSettings, match="account-name"):
        storage("azure://bucket/feed?endpoint=http://127.0.0.1:1/x")


# --- what is wrong, in every cloud ------------------------------------------------------------------------------------

CLOUDS = {
    "s3": "s3://bucket/feed?access-key=AKIDREADER&secret-access-key=v3rys3cr3t",
    "gcs": "gs://bucket/feed?",
    "azure": "azure://bucket/feed?account-name=a&account-key=v3rys3cr3t",
}


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_nobody_at_the_endpoint_is_said_with_the_setting(cloud: str) -> None:
    sentence = refusal(f"{CLOUDS[cloud]}&endpoint=http://127.0.0.1:{free_port()}", StorageUnavailable)
    assert "no server answers" in sentence
    assert "endpoint" in sentence


@pytest.mark.parametrize("cloud", sorted(CLOUDS))
def test_an_endpoint_without_scheme_is_said_with_the_right_one(cloud: str) -> None:
    with pytest.raises(BadSettings, match="https://store:9000"):
        storage(f"{CLOUDS[cloud]}&endpoint=store:9000")


def test_an_endpoint_of_the_storage_options_wants_its_scheme_too() -> None:
    assert "https://store:9000" in refusal(CLOUDS["s3"], BadSettings, endpoint_url="store:9000")


@pytest.mark.parametrize(("cloud", "options"), [("s3", {}), ("gcs", {"token": "anon"})])
def test_a_bucket_that_is_not_there_is_said_so(
    cloud: str, options: dict[str, str], request: pytest.FixtureRequest
) -> None:
    base = CLOUDS[cloud].replace("bucket", "elsewhere", 1)
    uri = f"{base}&endpoint={request.getfixturevalue(cloud)}&protocol=csv"
    settings = ChangefeedSettings.model_validate({"sink_uri": uri, "storage_options": options})
    with pytest.raises(BucketMissing, match="elsewhere"):
        settings.open_source().fence()


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr("fsspec.filesystem", missing)
    assert "cdc-assets[gcs]" in refusal("gs://bucket/feed", BadSettings)
    assert "cdc-assets[azure]" in refusal("azure://bucket/feed?account-name=a", BadSettings)


def test_the_endpoint_is_found_wherever_it_stands() -> None:
    assert endpoint_of({"client_kwargs": {"endpoint_url": "http://a"}, "endpoint_url": "http://b"}) == "http://a"
    assert (
        endpoint_of({"connection_string": "AccountName=x;BlobEndpoint=http://c:1/x;AccountKey=y=="}) == "http://c:1/x"
    )
    assert endpoint_of({}) == ""
