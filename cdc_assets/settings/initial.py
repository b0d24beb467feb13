"""What was in the tables before the changefeed began."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator

from cdc_assets.errors import BadSettings
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.tso import Tso
from cdc_assets.settings.model import Model, known_zone

__all__ = ["CsvSettings", "DumpSettings", "InitialSettings"]

_DIALECTS = ("default", "snowflake", "redshift", "bigquery")


class CsvSettings(Model):
    """How Dumpling wrote CSV: its options by their names, with the defaults of its command line."""

    separator: str = Field(default=",", min_length=1)
    delimiter: str = '"'
    null_value: str = Field(default="\\N", validation_alias=AliasChoices("null-value", "null_value"))
    escape_backslash: bool = Field(default=True, validation_alias=AliasChoices("escape-backslash", "escape_backslash"))
    dialect: str = "default"
    header: bool = True

    @field_validator("dialect")
    @classmethod
    def _known_dialect(cls, dialect: str) -> str:
        if (name := dialect.lower() or "default") not in _DIALECTS:
            raise ValueError(f"no dialect of Dumpling's; known are {', '.join(_DIALECTS)}")
        return name


class DumpSettings(Model):
    """One dump: its directory, and what its files do not tell. What is not given is as for all dumps."""

    uri: SecretStr = Field(repr=False)
    at: Tso | None = Field(default=None, ge=1, lt=1 << 63)
    tz: str | None = None
    csv: CsvSettings | None = None

    @field_validator("tz")
    @classmethod
    def _known_zone(cls, tz: str | None) -> str | None:
        return tz if tz is None else known_zone(tz)


class InitialSettings(Model):
    """What is known of the tables as they were before the changefeed began.

    `complete` are patterns (`shop.*`) of tables that had no rows then, by the names that they had then.

    `dump` is the directory of a dump that has those rows, or several: each a URI with parameters as Dumpling takes it,
    or a mapping of `uri` and what differs from the others. `tz` is the time zone of the sessions that read the dump,
    `csv` how it is written where it is CSV. `at` states the TSO at which it was taken where its `metadata` does not,
    and that it is finished. `start_ts` is the changefeed's start-ts, which has to be at or below that.
    """

    complete: tuple[str, ...] = ()
    dump: tuple[DumpSettings, ...] = ()
    csv: CsvSettings = Field(default_factory=CsvSettings)
    tz: str = "UTC"
    at: Tso | None = Field(default=None, ge=1, lt=1 << 63)
    start_ts: Tso | None = Field(default=None, ge=1, lt=1 << 63, validation_alias=AliasChoices("start_ts", "start-ts"))

    @field_validator("dump", mode="before")
    @classmethod
    def _several(cls, dump: Any) -> Any:
        told = dump if isinstance(dump, (list, tuple)) else (dump,)
        return tuple({"uri": one} if isinstance(one, str) else one for one in told)

    @field_validator("tz")
    @classmethod
    def _known_zone(cls, tz: str) -> str:
        return known_zone(tz)

    @model_validator(mode="after")
    def _one_time_for_one_dump(self) -> InitialSettings:
        if self.at is not None and len(self.dump) != 1:
            raise BadSettings(
                f"initial.at states the TSO of one dump, and initial.dump names {len(self.dump)}. Give each dump its "
                "own: dump: [{uri: URI, at: TSO}]."
            )
        return self

    def at_of(self, dump: DumpSettings) -> Tso | None:
        """Return the TSO that is stated of a dump."""
        return self.at if dump.at is None else dump.at

    def options_of(self, dump: DumpSettings) -> DumpOptions:
        """Return how a dump is written."""
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
