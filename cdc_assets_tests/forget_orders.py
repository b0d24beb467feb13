"""Orders of events around `forget` on Iceberg, by a seed: before, after and in the midst of each other, and killed.

A table of files, with both kinds of history, is written to, applied, replayed, cut, maintained, rebuilt, compared and
repaired, extracted, dropped, made anew and purged. Every row is a token that is nowhere else, so what is left of a key
is found in the bytes of all files. The model is a list of changes, of which some are forgotten: those are nowhere, and
all others are in the lake.
"""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from cdc_assets.ddl import created
from cdc_assets.errors import (
    BadSettings,
    CutRefused,
    ExtractRefused,
    ForgetRefused,
    LakeUnavailable,
    MalformedData,
    RebuildRefused,
    TableMoved,
)
from cdc_assets.lake import Lake
from cdc_assets.lake.forget import LakeForgetting
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.cuts import make_cut, remove_cut
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.forget import forget
from cdc_assets.operations.keep_out import let_in
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.purge import purge
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.replay import replay
from cdc_assets.operations.status import unfinished_forgets
from cdc_assets.operations.verify import VerifyOptions, verify
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import connect_dump
from cdc_assets_tests import kills
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.kills import Killed, Trap
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.operations.test_maintenance import EAGER, later_ms
from cdc_assets_tests.schema_documents import document, write_schema

__all__ = ["LakeOrders"]

SEAMS = (
    *kills.SEAMS,
    "cdc_assets.lake.forget:LakeForgetting.forget",
    "cdc_assets.lake.forgetting.remake:_copy_without",
    "cdc_assets.lake.forget:expire",
    "cdc_assets.lake.forget:_sweep",
    "cdc_assets.lake.forget:LakeForgetting.follow_tags",
    "cdc_assets.lake.forget:LakeForgetting.forget_stages",
    "cdc_assets.lake.forget:LakeForgetting.forget_records",
    "cdc_assets.lake.forget:LakeForgetting.search",
    "cdc_assets.lake.tables:Lake.quarantined",
    "cdc_assets.lake.tables:Lake.applied",
    "cdc_assets.lake.tables:Lake.replay",
    "cdc_assets.lake.tables:Lake.repair",
    "cdc_assets.lake.tables:Lake.scan",
    "cdc_assets.lake.tables:Lake.keep_decision",
    "cdc_assets.lake.tables:Lake.make_cut",
    "cdc_assets.lake.tables:Lake.purge",
    "cdc_assets.lake.maintenance:LakeMaintenance.carry_out",
    "cdc_assets.ledger:Ledger.forget_values",
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
    aside: set[str] = field(default_factory=set)


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

    def __init__(self, seed: int, directory: Path, open_lake: Callable[..., Lake]) -> None:
        self.random, self.directory, self.open_lake = random.Random(seed), directory, open_lake
        self.key = KEYS[self.random.choice(sorted(KEYS))]
        self.bucket = directory / "bucket"
        self.bucket.mkdir(parents=True)
        self.toml = directory / "changefeed.toml"
        self.toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        (directory / "ledger").mkdir()
        self.ledger = Ledger(f"sqlite:///{directory}/ledger/ledger.db")
        self.lake = open_lake()
        self.at = self.version = FIRST
        self.applied = self.files = self.dumps = 0
        self.inside = False  # the midst of something else, or of what was killed: what comes of both is seen later
        self.changes: list[Change] = []
        self.until: dict[str, tuple[set[int], Tso]] = {}
        self.begun: list[tuple[tuple[int, ...], Tso | None, str]] = []
        self.cuts: dict[str, dict[int, str]] = {}
        self._create(FIRST)

    # --- the source ---

    def _text(self) -> str:
        columns = ", ".join(f"`{name}` {kind} NOT NULL" for name, kind, _ in self.key.columns)
        names = ", ".join(f"`{name}`" for name, _, _ in self.key.columns)
        return f"CREATE TABLE `t` ({columns}, `v` VARCHAR(40), PRIMARY KEY ({names}))"

    def _create(self, at: Tso) -> None:
        mine = [
            {"ColumnName": name, "ColumnNullable": "false", "ColumnIsPk": "true", **said}
            for name, _, said in self.key.columns
        ]
        columns = [*mine, {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "40"}]
        write_schema(self.bucket, document("shop", "t", at, Query=self._text(), Type=3, TableColumns=columns))
        self._publish()

    def _publish(self) -> None:
        self.at += 1 << 18
        fresh = self.bucket / "metadata.tmp"
        fresh.write_text(f'{{"checkpoint-ts": {self.at}}}')
        fresh.replace(self.bucket / "metadata")
        self.at += 1 << 18

    def _source(self) -> dict[int, str]:
        rows: dict[int, str] = {}
        for one in self.changes:
            if one.misfit and not one.mended:
                continue
            rows.pop(one.key, None)
            if one.op != "D":
                rows[one.key] = one.token
        return rows

    def put(self) -> None:
        """Write a file of changes; perhaps one does not fit."""
        there, lines = self._source(), []
        misfits = {one.key for one in self.changes if one.misfit and not one.mended}
        for _ in range(self.random.randint(1, 4)):
            self.at += 1 << 18
            key = self.random.randrange(5)
            op = "I" if key not in there else self.random.choice("UUD")
            token = f"token-{uuid.UUID(int=self.random.getrandbits(128)).hex}"[:38]
            misfit = op != "D" and not misfits and self.random.random() < 0.15
            if misfit:
                token += "-xxxxxxxxxxxxxxxx"
                misfits.add(key)
            there.pop(key, None)
            if op != "D":
                there[key] = token
            self.changes.append(Change(self.at, key, op, token, self.version, misfit))
            lines.append(f'"{op}","t","shop",{self.at},{",".join(self.key.values[key][0])},"{token}"\r\n')
        self.files += 1
        path = self.bucket / "shop" / "t" / str(self.version) / f"CDC{self.files:020d}.csv"
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
        for one in self.changes:
            if one.misfit:
                one.mended, one.token = True, one.token.removesuffix("-xxxxxxxxxxxxxxxx")
        self.replay()

    # --- what is done ---

    def pipeline(self) -> LakePipeline:
        uri: Any = f"file://{self.bucket}?protocol=csv"
        settings = ChangefeedSettings(
            name="default",
            sink_uri=uri,
            changefeed_config=self.toml,
            tz="Asia/Tokyo",
            history={"shop.*": ["log", "scd2"]},
            maintenance=EAGER,
            privacy_key={"env": "PRIVACY_KEY"},
            quarantine=True,
        )
        return LakePipeline(settings, settings.open_source(), self.lake, self.ledger)

    def apply(self) -> None:
        outcome = self.pipeline().apply("run")
        if not self.inside:
            assert [(one.name, one.reason) for one in outcome.tables if one.reason] == []
            self._applied()

    def _applied(self) -> None:
        for one in self.changes:
            if one.at > self.applied:
                one.gone = one.gone or one.at <= self._kept_out(one.key)
                one.aside = set(ALL) if one.misfit and not one.mended and not one.gone else set()
        self.applied = self.at

    def _kept_out(self, key: int) -> Tso:
        return max((until for keys, until in self.until.values() if key in keys), default=0)

    def replay(self) -> None:
        results = replay(self.pipeline())
        known = ("not applied through", "is dropped, so its", "were forgotten after these records")
        assert self.inside or all(not one.reason or any(text in one.reason for text in known) for one in results)
        waiting = {(row.life.kind, row.commit_ts) for row in self.lake.quarantined()}
        for one in self.changes if not self.inside else ():
            if one.mended and one.version == self.version:
                one.aside = {kind for kind in one.aside if (kind, one.at) in waiting}

    def cut(self) -> None:
        name = f"cut{len(self.cuts)}"
        with suppress(CutRefused, BadSettings):  # records are held, or a killed run has made it
            made = make_cut(self.pipeline(), name)
            if not self.inside:
                self._applied()
                self.cuts[name] = self._mirror(self.version, made.at)

    def uncut(self) -> None:
        if self.cuts:
            name = self.random.choice(sorted(self.cuts))
            del self.cuts[name]
            remove_cut(self.pipeline(), name)

    def maintain(self) -> None:
        maintain(self.pipeline(), later_ms())

    def rebuild(self) -> None:
        with suppress(RebuildRefused, TableMoved):
            rebuild(self.pipeline(), Rebuilds(self.lake), (), "rebuild")
            for one in self.changes if not self.inside else ():
                if one.version == self.version:
                    one.gone, one.aside = one.at <= self._kept_out(one.key), set()
            self.applied = self.applied if self.inside else self.at

    def verify(self) -> None:
        """Compare with a dump; repair where no key that is forgotten would come back by that."""
        self.dumps += 1
        into, name = self.directory / "dumps" / str(self.dumps), TableId("shop", "t")
        rows = [(*self.key.values[key][1], token) for key, token in self._source().items()]
        tables = {name: (created(self._text()), rows)}
        write_dump(into, tables, self.at - (1 << 18), Writing(), texts={name: self._text()})
        source = connect_dump(opener(into), DumpOptions())
        repair = all(self._kept_out(one.key) == FOREVER for one in self.changes if one.gone)
        list(verify(self.pipeline(), self.lake, lambda at: source, VerifyOptions(repair=repair, run="verify")))

    def extract(self) -> None:
        with suppress(ExtractRefused, MalformedData, LakeUnavailable):
            extract(self.pipeline(), "shop.t", 0, self.at - (1 << 18), net=self.random.random() < 0.3).changes  # noqa: B018

    def explain(self) -> None:
        with suppress(LakeUnavailable):
            explain(self.pipeline(), self.lake, "shop.t", self.key.values[self.random.randrange(5)][2])

    def drop(self) -> None:
        """Drop the table and make it anew, once; then purge what was dropped."""
        if self.version == FIRST:
            self.apply()
            write_schema(self.bucket, document("shop", "t", self.at, Query="DROP TABLE `t`", Type=4, TableColumns=[]))
            self.version = self.at = self.at + (1 << 18)
            self._create(self.version)
        else:
            self.purge()

    def purge(self) -> None:
        purge(self.pipeline(), self.lake, "purge")

    def forget(self) -> None:
        keys = tuple(self.random.sample(range(5), self.random.choice((1, 1, 2))))
        until = self.random.choice((None, FOREVER, self.at, self.at + (1 << 22)))
        self._forget(keys, until, f"decision{len(self.until)}" if until is not None else "")

    def _forget(self, keys: tuple[int, ...], until: Tso | None, name: str) -> None:
        """Forget keys; where that is done, no file of lake and ledger may have a byte of them."""
        given, asked = [list(self.key.values[key][2]) for key in keys], (keys, until, name)
        self.begun.append(asked)
        lake = LakeForgetting(self.lake)
        try:
            assert forget(self.pipeline(), lake, "shop.t", given, "forget", until=until, name=name).complete
        except ForgetRefused:
            self.begun.remove(asked)
            return
        self.begun.remove(asked)
        for one in self.changes:
            if one.key in keys and (until is None or one.at <= until):
                one.gone, one.aside = True, set()
        for rows in self.cuts.values():
            for key in keys:
                rows.pop(key, None)
        if until is not None:
            self.until[name] = {*keys, *self.until.get(name, (set(), 0))[0]}, until
        if not self.inside:
            self._check_bytes()

    def undo(self) -> None:
        if self.until:
            name = self.random.choice(sorted(self.until))
            let_in(self.pipeline(), "shop.t", name)
            del self.until[name]

    # --- orders ---

    def step(self) -> None:
        """Do something: alone, with something else in its midst, or killed."""
        alone = (self.put, self.mend, self.drop, self.undo)
        others = (self.apply, self.forget, self.cut, self.uncut, self.maintain, self.rebuild, self.verify, self.extract,
                  self.explain)  # fmt: skip
        beside = (self.apply, self.cut, self.maintain, self.rebuild, self.verify, self.extract, self.purge, self.replay)
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

        crossing.act = act
        with kills.trapped(crossing, SEAMS), suppress(TableMoved):
            outer()
        if crossing.act is not None:
            inner()
        self._settle()

    def _killed(self, chosen: Callable[[], object]) -> None:
        number = self.random.randrange(1, 30)
        trap = Trap(lambda crossed, _: crossed == number)
        with kills.trapped(trap, SEAMS), suppress(Killed):
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
        for one in self.changes:
            if one.version == version and one.at <= min(at, self.applied) and not one.gone and "" not in one.aside:
                rows.pop(one.key, None)
                rows |= {one.key: one.token} if one.op != "D" else {}
        return rows

    def _check_bytes(self) -> None:
        kept = {one.token for one in self.changes if not one.gone}
        tokens = {one.token.encode() for one in self.changes if one.gone and one.token not in kept}
        assert leaks(self.directory / "lake", tokens) + leaks(self.directory / "ledger", tokens) == []

    def check(self) -> None:
        """Compare lake and ledger with the model."""
        self._settle()
        assert unfinished_forgets(self.lake.state) == {}
        self._check_bytes()
        tables = self.lake.state.tables()
        for life, table in tables.items():
            rows = self.lake.state.catalog.load_table(table.identifier).scan().to_arrow().to_pylist()
            changes = (one for one in self.changes if one.version == life.version and not one.gone and one.op != "D")
            there = sorted((one.at, one.token) for one in changes if life.kind not in one.aside)
            match life.kind:
                case "":
                    assert sorted(row["v"] for row in rows) == sorted(self._mirror(life.version).values())
                case "log":
                    enter = (row for row in rows if row["_change_type"] != "DELETE")
                    assert sorted((row["_cdc_position"], row["v"]) for row in enter) == there
                case "scd2":
                    assert sorted((row["_cdc_start_ts"], row["v"]) for row in rows) == there
        taken = [(cut.name, one) for cut in self.lake.cuts() for one in cut.taken if cut.name in self.cuts]
        for name, one in taken:
            if not one.life.kind and one.life.version == self.version:
                cut = self.lake.state.catalog.load_table(tables[one.life].identifier).scan(snapshot_id=one.snapshot_id)
                assert sorted(cut.to_arrow().column("v").to_pylist()) == sorted(self.cuts[name].values())
