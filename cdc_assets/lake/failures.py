"""Failures of a catalog, a store, Iceberg or Spark, each as one sentence: the cause, and the setting to check.

Java's and Python's exceptions are turned into the same text, `Class: message` for each cause, since both sides fail for
the same reasons in similar words. The first matching entry of CAUSES explains it; others are not explained.
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


@dataclass(frozen=True, slots=True)
class Cause:
    """The meaning of a text, what to do about it (`look`), and the error to raise."""

    pattern: str
    error: type[CdcError]
    meaning: str
    look: str


_JARS = "Fetch its jars (`cdc-assets setup aws`, gcp, azure or postgres) and restart."
_LOGIN = "Check jdbc.user and jdbc.password of lake.catalog."
_KEYS = (
    "Check s3.access-key-id and s3.secret-access-key of lake.catalog, or the environment's, and that their grants, or "
    "those of the catalog, reach lake.warehouse."
)
_GRANT = "Check token, credential and scope of lake.catalog, and their grants."
_REACH = "Check uri and s3.endpoint of lake.catalog, and that both can be reached from here; then try again."
_NAMES = "Give the changefeed another namespace pattern (setting namespace), or lake.namespaces another prefix."

_ENDED, _REFUSED = "credentials have expired", "the storage or the catalog refuses access"

CAUSES = (
    Cause(r"^java\.lang\.(?:NoClassDefFoundError|ClassNotFoundException)|Cannot initialize (?:Catalog|FileIO)",
          SetupError, "a class of the storage's or the catalog's client is missing", _JARS),
    Cause(r"^(?:ModuleNotFoundError|ImportError|NotInstalledError):", SetupError, "a Python package is missing",
          "Install it: `pip install 'cdc-assets[postgres]'` for a catalog on Postgres, `'cdc-assets[hive]'` for a Hive "
          "metastore, else the named package."),
    Cause(r"No suitable driver", SetupError, "Java has no driver for the catalog's database", _JARS),
    Cause(r"UnsupportedFileSystemException|No FileSystem for scheme|Unrecognized filesystem type", BadSettings,
          "the warehouse's scheme is not supported", "Check lake.warehouse: supported are s3, gs, abfs, directories."),
    Cause(r"password authentication failed|no pg_hba\.conf entry|Access denied for user|role \"[^\"]*\" does not exist",
          BadSettings, "the catalog's database refuses the login", _LOGIN),
    Cause(r"database \"[^\"]*\" does not exist|Unknown database", BadSettings, "the catalog's database is not there",
          "Check uri of lake.catalog."),
    Cause(r"unable to open database file|attempt to write a readonly database|file is not a database", BadSettings,
          "the catalog's file cannot be opened, or not be written", "Check uri of lake.catalog, or the lake's "
          "directory, and the rights to it and to the files in it."),
    Cause(r"Unable to load region|NoRegionError|must specify a region", BadSettings, "no region is known",
          "Set client.region in lake.catalog, or AWS_REGION."),
    Cause(r"Unable to load credentials|NoCredentialsError|Unable to locate credentials", SetupError,
          "no credentials are found", _KEYS),
    Cause(r"NoSuchBucket|NO_SUCH_BUCKET|bucket does not exist", BadSettings, "the warehouse's bucket is not there",
          "Check lake.warehouse, and s3.endpoint of lake.catalog."),
    Cause(r"ExpiredToken|token has expired|AuthorizationExpired", SetupError, _ENDED,
          "Renew them and try again."),
    Cause(r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH"
          r"|InvalidClientTokenId|UnrecognizedClientException|AccessDenied|ACCESS_DENIED"
          r"|(?:Status Code|HTTP status|error code|response code):? ?403", SetupError, _REFUSED, _KEYS),
    Cause(r"[Ww]arehouse not found|NoSuchWarehouse|No such warehouse|[Ww]arehouse .{0,80} not found", BadSettings,
          "the catalog has no warehouse of that name",
          "Check warehouse of lake.catalog: it is a name in the catalog, while lake.warehouse is a location."),
    Cause(r"No route for request|RESTError 40[45]\b|validation errors? for ConfigResponse", BadSettings,
          "no REST catalog is at this address",
          "Check uri of lake.catalog: it is what stands before /v1, such as https://polaris.example/api/catalog."),
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
          LakeUnavailable, "the catalog or the storage fails", "Try again; its own log says why."),
    Cause(r"InvalidObjectException|is not a valid (?:object|database|table) name", TableHeld,
          "the metastore refuses a name", _NAMES),
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
"""Exceptions about the state of a catalog, which are not failures."""

_SECRET_TEXT = re.compile(
    r"(?P<name>(?:password|secret|token|signature|credential|x-amz-[a-z-]+)[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;)]+"
    r"|(?P<bearer>Bearer )\S+|(?P<login>://[^\s/:@]+:)[^\s/@]+(?=@)",
    re.IGNORECASE,
)

_hidden: set[str] = set()


def hide(secrets: Iterable[str]) -> None:
    """Hide these values in all later texts; the lakes of a process share the list."""
    _hidden.update(secrets)


def redacted(text: str) -> str:
    """Return a text without the hidden values and without anything that looks like a password, token or signature."""
    for secret in sorted(_hidden, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET_TEXT.sub(lambda match: f"{match['name'] or match['bearer'] or match['login']}***", text)


def first_line(text: str) -> str:
    """Return the first non-blank line, cut to 300 characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 300 else f"{line[:299]}…"


def explained(where: str, causes: str, **place: str) -> CdcError | None:
    """Return the error for a text of causes, outermost first; None if it is not known."""
    for cause in CAUSES:
        match = re.search(cause.pattern, causes, re.MULTILINE)
        if match is not None:
            line = causes[causes.rfind("\n", 0, match.start()) + 1 :]
            return cause.error(f"{where}: {cause.meaning} ({first_line(redacted(line))}). {cause.look}", **place)
    return None


def is_refusal(error: CdcError) -> bool:
    """Return whether an error says that a store accepts credentials no more, or never did."""
    return _ENDED in error.message or _REFUSED in error.message


@contextmanager
def answering(where: str = "the lake's catalog") -> Iterator[None]:
    """Turn exceptions of database drivers, HTTP clients and PyIceberg into errors of this project."""
    try:
        yield
    except (CdcError, FileNotFoundError, *_FOR_CALLERS):
        raise
    except Exception as error:
        causes = "\n".join(_causes(error))
        explanation = explained(where, causes) if _is_foreign(error) else None
        if explanation is None and _is_silence(error):
            explanation = LakeUnavailable(f"{where} did not answer ({first_line(redacted(str(error)))}). Try again.")
        if explanation is None:
            raise
        raise explanation from error


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
