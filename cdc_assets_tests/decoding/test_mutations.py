"""Recorded changefeeds, mistreated by every sin of the writer, end equal to the source at every checkpoint."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.formats import SplitReader
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import StagedWindow
from cdc_assets.model.steps import ApplyRows
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.changefeed import option
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.mutant_reader import play
from cdc_assets_tests.mutations import SINS, Mutant
from cdc_assets_tests.records import records

CHOSEN = (
    "A_all_types",
    "B_ddl_columns",
    "C_ddl_tables",
    "D_keys",
    "E_partitions",
    "G_redelivery",
    "K_big_txn",
    "L_crash",
)
SOAK_SETS = 6
"""Random combinations for each configuration in the long sweep."""


def _readable(config: Config) -> bool:
    """Without commit-ts nothing can be recognised as delivered twice; `records` reads the usual quote only."""
    options = config.options
    usual = option(options.wire, "quote", '"') == '"'
    return options.wire.has_commit_ts and usual and not config.loses_rows


def sin_sets(seed: int, count: int) -> list[tuple[str, ...]]:
    """Return `count` random combinations of two to six sins, each in the order of SINS."""
    chooser = random.Random(seed)
    names = list(SINS)
    return [tuple(sorted(chooser.sample(names, chooser.randint(2, 6)), key=names.index)) for _ in range(count)]


# Q's files are overwritten when the clock falls back: only a reader that comes by in time is right.
CONFIGS = [c for case in cases() if not case.name.startswith("Q_") for c in case.configs if _readable(c)]
SMALL = next(c for c in CONFIGS if str(c) == "D_keys/csv-ts")
FAST = [
    c for c in CONFIGS if c.case.name in CHOSEN and c.name == ("csv-ts", "canal-ext")[CHOSEN.index(c.case.name) % 2]
]


@pytest.mark.parametrize("sin", SINS)
def test_each_sin_alone_changes_nothing_in_the_lake(sin: str, tmp_path: Path) -> None:
    mutant = Mutant(SMALL, (sin,), 1, tmp_path)
    assert play(mutant, MemoryLake(), Ledger("sqlite://")) == []


@pytest.mark.parametrize(("config", "sins"), list(zip(FAST, sin_sets(20260331, len(FAST)), strict=True)), ids=str)
def test_sins_combined_change_nothing_in_the_lake(config: Config, sins: tuple[str, ...], tmp_path: Path) -> None:
    mutant = Mutant(config, sins, 1, tmp_path)
    assert play(mutant, MemoryLake(), Ledger("sqlite://")) == []


def test_every_sin_does_something(tmp_path: Path) -> None:
    (config,) = (c for c in CONFIGS if str(c) == "L_crash/canal-ext")
    mutant = Mutant(config, tuple(SINS), 3, tmp_path)
    for state in mutant.states():
        mutant.applied = state.checkpoint.ts
    done = mutant.done
    if not done["rewrite"]:  # other sins leave no number that may be written anew
        alone = Mutant(config, ("rewrite",), 3, tmp_path / "alone")
        for state in alone.states():
            alone.applied = state.checkpoint.ts
        done += alone.done
    assert set(+done) == set(SINS)


class _Forgetful(MemoryLake):
    """Applies rows that were applied before: what would happen without the watermark."""

    def stage(self, step: ApplyRows, reader: SplitReader) -> StagedWindow:
        return super().stage(replace(step, lo=0), reader)


def test_a_reader_without_a_watermark_is_caught(tmp_path: Path) -> None:
    mutant = Mutant(SMALL, ("redeliver",), 0, tmp_path)
    assert play(mutant, _Forgetful(), Ledger("sqlite://")) != []


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.case.name in ("A_all_types", "F_names")], ids=str)
def test_records_put_together_are_the_file(config: Config) -> None:
    for path in sorted(config.bucket().rglob("CDC*.*")):
        if path.suffix in (".csv", ".json"):
            header, file_records = records(path.read_bytes(), config.options)
            assert header + b"".join(record.raw for record in file_records) == path.read_bytes()


def test_a_seed_gives_the_same_bytes_again(tmp_path: Path) -> None:
    def tree(name: str) -> dict[str, bytes]:
        mutant = Mutant(SMALL, ("redeliver_cut", "temporary", "foreign", "index"), 5, tmp_path / name)
        for state in mutant.states():
            mutant.applied = state.checkpoint.ts
        files = sorted(p for p in mutant.bucket.rglob("*") if p.is_file())
        return {str(p.relative_to(mutant.bucket)): p.read_bytes() for p in files}

    assert tree("one") == tree("two")


def test_without_the_ledger_a_lost_ddl_holds_tables_and_never_mixes_them(tmp_path: Path) -> None:
    (config,) = (c for c in CONFIGS if str(c) == "C_ddl_tables/csv-ts")
    lacking = set[int]()
    for seed in range(3):
        lake = MemoryLake()
        lake.may_lack_rows = True  # a lost RENAME makes a new table of the rows that follow it
        wrong = play(Mutant(config, ("rewritten_schema",), seed, tmp_path / str(seed)), lake, None)
        held = [line for line in wrong[1:] if " is held: " in line]
        assert not [line for line in wrong[1:] if "missing or different" in line], wrong
        for life, table in lake.tables.items():
            if table.missing is not None:
                lacking.add(seed)
                renames = [line for line in wrong if "forgot" in line and "RENAME" in line]
                assert any(str(life.version) in line for line in renames), f"{life}: {table.missing}"
        assert held or not (wrong or seed in lacking)
    assert lacking


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_long_sweep_of_sins_finds_nothing_wrong() -> None:
    tried, done = 0, Counter[str]()
    wrong: list[str] = []
    chooser = random.Random(6)
    for config in CONFIGS:
        alone = [(sin,) for sin in SINS] if config in FAST else []
        for sins in [*alone, *sin_sets(chooser.randrange(2**32), SOAK_SETS)]:
            directory = Path(tempfile.mkdtemp())
            mutant = Mutant(config, sins, tried, directory)
            mismatches = play(mutant, MemoryLake(), Ledger("sqlite://"))
            shutil.rmtree(directory)
            tried += 1
            done += mutant.done
            if mismatches:
                wrong.append(f"seed {tried - 1}: " + "\n    ".join(mismatches[:8]))
        print(f"{config}: {tried} feeds, {len(wrong)} wrong", flush=True)
    print(f"\nmutated feeds: {tried}, mutations: {sum(done.values()):,}, wrong results: {len(wrong)}")
    for sin, count in sorted(done.items()):
        print(f"  {sin:18} {count:8,}")
    assert not wrong, "\n".join(wrong)
