"""What catalogs and stores say when they fail, as one sentence with the setting to look at, and without secrets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs as pafs
import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import PySparkException

from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, TableHeld
from cdc_assets.lake import failures, workbench
from cdc_assets.lake.catalogs.catalog import open_catalog
from cdc_assets.lake.failures import CAUSES, answering, explained, hide, redacted
from cdc_assets.lake.spark.failures import races
from cdc_assets.settings.lake import LakeSettings

SAID: list[tuple[str, type[CdcError], str]] = [
    ("java.lang.NoClassDefFoundError: software/amazon/awssdk/services/s3/model/S3Exception", SetupError, "setup aws"),
    ("ModuleNotFoundError: No module named 'psycopg2'", SetupError, "cdc-assets[postgres]"),
    ("java.sql.SQLException: No suitable driver found for jdbc:mysql://h/db", SetupError, "driver"),
    ('UnsupportedFileSystemException: No FileSystem for scheme "s4"', BadSettings, "lake.warehouse"),
    ('PSQLException: FATAL: password authentication failed for user "u"', BadSettings, "jdbc.password"),
    ('OperationalError: FATAL:  database "lakes" does not exist', BadSettings, "uri of lake.catalog"),
    ("OperationalError: (sqlite3.OperationalError) unable to open database file", BadSettings, "the rights"),
    ("SdkClientException: Unable to load region from any of the providers", BadSettings, "client.region"),
    ("SdkClientException: Unable to load credentials from any of the providers", SetupError, "s3.access-key-id"),
    ("NoSuchBucketException: The specified bucket does not exist (Status Code: 404)", BadSettings, "lake.warehouse"),
    ("S3Exception: The provided token has expired. (Service: S3, Status Code: 400)", SetupError, "Renew"),
    ("S3Exception: Access Denied. (Service: S3, Status Code: 403, Request ID: 1)", SetupError, "s3.access-key-id"),
    ("OSError: When reading information: AWS Error ACCESS_DENIED during HeadObject", SetupError, "grants"),
    ("RESTError: NotFoundException: Warehouse not found: prod", BadSettings, "warehouse of lake.catalog"),
    ("BadRequestError: BadRequestException: No route for request: GET x/v1/config", BadSettings, "Check uri of"),
    ("RESTError: RESTError 404: Received unexpected JSON Payload: <html>", BadSettings, "Check uri of lake.catalog"),
    ("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized", SetupError, "token, credential"),
    ("OAuthError: invalid_client: the client or its secret is wrong", SetupError, "token, credential"),
    ("org.apache.iceberg.exceptions.ForbiddenException: Forbidden: no grant", SetupError, "grants"),
    ("java.net.UnknownHostException: catalog.example", LakeUnavailable, "uri and s3.endpoint"),
    ("java.net.ConnectException: Connection refused", LakeUnavailable, "uri and s3.endpoint"),
    ("ServiceFailureException: Server error: overloaded", LakeUnavailable, "Try again"),
    ("MetaException: InvalidObjectException(message:a-b is not a valid object name)", TableHeld, "setting namespace"),
    ("InvalidInputException: Value '_cdc' failed to satisfy constraint", TableHeld, "setting namespace"),
]


@pytest.mark.parametrize(("text", "error", "look"), SAID, ids=[text.partition(":")[0] for text, _, _ in SAID])
def test_a_failure_that_is_known_says_its_cause_and_where_to_look(text: str, error: type[CdcError], look: str) -> None:
    explained_error = explained(
        "shop.orders", f"org.apache.spark.SparkException: Job aborted\n{text}\n\tat A.b(C.java:1)"
    )
    assert type(explained_error) is error
    assert str(explained_error).startswith("shop.orders: ")
    assert look in str(explained_error)
    assert text.partition(": ")[2][:40] in str(explained_error)
    assert "\n" not in str(explained_error)


def test_every_known_cause_has_its_example() -> None:
    meanings = {
        next(cause.meaning for cause in CAUSES if cause.meaning in str(explained("t", text))) for text, _, _ in SAID
    }
    assert meanings == {cause.meaning for cause in CAUSES}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("org.apache.iceberg.shaded.org.apache.hc.core5.http.NoHttpResponseException", "h:443 failed to respond"),
        ("org.postgresql.util.PSQLException", "FATAL: terminating connection due to administrator command"),
        ("org.apache.thrift.transport.TTransportException", "Socket is closed by peer."),
    ],
)
def test_a_connection_that_ends_at_a_commit_is_tried_again(name: str, text: str) -> None:
    error = PySparkException("the commit failed")
    error._origin = SimpleNamespace(  # type: ignore[attr-defined]
        getClass=lambda: SimpleNamespace(getName=lambda: name), getMessage=lambda: text, getCause=lambda: None
    )
    with pytest.raises(LakeUnavailable, match="as it was before this step, or after it"), races("shop.orders"):
        raise error


def test_a_failure_that_is_not_known_is_not_explained() -> None:
    assert explained("t", "java.lang.IllegalStateException: something else") is None


@pytest.mark.parametrize(
    "text",
    [
        "No suitable driver found for jdbc:postgresql://h/db?user=u&password=sesame",
        "connection to postgresql://u:sesame@h:5432/db failed",
        "Authorization: Bearer sesame",
        'client_secret="sesame"',
        "GET /x?X-Amz-Signature=sesame&X-Amz-Date=1",
        "somewhere sesame",
    ],
)
def test_no_secret_is_repeated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_hidden", set())
    if "somewhere" in text:
        hide(["sesame"])
    assert "sesame" not in redacted(text)
    assert redacted(text).partition("***")[0]


def test_what_a_client_raises_is_what_it_means_and_what_is_meant_for_callers_passes() -> None:
    with pytest.raises(LakeUnavailable, match="does not answer"), answering():
        raise ConnectionRefusedError("Connection refused")
    with pytest.raises(NoSuchTableError), answering():
        raise NoSuchTableError("shop.orders")
    with pytest.raises(FileNotFoundError), answering():
        raise FileNotFoundError("gone")
    with pytest.raises(ZeroDivisionError), answering():
        _ = 1 / 0


@pytest.mark.parametrize(
    ("catalog", "named"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:9/catalog"}, "uri"),
        ({"type": "glue", "glue.endpoint": "http://127.0.0.1:9", "client.region": "us-east-1"}, "glue.endpoint"),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/nowhere", "s3.endpoint": "http://127.0.0.1:9"}, "s3.endpoint"),
    ],
)
def test_a_server_that_nobody_answers_at_is_told_before_any_client_tries(catalog: dict[str, str], named: str) -> None:
    with pytest.raises(LakeUnavailable, match=rf"no server answers at http://127\.0\.0\.1:9 .*Check {named} of"):
        open_catalog(LakeSettings(catalog=catalog, warehouse="s3://lake/tables"))


def test_an_impossible_port_is_a_setting_to_correct() -> None:
    lake = LakeSettings(catalog={"type": "rest", "uri": "http://127.0.0.1:99999"}, warehouse="s3://lake/tables")
    with pytest.raises(BadSettings, match=r"uri is .*Correct the port"):
        open_catalog(lake)


def test_only_a_store_with_keys_of_its_own_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[str] = []
    monkeypatch.setattr(workbench, "storage", lambda io, place: tried.append(place))
    for catalog, place in (
        ({"type": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}, str(tmp_path)),
        ({"type": "rest", "uri": "http://127.0.0.1:9"}, "s3://lake/tables"),
    ):
        workbench.refuse_unusable(LakeSettings(catalog=catalog, warehouse=place))
    assert tried == []


FOUND, MISSING = pafs.FileType.Directory, pafs.FileType.NotFound


@pytest.mark.parametrize(
    ("there", "refused"), [([FOUND], False), ([MISSING, FOUND], False), ([MISSING, MISSING], True)]
)
def test_a_missing_bucket_is_told_and_a_new_warehouse_is_not(
    there: list[Any], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = iter(there)
    system = SimpleNamespace(get_file_info=lambda place: SimpleNamespace(type=next(kinds)))
    monkeypatch.setattr(workbench, "storage", lambda io, place: (system, "lake/tables/_cdc_stage"))
    keys = {"s3.access-key-id": "AK", "s3.secret-access-key": "sesame", "s3.endpoint": "http://127.0.0.1:9"}
    lake = LakeSettings(catalog={"type": "jdbc", "uri": "jdbc:sqlite:/c.db", **keys}, warehouse="s3://lake/tables")
    if refused:
        with pytest.raises(BadSettings, match=r"'lake', which is not there.*lake\.warehouse"):
            workbench.refuse_unusable(lake)
    else:
        workbench.refuse_unusable(lake)


def test_what_a_store_says_to_wrong_keys_is_the_sentence_about_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(place: str) -> Any:
        raise OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body. Key sesame")

    system = SimpleNamespace(get_file_info=refused)
    monkeypatch.setattr(workbench, "storage", lambda io, place: (system, place))
    keys = {"s3.access-key-id": "AK", "s3.secret-access-key": "wrong"}
    lake = LakeSettings(catalog={"type": "rest", "uri": "http://127.0.0.1:9", **keys}, warehouse="s3://lake/tables")
    with pytest.raises(SetupError, match=r"refuses access .*s3\.secret-access-key"):
        workbench.refuse_unusable(lake)
