"""What a catalog, a store, Iceberg or Spark says when it fails, as one sentence: the cause, and the setting to look at.

Java's exceptions and Python's come to one text, `Class: message` for each cause, since the two sides fail of the same
things in much the same words. The first of CAUSES that fits tells; what fits none is nobody's to explain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from cdc_assets.errors import BadSettings, CdcError, LakeUnavailable, SetupError, TableHeld

__all__ = ["CAUSES", "Cause", "answering", "explained", "first_line", "hide", "redacted"]


@dataclass(frozen=True, slots=True)
class Cause:
    """What a text means (`meaning`), what to do about it (`look`), and the error to raise."""

    pattern: str
    error: type[CdcError]
    meaning: str
    look: str


_JARS = "Fetch its jars (`python -m cdc_assets.jvm.jars aws`, or postgres) and start anew."
_LOGIN = "Look at jdbc.user and jdbc.password of lake.catalog."
_KEYS = "Look at s3.access-key-id and s3.secret-access-key of lake.catalog, or the environment's, and at their grants."
_GRANT = "Look at token, credential and scope of lake.catalog, and at what they are granted."
_REACH = "Look at uri and s3.endpoint of lake.catalog, and whether both are reached from here; then try again."
_NAMES = "Give the changefeed another namespace pattern (setting namespace), or lake.namespaces another beginning."

CAUSES = (
    Cause(r"^java\.lang\.(?:NoClassDefFoundError|ClassNotFoundException)|Cannot initialize (?:Catalog|FileIO)",
          SetupError, "a class of the storage's or the catalog's client is missing", _JARS),
    Cause(r"^(?:ModuleNotFoundError|ImportError|NotInstalledError):", SetupError, "a Python package is missing",
          "Install it: `pip install 'cdc-assets[postgres]'` for a catalog on Postgres, else the one that is named."),
    Cause(r"No suitable driver", SetupError, "Java has no driver for the catalog's database", _JARS),
    Cause(r"UnsupportedFileSystemException|No FileSystem for scheme|Unrecognized filesystem type", BadSettings,
          "nothing here reads the warehouse's scheme", "Look at lake.warehouse; known are s3, gs, abfs, directories."),
    Cause(r"password authentication failed|no pg_hba\.conf entry|Access denied for user|role \"[^\"]*\" does not exist",
          BadSettings, "the catalog's database refuses the login", _LOGIN),
    Cause(r"database \"[^\"]*\" does not exist|Unknown database", BadSettings, "the catalog's database is not there",
          "Look at uri of lake.catalog."),
    Cause(r"Unable to load region|NoRegionError|must specify a region", BadSettings, "no region is known",
          "Set client.region in lake.catalog, or AWS_REGION."),
    Cause(r"Unable to load credentials|NoCredentialsError|Unable to locate credentials", SetupError,
          "no credentials are found", _KEYS),
    Cause(r"NoSuchBucket|NO_SUCH_BUCKET|bucket does not exist", BadSettings, "the warehouse's bucket is not there",
          "Look at lake.warehouse, and at s3.endpoint of lake.catalog."),
    Cause(r"ExpiredToken|token has expired|AuthorizationExpired", SetupError, "credentials have expired",
          "Renew them and try again."),
    Cause(r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH"
          r"|InvalidClientTokenId|UnrecognizedClientException|AccessDenied|ACCESS_DENIED"
          r"|(?:Status Code|HTTP status|error code|response code):? ?403", SetupError,
          "the storage or the catalog refuses access", _KEYS),
    Cause(r"[Ww]arehouse not found|NoSuchWarehouse|No such warehouse|[Ww]arehouse .{0,80} not found", BadSettings,
          "the catalog has no warehouse of that name",
          "Look at warehouse of lake.catalog: its name there, while lake.warehouse is a location."),
    Cause(r"NotAuthorizedException|UnauthorizedError|OAuthError|invalid_client|401 Client Error|Not authorized",
          SetupError, "the catalog refuses the credentials", _GRANT),
    Cause(r"ForbiddenException|ForbiddenError|403 Client Error", SetupError, "the catalog does not allow this", _GRANT),
    Cause(r"UnknownHostException|Name or service not known|NameResolutionError|nodename nor servname"
          r"|getaddrinfo failed|could not translate host name", LakeUnavailable, "an address is not known", _REACH),
    Cause(r"ConnectException|[Cc]onnection refused|ConnectTimeout|[Tt]imed out|NETWORK_CONNECTION"
          r"|EndpointConnectionError|Max retries exceeded|HttpHostConnect|[Cc]onnection reset"
          r"|[Cc]onnection attempt failed|RemoteDisconnected|Could not connect|server closed the connection|curlCode",
          LakeUnavailable, "the catalog or the storage does not answer", _REACH),
    Cause(r"ServiceFailureException|ServiceUnavailable|ServerError|InternalServerError|50[0234] Server Error|SlowDown",
          LakeUnavailable, "the catalog or the storage fails", "Try again; its own log tells why."),
    Cause(r"BadRequestException|BadRequestError|InvalidInputException|Cannot convert namespace|Invalid namespace"
          r"|Invalid (?:table|namespace|database) (?:name|identifier)", TableHeld,
          "the catalog refuses a name or a value", _NAMES),
)  # fmt: skip

_FOR_CALLERS = (
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
"""What tells of the state of a catalog, and not of a failure."""

_SECRET_TEXT = re.compile(
    r"(?P<name>(?:password|secret|token|signature|credential|x-amz-[a-z-]+)[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;)]+"
    r"|(?P<bearer>Bearer )\S+|(?P<login>://[^\s/:@]+:)[^\s/@]+(?=@)",
    re.IGNORECASE,
)

_hidden: set[str] = set()


def hide(secrets: Iterable[str]) -> None:
    """Let no text from here on show these values; a process's lakes share the list."""
    _hidden.update(secrets)


def redacted(text: str) -> str:
    """Return a text without the hidden values, and without what looks like a password, a token or a signature."""
    for secret in sorted(_hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET_TEXT.sub(lambda found: f"{found['name'] or found['bearer'] or found['login']}***", text)


def first_line(text: str) -> str:
    """Return the first line that says something, cut where it goes on for long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 300 else f"{line[:299]}…"


def explained(where: str, told: str, **place: str) -> CdcError | None:
    """Return the error that a text of causes, outermost first, comes to; None where it is not known."""
    for cause in CAUSES:
        found = re.search(cause.pattern, told, re.MULTILINE)
        if found is not None:
            line = told[told.rfind("\n", 0, found.start()) + 1 :]
            return cause.error(f"{where}: {cause.meaning} ({first_line(redacted(line))}). {cause.look}", **place)
    return None


@contextmanager
def answering(where: str = "the lake's catalog") -> Iterator[None]:
    """Turn what database drivers, HTTP clients and PyIceberg raise of a catalog or a store into what it means."""
    try:
        yield
    except (CdcError, FileNotFoundError, *_FOR_CALLERS):
        raise
    except Exception as error:
        told = "\n".join(_causes(error))
        known = explained(where, told) if _is_foreign(error) else None
        if known is None and _is_silence(error):
            known = LakeUnavailable(f"{where} did not answer ({first_line(redacted(str(error)))}). Try again.")
        if known is None:
            raise
        raise known from error


def _causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield f"{type(error).__name__}: {error}"
        error = error.__cause__ or error.__context__


def _is_foreign(error: Exception) -> bool:
    return isinstance(error, (OSError, ImportError)) or _is_silence(error) or _family(error) in ("pyiceberg", "thrift")


def _is_silence(error: Exception) -> bool:
    return _family(error) in ("sqlalchemy", "sqlite3", "requests", "urllib3", "botocore", "psycopg2")


def _family(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]
