"""The lake's settings: one catalog and one warehouse, with the options of both readers.

PyIceberg and Spark (`pyiceberg_properties`, `spark_properties`) get the same endpoint, region and credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import Field, field_serializer, field_validator

from cdc_assets.errors import BadSettings
from cdc_assets.settings.model import Model, resolved
from cdc_assets.settings.stores import ENDPOINTS, SECRET_PROPERTIES, Store, endpoint_of, store_of

Properties = Mapping[str, str]

_DELEGATION = "header.X-Iceberg-Access-Delegation"
_KEYS = ("access-key-id", "secret-access-key", "session-token")


@dataclass(frozen=True, slots=True)
class CatalogKind:
    """A type of catalog: the options of PyIceberg and of Java's Iceberg beside the given ones.

    `folds_names` if it stores names in lower case; `plain_names` if these have letters, digits and "_" only; `vends`
    if an answer about a table may include credentials for the storage, so that all of its files must lie below its own
    location.
    """

    python: Callable[[Properties], dict[str, str]]
    java: Callable[[Properties], dict[str, str]]
    folds_names: bool = False
    plain_names: bool = False
    vends: bool = False


def signs(properties: Properties) -> bool:
    """Return whether requests to a REST catalog are signed as Amazon's are."""
    return properties.get("rest.sigv4-enabled") == "true" or properties.get("rest.auth.type") == "sigv4"


def _tokens(properties: Properties) -> dict[str, str]:
    """Return the token endpoint for requests with a credential; it is the default of both sides."""
    asks = "credential" in properties and "oauth2-server-uri" not in properties
    return {"oauth2-server-uri": f"{properties['uri'].rstrip('/')}/v1/oauth/tokens"} if asks else {}


def _rest_python(properties: Properties) -> dict[str, str]:
    options = {**properties, **_tokens(properties)}
    if signs(properties):
        options.pop("rest.auth.type", None)
        options["rest.sigv4-enabled"] = "true"
        options.update({f"client.{name}": properties[f"rest.{name}"] for name in _KEYS if f"rest.{name}" in properties})
    return options


def _rest_java(properties: Properties) -> dict[str, str]:
    """Reports of scans and commits are requests of their own, so they are off by default.

    Answers are kept for a second: with five minutes, the default, vended credentials would be used after their end.
    """
    options = {
        _DELEGATION: "vended-credentials",
        "rest-metrics-reporting-enabled": "false",
        "rest-table-cache.expire-after-write-ms": "1000",
        **properties,
        **_tokens(properties),
    }
    if "credential" in properties:  # else a new token is asked for with the present one, which few services answer
        options.setdefault("token-exchange-enabled", "false")
    if signs(properties):
        options.pop("rest.sigv4-enabled", None)
        options["rest.auth.type"] = "sigv4"
        options.update(
            {f"rest.{name}": properties[f"client.{name}"] for name in _KEYS if f"client.{name}" in properties}
        )
    return options


def _glue_python(properties: Properties) -> dict[str, str]:
    """PyIceberg passes the number on as it is, and retries ten times by default."""
    return {**properties, "glue.max-retries": int(properties.get("glue.max-retries", 3))}  # type: ignore[dict-item]


def _glue_java(properties: Properties) -> dict[str, str]:
    """Names of dropped tables are percent-encoded, which Glue accepts and Iceberg's own check of names would not."""
    return {"glue.skip-name-validation": "true", "glue.skip-archive": "true", **properties}


def _hive_java(properties: Properties) -> dict[str, str]:
    """Iceberg waits three minutes for a lock, and five times in a row; a commit holds one for less than a second."""
    return {**dict.fromkeys(_HIVE_WAITS, "15000"), **properties}


_HIVE_WAITS = ("hadoop.iceberg.hive.lock-timeout-ms", "hadoop.iceberg.hive.lock-creation-timeout-ms")

KINDS = {
    "jdbc": CatalogKind(dict, dict),
    "rest": CatalogKind(_rest_python, _rest_java, vends=True),
    "glue": CatalogKind(_glue_python, _glue_java, folds_names=True),
    "hive": CatalogKind(dict, _hive_java, folds_names=True, plain_names=True),
}
"""The types of catalog by their names in `lake.catalog.type`."""


_METASTORES = re.compile(r"thrift://[^/:,\s]+:\d+(,\s*thrift://[^/:,\s]+:\d+)*")


class LakeSettings(Model):
    """The lake: one catalog and one warehouse, from which the options of PyIceberg and Spark follow."""

    catalog: dict[str, Any] = Field(
        repr=False,
        description=(
            "Iceberg catalog: `type` (`jdbc`, `rest`, `glue` or `hive`), `uri` (for `jdbc` in the "
            "spelling of Java or of SQLAlchemy), and Iceberg properties such as `s3.endpoint` or "
            "`credential`, each in the spelling of Java or of PyIceberg. Values may be `{env: NAME}`. If "
            "a REST catalog has warehouses by name, that name is `catalog.warehouse`."
        ),
    )
    warehouse: str = Field(
        description=(
            "Location below which tables are created. A local directory without `catalog` gets a SQLite "
            "catalog, `catalog.db`."
        )
    )
    name: str = Field(default="lake", description="Name of the catalog in Spark.")
    ledger: str | None = Field(
        default=None,
        repr=False,
        description=(
            "SQLAlchemy URL of the ledger, or `{env: NAME}`. For a local directory the default is "
            "`ledger.db` beside the catalog."
        ),
    )
    namespaces: str = Field(default="_cdc", description="Prefix of the namespaces that the project keeps for itself.")

    @field_validator("ledger", mode="before")
    @classmethod
    def _from_environment(cls, ledger: Any) -> Any:
        return resolved({"ledger": ledger}, "lake")["ledger"] if isinstance(ledger, Mapping) else ledger

    @field_validator("namespaces")
    @classmethod
    def _plain_namespaces(cls, namespaces: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]+", namespaces):
            raise ValueError("a name of letters, digits and '_' is expected, such as cdc")
        return namespaces

    @field_validator("warehouse")
    @classmethod
    def _plain_location(cls, warehouse: str) -> str:
        """Refuse what the clients of stores read as no part of a path: all files would be one object, or nowhere."""
        scheme, separator, rest = warehouse.partition("://")
        if not separator or scheme == "file":
            # The address of a SQLite catalog, or PyIceberg, reads some names of directories as something else.
            directory = unquote(urlsplit(warehouse).path) if warehouse.startswith("file:") else warehouse
            strange = re.compile(r"[?#]|\$\{|%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f]")
            if sign := re.search(r"[?#]", warehouse) or strange.search(directory):
                raise BadSettings(
                    f"lake.warehouse {directory!r} has {sign[0]!r} in it, which addresses of catalogs and Spark's "
                    "settings cannot spell. Name a directory without it."
                )
            return warehouse
        if match := re.search(r"[?#]|\$\{|[\x00-\x1f\x7f]", rest):
            raise BadSettings(
                f"lake.warehouse {scheme}://{rest[: match.start()]} goes on with {match[0]!r}, and clients of stores "
                "or Spark take what is there for no path. Name a location without it; options of a store go into "
                "lake.catalog."
            )
        path = rest.rstrip("/").partition("/")[2]
        if path and {"", ".", ".."} & set(path.split("/")):
            raise BadSettings(
                f"lake.warehouse {warehouse!r} has an empty part, '.' or '..' between slashes, which the clients of "
                "stores read differently. Name a location without it, such as "
                f"{scheme}://{rest.partition('/')[0]}/tables."
            )
        return warehouse

    @field_validator("catalog")
    @classmethod
    def _known_type(cls, catalog: dict[str, Any]) -> dict[str, Any]:
        if catalog.get("type") not in KINDS:
            raise BadSettings(
                f"lake.catalog has type {catalog.get('type')!r}; known are {', '.join(sorted(KINDS))}. "
                "Give the type of your Iceberg catalog, or only a warehouse directory for a catalog on SQLite."
            )
        if catalog["type"] != "glue" and not catalog.get("uri"):
            raise BadSettings(f"lake.catalog of type {catalog['type']} has no uri. Add the address of the catalog.")
        return catalog

    @field_serializer("catalog")
    def _masked(self, catalog: dict[str, Any]) -> dict[str, Any]:
        return {key: value if key == "type" else "***" for key, value in catalog.items()}

    @classmethod
    def from_warehouse(cls, directory: str | os.PathLike[str]) -> LakeSettings:
        """Return the lake of a plain local directory: tables under it, catalog `catalog.db` (SQLite) in it."""
        text = os.fspath(directory)
        if re.match(r"[a-z0-9+]+://", text) and not text.startswith("file://"):
            raise BadSettings(
                f"warehouse {text} is not a local directory, so its catalog cannot be a SQLite file in it. "
                "Name the catalog in changefeeds.yaml: lake: {catalog: {type: rest, uri: …}, warehouse: …}."
            )
        path = str(Path(unquote(text[len("file://") :]) if text.startswith("file://") else text).expanduser().resolve())
        return cls(catalog={"type": "jdbc", "uri": f"jdbc:sqlite:{path}/catalog.db"}, warehouse=path)

    @property
    def local_directory(self) -> Path | None:
        """The warehouse as a directory of this machine, None when it is elsewhere."""
        if self.warehouse.startswith("file:"):
            return Path(unquote(urlsplit(self.warehouse).path))
        return None if "://" in self.warehouse else Path(self.warehouse)

    def make_directory(self) -> Path | None:
        """Return `local_directory`, made where it is not there yet. Raises BadSettings where it cannot be used."""
        directory = self.local_directory
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadSettings(
                f"the lake's directory {directory} cannot be made ({error.strerror}). Name another, or mend the rights."
            ) from None
        return directory

    @property
    def root(self) -> str:
        """The location of tables and stages."""
        return str(self.local_directory or self.warehouse).rstrip("/")

    @property
    def catalog_file(self) -> Path | None:
        """The file of a catalog on SQLite, wherever it is; None for a server, and for a file that is named by a URI."""
        _, is_file, rest = sqlalchemy_uri(self._resolved().get("uri", "")).partition("sqlite:///")
        path = rest.partition("?")[0]
        return Path(path) if is_file and not path.startswith("file:") else None

    @property
    def kind(self) -> CatalogKind:
        """The catalog's type."""
        return KINDS[self.catalog["type"]]

    @property
    def extras(self) -> tuple[str, ...]:
        """The names of the jars that the lake needs beside those of every lake."""
        catalog = self._resolved()
        jar_names = [self._store.extra]
        if catalog["type"] == "glue" or signs(catalog):
            jar_names.append("aws")
        if catalog["type"] == "jdbc" and "postgresql" in catalog["uri"].partition("//")[0]:
            jar_names.append("postgres")
        return tuple(dict.fromkeys(extra for extra in jar_names if extra))

    @property
    def servers(self) -> dict[str, str]:
        """The URLs of servers that the catalog's properties name, by property; addresses of databases are none."""
        catalog = self._resolved()
        names = [*ENDPOINTS, *(["uri"] if catalog["type"] in ("rest", "hive") else [])]
        url_pattern = re.compile("(?:https?|thrift)://[^/:,][^,]*")  # of several metastores one is enough
        return {name: catalog[name] for name in names if url_pattern.fullmatch(catalog.get(name, ""))}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of the catalog's properties that no message may contain."""
        catalog = self._resolved()
        values = [value for name, value in catalog.items() if any(part in name for part in SECRET_PROPERTIES)]
        values += [value.partition(":")[2] for name, value in catalog.items() if name == "credential"]
        password = re.search(r"//[^/@]*:([^/]*)@|[?&]password=([^&]*)", catalog.get("uri", ""))
        values += [group for group in (password.groups() if password else ()) if group]
        return tuple(sorted({value for value in values if len(value) > 3}, key=len, reverse=True))

    @property
    def _store(self) -> Store:
        return store_of(self.warehouse)

    def _resolved(self) -> dict[str, str]:
        properties = resolved(self.catalog, "lake.catalog")
        for name in ("glue.endpoint", *(["uri"] if properties["type"] == "rest" else [])):
            endpoint_of(properties, name)
        if properties["type"] == "hive" and not _METASTORES.fullmatch(properties["uri"]):
            raise BadSettings(
                f"lake.catalog of type hive has the uri {properties['uri']!r}; expected thrift://HOST:PORT, several "
                "with commas between. Correct it."
            )
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in properties.items()
            if value is not None
        }

    def pyiceberg_properties(self) -> dict[str, str]:
        """Return the properties for `pyiceberg.catalog.load_catalog(name, **properties)`."""
        catalog = self._resolved()
        kind = catalog.pop("type")
        properties = {"type": "sql" if kind == "jdbc" else kind}
        if kind == "jdbc":
            user, password = catalog.pop("jdbc.user", None), catalog.pop("jdbc.password", None)
            properties["uri"] = sqlalchemy_uri(catalog.pop("uri"), user, password)
            catalog = {key: value for key, value in catalog.items() if not key.startswith("jdbc.")}
        directory = self.local_directory
        properties["warehouse"] = f"file://{directory}" if directory else self.warehouse
        return {**properties, **self.kind.python(self._store.python_properties(catalog))}

    def spark_properties(self) -> dict[str, str]:
        """Return Spark's configuration of the catalog, with full keys (`spark.sql.catalog.NAME…`).

        The cache is off: with it, commits of other processes are not seen for half a minute.
        """
        catalog = self._resolved()
        if catalog["type"] == "jdbc":
            catalog.setdefault("jdbc.schema-version", "V1")
            catalog["uri"], login = jdbc_uri(catalog["uri"])
            catalog = {**login, **catalog}
        directory = self.local_directory
        catalog.setdefault("warehouse", str(directory) if directory else self.warehouse)
        catalog.setdefault("cache-enabled", "false")
        catalog = self.kind.java(self._store.java_properties(catalog))
        prefix = f"spark.sql.catalog.{self.name}"
        return {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            **{f"{prefix}.{key}": value for key, value in catalog.items()},
        }


def sqlalchemy_uri(uri: str, user: str | None = None, password: str | None = None) -> str:
    """Return SQLAlchemy's spelling of a JDBC catalog's address, with its login; one in that spelling stays as it is."""
    if not uri.startswith("jdbc:"):
        return uri
    kind, _, rest = uri[len("jdbc:") :].partition(":")
    if kind == "sqlite":
        return f"sqlite:///{rest}"
    driver = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql"}.get(kind, kind)
    address, _, query = rest.removeprefix("//").partition("?")
    settings = dict(parse_qsl(query))
    user, password = user or settings.get("user"), password or settings.get("password")
    login = f"{_quoted(user)}:{_quoted(password)}@" if user and password else f"{_quoted(user)}@" if user else ""
    return f"{driver}://{login}{address}"


def _quoted(text: str | None) -> str:
    return "".join(c if c.isalnum() or c in "-._~" else "".join(f"%{b:02X}" for b in c.encode()) for c in text or "")


def jdbc_uri(uri: str) -> tuple[str, dict[str, str]]:
    """Return a Java spelling of a JDBC catalog's address, and the login that SQLAlchemy's spelling had in it."""
    if uri.startswith("jdbc:"):
        return uri, {}
    scheme, _, rest = uri.partition("://")
    kind = scheme.partition("+")[0]
    if kind == "sqlite":
        return f"jdbc:sqlite:{rest[1:]}", {}
    login, at, address = rest.rpartition("@")
    user, colon, password = login.partition(":")
    properties = {"jdbc.user": unquote(user)} if at else {}
    return f"jdbc:{kind}://{address}", {**properties, "jdbc.password": unquote(password)} if colon else properties
