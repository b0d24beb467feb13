"""Sections of a changefeed's settings: archive, cuts, extracts, history, landing, maintenance, verify."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    field_serializer,
    field_validator,
    model_validator,
)

from cdc_assets.errors import BadSettings
from cdc_assets.features.dumps.settings import ServerAddress
from cdc_assets.model.kinds import HistoryRule, excluding
from cdc_assets.model.layout import EVERY_TABLE, LAKE_COLUMNS, Transform, parse_transforms
from cdc_assets.model.names import fits_pattern
from cdc_assets.settings.model import Model, resolved


class ArchiveSettings(Model):
    """Location of archived topics, for a feed that is read without a broker."""

    inside = "archive"

    uri: SecretStr = Field(
        repr=False, description="Directory of the archive in any store, with parameters as in a sink URI."
    )
    layout: str = Field(default="records", description="Layout of its files: `records`, `confluent` or `aiven`.")


class TableSettings(Model):
    """Tables of the feed that are applied."""

    inside = "tables"

    include: tuple[str, ...] = Field(
        default=(), description="Patterns of the tables to apply (`shop.*`). Without it all are applied."
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description=(
            "Patterns of tables that are not applied, whatever `include` says. A table of the lake that is excluded "
            "stays as it is."
        ),
    )

    @field_validator("include", "exclude")
    @classmethod
    def _of_tables(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if "." not in pattern:
                raise ValueError(f'"{pattern}" fits no table; expected a pattern of schema.table, such as {pattern}.*')
        return patterns

    @property
    def rules(self) -> tuple[HistoryRule, ...]:
        """The rules by which tables have nothing in the lake."""
        return excluding(self.include, self.exclude)

    def line_without(self, table: str) -> str:
        """Return the line by which a table called `schema.table` is not applied, "" for one that is."""
        if excluded := next((pattern for pattern in self.exclude if fits_pattern(table, pattern)), ""):
            return f'exclude: ["{excluded}"]'
        if not self.include or any(fits_pattern(table, pattern) for pattern in self.include):
            return ""
        return f"include: {list(self.include)}"


_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class CutSettings(Model):
    """Cuts on a schedule: which are made, and how many are kept."""

    inside = "cuts"

    every: str | None = Field(
        default=None,
        description=(
            "Interval between regular cuts: a number with `m`, `h`, `d` or `w` (`30m`, `6h`, `1d`, `1w`), "
            "counted from 1970 in UTC. Without it no cut is made on a schedule."
        ),
    )
    keep: int = Field(
        default=30,
        ge=1,
        description="Number of regular cuts to keep. Cuts that a person named stay until they are removed.",
    )

    @field_validator("every")
    @classmethod
    def _interval(cls, every: str | None) -> str | None:
        if every is not None and not re.fullmatch(r"[1-9][0-9]{0,4}[mhdw]", every):
            raise ValueError("expected a number of minutes, hours, days or weeks, such as 30m, 6h, 1d or 1w")
        return every

    @property
    def every_seconds(self) -> int | None:
        """The seconds between regular cuts, None where none are made."""
        return None if self.every is None else int(self.every[:-1]) * _SECONDS[self.every[-1]]


class ExtractSettings(Model):
    """The changes of one table, written for each hour or day of UTC, each window below a place of its own."""

    inside = "extracts"

    out: str = Field(description="Directory, or URI of a prefix in a store, where the windows are written.")
    since: datetime = Field(description="Begin of the first window: a whole hour of UTC.")
    every: Literal["1h", "1d"] = Field(default="1h", description="Length of a window: `1h` or `1d`.")
    format: Literal["parquet", "jsonl", "csv"] = Field(
        default="parquet", description="File format: `parquet`, `jsonl` or `csv`."
    )
    net: bool = Field(default=False, description="Write one row for each key instead of every change.")
    out_options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Options of fsspec for access to `out`. Values may be `{env: NAME}`.",
    )

    @field_validator("since")
    @classmethod
    def _whole(cls, since: datetime) -> datetime:
        moment = since.replace(tzinfo=timezone.utc) if since.tzinfo is None else since.astimezone(timezone.utc)
        if moment.minute or moment.second or moment.microsecond:
            raise ValueError("expected a whole hour, such as 2026-03-31 or 2026-03-31T13:00:00Z")
        return moment

    @field_serializer("out_options")
    def _masked(self, options: dict[str, Any]) -> dict[str, str]:
        return dict.fromkeys(options, "***")

    def options(self) -> dict[str, Any]:
        """Return `out_options` in clear text."""
        return resolved(self.out_options, "out_options")


class HistorySettings(Model):
    """The history tables of the source tables that match a pattern."""

    inside = "history"

    kinds: tuple[Literal["log", "scd2"], ...] = Field(
        description="Kinds of history tables: `log` (every change), `scd2` (every state of a row), or both."
    )
    track: tuple[str, ...] = Field(
        default=(), description="Columns whose change begins a new state in scd2. Without it every column does."
    )
    track_except: tuple[str, ...] = Field(default=(), description="Columns whose change begins no new state in scd2.")
    mirror: bool = Field(default=True, description="Whether the table has its mirror, too.")
    suffix: dict[Literal["log", "scd2"], str] = Field(
        default_factory=dict,
        description="End of the history tables' names by kind, where it is not `__log` and `__scd2`.",
    )

    @field_validator("suffix")
    @classmethod
    def _names(cls, suffix: dict[str, str]) -> dict[str, str]:
        if not all(suffix.values()):
            raise ValueError("an empty end gives a history table the name of its source table")
        return suffix

    @model_validator(mode="after")
    def _consistent(self) -> HistorySettings:
        if not self.kinds:
            raise ValueError("at least one kind is expected")
        if self.track and self.track_except:
            raise ValueError("give track or track_except, not both")
        if (self.track or self.track_except) and "scd2" not in self.kinds:
            raise ValueError("track and track_except are for scd2, which is not among the kinds")
        ends = [self.suffix.get(kind, f"__{kind}") for kind in self.kinds]
        if len(set(ends)) < len(ends):
            raise ValueError("two kinds of tables would have the same name: their suffixes are equal")
        return self


def history_rules(setting: Mapping[str, Any]) -> tuple[HistoryRule, ...]:
    """Return the rules of a setting: for each pattern a kind, a list of kinds, or all in full. Raises BadSettings."""
    rules = []
    for pattern, value in setting.items():
        full = value if isinstance(value, Mapping) else {"kinds": [value] if isinstance(value, str) else value}
        try:
            history_settings = HistorySettings(**full)
        except BadSettings as error:
            raise BadSettings(f'history, pattern "{pattern}": {error.message}') from None
        kinds = tuple(dict.fromkeys(history_settings.kinds))
        suffixes: dict[str, str] = dict(history_settings.suffix.items())
        rules.append(
            HistoryRule(
                pattern, kinds, history_settings.track, history_settings.track_except, history_settings.mirror, suffixes
            )
        )
    return tuple(rules)


class LandingSettings(Model):
    """Landing and retention of messages."""

    inside = "landing"

    keep: Literal["days", "applied", "compact"] = Field(
        default="days",
        description=(
            "Which landed rows are kept once their table has applied them: `days` keeps them for the number of days "
            "below, `applied` lets the next maintenance remove them, `compact` keeps them for these days and "
            "compresses them again, which takes CPU. Rows that expired cannot be rebuilt, explained or extracted."
        ),
    )
    days: float = Field(
        default=30, gt=0, description="Age in days at which landed rows expire once their table has applied them."
    )
    mark_interval_seconds: float = Field(
        default=60, ge=0, description="Shortest time in seconds between two landings of watermarks without rows."
    )
    plain: bool = Field(default=False, description="Consent to messages of masked tables being landed in clear text.")


class MaintenanceSettings(Model):
    """Maintenance of a table's files: when it runs, and what it keeps."""

    inside = "maintenance"

    cron: str = Field(
        default="17 3 * * *", description="Schedule of the maintenance job in Dagster, as a cron expression."
    )
    running: bool = Field(default=False, description="Whether that schedule is switched on from the start.")
    small_files: int = Field(
        default=12,
        ge=2,
        description=(
            "Number of small files (below three quarters of `target_file_bytes`) at which a table is compacted."
        ),
    )
    target_file_bytes: int = Field(
        default=256 << 20, ge=1 << 20, description="Size of the data files that compaction writes, in bytes."
    )
    deleted_share: float = Field(
        default=0.1, gt=0, le=1, description="Share of deleted rows at which a table is compacted, from 0 to 1."
    )
    manifests: int = Field(default=20, ge=4, description="Number of manifests at which they are rewritten.")
    snapshot_days: float = Field(
        default=5,
        ge=0.05,
        description=(
            "Age in days at which snapshots expire, except those that progress, cuts or an open exchange need."
        ),
    )
    snapshots_kept: int = Field(default=10, ge=1, description="Number of newest snapshots that never expire by age.")
    snapshots_most: int = Field(
        default=500,
        ge=10,
        description=(
            "Number of snapshots above which the oldest expire before their age, unless they are younger "
            "than ten minutes."
        ),
    )
    expire_at_least: int = Field(
        default=10, ge=1, description="Number of old snapshots at which they are expired together."
    )
    orphan_days: float = Field(
        default=3, ge=1, description="Age in days at which orphan files are removed. No run may take longer than that."
    )

    @property
    def small_bytes(self) -> int:
        """Files below this size in bytes are small."""
        return self.target_file_bytes * 3 // 4


class VerifySettings(Model):
    """Comparison of tables with their source."""

    inside = "verify"

    source: ServerAddress | None = Field(default=None, description="Server that has the tables.")
    tables: tuple[str, ...] = Field(
        default=(), description="Patterns of the tables to compare (`shop.*`). Without it all are compared."
    )
    quiet: bool = Field(
        default=False,
        description=(
            "State that nothing writes to the source during the comparison. Needed where the source "
            "cannot be read at a TSO."
        ),
    )
    threads: int = Field(default=4, ge=1, le=64, description="Number of connections that read the source at once.")
    rows_per_second: int | None = Field(
        default=None, ge=1, description="Limit of rows read from the source a second, over all connections."
    )
    shown: int = Field(default=100, ge=0, description="Number of differing rows named for each table.")
    sample: str = Field(default="", description="Share of the rows to compare (`1%`). Without it all are compared.")
    cron: str = Field(default="47 5 * * 6", description="Schedule of the verify job in Dagster, as a cron expression.")
    running: bool = Field(default=False, description="Whether that schedule is switched on from the start.")
    stale_days: float = Field(
        default=7, gt=0, description="Number of days of changes after which an equal table has to be compared again."
    )

    @property
    def server(self) -> ServerAddress:
        """The server that has the tables; raises BadSettings where none is named."""
        if self.source is None:
            raise BadSettings(
                "no source to compare with is named. Give --source mysql://user@host:4000, or in the settings "
                "verify: {source: {uri: …, password: {env: NAME}}}."
            )
        return self.source


class ColumnSettings(Model):
    """Columns that mirrors have beside those of the source, as of the row's last change."""

    inside = "columns"

    place: bool = Field(
        default=False,
        description=(
            "`_cdc_place`: where the row's last change stands in the input: file and line, or topic, partition and "
            "offset; in a large file of a dump the part by its bytes, and the line in it. NULL where a repair wrote "
            "the row."
        ),
    )
    ingested_at: bool = Field(
        default=False, description="`_cdc_ingested_at`: when the window with the row's last change was read."
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in the lake."""
        return tuple(name for switch, name in LAKE_COLUMNS.items() if getattr(self, switch))


def _transforms(setting: Any) -> Any:
    """Return the transforms of a list, or of a text with commas between. YAML cuts `[bucket(16, id)]` at its comma."""
    if isinstance(setting, str):
        setting = [setting]
    if not isinstance(setting, list | tuple) or not all(isinstance(part, str | Transform) for part in setting):
        raise ValueError("expected a list of columns and transforms of columns, such as [day(created_at), id]")
    transforms = parse_transforms(", ".join(map(str, setting)))
    if not transforms:
        raise ValueError("an empty list asks for nothing; take the pattern out")
    return transforms


def _value(setting: Any) -> Any:
    if isinstance(setting, bool):
        return str(setting).lower()
    return str(setting) if isinstance(setting, int | float) else setting


Transforms = Annotated[
    tuple[Transform, ...],
    BeforeValidator(_transforms),
    PlainSerializer(lambda transforms: [str(transform) for transform in transforms]),
]
"""Transforms of columns, as a list or as one text."""

PropertyValue = Annotated[str, BeforeValidator(_value)]
"""A property's value as text; numbers, true and false are taken as Iceberg writes them."""

Deletes = Annotated[
    dict[str, Literal["soft", "hard"]],
    BeforeValidator(lambda setting: {EVERY_TABLE: setting} if isinstance(setting, str) else setting),
]
"""Effect of a delete on rows of mirrors, by pattern; a single word counts for all tables."""
