"""The writer's sins: a recorded bucket as a worse writer, a worse storage or a cleaning person would have left it.

A `Mutant` plays the recorded checkpoints of a configuration into a directory of its own and lets `SINS` loose on it.
What a sin did stays done: rows that were delivered again are there at every later checkpoint, and files written later
get the numbers after them. All of it comes from one seed. Every state is one that the rules of TiCDC's storage sink
allow, so applying state after state has to end equal to the source. `done` counts what each sin did.

    for state in Mutant(config, sins=("redeliver", "vanish"), seed=7, directory=tmp).states():
        ...                                 # apply state.bucket through state.checkpoint
        mutant.applied = state.checkpoint.ts   # from here on these rows may vanish

Sins that need a reader's eye (a file that is cut while it is read, one that goes between listing and reading, metadata
that is not there) are in the state as `torn`, `gone` and `trouble`; the reader in the tests acts them out.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdc_assets.history.history import read_history
from cdc_assets.model.tso import Tso
from cdc_assets.sources.storage_sink.paths import parse_data_path, parse_schema_path
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file
from cdc_assets_tests.cases import Checkpoint, Config
from cdc_assets_tests.records import Record, records

__all__ = ["SINS", "Mutant", "State"]

_NAME = re.compile(r"(CDC(?:_[^_/]+_)?)([0-9]+)(\.[a-z]+)")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a data file lies: `sequence` is the run of numbers that its date directories belong to."""

    directory: str
    prefix: str
    number: int
    width: int
    extension: str
    sequence: tuple[str, Tso, str, str]
    date: str

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.prefix}{self.number:0{self.width}d}{self.extension}"


# --- states -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class State:
    """A bucket as a reader may find it. `checkpoint.expected` is None where nothing is to be compared.

    `trouble` says what is wrong with `metadata` at first: missing, halfway, behind. `torn` maps paths to the bytes that
    the first reading gets; `gone` names applied files that vanish after listing.
    """

    checkpoint: Checkpoint
    bucket: Path
    trouble: str = ""
    torn: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    done: list[str] = field(default_factory=list)


class Mutant:
    """One configuration under some sins; `applied` is what a reader says that he has applied."""

    def __init__(self, config: Config, sins: Sequence[str], seed: int, directory: Path) -> None:
        self.config = config
        self.options = config.options
        self.sins = tuple(sins)
        self.random = random.Random(f"{config}/{seed}/{','.join(self.sins)}")
        self.bucket = directory / "bucket"
        self.bucket.mkdir(parents=True)
        self.applied: Tso = 0
        self.width = 0
        self.done: Counter[str] = Counter()
        self.shown: set[str] = set()
        self._recorded: dict[str, bytes] = {}
        self._placed: dict[str, str] = {}
        self._shift: dict[tuple[str, str], int] = {}
        self._rewritable: dict[tuple[str, Tso, str, str], str] = {}
        self._versions: set[tuple[str, Tso]] = set()
        self._parsed: dict[tuple[str, int, int], list[Record]] = {}

    def states(self) -> Iterator[State]:
        """Yield the bucket at each recorded checkpoint; the same directory every time."""
        points = [c for i, c in enumerate(self.config.checkpoints) if c.has_copy or c.expected is not None]
        source = -1
        for number, point in enumerate(points):
            last = number == len(points) - 1
            if source < number and (point.has_copy or last):
                source = number
            if "ahead" in self.sins:
                copies = [
                    i for i in range(max(source, number), len(points)) if points[i].has_copy or i == len(points) - 1
                ]
                source = self.random.choice(copies[:3])
                self.done["ahead"] += source > number
            if source < number:
                continue  # its rows are not in any copy yet
            state = State(point, self.bucket)
            self._sync(points[source].bucket, state)
            for sin in self.sins:
                before = len(state.done)
                SINS[sin](self, state)
                self.done[sin] += len(state.done) - before
            self._write("metadata", json.dumps({"checkpoint-ts": point.ts}).encode())
            yield state
            self.shown = set(self._files())

    # --- what the recorded writer did ---

    def _sync(self, recorded: Path, state: State) -> None:
        """Bring over what is new, changed and deleted since the copy before."""
        now = {str(p.relative_to(recorded)): p.read_bytes() for p in sorted(recorded.rglob("*")) if p.is_file()}
        now.pop("metadata", None)
        for path in self._recorded.keys() - now.keys():
            (self.bucket / self._placed.pop(path, path)).unlink(missing_ok=True)
        schemas = {parse_schema_path(path) for path in (*now, *self._files())}
        self._versions = {(schema.root, schema.version) for schema in schemas if schema is not None}
        self._rewritable = self._may_be_rewritten() if "rewrite" in self.sins else {}
        fresh = [path for path, data in now.items() if self._recorded.get(path) != data]
        for path in sorted(fresh, key=lambda p: (p.rpartition("/")[0], len(p), p)):
            place = self.place(path)
            if place is None:
                self._write(path, now[path])
                continue
            if path not in self._placed:
                self._placed[path] = self._new_path(place, state)
            self._write(self._placed[path], now[path])
        self._recorded = now

    def _new_path(self, place: _Place, state: State) -> str:
        key = (place.directory, place.prefix)
        old = self._rewritable.pop(place.sequence, None)
        if old is not None and old.rpartition("/")[0] == place.directory and self.random.random() < 0.7:
            self._shift[key] = self._shift.get(key, 0) - 1
            state.done.append(f"rewrote {old}")
            self.done["rewrite"] += 1
            return old
        while self._taken(*key, place.number + self._shift.get(key, 0)):
            self._shift[key] = self._shift.get(key, 0) + 1
        number, width = place.number + self._shift.get(key, 0), self.width or place.width
        return replace(place, number=number, width=width).path

    def _taken(self, directory: str, prefix: str, number: int) -> bool:
        folder = self.bucket / directory
        names = [_NAME.fullmatch(name) for name in os.listdir(folder)] if folder.is_dir() else []
        return any(name[1] == prefix and int(name[2]) == number for name in names if name)

    def _may_be_rewritten(self) -> dict[tuple[str, Tso, str, str], str]:
        """The newest file of each directory whose rows are all applied: after a lost index it is written anew."""
        last: dict[tuple[str, Tso, str, str], _Place] = {}
        for place in self.places():
            last[place.sequence] = place
        return {sequence: place.path for sequence, place in last.items() if self._is_applied(place.path)}

    # --- looking at the bucket ---

    def place(self, path: str) -> _Place | None:
        """Where a data file's path lies; None for any other file."""
        directory, _, name = path.rpartition("/")
        match = _NAME.fullmatch(name)
        where = parse_data_path(path, self.options, self._versions) if match else None
        if match is None or where is None:
            return None
        sequence = (where.root, where.version, where.partition, where.dispatcher)
        return _Place(directory, match[1], int(match[2]), len(match[2]), match[3], sequence, where.date)

    def _files(self, under: str = "") -> list[str]:
        top = self.bucket / under
        return sorted(str(p.relative_to(self.bucket)) for p in top.rglob("*") if p.is_file()) if top.exists() else []

    def places(self, under: str = "") -> list[_Place]:
        """All data files in reading order."""
        places = [place for place in map(self.place, self._files(under)) if place is not None]
        return sorted(places, key=lambda p: (p.sequence, p.date, p.number))

    def read(self, path: str) -> list[Record]:
        """The whole records of a data file in the bucket."""
        status = (self.bucket / path).stat()
        key = (path, status.st_mtime_ns, status.st_ino)
        if key not in self._parsed:
            self._parsed[key] = records((self.bucket / path).read_bytes(), self.options)[1]
        return self._parsed[key]

    def sequences(self) -> dict[tuple[str, Tso, str, str], list[_Place]]:
        """Data files by the run of numbers that they belong to."""
        places_by_sequence: dict[tuple[str, Tso, str, str], list[_Place]] = {}
        for place in self.places():
            places_by_sequence.setdefault(place.sequence, []).append(place)
        return places_by_sequence

    def multisets(self) -> set[tuple[str, Tso]]:
        """Versions of tables without key."""
        files = [
            parse_schema_file(path, (self.bucket / path).read_bytes())
            for path in self._files()
            if parse_schema_path(path)
        ]
        history = read_history(files)
        keyless = {life for life, table in history.lives.items() if any(not event.after.key for event in table.events)}
        names = {name for life in keyless for name, _, _ in history.lives[life].names}
        return {at for at, schemas in history.decoding.items() for name, own in schemas if not own.key or name in names}

    def _is_applied(self, path: str) -> bool:
        rows = self.read(path)
        return bool(rows) and max(row.ts for row in rows) <= self.applied

    def _write(self, path: str, data: bytes) -> None:
        target = self.bucket / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # A new file object each time, so that a rewritten file has another etag.
        fresh = target.with_name("fresh.tmp")
        fresh.write_bytes(data)
        fresh.replace(target)

    # --- delivering again ---

    def clean(self, places: Sequence[_Place]) -> list[Record]:
        """The rows of a sequence as if delivered once: per commit-ts those of the fullest delivery, in order."""
        deliveries: list[dict[Tso, list[Record]]] = [{}]
        before = 0
        for place in places:
            for row in self.read(place.path):
                if row.ts < before:
                    deliveries.append({})
                before = row.ts
                deliveries[-1].setdefault(row.ts, []).append(row)
        best: dict[Tso, list[Record]] = {}
        for delivery in deliveries:
            for ts, rows in delivery.items():
                best[ts] = max(best.get(ts, []), rows, key=len)
        return [row for ts in sorted(best) for row in best[ts]]

    def deliver(self, directory: str, like: _Place, rows: Sequence[Record], pieces: int) -> list[str]:
        """Write rows into the next numbers of a directory, cut at `pieces - 1` random places; return the paths."""
        header = records((self.bucket / like.path).read_bytes(), self.options)[0]
        inside = [p for p in self.places(directory) if p.directory == directory and p.prefix == like.prefix]
        number = max((p.number for p in inside), default=0)
        cuts = sorted(self.random.sample(range(1, len(rows)), min(pieces - 1, len(rows) - 1))) if len(rows) > 1 else []
        written = []
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            number += 1
            place = _Place(directory, like.prefix, number, self.width or like.width, like.extension, like.sequence, "")
            self._write(place.path, header + b"".join(row.raw for row in rows[start:stop]))
            written.append(place.path)
        key = (directory, like.prefix)
        recorded = [p.number for p in map(self.place, self._recorded) if p and (p.directory, p.prefix) == key]
        self._shift[key] = max(self._shift.get(key, 0), number - max(recorded, default=0))
        return written

    def decidable(self, sequence: tuple[str, Tso, str, str]) -> bool:
        """Return whether each file of a keyless table's sequence goes on, or visibly steps back."""
        before: Tso | None = None
        for place in self.sequences()[sequence]:
            rows = self.read(place.path)
            if rows and before is not None and rows[0].ts == before:
                return False
            before = rows[-1].ts if rows else before
        return True


# --- sins -------------------------------------------------------------------------------------------------------------


def _redeliver(mutant: Mutant, state: State, dates: bool = False, pieces: int = 1) -> None:
    """Everything after an older checkpoint comes again, in later numbers (at least once)."""
    points = [0, *(c.ts for c in mutant.config.checkpoints if c.ts <= state.checkpoint.ts)]
    since = mutant.random.choice(points)
    keyless = mutant.multisets()
    for sequence, places in mutant.sequences().items():
        rows = mutant.clean(places)
        if not rows or mutant.random.random() < 0.3:
            continue
        multiset = sequence[:2] in keyless
        if multiset and len({place.width for place in places} | {mutant.width or places[-1].width}) > 1:
            continue  # another width is another sequence
        due = [row for row in rows if row.ts > since] or rows
        like = places[-1]
        directory = like.directory
        if dates and like.date:
            directory = directory.removesuffix(like.date) + _other_date(like.date, mutant.random.choice((-1, 1, 2)))
        kept = dict(mutant._shift)
        written = mutant.deliver(directory, like, due, mutant.random.randint(1, 4) if pieces > 1 else 1)
        if multiset and not mutant.decidable(sequence) and due is not rows:
            _undo(mutant, written, kept)
            written = mutant.deliver(directory, like, rows, 1)
        if multiset and not mutant.decidable(sequence):
            _undo(mutant, written, kept)
            continue
        state.done.append(f"delivered {len(due)} rows after {since} again in {written}")


def _undo(mutant: Mutant, written: Sequence[str], shift: dict[tuple[str, str], int]) -> None:
    for path in written:
        (mutant.bucket / path).unlink()
    mutant._shift = shift


def _other_date(date: str, by: int) -> str:
    parts = [int(part) for part in date.split("-")]
    parts[-1] = max(1, min(parts[-1] + by, 12 if len(parts) == 2 else 28 if len(parts) == 3 else 9999))
    return "-".join(f"{part:0{4 if i == 0 else 2}d}" for i, part in enumerate(parts))


def _redeliver_dates(mutant: Mutant, state: State) -> None:
    """The same into another date directory: the clock is the flusher's, and goes back at times."""
    _redeliver(mutant, state, dates=True)


def _redeliver_cut(mutant: Mutant, state: State) -> None:
    """The same, cut into files at other places, within a transaction too."""
    _redeliver(mutant, state, pieces=4)


def _rewrite(mutant: Mutant, state: State) -> None:
    """After a lost index the newest number is written anew; done where recorded files get their numbers."""


def _index(mutant: Mutant, state: State) -> None:
    """The index names a file that is not there yet, or never; or it is gone; or it is of no use."""
    for path in mutant._files():
        if path.endswith(".index"):
            choice = mutant.random.randrange(5)
            if choice == 0:
                (mutant.bucket / path).unlink()
            elif choice == 1:
                places = mutant.places(path.rpartition("/meta/")[0])
                if places:
                    last = max(places, key=lambda p: p.number)
                    name = f"{last.prefix}{last.number + 1:0{last.width}d}{last.extension}"
                    mutant._write(path, f"{name}\n".encode())
            elif choice == 2:
                mutant._write(path, b"")
            elif choice == 3:
                mutant._write(path, b"CDC0")
            if choice < 4:
                state.done.append(f"index {path}: {('gone', 'ahead', 'empty', 'broken')[choice]}")


def _temporary(mutant: Mutant, state: State) -> None:
    """Left-overs of uploads, of each kind of file."""
    number = f"{mutant.random.getrandbits(128):032x}"
    for place in mutant.places()[:: mutant.random.randint(2, 5)]:
        data = (mutant.bucket / place.path).read_bytes()
        mutant._write(f"{place.path}.tmp.{number}", data[: len(data) // 2])
        mutant._write(f"{place.path}.tmp", data)
        state.done.append(f"left {place.path}.tmp")
    for path in mutant._files():
        if parse_schema_path(path) and mutant.random.random() < 0.2:
            mutant._write(f"{path}.tmp.{number}", (mutant.bucket / path).read_bytes()[:9])
    mutant._write(f"metadata.tmp.{number}", b'{"checkpoint-ts":999999999999999999}')


def _clean_up(mutant: Mutant, state: State) -> None:
    """Applied date directories, or the first files of a directory, are removed."""
    for places in mutant.sequences().values():
        if mutant.random.random() < 0.5:
            continue
        for place in places:
            if not mutant._is_applied(place.path) or mutant.random.random() < 0.2:
                break
            (mutant.bucket / place.path).unlink()
            state.done.append(f"removed {place.path}")


def _vanish(mutant: Mutant, state: State) -> None:
    """Files that a reader has seen and applied go after they were listed."""
    keyless = mutant.multisets()
    for place in mutant.places():
        # The rows before a delivery show that it begins.
        is_shown = place.path in mutant.shown and place.sequence[:2] not in keyless
        if is_shown and mutant._is_applied(place.path) and mutant.random.random() < 0.3:
            state.gone.add(place.path)
            state.done.append(f"goes {place.path}")


def _grow(mutant: Mutant, state: State) -> None:
    """A reader sees the beginning of a file: everything through the checkpoint, and some bytes more."""
    keyless = mutant.multisets()
    last = {sequence: places[-1] for sequence, places in mutant.sequences().items()}
    for place in mutant.places():
        if place.sequence[:2] in keyless and place != last[place.sequence]:
            continue  # the rows that are cut off may be what separates two deliveries
        data = (mutant.bucket / place.path).read_bytes()
        header, rows = records(data, mutant.options)
        size = len(header)
        due = size
        for row in rows:
            size += len(row.raw)
            due = size if row.ts <= state.checkpoint.ts else due
        if due < len(data) and mutant.random.random() < 0.8:
            state.torn[place.path] = mutant.random.randint(due, len(data) - 1)
            state.done.append(f"torn {place.path} at {state.torn[place.path]} of {len(data)}")


def _trouble(mutant: Mutant, state: State) -> None:
    """`metadata` is missing, half written or an old one, for a while."""
    state.trouble = mutant.random.choice(("missing", "halfway", "behind"))
    state.done.append(f"metadata is {state.trouble}")


def _ahead(mutant: Mutant, state: State) -> None:
    """The files are those of a later checkpoint: `metadata` is stale; done where the copy is chosen."""


def _width(mutant: Mutant, state: State) -> None:
    """Later numbers have another width."""
    mutant.width = mutant.random.choice((6, 9, 20)) if not mutant.multisets() else 0
    state.done.append(f"width {mutant.width}")


def _empty(mutant: Mutant, state: State) -> None:
    """Files without any byte, among them and after them."""
    for places in mutant.sequences().values():
        if mutant.random.random() < 0.3:
            like = places[-1]
            state.done += [f"empty {path}" for path in mutant.deliver(like.directory, like, [], 1)]
            for path in (p.path for p in mutant.places(like.directory) if p.number > like.number):
                if not mutant.read(path):
                    mutant._write(path, b"")


def _foreign(mutant: Mutant, state: State) -> None:
    """What people and other programs put beside a changefeed's files."""
    names = (
        "_SUCCESS",
        "README.md",
        ".DS_Store",
        "CDC.csv",
        "CDCx1.csv",
        "part-0.parquet",
        "schema_1.json",
        "a b;c.txt",
    )
    folders = {"", *(place.directory for place in mutant.places()), *(p.rpartition("/")[0] for p in mutant._files())}
    for folder in sorted(folders):
        if mutant.random.random() < 0.3:
            mutant._write(f"{folder}/{mutant.random.choice(names)}".lstrip("/"), b"not of a changefeed\n")
            state.done.append(f"put something into {folder}")


def _duplicate_schema(mutant: Mutant, state: State) -> None:
    """A second file of one version: other checksum, same columns, with or without the DDL."""
    for path in [p for p in mutant._files() if parse_schema_path(p)]:
        if mutant.random.random() < 0.25:
            where = parse_schema_path(path)
            assert where is not None
            document = json.loads((mutant.bucket / path).read_bytes())
            if mutant.random.random() < 0.5 and document.get("TableColumns"):
                document.update(Query="", Type=0)
            twin = f"{where.root}/meta/schema_{where.version}_{mutant.random.randrange(10**10):010d}.json"
            mutant._write(twin, json.dumps(document, indent=4).encode())
            state.done.append(f"twin {twin} of {document['Query'][:60]!r}")


def _rewritten_schema(mutant: Mutant, state: State) -> None:
    """An applied schema file was deleted, and is written anew without its DDL when its directory is used."""
    used = {place.sequence[:2] for place in mutant.places()}
    for path in [p for p in mutant._files() if parse_schema_path(p)]:
        where = parse_schema_path(path)
        assert where is not None
        if (where.root, where.version) in used and where.version < mutant.applied and mutant.random.random() < 0.4:
            document = json.loads((mutant.bucket / path).read_bytes())
            if document.get("Query"):
                state.done.append(f"forgot {document['Query'][:80]!r} of {path}")
                document.update(Query="", Type=0)
                mutant._write(path, json.dumps(document, indent=4).encode())


SINS: dict[str, Callable[[Mutant, State], None]] = {
    "ahead": _ahead,
    "width": _width,
    "rewrite": _rewrite,
    "redeliver": _redeliver,
    "redeliver_dates": _redeliver_dates,
    "redeliver_cut": _redeliver_cut,
    "index": _index,
    "temporary": _temporary,
    "clean_up": _clean_up,
    "vanish": _vanish,
    "grow": _grow,
    "trouble": _trouble,
    "empty": _empty,
    "foreign": _foreign,
    "duplicate_schema": _duplicate_schema,
    "rewritten_schema": _rewritten_schema,
}
