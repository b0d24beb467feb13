"""Options of a feed's messages: how they were written, and which topics they are in."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from cdc_assets.formats import MessageOptions, tells_new_rows
from cdc_assets.model.schema import TableId
from cdc_assets.sources.changefeed_toml import EventFilter, hides_inserts


@dataclass(frozen=True, slots=True)
class TopicRule:
    """One of the changefeed's `dispatchers`: tables that one of `matcher` fits go to the topic of an expression.

    `topic` is a name, or has `{schema}` and `{table}` in it; "" for the default topic. `partition` is the rule that
    spreads rows over partitions, "" for TiCDC's default, `index` the name of the unique index by which it does.
    """

    matcher: tuple[str, ...]
    topic: str = ""
    partition: str = ""
    index: str = ""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """Location of archived topics: fsspec's protocol and path of the prefix, and the layout below it."""

    layout: str
    location: tuple[str, str]
    uri: str


@dataclass(frozen=True, slots=True)
class TableLists:
    """The connector's lists of databases and tables whose changes it sends; None where it has no such list.

    Each is of regular expressions, of which one fits a whole name, in any letter case: of a table `database.table`.
    """

    databases: tuple[str, ...] | None = None
    tables: tuple[str, ...] | None = None
    excluded_databases: tuple[str, ...] = ()
    excluded_tables: tuple[str, ...] = ()

    def captures(self, table: TableId) -> bool | None:
        """Return whether rows of a table are sent, None where an expression is beyond Python's."""
        names = (table.schema, str(table))
        try:
            allowed = all(
                patterns is None or _fits(name, patterns)
                for name, patterns in zip(names, (self.databases, self.tables), strict=True)
            )
            refused = zip(names, (self.excluded_databases, self.excluded_tables), strict=True)
            return allowed and not any(_fits(name, patterns) for name, patterns in refused)
        except re.error:
            return None


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Rows that a connector or changefeed sends before the changes of its tables, as far as its settings are given.

    `takes_rows` is None where they do not say whether it sends any. `selected` are the tables of which it sends some of
    the rows. `included` are the lists of regular expressions of which a table has to fit one each, `excluded` those of
    which it fits none, or it is left out. `is_listed` says that there are no more of these than are given. `changes`
    are the lists by which changes are sent. `leaves_out_changes` says that inserts may be missing behind it. `overlaps`
    says that changes behind it may be in it already, as it locks nothing.
    """

    takes_rows: bool | None = None
    selected: tuple[str, ...] = ()
    included: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[str, ...] = ()
    is_listed: bool = False
    changes: TableLists = TableLists()
    leaves_out_changes: bool = False
    overlaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Options from the sink URI `kafka://host:port/topic?…` and the changefeed TOML, without any secret.

    `brokers` is `host:port,host:port`, `topic` the default topic, `rules` come in the order of the TOML. `topics` are
    the patterns of the setting of that name: where there are some, they alone say which topics are the feed's.
    `schemas` is the path of a file of CREATE TABLE statements, "" for none.
    `snapshots` is what the writer sends of tables that are older than their topics, `losses` are settings of it with
    which messages lack something that they do not show, each with the sentence on it.
    `event_filters` are those of the changefeed, `misspelt` parameters of the sink URI that nobody knows, each with the
    one that it resembles. `leaves_old_keys` says that a change of a key may come as the new row alone.
    `claim_check_uri` is where the values of large messages lie, `archive` where the topics do, None for a broker.
    `uri` is the sink URI without parameters and login, for messages.
    """

    kind: ClassVar[str] = "topics"
    is_landed: ClassVar[bool] = True

    brokers: str
    topic: str
    messages: MessageOptions
    rules: tuple[TopicRule, ...] = ()
    case_sensitive: bool = False
    topics: tuple[str, ...] = ()
    schemas: str = ""
    snapshots: SnapshotOptions = SnapshotOptions()
    losses: tuple[tuple[str, str], ...] = ()
    event_filters: tuple[EventFilter, ...] = ()
    misspelt: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    leaves_old_keys: bool = False
    required_acks: int = -1
    claim_check_uri: str = ""
    archive: ArchiveOptions | None = None
    uri: str = field(default="", compare=False)
    passes_bad: bool = field(default=False, compare=False, repr=False)
    """Whether messages that cannot be read let those after them pass."""

    @property
    def store(self) -> str:
        """Store of the topics: the fsspec protocol of their archive, or a broker."""
        return "kafka" if self.archive is None else self.archive.location[0]

    @property
    def protocol(self) -> str:
        """Protocol of the messages."""
        return self.messages.protocol

    @property
    def wire(self) -> MessageOptions:
        """Wire format of landed messages."""
        return self.messages

    @property
    def writer(self) -> str:
        """Writer of messages of the protocol."""
        if self.messages.in_source_order:
            return "a Debezium connector"
        return "TiCDC" if self.messages.sends_again else "YDB"

    @property
    def sends_ddl(self) -> bool:
        """Return whether DDL comes with the rows: in Avro there is none."""
        return not self.messages.has_bare_deletes

    @property
    def retention_days(self) -> int:
        """0: what was landed stays until it is applied."""
        return 0

    def captures(self, table: TableId) -> bool | None:
        """Return whether the connector's lists have a table, None where an expression in them is beyond Python's."""
        return self.snapshots.changes.captures(table)

    def has_inserts(self, table: TableId) -> bool:
        """Return whether a change of a row of a table means that the feed has its insert, too, and has it once."""
        hidden = (
            self.snapshots.leaves_out_changes or self.snapshots.overlaps or hides_inserts(self.event_filters, table)
        )
        return tells_new_rows(self.wire) and not self.leaves_old_keys and not hidden
