"""What catalogs and stores say when they fail, as one sentence with the setting to look at, and without secrets."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import NoSuchTableError

from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, TableHeld
from cdc_assets.lake import failures
from cdc_assets.lake.failures import CAUSES, answering, explained, hide, redacted

SAID: list[tuple[str, type[CdcError], str]] = [
    ("java.lang.NoClassDefFoundError: software/amazon/awssdk/services/s3/model/S3Exception", SetupError, "jars aws"),
    ("ModuleNotFoundError: No module named 'psycopg2'", SetupError, "cdc-assets[postgres]"),
    ("java.sql.SQLException: No suitable driver found for jdbc:mysql://h/db", SetupError, "driver"),
    ('UnsupportedFileSystemException: No FileSystem for scheme "s4"', BadSettings, "lake.warehouse"),
    ('PSQLException: FATAL: password authentication failed for user "u"', BadSettings, "jdbc.password"),
    ('OperationalError: FATAL:  database "lakes" does not exist', BadSettings, "uri of lake.catalog"),
    ("SdkClientException: Unable to load region from any of the providers", BadSettings, "client.region"),
    ("SdkClientException: Unable to load credentials from any of the providers", SetupError, "s3.access-key-id"),
    ("NoSuchBucketException: The specified bucket does not exist (Status Code: 404)", BadSettings, "lake.warehouse"),
    ("S3Exception: The provided token has expired. (Service: S3, Status Code: 400)", SetupError, "Renew"),
    ("S3Exception: Access Denied. (Service: S3, Status Code: 403, Request ID: 1)", SetupError, "s3.access-key-id"),
    ("OSError: When reading information: AWS Error ACCESS_DENIED during HeadObject", SetupError, "grants"),
    ("RESTError: NotFoundException: Warehouse not found: prod", BadSettings, "warehouse of lake.catalog"),
    ("org.apache.iceberg.exceptions.NotAuthorizedException: Not authorized", SetupError, "token, credential"),
    ("OAuthError: invalid_client: the client or its secret is wrong", SetupError, "token, credential"),
    ("org.apache.iceberg.exceptions.ForbiddenException: Forbidden: no grant", SetupError, "grants"),
    ("java.net.UnknownHostException: catalog.example", LakeUnavailable, "uri and s3.endpoint"),
    ("java.net.ConnectException: Connection refused", LakeUnavailable, "uri and s3.endpoint"),
    ("ServiceFailureException: Server error: overloaded", LakeUnavailable, "Try again"),
    ("InvalidInputException: Value '_cdc' failed to satisfy constraint", TableHeld, "setting namespace"),
]


@pytest.mark.parametrize(("text", "error", "look"), SAID, ids=[text.partition(":")[0] for text, _, _ in SAID])
def test_a_failure_that_is_known_says_its_cause_and_where_to_look(text: str, error: type[CdcError], look: str) -> None:
    found = explained("shop.orders", f"org.apache.spark.SparkException: Job aborted\n{text}\n\tat A.b(C.java:1)")
    assert type(found) is error
    assert str(found).startswith("shop.orders: ")
    assert look in str(found)
    assert text.partition(": ")[2][:40] in str(found)
    assert "\n" not in str(found)


def test_every_known_cause_has_its_example() -> None:
    found = {
        next(cause.meaning for cause in CAUSES if cause.meaning in str(explained("t", text))) for text, _, _ in SAID
    }
    assert found == {cause.meaning for cause in CAUSES}


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
