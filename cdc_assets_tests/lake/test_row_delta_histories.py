"""Generated histories of tables with keys: windows as row deltas leave what the same windows leave by Spark's MERGE."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.lake import Lake, row_delta, windows
from cdc_assets.lake.commit import RowDelta
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, DropColumn, RenameColumn, RetypeColumn
from cdc_assets_tests.lake.table_source import Source


@dataclass(frozen=True)
class KeyKind:
    """A type of a key column, its values by number, and the type that a DDL widens it to."""

    column: Column
    value: Callable[[int], Any]
    wider: Column | None = None


def _column(kind: str, **more: Any) -> Column:
    return Column("k", kind, **{"nullable": False, "is_pk": True, **more})


def _encoded(number: int) -> str:
    return base64.b64encode(bytes([number, 0, 255 - number]) + b" " * (number % 3)).decode()


_MEMBERS = tuple(f"m{number}" for number in range(12))
KINDS: dict[str, KeyKind] = {
    "int": KeyKind(_column("INT"), lambda n: n - 6, _column("BIGINT")),
    "bigint": KeyKind(_column("BIGINT"), lambda n: (n - 6) << 40),
    "unsigned bigint": KeyKind(_column("BIGINT", unsigned=True), lambda n: 2**64 - 1 - n),
    "decimal": KeyKind(
        _column("DECIMAL", precision=9, scale=2), lambda n: f"{n - 6}.50", _column("DECIMAL", precision=30, scale=2)
    ),
    "decimal of 38 digits": KeyKind(_column("DECIMAL", precision=38, scale=10), lambda n: f"{10**27 + n}.{n:010d}"),
    "decimal of 60 digits": KeyKind(_column("DECIMAL", precision=60, scale=2), lambda n: f"{10**50 + n}.25"),
    "text": KeyKind(_column("VARCHAR", precision=60, collation="binary"), lambda n: ("kK"[n % 2] + " " * (n % 4)) * n),
    "char": KeyKind(_column("CHAR", precision=20, collation="utf8mb4_0900_bin"), lambda n: f"ä{n}\U0001f600"),
    "long text": KeyKind(_column("VARCHAR", precision=99), lambda n: "\U0010ffff" * 20 + f"{n}"),
    "padded text": KeyKind(
        _column("VARCHAR", precision=20, collation="utf8mb4_bin"), lambda n: f"k{n // 2}" + " " * (n % 2)
    ),
    "varbinary": KeyKind(_column("VARBINARY", precision=20, collation="binary"), _encoded),
    "date": KeyKind(_column("DATE"), lambda n: f"{1960 + n}-02-28"),
    "datetime": KeyKind(_column("DATETIME", scale=6), lambda n: f"{1960 + n}-02-28 23:59:59.{n:06d}"),
    "timestamp": KeyKind(_column("TIMESTAMP", scale=6), lambda n: f"{1980 + n}-02-28 23:59:59.{n:06d}"),
    "time": KeyKind(_column("TIME", collation="binary"), lambda n: f"-{n + 1:02d}:00:00"),
    "year": KeyKind(_column("YEAR"), lambda n: 2000 + n),
    "bit": KeyKind(_column("BIT", precision=1), lambda n: n % 2),
    "bits": KeyKind(_column("BIT", precision=64), lambda n: 2**64 - 1 - n),
    "enum": KeyKind(_column("ENUM", elems=_MEMBERS, collation="binary"), lambda n: _MEMBERS[n]),
    "set": KeyKind(_column("SET", elems=_MEMBERS), lambda n: f"{_MEMBERS[n]},{_MEMBERS[11]}"[: 2 if n == 11 else None]),
    "nullable int": KeyKind(_column("Int64", nullable=True), lambda n: n),
    "nullable text": KeyKind(_column("Utf8", nullable=True), lambda n: f"{n % 5}"),
    "double": KeyKind(_column("DOUBLE"), lambda n: f"{n}.5"),
}
_NAMES = ("id", "a.b", "wide name", "größe`", "x_x2Eb", "select", "c1", "'")


class History:
    """Two tables that go through the same history: one by row deltas where they may be, one by MERGE."""

    def __init__(self, lake: Lake, kinds: tuple[KeyKind, ...], seed: int, rule: HistoryRule | None = None) -> None:
        self.lake, self.kinds, self.rng = lake, list(kinds), random.Random(seed)
        self.is_mirror = rule is None
        names = self.rng.sample(_NAMES, len(kinds) + 1)
        rule = replace(rule, track_except=(names[-1],)) if rule is not None and rule.track_except else rule
        self.keys = [replace(kind.column, name=name) for kind, name in zip(kinds, names, strict=False)]
        self.others = [Column(names[-1], "VARCHAR", precision=20)]
        self.deltas = 0
        self.ours, self.theirs = (
            Source(lake, TableId("shop", name), self.schema(), rule=rule) for name in ("ours", "theirs")
        )
        self.ts, self.made, self.alive = 101, len(_NAMES), dict[tuple[Any, ...], None]()

    def schema(self) -> TableSchema:
        return TableSchema((*self.keys, *self.others), tuple(column.name for column in self.keys))

    def run(self, events: int) -> None:
        self.window(12)
        for _ in range(events):
            self.rng.choice([self.window] * 5 + [self.alter, self.rewrite])()
            if self.rng.random() < 0.3:
                self.window(1)

    def _row(self, op: str, key: tuple[Any, ...]) -> tuple[Any, ...]:
        self.ts += self.rng.randrange(2)
        rest = (
            self.rng.choice((None, f"{self.ts}")) if column.type == "VARCHAR" else self.rng.randrange(9)
            for column in self.others
        )
        return (op, self.ts, *key, *rest)

    def _key(self) -> tuple[Any, ...]:
        return tuple(kind.value(self.rng.randrange(12)) for kind in self.kinds)

    def window(self, changes: int = 6) -> None:
        self.ts += 1
        rows = []
        for _ in range(self.rng.randrange(changes) + 1):
            key = self._key()
            what = self.rng.choice(("put", "put", "remove", "swap"))
            if what == "put":
                rows.append(self._row("U" if key in self.alive else "I", key))
                self.alive[key] = None
            elif what == "remove":
                rows.append(self._row("D", key))
                self.alive.pop(key, None)
            elif len(self.alive) > 1:
                first_key, other = self.rng.sample(list(self.alive), 2)
                rows += [self._row(op, key) for op in "DI" for key in (first_key, other)]
        if not rows:
            return
        self.ts += 1
        merge = patch.object(windows, "row_delta_of", return_value=None)
        with (
            patch.object(windows, "EVERY", 2),  # and small files are put together at every turn
            merge if self.rng.random() < 0.25 else patch.object(windows, "row_delta_of", self._delta),
        ):
            self.ours.apply(self.ts, rows)
        with merge:
            self.theirs.apply(self.ts, rows)
        self.compare()

    def _delta(self, *given: Any) -> RowDelta | None:
        delta = row_delta.row_delta_of(*given)
        self.deltas += delta is not None
        return delta

    def alter(self) -> None:
        self.made += 1
        at, what = self.rng.randrange(len(self.keys)), self.rng.choice(("add", "drop", "rename", "widen"))
        what = {"drop": "empty"}.get(what, what) if not self.is_mirror else what
        change: Any
        wider = self.kinds[at].wider
        if what == "widen" and wider is not None:
            old, self.keys[at] = self.keys[at], replace(wider, name=self.keys[at].name)
            self.kinds[at] = replace(self.kinds[at], wider=None)
            change = RetypeColumn(old, self.keys[at])
        elif what == "rename":
            old, self.keys[at] = self.keys[at], replace(self.keys[at], name=f"re.named{self.made}")
            change = RenameColumn(old.name, self.keys[at].name)
        elif what == "empty":
            change = DeleteRows(None)
            self.alive.clear()
        elif what == "drop" and len(self.others) > 1:
            change = DropColumn(self.others.pop(0).name)
        else:
            self.others.append(Column(self.rng.choice((f"n{self.made}", f"n.{self.made}")), "INT"))
            change = AddColumn(self.others[-1], "7")
        self.ts += 1
        for source in (self.ours, self.theirs):
            source.change(self.ts, self.schema(), change)
        self.compare()

    def rewrite(self) -> None:
        """Write the table's data files again, so that its deletion vectors go."""
        with self.lake.workbench.on(self.ours.life) as work:
            actions = work.session.iceberg.java("org.apache.iceberg.spark.actions.SparkActions").get()
            actions.rewriteDataFiles(work.target.table).option("rewrite-all", "true").execute()
        self.compare()

    def compare(self) -> None:
        our_rows, other = self.ours.rows(), self.theirs.rows()
        assert our_rows == other, self.keys
        table, expected = (self.lake.state.find(source.life) for source in (self.ours, self.theirs))
        assert (table.label, table.rows) == (expected.label, expected.rows)
        with self.lake.workbench.sessions.step() as session:
            read = session.spark.table(session.name(table.identifier)).drop("_cdc_commit_ts").count()
        assert read == len(our_rows)


PAIRS = [pytest.param(seed, None, marks=pytest.mark.soak) for seed in range(20)]
ALONE = [pytest.param(0, kind, marks=[pytest.mark.soak] * (kind != "decimal")) for kind in KINDS]


@pytest.mark.parametrize(("seed", "kind"), [*ALONE, *PAIRS])
def test_a_history_by_row_deltas_leaves_what_it_leaves_by_merge(seed: int, kind: str | None, lake: Lake) -> None:
    names = [kind] if kind else random.Random(seed).sample([*KINDS], 2)
    history = History(lake, tuple(KINDS[name] for name in names), seed)
    history.run(5 if kind else 12)
    assert bool(history.deltas) == (not {"double", "padded text"} & {*names})


STATES = HistoryRule("*", ("scd2",))
TRACKED = replace(STATES, track_except=("the last",))
RULES = {"all": STATES, "some": TRACKED}
TRIALS = [
    pytest.param(seed, rule, marks=[pytest.mark.soak] * ((seed, rule) != (0, "some")))
    for seed in range(12)
    for rule in RULES
]


@pytest.mark.parametrize(("seed", "tracked"), TRIALS)
def test_states_by_row_deltas_are_those_that_a_merge_leaves(seed: int, tracked: str, lake: Lake) -> None:
    names = random.Random(seed).sample([name for name in KINDS if name not in ("double", "padded text")], 1 + seed % 2)
    history = History(lake, tuple(KINDS[name] for name in names), seed, RULES[tracked])
    history.run(3 if seed == 0 else 12)
    assert history.deltas
