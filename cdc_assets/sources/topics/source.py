"""A feed of topics, as far as it is landed: the fence, schema files out of events, splits out of rows.

Nothing here reads a topic: landing does, and hands in what is landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from cdc_assets.ddl import DropTableStatement, Rename, Unknown, statement
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.formats.decoded import Content
from cdc_assets.formats.landed import Fetch, LandedReader, SplitPart
from cdc_assets.formats.messages import KeysAlone, codec_of
from cdc_assets.io.storage_uri import parameters, storage
from cdc_assets.model.gaps import MissedMessages
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedSplit, declare_dead_command
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.splits import DataFile, LateFile, Listing, Place, SchemaFile, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.sources import FeedInputs, KnownFiles, changefeed_toml
from cdc_assets.sources.topics import LogReader, connect_log
from cdc_assets.sources.topics.fence import Fence, find_fence, unreadable
from cdc_assets.sources.topics.fillings import without_rows
from cdc_assets.sources.topics.kafka.connection import from_ticdc, with_ours
from cdc_assets.sources.topics.options import ticdc_document, topic_options
from cdc_assets.sources.topics.paths import LandedPath, format_root, parse_path
from cdc_assets.sources.topics.registry import kind_of
from cdc_assets.sources.topics.routing import Routing
from cdc_assets.sources.topics.schemas import OlderTables, landed_schema_files, older_tables
from cdc_assets.sources.topics.table_names import OwnNames, alike, own_names
from cdc_assets.sources.topics.topic_options import TopicOptions

FOREVER: Tso = 2**63 - 1


class TopicsSource:
    """One feed of topics. `landed` returns what is landed by now, `fetch` reads its rows; else there is nothing."""

    def __init__(self, options: TopicOptions, access: Mapping[str, Any]) -> None:
        self.options = options
        self.routing = Routing(options)
        self._access = access
        self._log: LogReader | None = None
        self._landed: Callable[[], Landed] | None = None
        self._fetch: Fetch | None = None
        self._older: OlderTables | None = None
        self._parts: dict[str, SplitPart] = {}
        self._fence = 0
        self._messages = options.messages

    @property
    def log(self) -> LogReader:
        """The log that holds the topics, opened when first needed."""
        if self._log is None:
            self._log = connect_log(self.options, self._access)
        return self._log

    def read_from(self, landed: Callable[[], Landed], fetch: Fetch) -> None:
        """Read from this landing from now on."""
        self._landed, self._fetch = landed, fetch

    @property
    def reader(self) -> LandedReader:
        """Reads the splits of the newest listing."""
        assert self._fetch is not None
        return LandedReader(self._messages, self._fetch, self._fence, self._parts)

    def fence(self) -> Tso:
        """Return the TSO through which everything is landed; raises MetadataMissing if there is none."""
        landed = self.named(self._known())
        return self._of(landed, self._schema_files(landed)).tso

    def listing(self, contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        """Return all that is landed as of the fence; nothing of it is ever settled. Raises what `fence` raises."""
        return self._listed(self._of)

    def all_landed(self) -> Listing:
        """Return all that is landed, with what stands above the fence: nobody may apply that yet."""

        def behind_all(landed: Landed, _: list[SchemaFile]) -> Fence:
            ends = (*(split.high for split in landed.splits), *(event.position for event in landed.events))
            return Fence(1 + max(ends, default=0))

        return self._listed(behind_all)

    def _listed(self, fence_of: Callable[[Landed, list[SchemaFile]], Fence]) -> Listing:
        written = self._known()
        names = self._names(written)
        landed = self._of_topics(names.named(written))
        files = self._schema_files(landed)
        fence = fence_of(landed, files)
        waiting = () if self.options.messages.by_offset else tuple(_renaming_at(files, fence.tso))
        files = [file for file in files if file not in waiting]
        parts, unknown = _cut(landed.splits, files, fence.tso)
        self._parts, self._fence = {path: part for path, part, _ in parts}, fence.tso
        notes = () if not fence.kept_by else (f"the fence stays at {fence.tso}: {fence.kept_by}.",)
        return Listing(
            checkpoint=fence.tso,
            schema_files=tuple(files),
            data_files=tuple(file for _, _, file in parts),
            ignored=landed.ignored,
            problems={
                **dict(self._problems(landed)),
                **dict(names.problems(written)),
                **self._alike(landed),
                **self._of_changefeeds(landed, files),
                **unknown,
            },
            late=dict(_late(landed)),
            warnings=(
                *notes,
                *_waiting(waiting),
                *(_gone(landed) if self.options.messages.by_offset and self.options.archive is None else ()),
                *without_rows(landed),
                *(f"{words}." for words in landed.taken_away),
            ),
            published=landed.landed_ms / 1000,
            gone=landed.expired,
            unread=unread_messages(landed),
            missed=missed_by_table(
                landed,
                (*(file.table for file in files), *landed.began),
                self.routing,
                [*omitted_messages(landed), *self._passed(landed)],
            ),
        )

    def _alike(self, landed: Landed) -> dict[str, str]:
        """Return the holds of tables that share a name but for the case of letters; TiDB has none."""
        messages = self.options.messages
        return dict(alike(landed)) if messages.in_source_order or not messages.sends_again else {}

    def _of_changefeeds(self, landed: Landed, files: list[SchemaFile]) -> dict[str, str]:
        """Return the holds of tables whose changefeeds do not say enough, or too much."""
        rule = codec_of(self.options.messages).keys_alone
        return {} if rule is None else {**dict(keys_alone(landed, files, self.older, rule)), **dict(rivals(landed))}

    def head(self, path: str, size: int) -> Content:
        """Return a split: messages are small, and a part of one is of no use."""
        return self.reader.read(path)

    def place(self, path: str, listing: Listing | None = None) -> Place | None:
        """Return the place that the name of a split or event gives, None for any other."""
        landed_path = parse_path(path)
        if landed_path is None:
            return None
        return Place(
            landed_path.root, landed_path.version, landed_path.directory, f"{landed_path.topic}+{landed_path.number}", 1
        )

    def _known(self) -> Landed:
        if self._landed is None:
            raise BadSettings(
                f"{self.options.uri}: topics are landed in a lake before they are read, and none is named. Give "
                "--warehouse DIR, or `lake:` in changefeeds.yaml."
            )
        return self._landed()

    @property
    def older(self) -> OlderTables:
        """The tables of the setting `schemas`."""
        if self._older is None:
            self._older = older_tables(self.options.schemas, self.options.messages)
        return self._older

    def _names(self, landed: Landed) -> OwnNames:
        """Return the tables' own names, where messages write others."""
        written = codec_of(self.options.messages).written
        if written is None:
            return OwnNames()
        by_ddl = [
            event.table for event in landed.events if event.kind is EventKind.DDL and event.table and event.table.table
        ]
        return own_names([*self.older.tables, *by_ddl], written, self.routing.topic_of)

    def names_behind(self) -> Callable[[TableId], Collection[TableId]]:
        """Return the function from a name in messages to the tables that it may mean."""
        return self._names(self._known()).behind

    def named(self, landed: Landed) -> Landed:
        """Return the landing under the tables' own names."""
        return self._of_topics(self._names(landed).named(landed))

    def _of_topics(self, landed: Landed) -> Landed:
        """Return the landing, with rows that cannot be read and name no table as those of their topic's table."""
        unnamed = {id(bad): rule for bad in landed.open_bad if bad.table is None and (rule := self._rule(bad, landed))}
        if not unnamed:
            return landed
        own_tables = {*(table for _, table in landed.first_rows), *landed.began}
        own_tables |= {event.table for event in landed.events if event.table is not None and event.table.table}
        events: list[LandedEvent] = []
        for event in landed.events:
            rule, topic = unnamed.get(id(event), ""), event.partition.topic
            tables = sorted(table for table in own_tables if rule and self.routing.topic_of(table) == topic)
            reason = f"{event.reason.rstrip('.')}; its topic has rows of this table alone, as {rule}"
            events += [replace(event, table=table, reason=reason) for table in tables] or [event]
        return replace(landed, events=tuple(events))

    def _rule(self, bad: LandedEvent, landed: Landed) -> str:
        """Return the rule by which a message that cannot be read is a row of one table; "" where there is none.

        A DDL may stand in the topic of one of its tables, and then concern others too. Avro's have no key. Where other
        tables' rows were landed from the topic, something has routed them anew.
        """
        messages, topic = self.options.messages, bad.partition.topic
        is_row = messages.of_connector or (messages.has_bare_deletes and bad.key is not None)
        rule = self.routing.rule_of_one_table(topic) if is_row else ""
        tables = {table for partition, table in landed.first_rows if partition.topic == topic} if rule else set()
        return rule if all(self.routing.topic_of(table) == topic for table in tables) else ""

    def _schema_files(self, landed: Landed) -> list[SchemaFile]:
        options = self.options.messages
        if landed.registered.keys() - self._messages.registry.keys():
            self._messages = replace(options, registry={**options.registry, **landed.registered})
        return landed_schema_files(landed, self._messages, self.older, self.options.snapshots)

    def _of(self, landed: Landed, files: list[SchemaFile]) -> Fence:
        fence = find_fence(
            landed,
            files,
            self.routing.topic_of,
            self.options.topic,
            proves_ends=self.options.archive is None,
            passes_bad=self.options.passes_bad,
            by_offset=self.options.messages.by_offset,
            rule_of_one_table=lambda bad: self._rule(bad, landed),
        )
        if not fence.tso:
            raise MetadataMissing(self._no_fence(landed, fence.kept_by))
        return fence

    def _passed(self, landed: Landed) -> Iterator[tuple[MissedMessages, TableId | None]]:
        """Yield the messages that cannot be read and hold no table meanwhile, each with its table where known."""
        for bad in landed.open_bad if self.options.passes_bad else ():
            if bad.table is None or self.options.messages.by_offset:
                lost = OffsetRange(bad.partition, bad.offset, bad.offset + 1)
                reason = f"the message {bad.offset} of {bad.partition} cannot be read and waits for a decision"
                yield MissedMessages(lost, _FOREVER, True, bad.position, reason), bad.table

    def _problems(self, landed: Landed) -> Iterator[tuple[str, str]]:
        """Yield the messages that cannot be read: rows of a known table stop at the mark before them.

        One that names no table is a problem of the feed. With quarantine so is one of a protocol by offset, which is
        no DDL and stands at its own place.
        """
        passes = self.options.passes_bad and self.options.messages.by_offset
        for bad in landed.open_bad:
            if bad.table is None or passes:
                aside = (
                    " With quarantine on, what comes after it is applied meanwhile." if self.options.passes_bad else ""
                )
                yield bad.place, f"{unreadable(bad)}.{aside}"
                continue
            root = format_root(bad.table)
            path = LandedPath(root, bad.position + 1, "bad", *bad.partition, bad.offset, bad.offset)
            yield str(path), f"{unreadable(bad)}."

    def _no_fence(self, landed: Landed, kept_by: str) -> str:
        if self.options.archive is not None and not landed.next:
            return self._nothing_landed(self.options.archive.uri)
        if kept_by:
            return f"{self.options.uri}: nothing can be applied yet, as nothing is known to be complete. {kept_by}."
        if not any(landed.ends.values()):
            return (
                f"{self.options.uri}: there is no message yet in {', '.join(map(str, sorted(landed.next)[:10]))}. Wait "
                "for the changefeed's first messages, or correct the topic in the sink URI."
            )
        if self.options.messages.by_offset:
            return (
                f"{self.options.uri}: what is landed stands beyond the newest barrier that all partitions have. Wait "
                "for the next one; `cdc-assets status` names the partition that keeps it."
            )
        return (
            f"{self.options.uri} has no mark through which its topics are complete; expected one from every partition "
            "of an archive, and from one of a broker's. Wait for the changefeed's next mark."
        )

    def _nothing_landed(self, archive: str) -> str:
        """Return the reason why nothing is landed of an archive: it has no topic of the feed, or is not landed yet."""
        log = connect_log(self.options, self._access)  # the other one only knows the feed's topics
        topics = {partition.topic for partition in log.ends(lambda _: True)}
        feed_topics = sorted(filter(self.routing.concerns, topics))
        if feed_topics:
            names = ", ".join(feed_topics)
            return f"{self.options.uri}: nothing of {names} is landed yet. `cdc-assets apply` lands it first."
        some = f"there {'is' if len(topics) == 1 else 'are'} {', '.join(sorted(topics)[:10])}"
        expected = " or ".join(self.options.topics) or self.options.topic
        return (
            f"the archive {archive} has no topic of this changefeed: expected {expected}, "
            f"{some if topics else 'and there are no messages at all'}. Correct the topic of the sink URI, the setting "
            "topics, or the archive's uri and layout, or wait for the first messages."
        )


# --- splits -----------------------------------------------------------------------------------------------------------


def _cut(
    splits: Iterable[LandedSplit], files: Iterable[SchemaFile], fence: Tso
) -> tuple[list[tuple[str, SplitPart, DataFile]], dict[str, str]]:
    """Cut splits at the versions of their table: rows at a version's own TSO come before it.

    Of parts with one name the one that was landed last counts: it has the rows of the others, too. Also returns rows of
    unknown columns: by a name, with the sentence for the user.
    """
    versions: ByName[list[SchemaFile]] = ByName()
    for file in files:
        if file.table.table and (file.table in versions or not _says_nothing(file)):
            versions.setdefault(file.table, []).append(file)
    parts, unknown = dict[str, tuple[str, SplitPart, DataFile]](), dict[str, str]()
    for split in splits:
        own = versions.get(split.table, ())
        starts = sorted({(file.version, file.root) for file in own})
        if split.low <= min(fence, starts[0][0] if starts else FOREVER):
            path, reason = _of_no_columns(split, starts[0][0] if starts else 0)
            unknown.setdefault(path, reason)
        ends = [*starts, (FOREVER, "")]
        dropped = {file.version for file in own} - {file.version for file in own if not _drops(file)}
        for (since, root), (until, _) in pairwise(ends):
            is_certain = split.low > since or until == FOREVER  # of others, no row need be from between the two
            if since in dropped and is_certain and split.high > since and split.low <= min(until, fence):
                path, reason = _of_no_columns(split, since, "after the DROP TABLE at")
                unknown.setdefault(path, reason)
            elif split.high > since and split.low <= min(until, fence):
                part = _part(split, root, since, until)
                parts[part[0]] = part
    return list(parts.values()), unknown


def _says_nothing(file: SchemaFile) -> bool:
    """Return whether a file has neither columns nor a text that can be read: no table begins with it."""
    return file.by_text and not file.columns and isinstance(statement(file), Unknown)


def _drops(file: SchemaFile) -> bool:
    """Return whether a table ends with a file, and none begins."""
    return file.by_text and isinstance(statement(file), DropTableStatement)


def _of_no_columns(split: LandedSplit, at: Tso, when: str = "before") -> tuple[str, str]:
    path = LandedPath(format_root(split.table), split.low, "bad", *split.partition, 0, 0)
    since = f" {when} {at}" if at else ""
    return str(path), (
        f"{split.table} has rows in {split.partition} from offset {split.first} on, and its columns are "
        f"not known{since}, neither from a DDL in the topics nor from the rows themselves. Give its CREATE TABLE in "
        "the setting `schemas`."
    )


def _renaming_at(files: Iterable[SchemaFile], fence: Tso) -> Iterator[SchemaFile]:
    """Yield the renames of the fence's own TSO, whose mark may precede some of them.

    A statement that renames several tables comes as a message for each, and takes effect as one.
    """
    return (file for file in files if file.version == fence and isinstance(statement(file), Rename))


def _waiting(renames: Sequence[SchemaFile]) -> Iterator[str]:
    """Return the sentence on tables that get their names later."""
    if renames:
        names = ", ".join(sorted(str(file.table) for file in renames)[:10])
        yield (
            f"the rename to {names} at {renames[0].version} waits for a greater mark: a statement may rename several "
            "tables, and its messages need not all be there yet."
        )


def _gone(landed: Landed) -> Iterator[str]:
    """Tell of topics that were landed and are not there any more: by offset no mark says that anything is missing."""
    known_topics = {partition.topic for partition in landed.ends}
    for partition in sorted(landed.next.keys() - landed.dead.keys()):
        if partition.topic not in known_topics:
            yield (
                f"{partition} is not there any more: nothing comes to its tables, and what came since the landing "
                "before is missing. Give the login the right to see it, or bring its tables anew by another topic; if "
                f"it was to go, `{declare_dead_command(partition)}` says so."
            )


def _part(split: LandedSplit, root: str, since: Tso, until: Tso) -> tuple[str, SplitPart, DataFile]:
    path = LandedPath(root, since, "rows", *split.partition, split.first, split.last)
    file = DataFile(
        path=str(path),
        root=root,
        version=since,
        directory=f"{path.directory}/{split.first:020d}",
        number=1,
        size=split.size,
        modified=split.written_ms / 1000,
        partition=f"{split.partition.topic}+{split.partition.number:06d}",
        dispatcher=f"{split.partition.topic}+{split.partition.number}",
        bounds=(max(split.low, since + 1), min(split.high, until)),
        messages=OffsetRange(split.partition, split.first, split.last + 1),
    )
    return file.path, SplitPart(split, since, until), file


def _late(landed: Landed) -> Iterator[tuple[str, LateFile]]:
    """Yield the rows that came when their tables may have been applied beyond them: a rebuild brings them."""
    for late in landed.open_late:
        assert late.table is not None
        path = LandedPath(format_root(late.table), late.position + 1, "late", *late.partition, late.offset, late.offset)
        yield str(path), LateFile(f"{late.place}: {late.reason}.", late.position + 1, table=late.table)


# --- the plug ---------------------------------------------------------------------------------------------------------


def parse(sink_uri: str, changefeed_config: Path | None, tz: str, inputs: FeedInputs) -> TopicOptions:
    """Return the options of a sink URI, a changefeed TOML and the settings beside them; raises BadSettings."""
    options = topic_options(sink_uri, changefeed_config, tz, inputs)
    if inputs.schema_registry:
        kind_of(inputs.schema_registry)
    if options.archive is None:
        with_ours(options.brokers, {**broker_options(sink_uri, changefeed_config), **inputs.kafka})
    return options


def storage_options(sink_uri: str, inputs: FeedInputs) -> dict[str, Any]:
    """Return fsspec's options of an archive, in clear text."""
    return storage(inputs.archive[0]) if inputs.archive is not None else {}


def broker_options(sink_uri: str, changefeed_config: Path | None) -> dict[str, Any]:
    """Return librdkafka's options that say how TiCDC reaches the broker, in clear text; raises BadSettings."""
    config = changefeed_toml.table(ticdc_document(sink_uri, changefeed_config), "sink", "kafka-config")
    return from_ticdc(parameters(sink_uri), config)


def registry_options(sink_uri: str, changefeed_config: Path | None) -> dict[str, Any]:
    """Return TiCDC's options of its schema registry, {} where the TOML names none: `schema-registry`, or Glue's."""
    config = ticdc_document(sink_uri, changefeed_config)
    sink, glue = (
        changefeed_toml.table(config, "sink"),
        changefeed_toml.table(config, "sink", "kafka-config", "glue-schema-registry-config"),
    )
    if glue.get("region"):
        names = ("region", "access-key", "secret-access-key", "token")
        return {"glue": {name.replace("-", "_"): glue[name] for name in names if glue.get(name)}}
    return {"url": str(sink["schema-registry"])} if sink.get("schema-registry") else {}


def connect(options: TopicOptions, access: Mapping[str, Any]) -> TopicsSource:
    """Open a feed of topics. `access` says how the archive or the broker is reached."""
    return TopicsSource(options, access)


def keys_alone(
    landed: Landed, files: Iterable[SchemaFile], older: OlderTables, rule: KeysAlone
) -> Iterator[tuple[str, str]]:
    """Yield for each partition what holds its table from its first such row on. A key may be all that a table has."""
    has_columns: ByName[bool] = ByName()
    for file in files:
        if file.whole is not None:
            more = len(file.whole.stored) > len(file.whole.key)
            has_columns[file.table] = more or has_columns.get(file.table, False)
    settled = {event.partition.topic for event in landed.events if event.kind is EventKind.COLUMNS}
    for event in landed.events:
        topic = event.partition.topic
        if event.kind is EventKind.KEY_ALONE and topic not in settled and event.table is not None:
            mode = older.changefeeds.get(topic.strip("/"), {}).get("MODE", "")
            if mode not in rule.whole and has_columns.get(event.table, True):
                yield _path(event), f"{event.place}: {rule.refused if mode else rule.reason}."


def rivals(landed: Landed) -> Iterator[tuple[str, str]]:
    """Yield for each table with rows in several topics what holds it from the first row of the second one on."""
    firsts: dict[TableId, dict[str, tuple[Tso, Partition, int]]] = {}
    for (partition, name), (position, offset) in landed.first_rows.items():
        _note(firsts, name, (position, partition, offset))
    for event in landed.events:
        if event.kind in (EventKind.COLUMNS, EventKind.KEY_ALONE) and event.table is not None:
            _note(firsts, event.table, (event.position, event.partition, event.offset))
    for table, topics in firsts.items():
        if len(topics) > 1:
            (_, first, _), (position, second, offset) = sorted(topics.values())[:2]
            path = LandedPath(format_root(table), position, "bad", *second, offset, offset)
            yield (
                str(path),
                f"{table} has rows in the topics {first.topic} and {second.topic}: two changefeeds of a table send "
                "each change twice, and which of the two comes later is not known. Let a feed with another name read "
                "one of them, with INITIAL_SCAN where rows are older than it.",
            )


def _note(
    firsts: dict[TableId, dict[str, tuple[Tso, Partition, int]]], table: TableId, row: tuple[Tso, Partition, int]
) -> None:
    topics = firsts.setdefault(table, {})
    topics[row[1].topic] = min(row, topics.get(row[1].topic, row))


def _path(event: LandedEvent) -> str:
    assert event.table is not None
    path = LandedPath(format_root(event.table), event.position, "bad", *event.partition, event.offset, event.offset)
    return str(path)


_FOREVER = 2**63 - 1


def unread_messages(landed: Landed) -> tuple[MissedMessages, ...]:
    """Return the messages that were gone when their partition was first read, but for those that were accepted."""
    return tuple(
        MissedMessages(unaccepted, start.least or _FOREVER, start.later)
        for partition, start in sorted(landed.starts.items())
        if (unaccepted := landed.unaccepted(OffsetRange(partition, 0, start.offset))) is not None
    )


def omitted_messages(landed: Landed) -> Iterator[tuple[MissedMessages, TableId | None]]:
    """Yield the messages that the feed goes on without, by decisions, each with its table where that is known."""
    for decision in landed.decisions:
        omitted = OffsetRange(decision.partition, decision.offset, decision.stop)
        if (omission := landed.omissions.get(omitted)) is not None:
            start = landed.starts.get(decision.partition)
            begins = start is not None and omitted.stop <= start.offset
            if decision.kind is EventKind.LOST:
                lost = f"{counted(len(omitted), 'message')} {omitted.start}..{omitted.stop - 1} of {omitted.partition}"
                reason = f"the {lost} {'was' if len(omitted) == 1 else 'were'} lost"
            else:
                reason = f"the message {omitted.start} of {omitted.partition} was passed over, as it cannot be read"
            later = start.later if start is not None and begins else True
            through = omission.least or _FOREVER
            yield MissedMessages(omitted, through, later, omission.since, reason, accepted=True), decision.table


def missed_by_table(
    landed: Landed,
    names: Iterable[TableId],
    routing: Routing,
    more: Iterable[tuple[MissedMessages, TableId | None]] = (),
) -> dict[TableId, tuple[MissedMessages, ...]]:
    """Return the messages that may have been of tables of these names, by name; no name of which there are none.

    `more` are messages beside those that were gone when their partition was first read, with their table if known.
    """
    missed = [*((messages, None) for messages in unread_messages(landed)), *more]
    if not missed:
        return {}
    places, missed_messages = _Places(landed, routing), {}
    for name in ByName(dict.fromkeys(name for name in names if name.table)):
        table_places = places.of(name)
        if own := tuple(
            messages
            for messages, table in missed
            if (
                {messages.lost.partition, messages.lost.partition.topic} & table_places
                if table is None or not table.table
                else table.folded == name.folded
            )
        ):
            missed_messages[name] = own
    return missed_messages


class _Places:
    """Places where messages of tables may have been."""

    def __init__(self, landed: Landed, routing: Routing) -> None:
        self._routing = routing
        self._counts = Counter(partition.topic for partition in landed.next)
        self._rows: ByName[set[Partition]] = ByName()
        for table, partition in (
            *((table, partition) for partition, table in landed.first_rows),
            *((event.table, event.partition) for event in landed.events if event.kind is EventKind.SCHEMA),
        ):
            if table is not None:
                self._rows.setdefault(table, set()).add(partition)
        rows = [(table, partition) for table, partitions in self._rows.items() for partition in partitions]
        several = Counter((table.folded, partition.topic) for table, partition in rows)
        self._spread = {topic for (_, topic), count in several.items() if count > 1}
        self._strange = {partition.topic for table, partition in rows if partition != self._by_rule(table)}

    def of(self, table: TableId) -> set[str | Partition]:
        """Return the topics, or partitions of them, in which messages of a table may have been, DDL included.

        TiCDC sends DDL to every partition, by Canal-JSON to partition 0 only. A connector has a topic of its own for
        it. YDB has a topic for each table.
        """
        options, topic, rows = self._routing.options, self._routing.topic_of(table), self._rows.get(table, set())
        seen, own = {partition.topic for partition in rows}, self._by_rule(table)
        if options.messages.in_source_order:
            return {topic, options.topic, *seen}
        if not options.messages.sends_again:
            return {*seen} or {topic}
        if own is None or seen - {topic} or topic in self._spread or (topic in self._strange and not rows):
            return {topic, *seen}
        return {own, *rows, *([Partition(topic, 0)] if options.messages.kind.ddl_in_first else [])}

    def _by_rule(self, table: TableId) -> Partition | None:
        """Return the partition of all rows of a table, None where they may be in several."""
        topic = self._routing.topic_of(table)
        number = self._routing.partition_of(table, self._counts[topic] or 1)
        return None if number is None else Partition(topic, number)
