"""Tables that RENAMEs bring under a rule of the setting history: their histories begin there.

A model keeps the changes of each source table, and says what its histories have to be: a log has the changes from the
RENAME on, a table of states those that last beyond it, and each that is older begins there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.errors import ExtractRefused
from cdc_assets.features.cuts.operations import make_cut
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.generated import how_many
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

Change = tuple[Tso, str, int, str]
"""Position, word of the log, key and value."""
State = tuple[int, str, Tso, Tso | None]
RULES: dict[str, Any] = {"s.a": ["log", "scd2"], "s.b": "log"}


@dataclass
class Table:
    """A table of the source: its changes, the names that it had, each with its version, and its rows."""

    version: Tso
    names: list[tuple[Tso, str]]
    changes: list[Change] = field(default_factory=list)
    rows: dict[int, str] = field(default_factory=dict)
    dropped: bool = False

    @property
    def name(self) -> str:
        return self.names[-1][1]

    @property
    def life(self) -> Life:
        return Life(TableId("s", self.names[0][1]), self.version)

    def begins(self, kind: str, rules: dict[str, Any]) -> Tso:
        """Return the version at which it came under a rule for a kind first."""
        return next(version for version, name in self.names if kind in rules.get(f"s.{name}", ()))

    def ends(self, kind: str, rules: dict[str, Any]) -> Tso | None:
        """Return the version at which it left the last rule for a kind; None where one asks for it by its name now."""
        under_rule = [kind in rules.get(f"s.{name}", ()) for _, name in self.names]
        left = [
            at for (at, _), before, now in zip(self.names[1:], under_rule, under_rule[1:], strict=False) if before > now
        ]
        return None if under_rule[-1] else left[-1]

    def log(self, begins: Tso, ends: Tso = FOREVER) -> list[Change]:
        return sorted(change for change in self.changes if begins <= change[0] < ends)

    def states(self, begins: Tso, ends: Tso = FOREVER) -> list[State]:
        states, open_ = list[State](), dict[int, tuple[str, Tso]]()
        for at, word, key, value in (change for change in self.changes if change[0] < ends):
            if key in open_:
                had, since = open_.pop(key)
                states.append((key, had, since, at))
            if word != "DELETE":
                open_[key] = value, at
        states += [(key, value, since, None) for key, (value, since) in open_.items()]
        lasting = (state for state in states if state[3] is None or state[3] > begins)
        return sorted((key, value, max(since, begins), until) for key, value, since, until in lasting)


class Source(LittleFeed):
    """Tables that are written to, renamed, dropped and restored, each at the next position."""

    def __init__(self, directory: Path, names: str) -> None:
        super().__init__(directory)
        self.at, self.tables, self.every = FIRST, dict[str, Table](), list[Table]()
        self.dropped = dict[str, Table]()
        for name in names:
            self.begin(name)

    def begin(self, name: str) -> None:
        self.at += 1
        self.create(f"s.{name}", self.at)
        self.tables[name] = Table(self.at, [(self.at, name)])
        self.every.append(self.tables[name])
        self.write(name, 0)

    def write(self, name: str, number: int) -> None:
        """Insert a row, update or delete one."""
        self.at += 1
        table, value = self.tables[name], f"{name}{self.at - FIRST}"
        key = number % (len(table.rows) + 1)
        op, word = ("U", "UPDATE_AFTER") if key in table.rows else ("I", "INSERT")
        if key in table.rows and number % 3 == 2:
            op, word, value = "D", "DELETE", table.rows[key]
        self.rows(f"s.{name}", table.names[-1][0], [(op, self.at, key, value)])
        table.changes.append((self.at, word, key, value))
        table.rows.pop(key, None)
        table.rows |= {key: value} if op != "D" else {}

    def rename(self, old: str, new: str) -> None:
        self.at += 1
        self.ddl(f"s.{new}", self.at, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`", 14)
        table = self.tables[new] = self.tables.pop(old)
        table.names.append((self.at, new))

    def swap(self, first: str, second: str) -> None:
        self.rename(first, "t")
        self.rename(second, first)
        self.rename("t", second)

    def truncate(self, name: str) -> None:
        self.at += 1
        self.ddl(f"s.{name}", self.at, f"TRUNCATE TABLE `{name}`", 11)
        table = self.tables[name]
        table.names.append((self.at, name))
        self._leave(table)
        self.dropped.pop(name, None)  # a RECOVER would bring the rows from before the TRUNCATE

    def drop(self, name: str) -> None:
        self.at += 1
        self.ddl(f"s.{name}", self.at, f"DROP TABLE `{name}`", 4, columns=False)
        table = self.dropped[name] = self.tables.pop(name)
        kept = dict(table.rows)
        self._leave(table)
        table.rows = kept

    def _leave(self, table: Table) -> None:
        table.changes += [(self.at, "DELETE", key, value) for key, value in table.rows.items()]
        table.rows = {}

    def recover(self, name: str) -> None:
        self.at += 1
        self.ddl(f"s.{name}", self.at, f"RECOVER TABLE `{name}`", 25)
        table = self.tables[name] = self.dropped.pop(name)
        table.names.append((self.at, name))
        table.changes += [(self.at, "INSERT", key, value) for key, value in table.rows.items()]

    def published(self) -> None:
        self.at += 1
        self.publish(self.at)


class Applied:
    """A lake that a source's feed is applied to."""

    def __init__(self, source: Source, rules: dict[str, Any] | None = None, **given: Any) -> None:
        self.source, self.lake, self.ledger, self.given = source, MemoryLake(), Ledger("sqlite://"), given
        self.rules = RULES if rules is None else rules

    def pipeline(self) -> Pipeline:
        given = self.source.settings(history=self.rules, **self.given)
        return Pipeline(given, given.open_source(), self.lake, self.ledger)

    def apply(self, steps: int | None = None) -> list[str]:
        outcome = self.pipeline().apply("test", lambda plan: plan.steps[:steps])
        return [f"{table.life}: {table.reason}" for table in outcome.tables if table.state.stopped]

    def rows(self, life: Life) -> list[Any]:
        """Return a log or states as the model has them."""
        rows = self.lake.tables[life].rows.to_pylist()
        if life.kind == "log":
            return sorted((row["_cdc_position"], row["_change_type"], row["id"], row["v"]) for row in rows)
        return sorted((row["id"], row["v"], row["_cdc_start_ts"], row["_cdc_end_ts"]) for row in rows)

    def faults(self) -> Iterator[str]:
        """Say what is wrong with the histories of the tables that rules ask for by their present names."""
        names = [table.name for table in self.lake.tables.values() if table.name is not None]
        if len(set(names)) < len(names):
            yield f"two tables have one name: {sorted(map(str, names))}"
        for name, table in self.source.tables.items():
            if {row["id"]: row["v"] for row in self.lake.read(TableId("s", name)).to_pylist()} != table.rows:
                yield f"s.{name} is {self.lake.read(TableId('s', name)).to_pylist()}"
            for kind in [kind for kind in ("log", "scd2") if kind in self.rules.get(f"s.{name}", ())]:
                life, begins = Life(table.life.born_as, table.version, kind), table.begins(kind, self.rules)
                expected = table.log(begins) if kind == "log" else table.states(begins)
                if life not in self.lake.tables:
                    yield f"{life} is not there"
                elif self.lake.tables[life].name != TableId("s", f"{name}__{kind}"):
                    yield f"{life} is called {self.lake.tables[life].name}"
                elif self.rows(life) != expected:
                    yield f"{life}, which begins at {begins}, has {self.rows(life)} for {expected}"

    def frozen_faults(self) -> Iterator[str]:
        """Say what is wrong with the histories of tables that left the rules which asked for them."""
        for table in self.source.every:
            for kind in ("log", "scd2"):
                if not any(kind in self.rules.get(f"s.{name}", ()) for _, name in table.names):
                    continue
                life, end = replace(table.life, kind=kind), table.ends(kind, self.rules)
                begins = table.begins(kind, self.rules)
                if end is not None:
                    expected = table.log(begins, end) if kind == "log" else table.states(begins, end)
                    if life not in self.lake.tables:
                        yield f"{life}, which ended at {end}, is not there"
                    elif self.rows(life) != expected:
                        yield f"{life} of {begins} to {end} has {self.rows(life)} for {expected}"

    def contents(self) -> dict[Life, Any]:
        """Return the names, columns and rows of all tables, of logs those that come from row events.

        Which rows a TRUNCATE, DROP or RECOVER moves is only in a log beside which there was a mirror then.
        """
        rows = {life: table.rows.to_pylist() for life, table in self.lake.tables.items()}
        return {
            life: (
                table.name,
                table.lives,
                table.begins,
                sorted(str(row) for row in rows[life] if ":" in row.get("_cdc_place", ":")),
            )
            for life, table in self.lake.tables.items()
        }


def begun(applied: Applied, life: Life) -> tuple[str, ...]:
    """Return where a run says that a history begins."""
    findings = applied.pipeline().apply("test").findings
    name = str(applied.lake.tables[life].name)
    return tuple(finding.detail for finding in findings if (finding.rule, finding.table) == ("history-since", name))


@pytest.mark.parametrize("at_once", [False, True], ids=["step by step", "at once"])
def test_the_history_of_a_renamed_table_begins_at_the_rename(tmp_path: Path, at_once: bool) -> None:
    source = Source(tmp_path, "xy")
    applied = Applied(source)
    for number in (0, 1, 3, 2):
        source.write("x", number)
    source.published()
    assert at_once or applied.apply() == []
    source.rename("x", "a")
    at = source.at
    source.write("a", 0)
    source.published()
    assert applied.apply() == []
    assert list(applied.faults()) == []
    life = source.tables["a"].life
    assert min(start for _, _, start, _ in applied.rows(Life(life.born_as, life.version, "scd2"))) == at
    for kind in ("log", "scd2"):
        assert begun(applied, Life(life.born_as, life.version, kind)) == (f"from {at}",)
    (taken,) = (table for table in make_cut(applied.pipeline(), "now").taken if table.life.kind == "scd2")
    assert taken.snapshot_id is not None


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("steps", range(8))
def test_histories_begin_at_the_rename_wherever_the_run_that_makes_them_stops(
    tmp_path: Path, mirror: bool, steps: int
) -> None:
    source = Source(tmp_path, "x")
    source.rename("x", "a")
    source.write("a", 1)
    source.published()
    rule = {"kinds": ["log", "scd2"], "mirror": mirror}
    applied = Applied(source, {"s.a": rule})
    applied.apply(steps)
    source.write("a", 0)
    source.published()
    assert applied.apply() == []
    born = source.tables["a"]
    begins = born.begins("log", RULES)
    for kind, expected in (("log", born.log(begins)), ("scd2", born.states(begins))):
        assert applied.rows(replace(born.life, kind=kind)) == expected


@pytest.mark.parametrize("steps", range(1, 9))
def test_histories_that_a_stopped_run_made_go_on_to_the_rename_that_ends_them(tmp_path: Path, steps: int) -> None:
    source = Source(tmp_path, "x")
    source.rename("x", "a")
    source.write("a", 1)
    source.published()
    applied = Applied(source)
    applied.apply(steps)
    source.write("a", 0)
    former = source.tables["a"]
    begins = former.begins("log", RULES)
    source.begin("y")
    expected = {"log": former.log(begins), "scd2": former.states(begins)}
    source.rename("a", "old")
    source.rename("y", "a")
    source.write("old", 1)
    source.published()
    assert applied.apply() == []
    assert list(applied.faults()) == []
    lives = {kind: replace(former.life, kind=kind) for kind in expected}
    made = {kind: applied.rows(life) for kind, life in lives.items() if life in applied.lake.tables}
    assert made == {kind: expected[kind] for kind in made}


@pytest.mark.parametrize("at_once", [False, True], ids=["step by step", "at once"])
def test_a_mirror_that_ends_at_the_rename_is_not_asked_for_the_rows_of_a_later_truncate(
    tmp_path: Path, at_once: bool
) -> None:
    source = Source(tmp_path, "x")
    applied = Applied(source, {"s.a": {"kinds": ["log"], "mirror": False}})
    source.published()
    assert applied.apply() == []
    source.rename("x", "a")
    source.write("a", 0)
    changed = source.at
    source.published()
    assert at_once or applied.apply() == []
    source.truncate("a")
    truncated = source.at
    source.published()
    assert applied.apply() == []
    (row, *others) = applied.rows(replace(source.tables["a"].life, kind="log"))
    assert row[:3] == (changed, "UPDATE_AFTER", 0)
    assert others == [(truncated, "TRUNCATE", None, None)]


def test_an_extract_of_before_the_rename_comes_from_the_feed(tmp_path: Path) -> None:
    source = Source(tmp_path, "x")
    applied = Applied(source)
    source.write("x", 0)
    source.rename("x", "a")
    at = source.at
    source.write("a", 1)
    source.published()
    assert applied.apply() == []
    parts = [extract(applied.pipeline(), "s.a", *bounds) for bounds in ((FIRST, at - 1), (at - 1, source.at))]
    assert [(part.source, part.changes.num_rows) for part in parts] == [("feed", 2), ("log", 1)]
    for path in (source.bucket / "s" / "x").glob("*/CDC*"):
        path.unlink()
    assert extract(applied.pipeline(), "s.a", at - 1, source.at).changes.num_rows == 1
    with pytest.raises(ExtractRefused, match=f"changes through {FIRST + 3} .* left the feed"):
        extract(applied.pipeline(), "s.a", FIRST, source.at)


def test_where_the_input_from_before_the_rename_is_gone_both_begin_there_and_say_so(tmp_path: Path) -> None:
    source = Source(tmp_path, "x")
    applied = Applied(source)
    source.published()
    assert applied.apply() == []
    for path in (source.bucket / "s" / "x").glob("*/CDC*"):
        path.unlink()
    source.rename("x", "a")
    at = source.at
    source.write("a", 1)
    source.published()
    assert applied.apply() == []
    life = source.tables["a"].life
    assert applied.rows(Life(life.born_as, life.version, "log")) == source.tables["a"].log(at)
    states = Life(life.born_as, life.version, "scd2")
    assert applied.rows(states) == [state for state in source.tables["a"].states(at) if state[2] > at]
    assert begun(applied, states) == (f"from {at}",)
    (lacking,) = deficits_at(applied.lake, applied.pipeline().planner.plan()[1], states, source.at)
    assert lacking.reason == f"its states begin at {at - 1}: rows that did not change since then are missing"


@pytest.mark.parametrize("is_kept_out", [True, False])
def test_no_row_that_was_forgotten_comes_back_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept_out: bool
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key of the tests")
    source = Source(tmp_path, "x")
    applied = Applied(source, privacy_key={"env": "PRIVACY_KEY"})
    source.write("x", 1)
    source.published()
    assert applied.apply() == []
    until = source.at if is_kept_out else None
    assert forget(applied.pipeline(), MemoryForgetting(applied.lake), "s.x", [["0"]], "run", until=until).complete
    source.rename("x", "a")
    source.write("a", 2)
    source.published()
    assert applied.apply() == []
    life = source.tables["a"].life
    states = applied.rows(Life(life.born_as, life.version, "scd2"))
    assert [row[0] for row in states] == ([1, 2] if is_kept_out else [2])
    assert [row[2] for row in applied.rows(Life(life.born_as, life.version, "log"))] == [2]
    losses = list[str]()
    rebuild(applied.pipeline(), MemoryRebuilds(applied.lake), ["s.a__scd2"], consent=losses.append)
    assert ["come back" in text for text in losses] == ([] if is_kept_out else [True])


def test_a_rule_that_is_set_later_begins_where_the_table_got_the_name(tmp_path: Path) -> None:
    source = Source(tmp_path, "ax")
    applied = Applied(source, {})
    source.rename("x", "b")
    source.published()
    assert applied.apply() == []
    applied.rules = RULES
    source.published()
    assert applied.apply() == []
    assert list(applied.faults()) == []
    assert applied.lake.tables[Life(TableId("s", "a"), FIRST + 1, "scd2")].begins is None


def test_a_rule_that_follows_a_table_to_its_new_name_goes_on_with_its_history(tmp_path: Path) -> None:
    source = Source(tmp_path, "a")
    applied = Applied(source)
    source.published()
    assert applied.apply() == []
    source.rename("a", "c")
    applied.rules = {"s.c": ["log", "scd2"]}
    source.write("c", 0)
    source.published()
    assert applied.apply() == []
    lives = [Life(TableId("s", "a"), FIRST + 1, kind) for kind in ("log", "scd2")]
    for life in lives:
        whole = source.tables["c"].log(0) if life.kind == "log" else source.tables["c"].states(0)
        assert applied.rows(life) == whole
        rebuild(applied.pipeline(), MemoryRebuilds(applied.lake), [str(life)])
        assert applied.rows(life) == whole


def test_records_from_before_the_rename_wait_for_a_rebuild(tmp_path: Path) -> None:
    source = Source(tmp_path, "x")
    applied = Applied(source)
    source.at += 1
    bad = source.rows("s.x", FIRST + 1, [("I", source.at, "none", "no key")])
    source.rename("x", "a")
    source.published()
    given = source.settings(history=RULES, quarantine=True)
    outcome = Pipeline(given, given.open_source(), applied.lake, applied.ledger).apply("test")
    assert [table.reason for table in outcome.tables if table.state.stopped] == []
    bad.write_bytes(bad.read_bytes().replace(b"none", b"9"))
    results = {result.life.kind: result for result in replay(applied.pipeline())}
    assert (results[""].waiting, results["scd2"].waiting) == (0, 1)
    assert "Rebuild the table" in results["scd2"].reason
    rebuild(applied.pipeline(), MemoryRebuilds(applied.lake), ["s.a__scd2"])
    life = next(life for life in applied.lake.tables if life.kind == "scd2")
    assert [row[0] for row in applied.rows(life)] == [0, 9]


def test_columns_of_before_the_rename_are_those_of_the_source_then(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.ddl("s.x", FIRST, "CREATE TABLE `x` (`id` INT PRIMARY KEY,`v` VARCHAR(40),`w` INT)", 3, wide=True)
    feed.ddl("s.x", FIRST + 5, "ALTER TABLE `x` DROP COLUMN `w`", 5)
    feed.ddl("s.a", FIRST + 10, "RENAME TABLE `s`.`x` TO `s`.`a`", 14)
    feed.ddl("s.a", FIRST + 15, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, wide=True)
    feed.publish(FIRST + 20)
    lake, given = MemoryLake(), feed.settings(history=RULES)
    outcome = Pipeline(given, given.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert [table.reason for table in outcome.tables if table.reason] == []
    lives = {life.kind: table.lives[-1] for life, table in lake.tables.items()}
    assert [(lives[kind].column, lives[kind].since) for kind in ("log", "scd2")] == [("w", FIRST + 15)] * 2


def play(source: Source, random: Random) -> str:
    """Let the source do something, and return what."""
    names = sorted(source.tables)
    free = [name for name in "abcd" if name not in names]
    name, op = random.choice(names), random.choice(("write",) * 5 + ("rename", "swap", "truncate", "drop", "recover"))
    if op == "write":
        source.write(name, random.randrange(12))
    elif op == "rename" and free:
        source.rename(name, random.choice(free))
    elif op == "swap" and len(names) > 1:
        source.swap(*random.sample(names, 2))
    elif op == "truncate":
        source.truncate(name)
    elif op == "drop" and len(names) > 1:
        source.drop(name)
        if random.random() < 0.5:
            source.begin(name)
    elif op == "recover" and (gone := sorted(source.dropped.keys() & set(free))):
        source.recover(gone[0])
    return f"{op} {name}"


@how_many(12, 1000)
def test_histories_begin_where_generated_renames_bring_their_tables_under_a_rule(tmp_path: Path, count: int) -> None:
    for number in range(count):
        check(tmp_path / "feed", Random(number))
        shutil.rmtree(tmp_path / "feed")


def check(directory: Path, random: Random) -> None:
    """Apply a generated source at some of its positions, stopped now and then, and all at once."""
    source = Source(directory, "abc"[: random.randint(1, 3)])
    often, once, script = Applied(source), Applied(source), list[str]()
    for _ in range(random.randint(6, 24)):
        script.append(play(source, random))
        if random.random() < 0.3:
            source.published()
            if random.random() < 0.3:
                often.apply(random.randint(0, 6))
            else:
                assert often.apply() == [], script
                assert list(often.faults()) == [], script
    source.published()
    for applied in (often, once):
        assert applied.apply() == [], script
        assert [*applied.faults(), *applied.frozen_faults()] == [], script
    assert often.contents() == once.contents(), script
    rebuild(often.pipeline(), MemoryRebuilds(often.lake))
    for _ in range(2):
        assert list(often.faults()) == [], script
        assert often.apply() == [], script


@how_many(12, 1000)
def test_one_run_gives_the_lake_that_a_run_for_each_checkpoint_gives(tmp_path: Path, count: int) -> None:
    for number in range(count):
        check_rules(tmp_path / "feed", Random(number))
        shutil.rmtree(tmp_path / "feed")


def check_rules(directory: Path, random: Random) -> None:
    """Apply a source by generated rules, of mirrors too, at each checkpoint, stopped now and then, and all at once."""
    choices = (
        "log",
        "scd2",
        ["log", "scd2"],
        {"kinds": ["log"], "mirror": False},
        {"kinds": ["scd2"], "mirror": False},
    )
    rules = {f"s.{name}": random.choice(choices) for name in "abcd" if random.random() < 0.6}
    excluded = [f"s.{name}" for name in "abcd" if f"s.{name}" not in rules and random.random() < 0.5]
    given = {"tables": {"exclude": excluded}} if excluded else {}
    source = Source(directory, "abc"[: random.randint(1, 3)])
    often, once = Applied(source, rules, **given), Applied(source, rules, **given)
    script, held = list[Any]([rules, excluded]), list[str]()
    for _ in range(random.randint(4, 20)):
        script.append(play(source, random))
        source.published()
        if random.random() < 0.3:
            often.apply(random.randint(0, 6))
        held = often.apply()
    assert once.apply() == held, script
    assert often.contents() == once.contents(), script
