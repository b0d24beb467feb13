"""The lake's table of records that did not fit: `_cdc.quarantine`, one event a row, appended without a JVM.

    quarantined   the record as it came, and why it does not fit; once more where that is another reason by now
    replaying     a commit that brings it into its table is about to be made, and carries this token
    replayed      its table has it, or has no place for it any more

A record is its table's life, file and line. It is open until it was replayed or its table was purged, in whatever order
the events of racing runs came to lie: none is ever taken back, so a run that is killed has added its events or has not.
That a table was purged stands in the tombstones alone, so nothing can come between the two.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.window import REJECTS
from cdc_assets.errors import TableMoved
from cdc_assets.io.retries import retrying
from cdc_assets.lake.lake_table import REPLAY
from cdc_assets.lake.names import Identifier, format_identity, parse_identity
from cdc_assets.lake.row_groups import read_rows
from cdc_assets.model.progress import Life
from cdc_assets.model.quarantine import OPEN, PURGED, REPLAYED, HasKeys, QuarantinedRow, RecordContent
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from cdc_assets.lake.growing import GrowingTable
    from cdc_assets.lake.state import LakeState
    from cdc_assets.model.steps import ApplyRows

_QUARANTINED, _REPLAYING, _REPLAYED = "quarantined", "replaying", "replayed"
_WHEN = pa.timestamp("us", tz="UTC")
_ATTEMPTS = 4

EVENTS = pa.schema(
    [
        pa.field("changefeed", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("happened_at", _WHEN, nullable=False),
        pa.field("identity", pa.string(), nullable=False),
        *REJECTS,
        pa.field("lo", pa.int64()),
        pa.field("run", pa.string()),
        pa.field("token", pa.string()),
    ]
)
"""Columns of the table. `identity` is the life of the record's table; REJECTS are what reading a window tells of it."""


@dataclass(slots=True)
class _Record:
    """All events of one quarantined record. `first` is that of the earliest window, `newest` that of the latest one."""

    first: dict[str, Any] | None = None
    newest: dict[str, Any] | None = None
    replayed: bool = False
    tokens: set[str] = field(default_factory=set)

    def add(self, event: dict[str, Any]) -> None:
        self.replayed |= event["event"] == _REPLAYED
        if event["event"] == _REPLAYING:
            self.tokens.add(event["token"])
        elif event["event"] == _QUARANTINED:
            if self.first is None or (event["lo"], event["happened_at"]) < (
                self.first["lo"],
                self.first["happened_at"],
            ):
                self.first = event
            if self.newest is None or event["happened_at"] > self.newest["happened_at"]:
                self.newest = event

    def says(self, reason: str, lo: Tso) -> bool:
        """Return whether a record that did not fit in a window from `lo` on, for this reason, is known as such."""
        if self.first is None or self.newest is None:
            return self.replayed
        return self.replayed or (self.newest["reason"] == reason and self.first["lo"] <= lo)


class Quarantine:
    """The records of one changefeed that were set aside."""

    def __init__(self, state: LakeState) -> None:
        self._state = state
        self.identifier: Identifier = state.places.own.main, "quarantine"

    @cached_property
    def events(self) -> GrowingTable:
        """The table; most runs quarantine nothing, and load nothing of what writes it."""
        return self._state.own_table(self.identifier[1], EVENTS)

    # --- reading ---

    def waits(self, source: Life) -> bool:
        """Return whether records of tables of a source table are open."""
        return any(life.source == source for life in self.counts())

    def places_in(self, life: Life, through: Tso) -> list[tuple[str, int]]:
        """Return files and lines of the open records of a table at or below a position."""
        return [row.place for row in self.read() if row.life == life and row.is_within(-1, through)]

    def read(self, *, raw: bool = False, closed: bool = False) -> tuple[QuarantinedRow, ...]:
        """Return the records by table, file and line: the open ones, or all; with their bytes if `raw`."""
        columns = None if raw else [name for name in EVENTS.names if name not in ("raw", "keys")]
        purged = self._state.tombstones()
        rows = []
        for (life, (file, line)), record in self._records(columns).items():
            event, newest = record.first, record.newest
            if event is None or newest is None:
                continue
            state = PURGED if life in purged else REPLAYED if record.replayed else OPEN
            if closed or state == OPEN:
                rows.append(
                    QuarantinedRow(
                        life,
                        TableId(event["schema"], event["table"]),
                        file,
                        line,
                        event["column"],
                        newest["reason"],
                        event["schema_version"],
                        event["commit_ts"],
                        event["lo"],
                        newest["run"],
                        event["happened_at"],
                        state,
                        event.get("raw") or b"",
                        event.get("keys") or b"",
                    )
                )
        return tuple(sorted(rows, key=lambda row: (row.life, row.file, row.line)))

    def counts(self) -> Mapping[Life, int]:
        """Return the number of open records of each table. A state of the table is read once per process."""
        place = self._state.place_of(self.identifier)
        if place is None:
            return {}
        cache_key = (place, self._state.changefeed)
        if cache_key not in _counted:
            records = self._records(_PLACE)
            for other in [other for other in _counted if other[0] != place]:
                del _counted[other]
            _counted[cache_key] = Counter(
                life for (life, _), record in records.items() if record.first and not record.replayed
            )
        purged = self._state.tombstones()
        return {life: count for life, count in _counted[cache_key].items() if life not in purged}

    def tokens(self, life: Life) -> dict[tuple[str, int], set[str]]:
        """Return the open records of a table by file and line, with the tokens of replays that began to commit them."""
        records = self._records(_PLACE).items()
        return {place: record.tokens for (owner, place), record in records if owner == life and not record.replayed}

    def _records(self, columns: list[str] | None) -> dict[tuple[Life, tuple[str, int]], _Record]:
        state = self.events.look() if self._state.place_of(self.identifier) is not None else None
        records: dict[tuple[Life, tuple[str, int]], _Record] = {}
        for file in state.files.get(self._state.changefeed, ()) if state is not None else ():
            for event in self.events.read(file, columns).to_pylist():
                key = parse_identity(event["identity"]), (event["file"], event["line"])
                records.setdefault(key, _Record()).add(event)
        return records

    # --- writing ---

    def keep(
        self,
        step: ApplyRows,
        io: Mapping[str, str],
        files: Iterable[str],
        run: str,
        refuse_revised: Callable[[Life], None] = lambda _: None,
    ) -> None:
        """Add the records of a window that do not fit: staged Parquet files with the columns of REJECTS.

        Those that are known already are left out, so a window may be staged and kept again. `refuse_revised` raises
        TableMoved where rows of the table were forgotten since these were read. It is asked once more when they are
        there, and they are taken back then: whoever forgets marks the table before searching for records.
        """
        refuse_revised(step.life)
        recorded = self._records([*_PLACE, "reason"])
        token = uuid.uuid4().hex
        constants = {"lo": step.lo, "run": run, "token": token}

        def groups() -> Iterator[pa.Table]:
            for file in files:
                rows = read_rows(io, file)
                places = zip(*(rows.column(name).to_pylist() for name in ("file", "line", "reason")), strict=True)
                new = [
                    not recorded.get((step.life, (file, line)), _Record()).says(reason, step.lo)
                    for file, line, reason in places
                ]
                if any(new):
                    yield self._made(_QUARANTINED, step.life, rows.filter(pa.array(new)), constants)

        try:
            self._append(groups())
            refuse_revised(step.life)
        except TableMoved:
            self._filter(lambda events: pc.fill_null(pc.not_equal(events.column("token"), token), True))
            raise

    @contextmanager
    def bringing_in(self, life: Life, lines: Sequence[tuple[str, int]]) -> Iterator[dict[str, str]]:
        """Yield the properties of a commit that brings records into their table, and close the records after it.

        That may be the window that an earlier run had set them aside from without committing it, or a rebuild. A table
        may have equal rows, so a replay must not bring them in too, even if the run dies before it closes them.
        """
        if not lines:
            yield {}
            return
        yield {REPLAY: self.begin_replay(life, lines)}
        self.close(life, lines)

    def fitting(self, step: ApplyRows, io: Mapping[str, str], files: Iterable[str]) -> list[tuple[str, int]]:
        """Return the open records of a window, by an earlier try of it, that fit by now: all but those in `files`."""
        if not self.counts().get(step.life):
            return []
        refused: set[tuple[str, int]] = set()
        for file in files:
            rows = read_rows(io, file)
            refused.update(zip(*(rows.column(name).to_pylist() for name in ("file", "line")), strict=True))
        rows = [row for row in self.read() if row.life == step.life and row.is_within(step.lo, step.hi)]
        return [row.place for row in rows if row.place not in refused]

    def begin_replay(self, life: Life, lines: Iterable[tuple[str, int]]) -> str:
        """Record which rows a commit is about to add, under a token that the commit carries; return the token."""
        token = uuid.uuid4().hex
        self._append([self._made(_REPLAYING, life, _places(lines), {"token": token})])
        return token

    def close(self, life: Life, lines: Iterable[tuple[str, int]]) -> None:
        """Record that records were replayed."""
        self._append([self._made(_REPLAYED, life, _places(lines), {})])

    def remove(self, has: HasKeys, may_have: HasKeys) -> tuple[tuple[str, int], ...]:
        """Remove the records whose bytes have what is to be forgotten, open or not, and return their files and lines.

        Those that are not open any more, and may have it, go too: nobody needs them. Events say of a record what it is
        by file and line, so all of one go. Raises TableMoved where others replace files all the time.
        """
        purged = self._state.tombstones()
        records = self._records(_PLACE).items()
        closed = {key for key, record in records if record.replayed or key[0] in purged}
        chosen = sorted({*self._having(has), *closed.intersection(self._having(may_have))})
        gone = {(format_identity(life), *place) for life, place in chosen}

        def kept(rows: pa.Table) -> pa.Array:
            places = zip(*(rows.column(name).to_pylist() for name in ("identity", "file", "line")), strict=True)
            owners = rows.column("changefeed").to_pylist()
            pairs = zip(places, owners, strict=True)
            return pa.array(
                [owner != self._state.changefeed or place not in gone for place, owner in pairs], pa.bool_()
            )

        if gone:
            self._filter(kept)
        return tuple(place for _, place in chosen)

    def _filter(self, keep: Callable[[pa.Table], pa.Array]) -> None:
        """Remove the events that are not kept. Raises TableMoved where others replace files all the time."""
        action = partial(self.events.filter, self._state.changefeed, keep)
        retrying(action, _ATTEMPTS, TableMoved, pause_seconds=0.2)

    def search(self, has: HasKeys) -> tuple[int, int, tuple[str, ...]]:
        """Read every file of the table, and return how many there are, their bytes, and those with such records."""
        files = list(self.events.stored_files()) if self._state.place_of(self.identifier) is not None else []
        having = [
            file
            for file, _ in files
            if file.endswith(".parquet") and any(True for _ in self._having_in(self.events.read(file), has))
        ]
        return len(files), sum(size for _, size in files), tuple(having)

    def _having(self, has: HasKeys) -> Iterator[tuple[Life, tuple[str, int]]]:
        """Yield the records, of any file that is there, that have what is to be forgotten."""
        if self._state.place_of(self.identifier) is not None:
            for file, _ in self.events.stored_files():
                if file.endswith(".parquet"):
                    yield from self._having_in(self.events.read(file), has)

    def _having_in(self, events: pa.Table, has: HasKeys) -> Iterator[tuple[Life, tuple[str, int]]]:
        for event in events.to_pylist():
            life = parse_identity(event["identity"])
            if event["changefeed"] == self._state.changefeed and event["event"] == _QUARANTINED:
                content = RecordContent(
                    event["file"], event["line"], event["schema_version"], event["raw"] or b"", event["keys"] or b""
                )
                if has(life, content):
                    yield life, (event["file"], event["line"])

    def _made(self, event: str, life: Life, rows: pa.Table, constants: Mapping[str, Any]) -> pa.Table:
        """Return events of one kind: of rows that say where each record is, with these values besides."""
        constants = {
            **constants,
            "changefeed": self._state.changefeed,
            "event": event,
            "happened_at": datetime.now(timezone.utc),
            "identity": format_identity(life),
        }
        names = set(rows.column_names)
        columns = [
            rows.column(column.name)
            if column.name in names
            else pa.repeat(pa.scalar(constants.get(column.name), column.type), rows.num_rows)
            for column in EVENTS
        ]
        return pa.table(columns, schema=EVENTS)

    def _append(self, groups: Iterable[pa.Table]) -> None:
        rest = (group for group in groups if group.num_rows)
        first = next(rest, None)
        if first is None:
            return
        self.events.add(self._state.changefeed, itertools.chain([first], rest))


_PLACE = ["event", "happened_at", "identity", "file", "line", "lo", "token"]
_counted: dict[tuple[str, str], Mapping[Life, int]] = {}


def _places(lines: Iterable[tuple[str, int]]) -> pa.Table:
    schema = pa.schema([("file", pa.string()), ("line", pa.int64())])
    return pa.Table.from_pylist([{"file": file, "line": line} for file, line in lines], schema)
