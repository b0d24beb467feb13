"""Recorded topics for tests: what TiCDC's message encoders wrote for the histories of the corpus.

An archive lies in `corpus/topics` beside this file or in `../shared/topics` beside the checkout. What messages do
not state, the schemas of the tables by version, comes from the corpus case of the same name, and so do the expected
contents:

    for topic in topics("craft"):
        lake = topic.replay()      # the case's DDL, and the rows of the topic
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions, UniformReader, Wire
from cdc_assets.formats.avro import sanitized
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.decoded import COMMIT_TS, LINE, Decoded
from cdc_assets.formats.messages import Kind, SchemaEvent
from cdc_assets.history.history import read_history
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.planning.plan import plan
from cdc_assets.sources.topics.schemas import DdlEvent, OlderTables, schema_files
from cdc_assets_tests.cases import Allowed, Case, Config, ExpectedTable, archives, unpacked
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.memory_lake import MemoryLake

__all__ = ["Topic", "messages_of", "recorded_messages", "rows_of", "topics"]

_HERE = Path(__file__).resolve().parent
_DIRECTORIES = (_HERE / "corpus" / "topics", _HERE.parents[1] / "shared" / "topics")
_LOSSY_CONFIGS = ("canal-ext", "na-canal-ext", "csv-ts")


def messages_of(messages: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    """Return keys and values as a batch."""
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def rows_of(messages: pa.RecordBatch, spoken: pa.RecordBatch, table: TableId | None = None) -> pa.RecordBatch:
    """Return what `decode` takes: the messages with rows of a table (of any, where none is given)."""
    is_wanted = pc.equal(spoken.column("kind"), Kind.ROW.value)
    if table is not None:
        same = pc.and_(pc.equal(spoken.column("schema"), table.schema), pc.equal(spoken.column("table"), table.table))
        is_wanted = pc.and_(is_wanted, same.fill_null(False))
    lines = spoken.filter(is_wanted)
    held = messages.take(lines.column("message"))
    return pa.RecordBatch.from_arrays(
        [held.column("key"), held.column("value"), lines.column("ordinals")], ["key", "value", "ordinals"]
    )


@dataclass(frozen=True)
class Topic:
    """One recorded topic: a case in one protocol."""

    case: Case
    name: str
    files: tuple[SchemaFile, ...] | None = None
    """What states the schemas, in place of the case's schema files."""
    of_rows: dict[str, list[Tso]] = field(default_factory=dict, compare=False)
    """The positions of the rows of each data file of `listing`."""

    def __str__(self) -> str:
        return f"{self.case.name}/{self.name}"

    @property
    def path(self) -> Path:
        """The directory of the topic."""
        return _unpacked(self.case.name) / f"mq-{self.name}"

    @property
    def recorded(self) -> Mapping[str, Any]:
        """What options.json says."""
        document: Mapping[str, Any] = json.loads((self.path / "options.json").read_bytes())
        return document

    @property
    def options(self) -> MessageOptions:
        """How the messages are written."""
        compatible = bool(self.recorded["content_compatible"])
        return MessageOptions(
            protocol=self.recorded["protocol"],
            enable_tidb_extension=bool(self.recorded["enable_tidb_extension"]),
            content_compatible=compatible,
            only_output_updated_columns=compatible,
            encoding_format="avro" if self.name == "simple-avro" else "json",
            timezone=self.recorded["timezone"],
            registry=self.registry,
        )

    @property
    def registry(self) -> Mapping[str, str]:
        """The schemas that the messages name, by their ids."""
        held = self.path / "registry.json"
        return dict(json.loads(held.read_bytes())["schemas_by_id"]) if held.exists() else {}

    @functools.cached_property
    def positions(self) -> list[Tso]:
        """Where each line of `spoken` stands: at its commit-ts, or behind its table's and all DDL where it has none."""
        positions: list[Tso] = []
        newest: dict[object, Tso] = {}
        for line in self.spoken.to_pylist():
            table = "ddl" if line["kind"] == Kind.DDL.value else (line["schema"], line["table"])
            last = max(newest.get(table, 0), newest.get("ddl", 0))
            positions.append(last + 1 if line["commit_ts"] is None else line["commit_ts"])
            newest[table] = max(positions[-1], newest.get(table, 0))
        return positions

    @property
    def format(self) -> Any:
        """The module of the protocol."""
        return import_module(self.options.kind.module)

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        """The messages as they were recorded."""
        raw = gzip.decompress((self.path / "topic.jsonl.gz").read_bytes())
        return [json.loads(line) for line in raw.splitlines()]

    @functools.cached_property
    def messages(self) -> pa.RecordBatch:
        """All messages in order of arrival."""
        return messages_of([(_bytes(line["key_b64"]), _bytes(line["value_b64"])) for line in self.lines])

    @functools.cached_property
    def spoken(self) -> pa.RecordBatch:
        """What the messages speak of."""
        batch: pa.RecordBatch = self.format.classify(self.messages, self.options)
        return batch

    @functools.cached_property
    def _config(self) -> Config:
        known = {config.name: config for config in self.case.configs}
        return next(known[name] for name in _LOSSY_CONFIGS if name in known)

    @property
    def allowed(self) -> Allowed:
        """What rows cannot give in any format, from the case's allow.json."""
        return self._config.allow

    @functools.cached_property
    def listing(self) -> Listing:
        """The schema files of the case, with the topic's rows as data files: one for each table and version."""
        return self._listing_and_rows[0]

    @property
    def ddl(self) -> Iterator[DdlEvent]:
        """The DDL messages."""
        for message in self.spoken.to_pylist():
            if message["kind"] == Kind.DDL.value:
                table = TableId(message["schema"], message["table"] or "") if message["schema"] else None
                yield DdlEvent(message["commit_ts"], table, message["query"], message["type"] or 0)

    def by_text(self, older: OlderTables | None = None) -> Topic:
        """The same topic with nothing of the case: its schemas are known from the messages alone."""
        stated: list[SchemaEvent] = []
        for event in self.format.schemas(self.messages, self.options):
            if not event.version:  # a bootstrap holds from when it was sent
                rows = pc.equal(self.spoken.column("kind"), Kind.ROW.value)
                is_wanted = pc.and_(rows, pc.equal(self.spoken.column("table"), event.table.table))
                first = pc.min(self.spoken.filter(is_wanted.fill_null(False)).column("commit_ts")).as_py()
                event = replace(event, version=first or 0)
            stated.append(event)
        events = list(self.ddl)
        files = schema_files(events, stated, older or OlderTables(), min(event.version for event in events) - 1)
        return replace(self, files=files)

    @functools.cached_property
    def _listing_and_rows(self) -> tuple[Listing, dict[str, pa.RecordBatch]]:
        listing = self._config.settings().open_source().listing()
        if self.files is not None:
            listing = replace(listing, schema_files=self.files)
        files: list[DataFile] = []
        rows: dict[str, pa.RecordBatch] = {}
        named = {
            (sanitized(schema_file.table.schema), sanitized(schema_file.table.table)): schema_file.table
            for schema_file in listing.schema_files
        }
        for name, lines in _by_table(self.spoken).items():
            table = named.get((name.schema, name.table), name) if self.options.protocol == "avro" else name
            versions = [(file.version, file.root) for file in listing.schema_files if file.table == table]
            of_version: dict[tuple[Tso, str], list[int]] = {}
            for line in lines:
                ts = self.positions[line]
                of_version.setdefault(max(version for version in versions if version[0] < ts), []).append(line)
            for (version, root), some in of_version.items():
                path = f"{root}/{version}/topic"
                rows[path] = rows_of(self.messages, self.spoken.take(pa.array(some)))
                self.of_rows[path] = [self.positions[line] for line in some]
                files.append(DataFile(path, root, version, f"{root}/{version}", 1, 1))
        return replace(listing, data_files=tuple(files), index_files=()), rows

    @property
    def rows(self) -> Mapping[str, pa.RecordBatch]:
        """The rows of each data file of `listing`."""
        return self._listing_and_rows[1]

    def schema_of(self, table: TableId) -> TableSchema:
        """Return the newest schema of a table."""
        history = read_history(self.listing.schema_files, self.listing.checkpoint)
        candidates = [
            (at, schema) for (_, at), schemas in history.decoding.items() for name, schema in schemas if name == table
        ]
        return max(candidates, key=lambda candidate: candidate[0])[1]

    def lost(self, table: ExpectedTable) -> set[str]:
        """The columns whose values the wire has lost: Craft's FLOAT, also where it has become another type since.

        In TiCDC's Debezium a DECIMAL is a double, years before 100 are those of another century, and a NULL is the
        default of its column.
        """
        if self.name == "debezium" and self.case.name == "A_all_types":
            return {"dmax", "d0", "dt", "dtm", "dtm1", "dtm3", "dtm6"}
        if self.name == "debezium" and self.case.name == "H_bank":
            return {"carrier"}
        if self.name != "craft":
            return set()
        files = self.listing.schema_files
        floats = {column.name for file in files for column in file.columns if column.type == "FLOAT"}
        return floats & {column["name"] for column in table.columns}

    @property
    def checkpoints(self) -> tuple[Mapping[str, Any], ...]:
        """The checkpoints of the recording that have expected contents: how many lines were sent by then."""
        file = self.path / "checkpoints.json"
        return (
            tuple(checkpoint for checkpoint in json.loads(file.read_bytes()) if checkpoint.get("expected"))
            if file.exists()
            else ()
        )

    def decode(self, wire: Wire, data: bytes, path: str, table: TableId, schema: TableSchema) -> Decoded:
        """Decode a data file of `listing`, in place of `formats.decode`."""
        decoded_rows: Decoded = self.format.decode(self.rows[path], path, table, schema, self.options)
        if not decoded_rows.changes.column(COMMIT_TS).null_count:
            return decoded_rows
        lines = decoded_rows.changes.column(LINE).to_pylist()
        ts = pa.array([self.of_rows[path][line - 1] for line in lines], pa.int64())
        place = decoded_rows.changes.schema.get_field_index(COMMIT_TS)
        return replace(decoded_rows, changes=decoded_rows.changes.set_column(place, COMMIT_TS, ts))

    def replay(self, through: Tso | None = None) -> MemoryLake:
        """Apply the case's DDL and the topic's rows; fails for a row event that does not fit."""
        lake = MemoryLake()
        listing = replace(self.listing, checkpoint=through or self._config.checkpoints[-1].ts)
        reader = UniformReader(CsvOptions(), lambda _: b"")
        with patch("cdc_assets.formats.decode", self.decode):
            for step in plan(listing, {}, TABLE_RULES).steps:
                if isinstance(step, ApplyRows):
                    staged = lake.stage(step, reader)
                    assert staged.report.reject_count == 0, staged.report.rejects
                    lake.commit(step, staged)
                else:
                    lake.run(step)
        return lake


def recorded_messages(topic: Topic) -> list[dict[str, Any]]:
    """Return the messages as they were recorded, with their bytes as `key` and `value`."""
    return [{**line, "key": _bytes(line["key_b64"]), "value": _bytes(line["value_b64"])} for line in topic.lines]


def topics(*names: str) -> tuple[Topic, ...]:
    """Return the recorded topics of some protocols, those of which the corpus case is in reach."""
    return tuple(
        Topic(Case(case), name)
        for case in _topic_archives()
        if case in archives()
        for name in names
        if (_unpacked(case) / f"mq-{name}" / "topic.jsonl.gz").exists()
    )


@functools.cache
def _topic_archives() -> Mapping[str, Path]:
    paths_by_name = {
        path.name.removesuffix(".tar.xz"): path
        for directory in reversed(_DIRECTORIES)
        for path in directory.glob("*.tar.xz")
    }
    return dict(sorted(paths_by_name.items()))


def _unpacked(case: str) -> Path:
    return unpacked(_topic_archives()[case])


def _by_table(spoken: pa.RecordBatch) -> dict[TableId, list[int]]:
    lines_by_table: dict[TableId, list[int]] = {}
    for line, message in enumerate(spoken.to_pylist()):
        if message["kind"] == Kind.ROW.value:
            lines_by_table.setdefault(TableId(message["schema"], message["table"]), []).append(line)
    return lines_by_table


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
