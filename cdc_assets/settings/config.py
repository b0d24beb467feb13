"""Settings: which changefeeds are read, how TiCDC writes them, and into which lake they go.

    changefeeds.yaml ──load──▶ Settings(lake, changefeeds) ◀──from_flags── command line
                                             │
          sink URI + changefeed TOML ──▶ SourceOptions        (TiCDC's own names and precedence)
          sink URI + storage_options ──▶ Source

The user gives what TiCDC got: its sink URI and its changefeed TOML; nothing in a bucket says how it was written.
Secrets may be given as `{env: NAME}`; those in clear text never appear in a repr, a dump or an error message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import (
    Field,
    PrivateAttr,
    SecretStr,
    field_serializer,
    field_validator,
    model_validator,
)

from cdc_assets.errors import BadSettings
from cdc_assets.features.dumps.settings import InitialSettings
from cdc_assets.features.masks.settings import MaskSettings, key_of, mask_of, mask_patterns
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.layout import EVERY_TABLE, LayoutRules, refused_property
from cdc_assets.model.masks import Mask, MaskLine, MaskPolicy
from cdc_assets.model.names import fits_pattern
from cdc_assets.model.schema import TableId
from cdc_assets.model.wording import SECRET_NAME
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.model import Model, Zone, merged, resolved
from cdc_assets.settings.sections import (
    ArchiveSettings,
    ColumnSettings,
    CutSettings,
    Deletes,
    ExtractSettings,
    LandingSettings,
    MaintenanceSettings,
    PropertyValue,
    TableSettings,
    Transforms,
    VerifySettings,
    history_rules,
)
from cdc_assets.sources import (
    FeedInputs,
    InitialSource,
    Source,
    SourceOptions,
    broker_options,
    connect,
    join,
    parse_options,
    registry_options,
    storage_options,
)

if TYPE_CHECKING:
    from cdc_assets.history.policies import Rules
    from cdc_assets.model.setting_patterns import SettingPattern

CONFIG_VARIABLE = "CDC_ASSETS_CONFIG"

Policy = Literal["apply", "hold", "skip", "keep"]

Decode = Literal["auto", "driver", "executors"]

POLICY_KINDS = (
    "create schema", "drop schema", "create table", "drop table", "truncate table", "rename table", "recover table",
    "add column", "drop column", "modify column", "set default value", "add primary key", "drop primary key",
    "add partition", "drop partition", "truncate partition", "reorganize partition", "exchange partition",
    "alter table partition by", "remove partitioning", "multi-schema change", "columns changed without ddl", "unknown",
    "patch without row",
)  # fmt: skip
"""Kinds of DDL that a policy can name: TiDB's names of its action types, and two for what has no known type.

The last is no DDL: a change that leaves out columns that did not change, and whose row the lake does not have.
"""

_PATCH = POLICY_KINDS[-1]
_KEEPABLE = ("drop table", "drop column")
_SKIPPABLE = tuple(kind for kind in POLICY_KINDS if kind not in ("create schema", "create table", "rename table"))
_HOLDABLE = tuple(kind for kind in POLICY_KINDS if kind != "create schema")


class ChangefeedSettings(Model):
    """One changefeed: where its input is, how it was written, and how it is applied. Each field says what it is for."""

    name: str = Field(
        default="default", description="Name of the changefeed. A lake table belongs to a changefeed by this name."
    )
    sink_uri: SecretStr = Field(
        repr=False,
        description=(
            "Sink URI exactly as TiCDC has it, with its parameters; `kafka://BROKERS/TOPIC?protocol=…` "
            "for topics, also of YDB and Debezium."
        ),
    )
    changefeed_config: Path | None = Field(
        default=None,
        description=(
            "Path of the changefeed TOML that TiCDC got, or of the connector's configuration (JSON or properties)."
        ),
    )
    tz: Zone = Field(
        default="UTC", description="The `--tz` of the TiCDC server: TIMESTAMP values are written in that zone."
    )
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description=(
            "Options of fsspec for the feed's storage, over those in the sink URI. Values may be `{env: NAME}`."
        ),
    )
    keys: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description=(
            "Key columns by table (`shop.clicks: [session, at]`), for tables whose key the feed does not state."
        ),
    )
    accept_unordered: bool = Field(
        default=False,
        description=(
            "Apply a feed without commit-ts in the order of its files: repeated rows cannot be recognised then. Of a "
            "connector, count rows of tables without key twice where nothing tells them from copies."
        ),
    )
    new_collations: bool | None = Field(
        default=None,
        description=(
            "The cluster's `new_collations_enabled_on_first_bootstrap`; `false` means that texts compare "
            "by their bytes. Without it `true` is assumed, and tables to which it matters are reported."
        ),
    )
    namespace: str = Field(default="{schema}", description="Name of the lake's namespace for a source database.")
    policies: dict[str, Policy] = Field(
        default_factory=dict,
        description=(
            "Policy by type of DDL: `apply`, `hold` (until a person releases it), `skip` (its effect on "
            "existing rows is left out), or `keep` (the lake keeps what the source drops). Of a DDL of "
            "several types the strictest counts. `patch without row` is for a change that leaves out "
            "columns of a row that the lake lacks."
        ),
    )
    tables: TableSettings = Field(
        default_factory=TableSettings,
        description="Tables of the feed that are applied: all, unless patterns say which.",
    )
    partition_by: dict[str, Transforms] = Field(
        default_factory=dict,
        description=(
            "Partitions of mirrors by pattern (`shop.orders: [day(created_at), bucket(16, id)]`; the most exact one "
            "counts): columns, or Iceberg's transforms of columns (`year`, `month`, `day`, `hour`, `bucket`, "
            "`truncate`) as the source calls them now. A masked column gives its masked values. A table gets them when "
            "it is made; one that stands keeps what it has until `cdc-assets rebuild`. A DDL that takes such a column, "
            "or gives it a type that does not fit, holds the table."
        ),
    )
    sort_by: dict[str, Transforms] = Field(
        default_factory=dict,
        description=(
            "Order of the rows in each file of mirrors by pattern (`shop.orders: [id]`), in the words of "
            "`partition_by`, ascending, NULL first."
        ),
    )
    table_properties: dict[str, dict[str, PropertyValue]] = Field(
        default_factory=dict,
        description=(
            "Iceberg's properties of the lake's tables by pattern (`shop.*: {write.parquet.compression-codec: gzip}`; "
            "of several values the most exact pattern's counts), but for those that commits depend on. A table gets "
            "them with its next window. Files written without Spark follow the codec and level of Parquet alone."
        ),
    )
    columns: ColumnSettings = Field(
        default_factory=ColumnSettings,
        description=(
            "Columns that mirrors get with their next window, NULL in rows that did not change since. Switched off, "
            "they are dropped with the next window."
        ),
    )
    deletes: Deletes = Field(
        default_factory=dict,
        description=(
            "`soft`, or `soft` and `hard` by pattern (the most exact one counts): in mirrors with a key a row that the "
            "source deletes stays, with the time of that in `_cdc_deleted_at`; so do those that TRUNCATE or dropped "
            "partitions delete. A row that comes again has NULL there. Queries have to say `WHERE _cdc_deleted_at IS "
            "NULL`. A DDL that changes the key removes marked rows. A table gets the column when it is made; one that "
            "stands goes on as it is until `cdc-assets rebuild`. In tables without a key, logs and tables of states "
            "nothing is marked."
        ),
    )
    history: dict[str, str | list[str] | dict[str, Any]] = Field(
        default_factory=dict,
        description=(
            "History tables by pattern (the most exact one counts): `log`, `scd2`, a list of both, or a mapping."
        ),
    )
    quarantine: bool = Field(
        default=False,
        description="Set records aside that cannot be decoded or applied, instead of stopping their table.",
    )
    initial: InitialSettings = Field(
        default_factory=InitialSettings, description="Rows that the tables had before the changefeed began."
    )
    archive: ArchiveSettings | None = Field(
        default=None, description="Location of archived topics, to read them without a broker."
    )
    kafka: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Options of the broker's client, by librdkafka's names. Values may be `{env: NAME}`.",
    )
    topics: tuple[str, ...] = Field(
        default=(), description="Patterns of the topics' names, if the sink URI and the dispatchers do not name them."
    )
    schemas: Path | None = Field(
        default=None, description="File of CREATE TABLE statements (or YQL) of tables that are older than their topic."
    )
    schema_registry: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="URL of the schema registry, a file of schemas, or a mapping of the registry's options.",
    )
    decode: Decode = Field(
        default="auto",
        description=(
            "Where rows are decoded: `driver`, `executors`, or `auto` (large windows on executors, small "
            "ones in the driver)."
        ),
    )
    sensor_running: bool = Field(default=False, description="Whether the sensor is switched on from the start.")
    sensor_interval_seconds: int = Field(
        default=10, ge=1, description="Time in seconds between two ticks of the sensor."
    )
    runs_at_once: int = Field(default=2, ge=1, description="Number of runs of this changefeed at a time.")
    run_tables: int = Field(default=500, ge=1, description="Number of tables that one run applies at most.")
    run_bytes: int = Field(
        default=256 << 20,
        ge=1,
        description="Bytes of new files that one run applies at most. A table with more has a run of its own.",
    )
    run_keep_alive_seconds: int = Field(
        default=3600, ge=0, description="Longest time in seconds that a run goes on with new windows."
    )
    run_idle_seconds: int = Field(
        default=60, ge=0, description="Time in seconds after which a run without a new window ends."
    )
    commit_interval_seconds: float = Field(
        default=2, ge=0, description="Shortest time in seconds between the begins of two windows of a run."
    )
    table_interval_seconds: int = Field(
        default=0, ge=0, description="Shortest time in seconds between two runs of a table."
    )
    retry_seconds: int = Field(
        default=60,
        ge=1,
        description=("Time in seconds until a table that a run did not advance is tried again. It doubles each time."),
    )
    retry_max_seconds: int = Field(default=3600, ge=1, description="Longest such time in seconds.")
    stalled_after_seconds: int = Field(
        default=600, ge=1, description="Age in seconds at which a checkpoint is called stalled."
    )
    landing: LandingSettings = Field(
        default_factory=LandingSettings, description="What is kept of landed messages of topics."
    )
    maintenance: MaintenanceSettings = Field(
        default_factory=MaintenanceSettings,
        description="Compaction, expiry of snapshots, removal of orphan files.",
    )
    verify: VerifySettings = Field(
        default_factory=VerifySettings, description="Comparison of tables with their source."
    )
    cuts: CutSettings = Field(
        default_factory=CutSettings, description="States of all tables at one position, made on a schedule."
    )
    extracts: dict[str, ExtractSettings] = Field(
        default_factory=dict, description="Changes of a table by hour or day as assets of Dagster, by the table's name."
    )
    owners: tuple[str, ...] = Field(
        default=(), description="Owners shown with every asset: e-mail addresses, or `team:NAME`."
    )
    lag_target_seconds: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Number of seconds a table may be behind the present before it is called late. Without it no table is."
        ),
    )
    lag_targets: dict[str, Annotated[int, Field(ge=1)]] = Field(
        default_factory=dict,
        description="Such a number of seconds by pattern (`shop.*`); the first that matches counts.",
    )
    privacy: dict[str, MaskSettings] = Field(
        default_factory=dict,
        description=(
            "Mask by pattern of columns (`shop.users.email`; the most exact one counts), applied as soon "
            "as a value is decoded: `null`, `drop`, `{hash: {key: {env: NAME}}}`, `{redact: last4}`, "
            "`{redact: domain}`, `{redact: length}` or `{constant: TEXT}`."
        ),
    )
    privacy_key: dict[Literal["env"], str] | None = Field(
        default=None,
        description=(
            "Environment variable with the key that encrypts stored messages and records of masked "
            "tables: `{env: NAME}`."
        ),
    )
    _options: SourceOptions = PrivateAttr()
    _history: tuple[HistoryRule, ...] = PrivateAttr()
    _file: Path | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """The settings file that describes the changefeed, None where flags, keywords or a component do."""
        return self._file

    @field_validator("owners")
    @classmethod
    def _reachable(cls, owners: tuple[str, ...]) -> tuple[str, ...]:
        for owner in owners:
            if not re.fullmatch(r"team:.+|[^@\s]+@[^@\s]+\.[A-Za-z]{2,7}", owner):
                raise ValueError(f'"{owner}" is not an owner; expected an e-mail address or team:NAME')
        return owners

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
            raise ValueError("a changefeed's name consists of letters, digits, '_', '.' and '-'")
        return name

    @field_validator("namespace")
    @classmethod
    def _namespace_pattern(cls, namespace: str) -> str:
        try:
            if namespace.format(schema="a") == namespace.format(schema="b"):
                raise ValueError("it must contain {schema}, or tables of two databases could collide")
        except (KeyError, IndexError):
            raise ValueError("it may contain {schema} and nothing else in braces") from None
        return namespace

    @field_validator("table_properties")
    @classmethod
    def _free(cls, spark_settings: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for pattern, properties in spark_settings.items():
            for name, value in properties.items():
                if reason := refused_property(name, value):
                    raise ValueError(f'the property "{name}" of "{pattern}" cannot be set: {reason}')
        return spark_settings

    @field_validator("policies", mode="before")
    @classmethod
    def _kinds(cls, policies: Any) -> Any:
        if not isinstance(policies, Mapping):
            return policies
        spelled = {re.sub(r"[_ ]+", " ", str(kind).strip().lower()): policy for kind, policy in policies.items()}
        unknown = sorted(set(spelled) - set(POLICY_KINDS))
        if unknown:
            raise ValueError(f'no kind of DDL is called "{unknown[0]}"; known are {", ".join(POLICY_KINDS)}')
        if misplaced := [kind for kind, policy in spelled.items() if policy == "keep" and kind not in _KEEPABLE]:
            raise ValueError(f'"keep" is for {" and ".join(_KEEPABLE)}, not for {misplaced[0]}')
        for policy, fitting in (("skip", _SKIPPABLE), ("hold", _HOLDABLE)):
            for kind in (kind for kind, value in spelled.items() if value == policy and kind not in fitting):
                raise ValueError(f'"{policy}" is not for {kind}: later rows would have no table')
        return spelled

    @field_validator("schema_registry", mode="before")
    @classmethod
    def _registry(cls, registry: Any) -> Any:
        if not isinstance(registry, str):
            return registry
        return {"file" if is_path(registry) else "url": registry}

    @field_validator("kafka", "schema_registry")
    @classmethod
    def _plain_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name, value in options.items():
            if isinstance(value, (list, Mapping)) and not (isinstance(value, Mapping) and set(value) == {"env"}):
                raise ValueError(f"{name} is neither a text nor {{env: NAME}}")
        return options

    @field_serializer("storage_options", "kafka", "schema_registry")
    def _masked(self, options: dict[str, Any]) -> dict[str, str]:
        return dict.fromkeys(options, "***")

    @model_validator(mode="after")
    def _parse(self) -> ChangefeedSettings:
        self._options = parse_options(self.sink_uri.get_secret_value(), self.changefeed_config, self.tz, self.given)
        self._history = history_rules(self.history)
        return self

    @field_validator("extracts")
    @classmethod
    def _extracted(cls, extracts: dict[str, ExtractSettings]) -> dict[str, ExtractSettings]:
        for name in extracts:
            if not re.fullmatch(r"[^.*?]+\.[^*?]+", name):
                raise ValueError(f'"{name}" is no name of a table; expected schema.table')
        return extracts

    @field_validator("privacy", mode="before")
    @classmethod
    def _masks(cls, lines: Any) -> Any:
        if not isinstance(lines, Mapping):
            return lines
        return {str(pattern): mask_of(pattern, entry) for pattern, entry in lines.items()}

    @field_validator("privacy")
    @classmethod
    def _one_mask_each(cls, lines: dict[str, MaskSettings]) -> dict[str, MaskSettings]:
        contradiction = MaskPolicy(
            tuple(
                MaskLine(pattern, Mask(mask.way, mask.detail, mask.variable.encode()))
                for pattern, mask in lines.items()
            )
        ).contradiction()
        if contradiction:
            raise ValueError(contradiction)
        return lines

    @property
    def masks(self) -> MaskPolicy:
        """Masked columns with their masks and keys. Raises BadSettings where a key is not in the environment."""
        lines = tuple(MaskLine(pattern, mask.mask(pattern)) for pattern, mask in self.privacy.items())
        encryption_key = (
            None if self.privacy_key is None else EncryptionKey(key_of(self.privacy_key["env"], "privacy_key"))
        )
        return MaskPolicy(lines, encryption_key)

    @property
    def given(self) -> FeedInputs:
        """The settings of topics beside the sink URI."""
        archive = (self.archive.uri.get_secret_value(), self.archive.layout) if self.archive is not None else None
        policy = self.policies.get(_PATCH, "")
        confidential = bool(self.privacy)
        return FeedInputs(
            archive, self.topics, self.schemas, self.kafka, self.schema_registry, policy, confidential, self.quarantine
        )

    @property
    def source_options(self) -> SourceOptions:
        """Options and location of the feed, from the sink URI's parameters and the changefeed TOML."""
        return self._options

    @property
    def rules(self) -> Rules:
        """Rules of the settings for the tables' histories."""
        from cdc_assets.history.policies import Rules  # loads what parses DDL

        return Rules(
            policies=self.policies,
            keys=self.keys,
            complete=self.initial.complete,
            later_tables_are_new=self.initial.later_tables == "new",
            new_collations=self.new_collations is not False,
            zone=lambda life, version: self.source_options.wire.timezone,
            sets_aside=self.quarantine,
            features={"masks": self.masks},
        )

    @property
    def patterns(self) -> tuple[SettingPattern, ...]:
        """Every pattern and name of tables and columns that the settings have."""
        from cdc_assets.model.setting_patterns import of_all_names, of_first_names, of_newest_names

        newest: dict[str, Iterable[str]] = {
            "tables.include": self.tables.include,
            "tables.exclude": self.tables.exclude,
            "history": self.history,
            "partition_by": self.partition_by,
            "sort_by": self.sort_by,
            "table_properties": self.table_properties,
            "deletes": self.deletes.keys() - {EVERY_TABLE},
            "lag_targets": self.lag_targets,
            "verify.tables": self.verify.tables,
            "extracts": self.extracts,
        }
        return (
            *mask_patterns(self.masks.lines),
            *of_first_names("initial.complete", self.initial.complete),
            *(line for setting, patterns in newest.items() for line in of_newest_names(setting, patterns)),
            *of_all_names("keys", self.keys),
        )

    @property
    def history_rules(self) -> tuple[HistoryRule, ...]:
        """Rules that map a source table to lake tables."""
        return (*self.tables.rules, *self._history)

    @property
    def layouts(self) -> LayoutRules:
        """The layouts that tables of the lake are to have."""
        deletes = {pattern: delete_mode == "soft" for pattern, delete_mode in self.deletes.items()}
        return LayoutRules(self.partition_by, self.sort_by, self.table_properties, deletes)

    @property
    def uri(self) -> str:
        """The sink URI without its parameters, for messages."""
        return self._options.uri

    def open_source(self) -> Source:
        """Open the feed for reading, with the dumps before it."""
        feed = connect(self.sink_uri.get_secret_value(), self._options, self.access())
        of_ticdc = self._options.wire.has_commit_ts
        return join(feed, self.open_initial(), self.changefeed_config if of_ticdc else None)

    def open_initial(self) -> list[InitialSource]:
        """Open the dumps with the rows from before the feed."""
        return self.initial.connect(self.storage_options, self._options.store)

    def access(self) -> dict[str, Any]:
        """Return the options for access to the feed, in clear text: for a broker librdkafka's."""
        if self._options.store != "kafka":
            return self.storage()
        options = broker_options(self.sink_uri.get_secret_value(), self.changefeed_config)
        return {**options, **resolved(self.kafka, "kafka")}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of options for access to the feed and its registry that no message may contain."""
        options = {**self.access(), **resolved(self.schema_registry, "schema_registry")}
        values = (str(value) for name, value in options.items() if SECRET_NAME.search(name))
        return tuple(value for value in values if len(value) > 5)

    def registry(self) -> dict[str, Any]:
        """Return the options of the schema registry, in clear text: from the settings, else those of TiCDC."""
        return resolved(self.schema_registry, "schema_registry") or registry_options(
            self.sink_uri.get_secret_value(), self.changefeed_config
        )

    def storage(self) -> dict[str, Any]:
        """Return the options of the feed's storage, in clear text: from the sink URI, then `storage_options`."""
        options = resolved(self.storage_options, "storage_options")
        return merged(storage_options(self.sink_uri.get_secret_value(), self.given), options)

    def with_complete(self, patterns: Sequence[str]) -> ChangefeedSettings:
        """Return the settings with more patterns of tables that had no rows before the changefeed began."""
        complete = (*self.initial.complete, *patterns)
        return self.model_copy(update={"initial": self.initial.model_copy(update={"complete": complete})})

    def with_history(self, history: Mapping[str, Any]) -> ChangefeedSettings:
        """Return the settings with these history tables and no others, and with no table left out."""
        copy = self.model_copy(update={"history": dict(history), "tables": TableSettings()})
        copy._history = history_rules(history)
        return copy

    def lag_target_of(self, table: TableId) -> int | None:
        """Return the seconds that a table may be behind: its first pattern of `lag_targets`, or the common target."""
        fitting = (seconds for pattern, seconds in self.lag_targets.items() if fits_pattern(str(table), pattern))
        return next(fitting, self.lag_target_seconds)

    def namespace_of(self, schema: str) -> str:
        """Return the lake's namespace for a source database."""
        return self.namespace.format(schema=schema)


class Settings(Model):
    """All of `changefeeds.yaml`."""

    lake: LakeSettings | None = Field(
        default=None, description="The lake. It may be missing where nothing is written (`inspect`)."
    )
    changefeeds: tuple[ChangefeedSettings, ...] = Field(description="The changefeeds, each with a name of its own.")
    metrics_file: Path | None = Field(
        default=None,
        description="File that Dagster's sensor `cdc_metrics` replaces each minute with the metrics of the lake, for a "
        "node exporter's textfile collector. A path is relative to this file.",
    )

    @field_validator("changefeeds")
    @classmethod
    def _names_differ(cls, changefeeds: tuple[ChangefeedSettings, ...]) -> tuple[ChangefeedSettings, ...]:
        names = [changefeed.name for changefeed in changefeeds]
        if not names:
            raise ValueError("the list is empty; name at least one changefeed with its sink_uri")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f'two changefeeds are called "{twice}"; tables in the lake belong to a changefeed by name')
        return changefeeds

    def changefeed(self, name: str | None = None) -> ChangefeedSettings:
        """Return the changefeed of that name, or the only one. Raises BadSettings that lists the known names."""
        by_name = {changefeed.name: changefeed for changefeed in self.changefeeds}
        if name is None and len(by_name) == 1:
            return self.changefeeds[0]
        if name is None or name not in by_name:
            problem = "no changefeed was named" if name is None else f'no changefeed is called "{name}"'
            raise BadSettings(f"{problem}; known are {', '.join(sorted(by_name))}. Name one of them.")
        return by_name[name]

    def lake_of(self, warehouse: str | None) -> LakeSettings | None:
        """Return the lake, which --warehouse may name where the settings name none.

        Raises BadSettings where both name one, and not the same: whichever was taken, the other could be meant.
        """
        plain = LakeSettings.from_warehouse(warehouse) if warehouse else None
        if self.lake and plain and (self.lake.warehouse, self.lake.catalog) != (plain.warehouse, plain.catalog):
            raise BadSettings(
                f"the settings file names the lake {self.lake.warehouse}, and --warehouse {plain.warehouse}. Leave out "
                "one of the two."
            )
        return self.lake or plain

    def needed_lake(self) -> LakeSettings:
        """Return the lake; raises BadSettings where the settings name none."""
        lake = self.lake
        if lake is None:
            raise BadSettings("no lake is named. Write `lake:` into changefeeds.yaml.")
        return lake


def settings_file(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the settings file of a path; without one that of CDC_ASSETS_CONFIG, or `changefeeds.yaml` here."""
    return Path(path or os.environ.get(CONFIG_VARIABLE) or "changefeeds.yaml").expanduser().resolve()


def has_settings_file(path: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a path or CDC_ASSETS_CONFIG names a settings file, or `changefeeds.yaml` is here."""
    return bool(path or os.environ.get(CONFIG_VARIABLE)) or settings_file().exists()


def load(path: str | os.PathLike[str] | None = None) -> Settings:
    """Return the settings of a `changefeeds.yaml` (see `settings_file`). Paths in it are relative to it.

    Raises BadSettings.
    """
    file = settings_file(path)
    try:
        document = yaml.load(file.read_text(encoding="utf-8"), _SettingsLoader)  # noqa: S506  # a SafeLoader
    except OSError as error:
        raise BadSettings(
            f"{file} cannot be read ({error.strerror}). "
            f"Write your settings there, or name another file by --settings or the environment variable "
            f"{CONFIG_VARIABLE}."
        ) from None
    except UnicodeDecodeError as error:
        raise BadSettings(
            f"{file} is not UTF-8 at byte {error.start + 1}. Correct that place, or save it as UTF-8.", file=str(file)
        ) from None
    except yaml.YAMLError as error:
        raise BadSettings(f"{file} is not YAML: {_yaml_place(error)}. Correct that place.", file=str(file)) from None
    if not isinstance(document, dict):
        raise BadSettings(f"{file} has no `lake` and `changefeeds` at its top level. See the README for an example.")
    try:
        settings = settings_of(document, file.parent)
    except BadSettings as error:
        raise BadSettings(f"{file}: {error.message}", file=str(file), **error.where) from None
    for changefeed in settings.changefeeds:
        changefeed._file = file
    return settings


def from_flags(warehouse: str | os.PathLike[str] | None = None, **changefeed: Any) -> Settings:
    """Return the settings of one changefeed, by their names in a file, and with `warehouse` its lake.

    Paths are relative to the working directory.
    """
    lake = LakeSettings.from_warehouse(warehouse) if warehouse else None
    return Settings(lake=lake, changefeeds=(ChangefeedSettings(**with_paths(Path.cwd(), changefeed)),))


# --- errors -----------------------------------------------------------------------------------------------------------


def settings_of(document: Mapping[str, Any], directory: Path) -> Settings:
    """Return the settings of a parsed file: paths made absolute, errors with the entry that they are in."""
    lake, changefeeds = document.get("lake"), document.get("changefeeds")
    entries: dict[str, Any] = dict(document)
    if isinstance(lake, dict):
        with _inside("lake"):
            entries["lake"] = LakeSettings(**_with_catalog(directory, lake))
    if isinstance(changefeeds, list):
        entries["changefeeds"] = []
        for number, changefeed in enumerate(changefeeds, 1):
            name = changefeed.get("name") if isinstance(changefeed, dict) else None
            with _inside(f"changefeed {name if isinstance(name, str) and name else number}"):
                if not isinstance(changefeed, dict):
                    raise BadSettings("it is no mapping; expected name, sink_uri and the like.")
                entries["changefeeds"].append(ChangefeedSettings(**with_paths(directory, changefeed)))
    if isinstance(metrics_file := document.get("metrics_file"), str):
        entries["metrics_file"] = directory / Path(metrics_file).expanduser()
    return Settings(**entries)


@contextmanager
def _inside(entry: str) -> Iterator[None]:
    try:
        yield
    except BadSettings as error:
        raise BadSettings(f"{entry}: {error.message}", **error.where) from None


def _with_catalog(directory: Path, lake: dict[str, Any]) -> dict[str, Any]:
    # A bare local warehouse means a SQLite catalog in it, as --warehouse does.
    warehouse = lake.get("warehouse")
    if not isinstance(warehouse, str):
        return lake
    if "://" not in warehouse:
        warehouse = str((directory / Path(warehouse).expanduser()).resolve())
    if lake.get("catalog"):
        return {**lake, "warehouse": warehouse}
    plain = LakeSettings.from_warehouse(warehouse)
    return {**lake, "warehouse": plain.warehouse, "catalog": plain.catalog}


class _SettingsLoader(yaml.SafeLoader):
    """Refuses a name that is twice in one mapping: the first value, all masks maybe, would be lost without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in seen and key.value != "<<":
                raise yaml.MarkedYAMLError(problem=f'"{key.value}" is there twice', problem_mark=key.start_mark)
            seen.add((key.tag, str(key.value)))
        return node


def _yaml_place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"{problem}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(problem)


# --- paths in the file, relative to its directory -----------------------------------------------------------------


def is_path(address: str) -> bool:
    """Return whether an address is that of a local file: a path, or a URI such as file:///path."""
    scheme, separator, _ = address.partition("://")
    return not separator or scheme.lower() in ("file", "local")


def with_paths(directory: Path, changefeed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a changefeed with its paths made absolute: they are relative to a directory."""
    result = dict(changefeed)
    for name in ("changefeed_config", "schemas"):
        if isinstance(path := result.get(name), (str, os.PathLike)):
            result[name] = directory / Path(path).expanduser()
    if isinstance(uri := result.get("sink_uri"), str):
        result["sink_uri"] = _absolute(directory, uri)
    if isinstance(initial := result.get("initial"), dict) and "dump" in initial:
        result["initial"] = {**initial, "dump": _with_dump_paths(directory, initial["dump"])}
    registry = result.get("schema_registry")
    if isinstance(registry, str) and is_path(registry):
        result["schema_registry"] = {"file": _absolute(directory, registry)}
    elif isinstance(registry, dict) and isinstance(registry.get("file"), str):
        result["schema_registry"] = {**registry, "file": _absolute(directory, registry["file"])}
    if isinstance(archive := result.get("archive"), dict) and "://" not in str(archive.get("uri") or "://"):
        result["archive"] = {**archive, "uri": str(directory / Path(str(archive["uri"])).expanduser())}
    if isinstance(extracts := result.get("extracts"), dict):
        result["extracts"] = {
            name: {**extract, "out": _absolute(directory, extract["out"])}
            if isinstance(extract, dict) and isinstance(extract.get("out"), str)
            else extract
            for name, extract in extracts.items()
        }
    return result


def _with_dump_paths(directory: Path, dump: Any) -> Any:
    if isinstance(dump, list):
        return [_with_dump_paths(directory, entry) for entry in dump]
    if isinstance(dump, dict) and isinstance(dump.get("uri"), str):
        return {**dump, "uri": _absolute(directory, dump["uri"])}
    return _absolute(directory, dump) if isinstance(dump, str) else dump


def _absolute(directory: Path, uri: str) -> str:
    return uri if "://" in uri else str(directory / Path(uri).expanduser())
