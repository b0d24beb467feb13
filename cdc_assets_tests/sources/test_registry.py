"""Schema registries: who is asked, how, and what is said when they do not answer; no login is ever shown."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, StorageUnavailable
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics.registry import connect

SCHEMA = json.dumps({"type": "record", "name": "t", "fields": []})


@dataclass
class Answers:
    """A registry with one schema, 7; `login` is asked for, `instead` is answered in place of everything."""

    login: str = ""
    instead: tuple[int, bytes] | None = None
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def of(self, path: str, login: str) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.instead is not None:
            return self.instead
        if self.login and login != "Basic " + base64.b64encode(self.login.encode()).decode():
            return 401, b'{"error_code":401,"message":"Unauthorized"}'
        if path.endswith(("/schemas/ids/7", f"/schemas/guids/{GUID}")):
            return 200, json.dumps({"schema": SCHEMA}).encode()
        return 404, b'{"error_code":40403,"message":"Schema not found"}'


@pytest.fixture
def answers() -> Iterator[Answers]:
    held = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = held.of(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield held
    server.shutdown()
    server.server_close()


def test_a_schema_is_asked_for_by_its_id(answers: Answers) -> None:
    assert connect({"url": f"{answers.url}/registry/"}).schema("7") == SCHEMA
    assert answers.requests == ["/registry/schemas/ids/7"]


GUID = "89791762-2336-4186-9674-299b90a802e2"


def test_a_schema_is_asked_for_by_its_guid(answers: Answers) -> None:
    assert connect({"url": answers.url}).schema(GUID) == SCHEMA
    assert answers.requests == [f"/schemas/guids/{GUID}"]


def test_a_registry_that_has_no_guids_has_no_schema_of_one(answers: Answers) -> None:
    answers.instead = 404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'
    assert connect({"url": answers.url}).schema(GUID) is None


def test_a_schema_that_is_not_there_is_none(answers: Answers) -> None:
    assert connect({"url": answers.url}).schema("8") is None


@pytest.mark.parametrize("inside", [True, False])
def test_a_login_stands_in_the_url_or_beside_it(answers: Answers, inside: bool) -> None:
    answers.login = "reader:p@ss/word"
    url = answers.url.replace("//", "//reader:p%40ss%2Fword@") if inside else answers.url
    registry = connect({"url": url} if inside else {"url": url, "basic.auth.user.info": answers.login})
    assert registry.schema("7") == SCHEMA
    assert "word" not in repr(registry)


def refused(options: dict[str, Any], schema_id: str = "7") -> CdcError:
    with pytest.raises(CdcError) as caught:
        connect(options).schema(schema_id)
    return caught.value


def test_a_wrong_login_is_reported_and_not_shown(answers: Answers) -> None:
    answers.login = "reader:right"
    error = refused({"url": answers.url.replace("//", "//reader:secret@")})
    assert isinstance(error, BucketMissing)
    assert "refused the login" in error.message
    assert "secret" not in error.message


def test_a_registry_that_is_down_is_asked_again_later() -> None:
    error = refused({"url": "http://me:secret@127.0.0.1:9"})
    assert isinstance(error, StorageUnavailable)
    assert "http://127.0.0.1:9 does not answer" in error.message
    assert "secret" not in error.message


def test_of_several_registries_the_next_one_answers(answers: Answers) -> None:
    assert connect({"url": f"http://127.0.0.1:9,{answers.url}"}).schema("7") == SCHEMA


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((503, b"busy"), "answers 503"),
        ((404, b"<html>"), "no schema"),
        ((200, b"[]"), "no schema"),
        ((200, b'{"schema":"{}","schemaType":"PROTOBUF"}'), "of the type PROTOBUF"),
    ],
)
def test_what_is_no_answer_of_a_registry_is_no_missing_schema(
    answers: Answers, answer: tuple[int, bytes], sentence: str
) -> None:
    answers.instead = answer
    assert sentence in refused({"url": answers.url}).message


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"url": "registry:8081"}, "is not a URL of a registry"),
        ({"url": "ftp://me:secret@host"}, "ftp://host is not a URL"),
        ({"url": "http://h", "timeout": 3}, 'no option "timeout"'),
        ({"url": "http://h", "basic.auth.user.info": "me"}, "not USER:PASSWORD"),
        ({"url": "http://h", "ssl.key.location": "k"}, "give both, or none"),
        ({"url": "http://h", "file": "f"}, "expected one of"),
        ({"glue": {"zone": "a"}}, "glue takes region"),
        ({"file": "/nowhere.json"}, "/nowhere.json cannot be read .No such file or directory"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        connect(options)


def test_a_file_stands_in_for_a_registry(tmp_path: Path) -> None:
    (tmp_path / "schemas.json").write_text(json.dumps({"schemas_by_id": {"7": SCHEMA}}))
    registry = connect({"file": str(tmp_path / "schemas.json")})
    assert (registry.schema("7"), registry.schema("8")) == (SCHEMA, None)


@mock_aws
def test_glue_knows_a_version_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access_key": "testing", "secret_access_key": "testing"}
    client = boto3.client("glue", "eu-central-1", aws_access_key_id="testing", aws_secret_access_key="testing")
    client.create_registry(RegistryName="r")
    made = client.create_schema(
        RegistryId={"RegistryName": "r"},
        SchemaName="s",
        DataFormat="AVRO",
        Compatibility="NONE",
        SchemaDefinition=SCHEMA,
    )
    registry = connect({"glue": {"region": "eu-central-1", **keys}})
    assert registry.schema(made["SchemaVersionId"]) == SCHEMA
    assert registry.schema("00000000-0000-0000-0000-000000000000") is None


def test_the_setting_is_taken_from_the_changefeed_where_none_is_given(tmp_path: Path) -> None:
    toml = tmp_path / "feed.toml"
    toml.write_text('[sink]\nschema-registry = "http://a:b@host:8081"\n')
    feed: dict[str, Any] = {"sink_uri": "kafka://127.0.0.1:9092/cdc?protocol=avro", "changefeed_config": toml}
    assert ChangefeedSettings(**feed).registry() == {"url": "http://a:b@host:8081"}
    feed["schema_registry"] = "http://c:secret@other"
    given = ChangefeedSettings(**feed)
    assert given.registry() == {"url": "http://c:secret@other"}
    assert "secret" not in repr(given) + given.model_dump_json()
