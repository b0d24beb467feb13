"""Orders of events around `forget`, by a seed: before, after and in the midst of each other, and killed.

A table with both kinds of history is written to, applied, replayed, cut, maintained, rebuilt, compared and repaired,
extracted, altered, renamed, dropped, made anew and purged: one of files on Iceberg or in memory, one of a topic. Every
row is a token that is nowhere else, so what is left of a key is found in the bytes of all files. The model is a list of
changes, of which some are forgotten: those are nowhere, and all others are in the lake.
"""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from cdc_assets.ddl import created
from cdc_assets.errors import (
    BadSettings,
    ExtractRefused,
    ForgetRefused,
    InputError,
    LakeUnavailable,
    RebuildRefused,
    TableMoved,
)
from cdc_assets.features.cuts.operations import CutRefused, make_cut, remove_cut
from cdc_assets.features.cuts.pipeline import cuts_of
from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.forgetting.operations_keep_out import let_in
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.features.verification.operations import VerifyOptions, verify
from cdc_assets.lake import Lake
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.landing.files import LandingStore
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.landing.landing import Landing
from cdc_assets.ledger import Ledger
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.purge import purge
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.status import unfinished_forgets
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import connect_dump
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests import kills
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.kills import Killed, Trap
from cdc_assets_tests.landing.test_landing import URI, Broker, canal, mark
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.operations.test_maintenance import EAGER, later_ms
from cdc_assets_tests.schema_documents import document, file_column, write_schema

__all__ = ["FORGET_SEAMS", "LakeOrders", "MemoryOrders"]

FORGET_SEAMS = (
    "cdc_assets.features.forgetting.lake:LakeForgetting.forget",
    "cdc_assets.features.forgetting.operations:remove_cut",
    "cdc_assets.features.forgetting.lake:copy_without",
    "cdc_assets.features.forgetting.lake:expire",
    "cdc_assets.features.forgetting.lake:_sweep",
    "cdc_assets.features.forgetting.lake:LakeForgetting.forget_stages",
    "cdc_assets.features.forgetting.lake:LakeForgetting.forget_records",
    "cdc_assets.features.forgetting.lake:LakeForgetting.search",
)
"""Every function between whose crossings a run that forgets rows has changed something in tables."""

SEAMS = (
    *kills.SEAMS,
    *FORGET_SEAMS,
    "cdc_assets.lake.tables:Lake.quarantined",
    "cdc_assets.lake.tables:Lake.applied",
    "cdc_assets.lake.tables:Lake.replay",
    "cdc_assets.lake.tables:Lake.repair",
    "cdc_assets.lake.tables:Lake.scan",
    "cdc_assets.lake.tables:Lake.keep_decision",
    "cdc_assets.features.cuts.lake:IcebergCuts.make_cut",
    "cdc_assets.lake.tables:Lake.purge",
    "cdc_assets.lake.maintenance:LakeMaintenance.carry_out",
    "cdc_assets.ledger:Ledger.remove_values",
    "cdc_assets.ledger:Ledger.record_comparison",
    "cdc_assets.ledger:Ledger.record_findings",
)


@dataclass(frozen=True)
class Keyed:
    """The key of a table: its columns for CREATE and for a schema file, and values by what is written of them.

    Each value is what the feed has, what a dump has, and what a person gives.
    """

    columns: Sequence[tuple[str, str, dict[str, str]]]
    values: Sequence[tuple[Sequence[str], Sequence[Any], Sequence[str]]]


def _binary(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


WORDS = ("Alpenglow", "bergamotte", "Crépuscule", "dandelions", "Elderberry")
KEYS = {
    "whole": Keyed(
        [("k", "BIGINT", {"ColumnType": "BIGINT", "ColumnPrecision": "20"})],
        [((str(n),), (str(n),), (f"{n:+d}".replace("+", "00"),)) for n in range(471100120, 471100125)],
    ),
    "several": Keyed(
        [
            ("k", "VARCHAR(20) COLLATE utf8mb4_general_ci", {"ColumnType": "VARCHAR", "ColumnPrecision": "20"}),
            ("m", "DECIMAL(12,3)", {"ColumnType": "DECIMAL", "ColumnPrecision": "12", "ColumnScale": "3"}),
        ],
        [
            ((f'"{word}"', f"{n}.500"), (word, f"{n}.500"), (word.upper(), f"{n}.5"))
            for word, n in zip(WORDS, (1, 1, 2, 2, 3), strict=True)
        ],
    ),
    "raw": Keyed(
        [
            ("k", "VARBINARY(16)", {"ColumnType": "VARBINARY", "ColumnPrecision": "16"}),
            ("m", "TIMESTAMP(6)", {"ColumnType": "TIMESTAMP", "ColumnPrecision": "6"}),
        ],
        [
            (
                (_binary(bytes([n, 0, 255, n]) * 3), f'"2026-01-0{n} 09:00:00.250000"'),
                (bytes([n, 0, 255, n]) * 3, f"2026-01-0{n} 00:00:00.250000"),
                (f"x'{(bytes([n, 0, 255, n]) * 3).hex()}'", f"2026-01-0{n} 00:00:00.25"),
            )
            for n in range(1, 6)
        ],
    ),
}


ALL = ("", "log", "scd2")


@dataclass
class Change:
    """A change of a row: `aside` are the kinds to which it is not applied, as it did not fit, `gone` is forgotten."""

    at: Tso
    key: int
    op: str
    token: str
    version: Tso
    misfit: bool = False
    gone: bool = False
    mended: bool = False
    more: int = 0
    emptied: bool = False
    aside: set[str] = field(default_factory=set)


Act = Callable[[], object]


class Crossing(Trap):
    """Acts once, at the crossing of a number, and counts none of what it does."""

    def __init__(self, number: int) -> None:
        super().__init__(lambda *_: False)
        self.number, self.act = number, cast("Callable[[], object] | None", None)

    def cross(self, seam: str) -> None:
        self.number -= 1
        if not self.number and self.act is not None:
            act, self.act = self.act, None
            act()


class LakeOrders:
    """A table of files with both kinds of history, and what happened to it."""

    seams: Sequence[str] = SEAMS
    keys: Sequence[str] = ("raw", "several", "whole")
    lands = False
    """What is forgotten before it is applied does not come back."""

    def __init__(self, seed: int, directory: Path, open_lake: Callable[..., Lake]) -> None:
        self.random, self.directory, self.open_lake = random.Random(seed), directory, open_lake
        self.key = KEYS[self.random.choice(self.keys)]
        self.bucket = directory / "bucket"
        self.bucket.mkdir(parents=True)
        self.toml = directory / "changefeed.toml"
        self.toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        (directory / "ledger").mkdir()
        self.ledger = Ledger(f"sqlite:///{directory}/ledger/ledger.db")
        self.lake = open_lake()
        self.at = self.version = self.place = FIRST
        self.name, self.more = "t", 0
        self.published = self.applied = self.files = self.dumps = 0
        self.inside = False  # the midst of something else, or of what was killed: what comes of both is seen later
        self.beside = False  # another process does something meanwhile
        self.repairing = False  # rows that the source has come back, unless they are kept out
        self.changes: list[Change] = []
        self.until: dict[str, tuple[set[int], Tso]] = {}
        self.decided = 0
        self.lost: set[str] = set()
        self.let_in = set[int]()  # keys whose rows may be there again: what was left out comes with what is read anew
        self.begun: list[tuple[tuple[int, ...], Tso | None, str]] = []
        self.cuts: dict[str, dict[int, str]] = {}
        self.decided_cuts = 0
        self._create(FIRST)

    # --- the source ---

    def _text(self) -> str:
        columns = ", ".join(f"`{name}` {kind} NOT NULL" for name, kind, _ in self.key.columns)
        names = ", ".join(f"`{name}`" for name, _, _ in self.key.columns)
        more = "".join(f", `w{number}` INT" for number in range(self.more))
        return f"CREATE TABLE `{self.name}` ({columns}, `v` VARCHAR(40){more}, PRIMARY KEY ({names}))"

    def _create(self, at: Tso) -> None:
        self._declare(at, self._text(), 3)
        self._publish()

    def _declare(self, at: Tso, query: str, kind: int) -> None:
        """Write the schema file of a DDL, after which rows stand in a directory of that version."""
        key_columns = [
            {"ColumnName": name, "ColumnNullable": "false", "ColumnIsPk": "true", **definition}
            for name, _, definition in self.key.columns
        ]
        more = [file_column(f"w{number}", "INT", "11") for number in range(self.more)]
        columns = [*key_columns, file_column("v", "VARCHAR", "40"), *more]
        write_schema(self.bucket, document("shop", self.name, at, Query=query, Type=kind, TableColumns=columns))
        self.place = at

    def _publish(self) -> None:
        self.at += 1 << 18
        fresh = self.bucket / "metadata.tmp"
        fresh.write_text(f'{{"checkpoint-ts": {self.at}}}')
        fresh.replace(self.bucket / "metadata")
        self.at += 1 << 18
        self.published = self.at

    def _source(self) -> dict[int, Change]:
        rows: dict[int, Change] = {}
        for change in self.changes:
            if change.version != self.version or (change.misfit and not change.mended):
                continue
            rows.pop(change.key, None)
            if change.op != "D":
                rows[change.key] = change
        return rows

    def put(self) -> None:
        """Write a file of changes; perhaps one does not fit."""
        there, rows = set(self._source()), list[Change]()
        misfits = {change.key for change in self.changes if change.misfit and not change.mended}
        for _ in range(self.random.randint(1, 4)):
            self.at += 1 << 18
            key = self.random.randrange(5)
            op = "I" if key not in there else self.random.choice("UUD")
            token = f"token-{uuid.UUID(int=self.random.getrandbits(128)).hex}"[:38]
            misfit = op != "D" and not misfits and self.random.random() < 0.15
            if misfit:
                token += "-xxxxxxxxxxxxxxxx"
                misfits.add(key)
            there = there - {key} if op == "D" else there | {key}
            rows.append(Change(self.at, key, op, token, self.version, misfit, more=self.more))
        self.changes += rows
        self._write(rows)

    def _write(self, rows: Sequence[Change]) -> None:
        lines = []
        for row in rows:
            values = ",".join((*self.key.values[row.key][0], f'"{row.token}"', *["7"] * self.more))
            lines.append(f'"{row.op}","{self.name}","shop",{row.at},{values}\r\n')
        self.files += 1
        path = self.bucket / "shop" / self.name / str(self.place) / f"CDC{self.files:020d}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), newline="")
        self._publish()

    def mend(self) -> None:
        """Let the source write again what did not fit, and replay."""
        for path in self.bucket.rglob("*.csv"):
            text = path.read_bytes()
            mended = text.replace(b"-xxxxxxxxxxxxxxxx", b"")
            if mended != text:
                path.write_bytes(mended)
        for change in self.changes:
            if change.misfit:
                change.mended, change.token = True, change.token.removesuffix("-xxxxxxxxxxxxxxxx")
        self.replay()

    # --- what is done ---

    def settings(self) -> ChangefeedSettings:
        """Return the settings of the changefeed."""
        uri: Any = f"file://{self.bucket}?protocol=csv"
        return ChangefeedSettings(
            name="default",
            sink_uri=uri,
            changefeed_config=self.toml,
            tz="Asia/Tokyo",
            history={"shop.*": ["log", "scd2"]},
            maintenance=EAGER,
            privacy_key={"env": "PRIVACY_KEY"},
            quarantine=True,
        )

    def pipeline(self, lake: Any = None) -> Any:
        """Return the changefeed on its way into the lake."""
        return LakePipeline(self.settings(), self.settings().open_source(), lake or self.lake, self.ledger)

    def forgetting(self) -> Any:
        """Return what forgets rows of the lake."""
        return LakeForgetting(self.lake)

    @property
    def table(self) -> str:
        """The table's name as people give it."""
        return f"shop.{self.name}"

    def alter(self) -> None:
        """Add a column, or give the table another name."""
        self.at += 1 << 18
        if self.more < 2:
            self.more += 1
            self._declare(self.at, f"ALTER TABLE `{self.name}` ADD COLUMN `w{self.more - 1}` INT", 5)
        else:
            former, self.name = self.name, "u" if self.name == "t" else "t"
            self._declare(self.at, f"RENAME TABLE `{former}` TO `{self.name}`", 14)
        self._publish()

    def apply(self) -> None:
        outcome = self.pipeline().apply("run")
        if not self.inside:
            reasons = [
                (table.name, table.reason)
                for table in outcome.tables
                if table.reason and not self._is_beside(table.reason)
            ]
            assert reasons == [], reasons
            self._applied()

    def _is_beside(self, reason: str) -> bool:
        """Return whether a run stopped because another process has changed what it reads: the next one goes on."""
        return self.beside and self.lands and "is gone" in reason

    def _applied(self) -> None:
        for change in self.changes:
            if self.applied < change.at <= self.published:
                change.gone = change.gone or change.at <= self._kept_out(change.key)
                change.aside = set(ALL) if change.misfit and not change.mended and not change.gone else set()
        self.applied = self.published

    def _kept_out(self, key: int) -> Tso:
        return max((until for keys, until in self.until.values() if key in keys), default=0)

    def replay(self) -> None:
        results = replay(self.pipeline())
        known = (
            "not applied through",
            "is dropped, so its",
            "were forgotten after these records",
            "Rebuild the table",
            "not landed any more",
            "it is longer than 40 characters",  # a record that does not fit yet
            *(["files with their changes are missing"] if self.lands else []),  # they expired
        )
        reasons = [
            replay_result.reason
            for replay_result in results
            if replay_result.reason and not any(text in replay_result.reason for text in known)
        ]
        assert self.inside or reasons == [], reasons
        waiting = {(row.life.kind, row.commit_ts) for row in self.lake.quarantined()}
        for change in self.changes if not self.inside else ():
            if change.mended and change.version == self.version:
                change.aside = {kind for kind in change.aside if (kind, change.at) in waiting}

    def cut(self) -> None:
        name, self.decided_cuts = f"cut{self.decided_cuts}", self.decided_cuts + 1
        with suppress(CutRefused, BadSettings):  # records are held, or a killed run has made it
            made = make_cut(self.pipeline(), name)
            if not self.inside:
                self._applied()
                self.cuts[name] = self._mirror(self.version, made.at)

    def uncut(self) -> None:
        self.cuts = {cut.name: self.cuts[cut.name] for cut in cuts_of(self.lake).cuts() if cut.name in self.cuts}
        if self.cuts:
            name = self.random.choice(sorted(self.cuts))
            del self.cuts[name]
            remove_cut(self.pipeline(), name)

    def maintain(self) -> None:
        maintain(self.pipeline(), later_ms())

    def rebuild(self) -> None:
        with suppress(RebuildRefused, TableMoved):
            rebuild(self.pipeline(), Rebuilds(self.lake), (), "rebuild")
            for change in self.changes if not self.inside else ():
                if change.version == self.version:
                    change.gone = change.at <= self._kept_out(change.key) or (self.lands and change.emptied)
                    change.aside = set(ALL if self.lands and change.misfit and not change.gone else ())
            self.applied = self.applied if self.inside else self.published

    def verify(self) -> None:
        """Compare with a dump; repair where no key that is forgotten would come back by that."""
        self.dumps += 1
        into, name = self.directory / "dumps" / str(self.dumps), TableId("shop", self.name)
        rows = [
            (*self.key.values[key][1], change.token, *["7"] * change.more, *[None] * (self.more - change.more))
            for key, change in self._source().items()
        ]
        tables = {name: (created(self._text()), rows)}
        write_dump(into, tables, self.at - (1 << 18), Writing(), texts={name: self._text()})
        source = connect_dump(opener(into), DumpOptions())
        forever = any(until is None for _, until, _ in self.begun)  # what is forgotten just now would be there again
        self.repairing = not forever and all(
            self._kept_out(change.key) == FOREVER for change in self.changes if change.gone
        )
        options = VerifyOptions(repair=self.repairing, run="verify")
        list(verify(self.pipeline(), self.lake, lambda at: source, options))
        self.repairing = False

    def extract(self) -> None:
        with suppress(ExtractRefused, InputError, LakeUnavailable):
            extract(self.pipeline(), self.table, 0, self.at - (1 << 18), net=self.random.random() < 0.3).changes  # noqa: B018

    def explain(self) -> None:
        with suppress(LakeUnavailable):
            explain(self.pipeline(), self.lake, self.table, self.key.values[self.random.randrange(5)][2])

    def drop(self) -> None:
        """Drop the table and make it anew, once; then purge what was dropped."""
        if self.version == FIRST:
            self.apply()
            self.at += 1 << 18
            self._drop()
            self.version = self.at = self.at + (1 << 18)
            self._create(self.version)
        else:
            self.purge()

    def _drop(self) -> None:
        dropped = document("shop", self.name, self.at, Query=f"DROP TABLE `{self.name}`", Type=4, TableColumns=[])
        write_schema(self.bucket, dropped)

    def purge(self) -> None:
        purge(self.pipeline(), self.lake, "purge")

    def forget(self) -> None:
        keys = tuple(self.random.sample(range(5), self.random.choice((1, 1, 2))))
        until = FOREVER if self.repairing else self.random.choice((None, FOREVER, self.at, self.at + (1 << 22)))
        self.decided += 1
        self._forget(keys, until, f"decision{self.decided}" if until is not None else "")

    def _forget(self, keys: tuple[int, ...], until: Tso | None, name: str) -> None:
        """Forget keys; where that is done, no file of lake and ledger may have a byte of them."""
        given, forgetting = [list(self.key.values[key][2]) for key in keys], (keys, until, name)
        self.begun.append(forgetting)
        try:
            work = self.pipeline(), self.forgetting(), self.table, given, "forget"
            report = forget(*work, until=until, name=name, remove_cuts=True)
            if report.kept_cuts:  # made meanwhile
                report = forget(*work, until=until, name=name, remove_cuts=True)
            assert report.complete
            self.lost |= set(report.lost)
            self.let_in -= set(keys)
        except ForgetRefused:
            self.begun.remove(forgetting)
            return
        self.begun.remove(forgetting)
        for change in self.changes:
            if change.key in keys and change.at <= (self.applied if until is None or not self.lands else until):
                change.gone, change.aside, change.emptied = True, set(), True
        self.cuts = {
            cut: rows
            for cut, rows in self.cuts.items()
            if cut in {lake_cut.name for lake_cut in cuts_of(self.lake).cuts()}
        }
        if until is not None:
            self.until[name] = {*keys, *self.until.get(name, (set(), 0))[0]}, until
        if not self.inside:
            self._check_bytes()

    def undo(self) -> None:
        if self.until:
            name = self.random.choice(sorted(self.until))
            let_in(self.pipeline(), self.table, name)
            self.let_in |= self.until.pop(name)[0]

    # --- orders ---

    def step(self) -> None:
        """Do something: alone, with something else in its midst, or killed."""
        alone = (self.put, self.mend, self.drop, self.undo, self.alter)
        others = (self.apply, self.forget, self.cut, self.uncut, self.maintain, self.rebuild, self.verify, self.extract,
                  self.explain)  # fmt: skip
        beside = (self.apply, self.cut, self.maintain, self.rebuild, self.verify, self.extract, self.purge, self.replay)
        self._do(alone, others, beside)

    def _do(self, alone: Sequence[Act], others: Sequence[Act], beside: Sequence[Act]) -> None:
        chosen = self.random.choice((self.put, self.apply, self.forget, *alone, *others))
        way = self.random.random()
        if chosen in alone or way < 0.3:
            chosen()
        elif way < 0.75:
            self._between(chosen, self.random.choice(beside) if chosen == self.forget else self.forget)
        else:
            self._killed(chosen)
        if self.random.random() < 0.5:
            self.check()

    def _between(self, outer: Callable[[], object], inner: Callable[[], object]) -> None:
        """Do something in another process while something is done."""
        crossing, ours = Crossing(self.random.randrange(1, 30)), self.lake

        def act() -> None:
            self.inside, self.lake = True, self.open_lake()
            with suppress(TableMoved):
                inner()
            self.inside, self.lake = False, ours

        crossing.act, self.beside = act, True
        with kills.trapped(crossing, self.seams), suppress(TableMoved):
            outer()
        self.beside = False
        if crossing.act is not None:
            inner()
        self._settle()

    def _killed(self, chosen: Callable[[], object]) -> None:
        number = self.random.randrange(1, 30)
        trap = Trap(lambda crossed, _: crossed == number)
        with kills.trapped(trap, self.seams), suppress(Killed):
            chosen()
        if trap.killed:
            self.lake = self.open_lake()
            if chosen != self.forget and self.random.random() < 0.5:
                self.inside = True
                self.forget()
                self.inside = False
            self._settle()
            if chosen != self.forget:
                chosen()

    def _settle(self) -> None:
        """Finish what was begun."""
        for keys, until, name in tuple(self.begun):
            self.begun.remove((keys, until, name))
            if until is None:
                self.apply()
            self._forget(keys, until, name)
        self.apply()
        self.replay()

    # --- what has to be ---

    def _mirror(self, version: Tso, at: Tso = FOREVER) -> dict[int, str]:
        rows: dict[int, str] = {}
        for change in self.changes:
            if (
                change.version == version
                and change.at <= min(at, self.applied)
                and not change.gone
                and "" not in change.aside
            ):
                rows.pop(change.key, None)
                rows |= {change.key: change.token} if change.op != "D" else {}
        return rows

    def _kept(self) -> set[str]:
        return {change.token for change in self.changes if not change.gone or change.key in self.let_in}

    def _check_bytes(self) -> None:
        kept = self._kept()
        tokens = {change.token.encode() for change in self.changes if change.gone and change.token not in kept}
        assert leaks(self.directory / "lake", tokens) + leaks(self.directory / "ledger", tokens) == []

    def check(self) -> None:
        """Compare lake and ledger with the model."""
        self._settle()
        self._check_finished()
        self._check_bytes()
        self._check_rows()
        self._check_cuts()

    def _check_finished(self) -> None:
        assert unfinished_forgets(self.lake.state) == {}

    def _tables(self) -> Iterator[tuple[Life, list[dict[str, Any]]]]:
        for life, table in self.lake.state.tables().items():
            yield life, self.lake.state.catalog.load_table(table.identifier).scan().to_arrow().to_pylist()

    def _check_rows(self) -> None:
        keys = {change.token: change.key for change in self.changes}
        for life, rows in self._tables():
            changes = (
                change for change in self.changes if change.version == life.version and change.at <= self.applied
            )
            changes = (change for change in changes if not change.gone and change.op != "D")
            there = [(change.at, change.token) for change in changes if life.kind not in change.aside]
            match life.kind:
                case "":
                    there = [(0, token) for token in self._mirror(life.version).values()]
                    entries = [(0, row["v"]) for row in rows]
                case "log":
                    entering = (row for row in rows if row["_change_type"] not in ("DELETE", "UPDATE_BEFORE"))
                    entries = [(row["_cdc_position"], row["v"]) for row in entering]
                case _:
                    entries = [(row["_cdc_start_ts"], row["v"]) for row in rows]
            entries, there = (
                sorted(entry for entry in some if keys[entry[1]] not in self.let_in) for some in (entries, there)
            )
            assert entries == there, (life, entries, there)

    def _check_cuts(self) -> None:
        tables = self.lake.state.tables()
        taken = [
            (cut.name, cut_table)
            for cut in cuts_of(self.lake).cuts()
            for cut_table in cut.taken
            if cut.name in self.cuts
        ]
        for name, cut_table in taken:
            if not cut_table.life.kind and cut_table.life.version == self.version:
                cut = self.lake.state.catalog.load_table(tables[cut_table.life].identifier).scan(
                    snapshot_id=cut_table.snapshot_id
                )
                assert sorted(cut.to_arrow().column("v").to_pylist()) == sorted(self.cuts[name].values())


class MemoryOrders(LakeOrders):
    """The same over a lake in memory; a rebuild is one into another lake, which has what is not kept out."""

    seams = (
        "cdc_assets.pipeline.planner:Planner.plan",
        "cdc_assets.pipeline.pipeline:Pipeline.run_step",
        *(
            f"cdc_assets_tests.memory_lake:MemoryLake.{name}"
            for name in ("run", "stage_all", "quarantine", "commit", "replay", "keep_decision", "remove_decision",
                         "make_cut", "remove_cut")
        ),
        *(
            f"cdc_assets_tests.memory_lake:MemoryForgetting.{name}"
            for name in ("forget", "search", "forget_stages", "forget_records", "hold_back")
        ),
        *(seam for seam in SEAMS if seam.startswith("cdc_assets.ledger")),
    )  # fmt: skip

    def pipeline(self, lake: Any = None) -> Any:
        return Pipeline(self.settings(), self.settings().open_source(), lake or self.lake, self.ledger)

    def forgetting(self) -> Any:
        return MemoryForgetting(cast("Any", self.lake))

    def step(self) -> None:
        alone = (self.put, self.mend, self.drop, self.undo, self.alter)
        others = (self.apply, self.forget, self.cut, self.uncut, self.verify, self.extract, self.explain)
        self._do(alone, others, (self.apply, self.cut, self.verify, self.extract, self.replay))

    def purge(self) -> None:
        pass

    def _check_finished(self) -> None:
        assert not any(ticket.table for ticket in cast("Any", self.lake).tickets.values())

    def _tables(self) -> Iterator[tuple[Life, list[dict[str, Any]]]]:
        for life, table in cast("Any", self.lake).tables.items():
            yield life, table.rows.to_pylist()

    def _check_cuts(self) -> None:
        for name, rows in self.cuts.items():
            for life, table in cast("Any", self.lake).tables.items():
                if not life.kind and life.version == self.version and name in table.tags:
                    assert sorted(table.tags[name][2].column("v").to_pylist()) == sorted(rows.values())
        self._check_rebuilt()

    def _check_rebuilt(self) -> None:
        """Build all anew, and compare that with what is not kept out."""
        ours, changes, made = self.lake, self.changes, MemoryLake()
        made.decided = cast("Any", ours).decided
        self.pipeline(made).apply("rebuild")
        self.lake, self.changes = (
            cast("Any", made),
            [
                replace(
                    change,
                    gone=change.at <= self._kept_out(change.key) or (self.lands and change.emptied),
                    aside=set(ALL if change.misfit and not change.mended else ()),
                )
                for change in changes
            ],
        )
        self._check_rows()
        self.lake, self.changes = ours, changes

    def _check_bytes(self) -> None:
        super()._check_bytes()
        kept = self._kept()
        lake = cast("Any", self.lake)
        where = {
            "tables": repr(
                [
                    (
                        table.rows.to_pylist(),
                        [past[1].to_pylist() for past in table.past],
                        [tag[2].to_pylist() for tag in table.tags.values()],
                    )
                    for table in lake.tables.values()
                ]
            )
        }
        where |= {
            "records": repr(lake.kept),
            "stages": repr([stage.changes.to_pylist() for stage in lake.staged.values()]),
        }
        gone = {change.token for change in self.changes if change.gone} - kept
        left = [(place, token) for place, text in where.items() for token in gone if token in text]
        assert left == [], left


class _Landed(LakeOrders):
    """Messages of a topic that are landed, some with several rows; what is forgotten is there no more."""

    keys = ("several", "whole")
    lands = True

    def __init__(self, seed: int, directory: Path, open_lake: Callable[..., Lake]) -> None:
        self.broker = Broker()
        super().__init__(seed, directory, open_lake)

    def _store(self) -> LandingStore:
        """Return where messages are landed."""
        raise NotImplementedError

    def _into(self, lake: Any, source: TopicsSource, landing: Landing) -> Any:
        """Return the changefeed on its way into a lake."""
        raise NotImplementedError

    def settings(self) -> ChangefeedSettings:
        return ChangefeedSettings(
            name="default",
            sink_uri=cast("Any", URI),
            initial=cast("Any", {"complete": ["*"]}),
            history={"shop.*": ["log", "scd2"]},
            maintenance=EAGER,
            privacy_key={"env": "PRIVACY_KEY"},
            quarantine=True,
        )

    def pipeline(self, lake: Any = None) -> Any:
        source = cast("TopicsSource", self.settings().open_source())
        registry, store = dict[str, str](), self._store()
        landing = Landing(lambda: self.broker, source.options.messages, store, source.routing.concerns,
                          lambda _: b"", registry=registry.get)  # fmt: skip
        source.read_from(landing.landed, store.fetch)
        return self._into(lake or self.lake, source, landing)

    def _declare(self, at: Tso, query: str, kind: int) -> None:
        table = query.split("`")[3 if kind == 14 else 1]  # that of a RENAME is the new name
        event_type = {3: "CREATE", 4: "ERASE", 5: "ALTER", 14: "RENAME"}[kind]
        nothing = {"pkNames": None, "sqlType": None, "mysqlType": None}
        self.broker.send(0, canal(event_type, at, table=table, isDdl=True, sql=query, **nothing))

    def _drop(self) -> None:
        self._declare(self.at, f"DROP TABLE `{self.name}`", 4)

    def _publish(self) -> None:
        self.at += 1 << 18
        self.broker.send(0, mark(self.at))
        self.at += 1 << 18
        self.published = self.at

    def _write(self, rows: Sequence[Change]) -> None:
        kinds = {"BIGINT": -5, "VARCHAR": 12, "DECIMAL": 3, "INT": 4}
        columns = {name: kind.partition(" ")[0] for name, kind, _ in self.key.columns}
        columns |= {"v": "VARCHAR(40)"} | {f"w{number}": "INT" for number in range(self.more)}
        types = {name: kind.lower() for name, kind in columns.items()}
        codes = {name: kinds[kind.partition("(")[0]] for name, kind in columns.items()}
        names = [name for name, _, _ in self.key.columns]
        for row in rows:
            images = [self._image(columns, row)]
            moved = self._moved(row) if row.op == "U" and not row.misfit and self.random.random() < 0.3 else None
            if moved is not None:  # a message of two keys
                row.op = "D"
                self.changes.append(moved)
                images.append(self._image(columns, moved))
            kind = "UPDATE" if len(images) > 1 else {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[row.op]
            old = images[:1] if kind == "UPDATE" else None
            self.broker.send(0, canal(kind, row.at, table=self.name, data=images[-1:], old=old, sqlType=codes,
                                      mysqlType=types, pkNames=names))  # fmt: skip
        if self.random.random() < 0.8:
            self._publish()

    def _image(self, columns: Iterable[str], change: Change) -> dict[str, str]:
        key = [text.strip('"') for text in self.key.values[change.key][0]]
        return dict(zip(columns, (*key, change.token, *["7"] * self.more), strict=True))

    def _moved(self, change: Change) -> Change | None:
        """Return the row under another key, if there is a free one."""
        used = {other.key for other in self.changes if other.at > self.published} | self._source().keys()
        free = sorted(set(range(5)) - used)
        return replace(change, key=self.random.choice(free), op="I", aside=set()) if free else None

    def mend(self) -> None:
        self._publish()

    def _emptied(self) -> set[str]:
        """Return what is in no message: that is not what came later of keys that stay out."""
        return {change.token for change in self.changes if change.emptied} - self._kept()


class TopicOrders(_Landed, MemoryOrders):
    """A topic whose landing and lake are in memory."""

    seams = (
        *MemoryOrders.seams,
        "cdc_assets.landing.landing:Landing._commit",
        *(f"cdc_assets_tests.memory_landing:MemoryStore.{name}" for name in ("write_rows", "replace", "drop_past")),
    )

    def __init__(self, seed: int, directory: Path, open_lake: Callable[..., Lake]) -> None:
        self.store = MemoryStore()
        super().__init__(seed, directory, open_lake)

    def _store(self) -> LandingStore:
        return self.store

    def _into(self, lake: Any, source: TopicsSource, landing: Landing) -> Any:
        return Pipeline(self.settings(), source, lake, self.ledger, landing=landing)

    def _check_rebuilt(self) -> None:
        if not self.lost:
            super()._check_rebuilt()

    def _check_bytes(self) -> None:
        super()._check_bytes()
        landed = repr([[group.to_pylist() for group in some] for some in self.store.files.values()])
        assert {token for token in self._emptied() if token in landed} == set()


class LakeTopicOrders(_Landed):
    """A topic whose landing and lake are on Iceberg."""

    seams = (
        *SEAMS,
        "cdc_assets.landing.landing:Landing._commit",
        "cdc_assets.lake.growing:GrowingTable.write",
        "cdc_assets.lake.growing:GrowingTable.replace",
        "cdc_assets.lake.growing:GrowingTable.drop_past",
    )

    def __init__(self, seed: int, directory: Path, open_lake: Callable[..., Lake]) -> None:
        self.stores: dict[Lake, LandingTable] = {}
        super().__init__(seed, directory, open_lake)

    def _store(self) -> LandingStore:
        """Return the landing as this process has it open."""
        if self.lake not in self.stores:
            self.stores[self.lake] = LandingTable(self.lake.settings, "default")
        return self.stores[self.lake]

    def _into(self, lake: Any, source: TopicsSource, landing: Landing) -> Any:
        return LakePipeline(self.settings(), source, lake, self.ledger, landing=landing)

    def _check_bytes(self) -> None:
        kept, landed = self._kept(), "default~landing/"
        gone = {change.token.encode() for change in self.changes if change.gone and change.token not in kept}
        emptied = {token.encode() for token in self._emptied()}
        left = [leak for leak in leaks(self.directory / "lake", gone) if landed not in leak]
        left += [leak for leak in leaks(self.directory / "lake", emptied) if landed in leak]
        assert left + leaks(self.directory / "ledger", gone) == []

    def close(self) -> None:
        """Close the catalogs of the landing."""
        for store in self.stores.values():
            store.close()
