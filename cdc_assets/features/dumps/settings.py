"""The tables' rows from before the changefeed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator

from cdc_assets.errors import BadSettings
from cdc_assets.io import storage_uri
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.tso import Tso
from cdc_assets.settings.model import Model, Zone, merged, resolved
from cdc_assets.sources import InitialSource, connect_dump, connect_server

_DUMP = "URI of the dump"
_DIALECTS = ("default", "snowflake", "redshift", "bigquery")


class CsvSettings(Model):
    """Options with which Dumpling wrote CSV, with the defaults of its command line."""

    inside = "initial.csv"

    separator: str = Field(default=",", min_length=1, description="Text between two values.")
    delimiter: str = Field(default='"', description="Text around a value that is quoted.")
    null_value: str = Field(
        default="\\N", validation_alias=AliasChoices("null-value", "null_value"), description="Text of NULL."
    )
    escape_backslash: bool = Field(
        default=True,
        validation_alias=AliasChoices("escape-backslash", "escape_backslash"),
        description="Whether special characters are escaped by a backslash.",
    )
    dialect: str = Field(
        default="default", description="Output dialect: `default`, `snowflake`, `redshift` or `bigquery`."
    )
    header: bool = Field(default=True, description="Whether each file begins with the names of its columns.")

    @field_validator("dialect")
    @classmethod
    def _known_dialect(cls, dialect: str) -> str:
        if (name := dialect.lower() or "default") not in _DIALECTS:
            raise ValueError(f"not a dialect of Dumpling's; known are {', '.join(_DIALECTS)}")
        return name


class DumpSettings(Model):
    """One dump. An option that is not given here is that of all dumps."""

    inside = "initial.dump"

    uri: SecretStr = Field(repr=False, description="Directory of the dump, with parameters as in Dumpling.")
    at: Tso | None = Field(default=None, ge=1, lt=1 << 63, description="TSO at which the dump was taken.")
    tz: Zone | None = Field(default=None, description="Time zone of the sessions that wrote it.")
    csv: CsvSettings | None = Field(default=None, description="Options of its CSV files.")


_COMPARED_BYTES = 4 << 20
"""Bytes per block of a table that is compared, so that few bytes are read again for a row that differs."""


class ServerAddress(Model):
    """A server that has the source tables."""

    inside = "source"

    uri: SecretStr = Field(repr=False, description="Address of the server: `mysql://user@host:4000`.")
    password: Mapping[str, str] = Field(
        default_factory=dict, repr=False, description="Environment variable with the password: `{env: NAME}`."
    )

    @field_validator("password", mode="before")
    @classmethod
    def _of_the_environment(cls, password: Any) -> Any:
        if not isinstance(password, Mapping) or set(password) not in (set(), {"env"}):
            raise ValueError("settings contain no passwords; expected the variable that has it: {env: NAME}")
        return password

    def open(self, at: Tso, tables: Sequence[str] = ()) -> InitialSource:
        """Return the server, opened at a TSO, 0 for the present, to read the tables of these patterns, () for all.

        Its tables are asked for anew each time. Raises BadSettings for an unset variable and a URI of no server.
        """
        return connect_server(self.uri.get_secret_value(), self.secret, at, tables, _COMPARED_BYTES)

    @property
    def secret(self) -> str:
        """The password, "" for none; raises BadSettings for an unset variable."""
        return str(resolved({"password": self.password}, self.inside)["password"]) if self.password else ""


class ServerSettings(ServerAddress):
    """A server from which the tables are read at a TSO."""

    inside = "initial.source"

    at: Tso = Field(ge=1, lt=1 << 63, description="TSO to read at: the start-ts of the changefeed.")
    tables: tuple[str, ...] = Field(default=(), description="Patterns of the tables to read. Without it all are read.")

    def connect(self) -> InitialSource:
        """Return the opened server; raises BadSettings for an unset variable and a URI of no server."""
        return connect_server(self.uri.get_secret_value(), self.secret, self.at, self.tables)


class InitialSettings(Model):
    """The rows that the tables had before the changefeed began."""

    inside = "initial"

    complete: tuple[str, ...] = Field(
        default=(),
        description=(
            "Patterns (`shop.*`) of tables that had no rows when the changefeed began, by the names that they had then."
        ),
    )
    later_tables: Literal["new"] | None = Field(
        default=None,
        description=(
            "`new`: tables that first appear after a connector's snapshot has ended were made then, and had no rows "
            "before. PostgreSQL's connector sends nothing that tells them from others."
        ),
    )
    dump: tuple[DumpSettings, ...] = Field(
        default=(),
        description=(
            "Dump with these rows: a URI with parameters as in Dumpling, a mapping of `uri` and options, "
            "or a list of them."
        ),
    )
    source: ServerSettings | None = Field(default=None, description="Server to read these rows from instead of a dump.")
    csv: CsvSettings = Field(default_factory=CsvSettings, description="Options of the dumps' CSV files.")
    tz: Zone = Field(default="UTC", description="Time zone of the sessions that wrote the dumps.")
    at: Tso | None = Field(
        default=None,
        ge=1,
        lt=1 << 63,
        description=(
            "TSO at which the dump was taken, if its `metadata` lacks it. It also states that the dump is finished."
        ),
    )
    start_ts: Tso | None = Field(
        default=None,
        ge=1,
        lt=1 << 63,
        validation_alias=AliasChoices("start_ts", "start-ts"),
        description=(
            "The changefeed's start-ts, if nothing in the feed proves it. It must not be above the TSO of the dump."
        ),
    )

    @field_validator("dump", mode="before")
    @classmethod
    def _several(cls, dump: Any) -> Any:
        dumps = dump if isinstance(dump, (list, tuple)) else (dump,)
        return tuple({"uri": entry} if isinstance(entry, str) else entry for entry in dumps)

    @model_validator(mode="after")
    def _one_time_for_one_dump(self) -> InitialSettings:
        if self.at is not None and len(self.dump) != 1:
            raise BadSettings(
                f"initial.at states the TSO of one dump, and initial.dump names {len(self.dump)}. Give each dump its "
                "own: dump: [{uri: URI, at: TSO}]."
            )
        return self

    def connect(self, storage_options: Mapping[str, Any], store: str | None = None) -> list[InitialSource]:
        """Return all sources of initial rows, opened; raises BadSettings.

        `storage_options` are for dumps in a storage of the kind `store`, the feed's; None stands for any kind.
        """
        servers = [self.source.connect()] if self.source is not None else []
        return [*(self._dump(dump, storage_options, store) for dump in self.dump), *servers]

    def _dump(self, dump: DumpSettings, storage_options: Mapping[str, Any], store: str | None) -> InitialSource:
        uri = dump.uri.get_secret_value()
        protocol, options = storage_uri.location(uri, _DUMP)[0], storage_uri.storage(uri)
        if store in (protocol, None):
            options = merged(options, resolved(storage_options, "storage_options"))
        return connect_dump(storage_uri.opener(uri, options, _DUMP), self.options_of(dump), self.at_of(dump))

    def at_of(self, dump: DumpSettings) -> Tso | None:
        """Return the given TSO of a dump."""
        return self.at if dump.at is None else dump.at

    def options_of(self, dump: DumpSettings) -> DumpOptions:
        """Return the options with which a dump was written."""
        csv = dump.csv or self.csv
        return DumpOptions(
            separator=csv.separator,
            delimiter=csv.delimiter,
            null_value=csv.null_value,
            header=csv.header,
            escape_backslash=csv.escape_backslash,
            output_dialect=csv.dialect,
            timezone=dump.tz or self.tz,
        )


_CSV_OPTIONS = ("separator", "delimiter", "null-value", "escape-backslash", "dialect", "header")
_SERVER_OPTIONS = ("at", "tables", "password-env")
_DUMP_OPTIONS = ("at", "tz", *_CSV_OPTIONS)


def initial_from_flags(uris: Sequence[str], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the setting `initial` that --initial and --initial-option describe; raises BadSettings."""
    servers = [uri for uri in uris if uri.lower().startswith(("mysql://", "tidb://"))]
    dumps = [uri for uri in uris if uri not in servers]
    options_of_kinds = {"start-ts", *(_SERVER_OPTIONS if servers else ()), *(_DUMP_OPTIONS if dumps else ())}
    if options and not uris:
        raise BadSettings("--initial-option belongs to --initial. Give --initial URI too, or omit it.")
    if foreign := sorted(options.keys() - options_of_kinds):
        raise BadSettings(
            f'--initial-option "{foreign[0]}" is not known here; known are {", ".join(sorted(options_of_kinds))}.'
        )
    if len(servers) > 1 or (servers and dumps):
        raise BadSettings("--initial names a server and something else. Give one server, or dumps.")
    initial: dict[str, Any] = {"start-ts": options["start-ts"]} if "start-ts" in options else {}
    if servers:
        if "at" not in options:
            raise BadSettings(
                "A server needs the TSO to read at. Give the changefeed's start-ts: --initial-option at=TSO."
            )
        server = {"uri": servers[0], "at": options["at"]}
        tables = {"tables": options["tables"].split(",")} if "tables" in options else {}
        secret = {"password": {"env": options["password-env"]}} if "password-env" in options else {}
        return {**initial, "source": {**server, **tables, **secret}}
    csv = {name: options[name] for name in _CSV_OPTIONS if name in options}
    initial |= {name: options[name] for name in ("at", "tz") if name in options}
    return {**initial, **({"dump": dumps} if dumps else {}), **({"csv": csv} if csv else {})}
