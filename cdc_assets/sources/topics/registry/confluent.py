"""A registry with Confluent's API: Confluent's own, Karapace, Apicurio, Redpanda and others.

There is one request, `GET /schemas/ids/{id}`, or `/schemas/guids/{guid}` where messages have a GUID, so `requests` is
enough: PyIceberg needs it too, and Confluent's client would bring an HTTP library and an OAuth one of its own. Options
are by the names of that client; a login may stand in the URL, as TiCDC takes it.

    url  basic.auth.user.info (user:password)  bearer.auth.token
    ssl.ca.location  ssl.certificate.location  ssl.key.location  (files)
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import requests

from cdc_assets.errors import BadSettings, BucketMissing, StorageUnavailable

_OPTIONS = frozenset(
    ("url", "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location", "ssl.certificate.location",
     "ssl.key.location")
)  # fmt: skip
_SECONDS = (3.0, 10.0)
"""Seconds that connecting and an answer may take."""
_NOT_FOUND = frozenset({40401, 40402, 40403})
"""Confluent's codes for a subject, a version or a schema that is not there."""


@dataclass
class ConfluentRegistry:
    """The registry; `addresses` are URLs without login, tried in order until one answers."""

    addresses: Sequence[str]
    login: tuple[str, str] | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    authority: str = ""
    certificate: tuple[str, str] | None = None
    _sessions: threading.local = field(default_factory=threading.local, repr=False)

    def schema(self, schema_id: str) -> str | None:
        """Return the text of a schema, None where the registry says that there is none of this id."""
        kind = "ids" if schema_id.isdigit() else "guids"
        problems = []
        for address in self.addresses:
            try:
                answer = self._session.get(f"{address}/schemas/{kind}/{schema_id}", timeout=_SECONDS)
            except requests.RequestException as error:
                problems.append(f"{address} does not answer ({_reason(error)})")
                continue
            if answer.status_code < 500:
                return self._schema_in(address, schema_id, answer)
            problems.append(f"{address} answers {answer.status_code} {answer.reason}")
        raise StorageUnavailable(
            f"the schema registry does not return schema {schema_id}: {'; '.join(problems)}. Messages of schemas that "
            "are known are read without it; for others look at schema_registry, and try again."
        )

    def _schema_in(self, address: str, schema_id: str, answer: requests.Response) -> str | None:
        if answer.status_code in (401, 403):
            raise BucketMissing(
                f"the schema registry {address} refused the login: {answer.status_code} {answer.reason}. Look at "
                "basic.auth.user.info under schema_registry, or at the login in its URL."
            )
        try:
            body = answer.json()
        except ValueError:
            body = None
        code = body.get("error_code") if isinstance(body, dict) else None
        if answer.status_code == 404 and (code in _NOT_FOUND or not schema_id.isdigit()):
            return None  # registries from before there were GUIDs do not know the question
        if not answer.ok or not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            raise BucketMissing(
                f"{address} answered {answer.status_code} {answer.reason} to the question for schema {schema_id}, and "
                "no schema; expected a registry with Confluent's API. Look at url under schema_registry."
            )
        if body.get("schemaType", "AVRO") != "AVRO" or body.get("references"):
            kind = f"{body.get('schemaType', 'AVRO')}{' with references' if body.get('references') else ''}"
            raise BucketMissing(
                f"schema {schema_id} of {address} is of the type {kind}; "
                "expected one of Avro that is whole. Look at url under schema_registry."
            )
        return str(body["schema"])

    @property
    def _session(self) -> requests.Session:
        if not hasattr(self._sessions, "held"):
            session = requests.Session()
            session.trust_env = False  # a .netrc is nobody's setting
            session.auth = self.login
            if self.token:
                session.headers["Authorization"] = f"Bearer {self.token}"
            session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
            session.verify = self.authority or True
            session.cert = self.certificate
            self._sessions.held = session
        held_session: requests.Session = self._sessions.held
        return held_session


def connect(options: Mapping[str, Any]) -> ConfluentRegistry:
    """Return the registry of options; raises BadSettings for those that it does not have."""
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise BadSettings(
            f'schema_registry has no option "{unknown[0]}"; known are {", ".join(sorted(_OPTIONS))}. Correct it.'
        )
    servers = [_parted(url) for url in str(options["url"]).split(",") if url.strip()]
    login = next((credentials for _, credentials in servers if credentials is not None), None)
    if beside := options.get("basic.auth.user.info"):
        user, separator, password = str(beside).partition(":")
        if not separator:
            raise BadSettings("basic.auth.user.info under schema_registry is not USER:PASSWORD. Correct it.")
        login = (user, password)
    files = [str(options.get(f"ssl.{kind}.location") or "") for kind in ("certificate", "key")]
    if any(files) and not all(files):
        raise BadSettings(
            "schema_registry has one of ssl.certificate.location and ssl.key.location; give both, or none."
        )
    return ConfluentRegistry(
        tuple(address for address, _ in servers),
        login,
        str(options.get("bearer.auth.token") or ""),
        str(options.get("ssl.ca.location") or ""),
        (files[0], files[1]) if all(files) else None,
    )


def _parted(url: str) -> tuple[str, tuple[str, str] | None]:
    """Take the login out of a URL."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        raise BadSettings(
            f"schema_registry: {_without_login(url)} is not a URL of a registry; expected http://host:8081 or "
            "https://user:password@host. Correct it."
        )
    name = f"[{host}]" if ":" in host else host
    address = urlunsplit((parts.scheme, f"{name}:{port}" if port else name, parts.path.rstrip("/"), "", ""))
    login = (unquote(parts.username), unquote(parts.password or "")) if parts.username is not None else None
    return address, login


def _without_login(url: str) -> str:
    return re.sub(r"//.*@", "//", url.strip())


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "no TLS: its certificate is not trusted; look at ssl.ca.location"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    return "no connection" if isinstance(error, requests.ConnectionError) else type(error).__name__
