"""Windows that tasks read in parts prove what they prove in one go: rows that came past the log, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pyarrow as pa
import pytest

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, noted, unmade
from cdc_assets.decoding.states import FIRST
from cdc_assets.decoding.window import Window, reduced
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Op
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, RowReading

KEY = Column("id", "INT", nullable=False, is_pk=True)
SCHEMA = TableSchema((KEY, Column("v", "INT")), ("id",))
KEYS = range(4)


class Logged(NamedTuple):
    at: int
    op: Op
    key: int


def window_of(kind: str, files: int) -> ApplyRows:
    name = TableId("s", "t")
    listed = tuple(DataFile(f"s/t/1/{number}", "s/t", 1, "s/t/1", number, 1) for number in range(files))
    rule = HistoryRule("s.t", (kind,)) if kind else None
    return ApplyRows(
        Life(name, 1, kind), 0, 1000, listed, RowReading(names=((name, 0, 1 << 62),)), SCHEMA, 1, history=rule
    )


def source(random: Random, there: set[int]) -> tuple[list[Logged], set[int]]:
    """Return changes of rows in order, and the keys of which one is of a row that came past the log."""
    rows, known, log, betrayed = set(there), set(there), list[Logged](), set[int]()
    for at in range(10, 10 + 4 * random.randrange(2, 12), 4):
        key = random.choice(KEYS)
        if key not in rows and random.randrange(3) == 0:
            rows.add(key)  # an import
        if key not in rows:
            rows.add(key)
            known.add(key)
            log.append(Logged(at, Op.INSERT, key))
            continue
        betrayed |= {key} - known
        is_deleted = random.randrange(2) == 0
        log.append(Logged(at, Op.DELETE if is_deleted else Op.UPDATE, key))
        known.add(key)
        if is_deleted:
            rows.remove(key)
            known.remove(key)
    return log, betrayed


def changes_of(log: Sequence[Logged], file: int) -> pa.Table:
    columns = {
        "id": pa.array([change.key for change in log], pa.int32()),
        "v": pa.array([change.at for change in log], pa.int32()),
        OP: pa.array([int(change.op) for change in log], pa.int8()),
        COMMIT_TS: pa.array([change.at for change in log], pa.int64()),
        LINE: pa.array(range(len(log)), pa.int64()),
        FILE: pa.array([file] * len(log), pa.int32()),
    }
    return noted(pa.table(columns), whole_at=-1)


def proven(step: ApplyRows, parts: Sequence[Sequence[Logged]], there: set[int]) -> set[int]:
    """Return the keys that need a row from before the window, which some tasks read in parts."""
    read = [Window(changes_of(part, number)) for number, part in enumerate(parts) if part]
    if len(read) > 1:
        read = [reduced(step, [part], is_part=True) for part in read]
    if not read:
        return set()
    changes = kind_of(step).finished(reduced(step, read).changes, step)
    needs = set[int]()
    for key in KEYS:
        some = changes.filter(pa.array([row_key == key for row_key in changes.column("id").to_pylist()], pa.bool_()))
        first = some.column(FIRST).to_pylist() if FIRST in some.column_names else [True] * some.num_rows
        lacks = pa.array([key not in there and is_first for is_first in first], pa.bool_())
        if some.num_rows and unmade(some, step, lacks) is not None:
            needs.add(key)
    return needs


@pytest.mark.parametrize("kind", ["", "scd2"])
@pytest.mark.parametrize("seed", range(40))
def test_generated_windows_prove_the_same_in_one_part_and_in_many(seed: int, kind: str) -> None:
    random = Random(seed)
    there = {key for key in KEYS if random.randrange(2)}
    log, betrayed = source(random, there)
    count = random.randrange(2, 5)
    step = window_of(kind, count)
    assert proven(step, [log], there) == betrayed
    cuts = [0, *sorted(random.randrange(len(log) + 1) for _ in range(count - 1)), len(log)]
    in_order = [log[start:end] for start, end in pairwise(cuts)]
    assert proven(step, in_order, there) == betrayed
    by_key = [[change for change in log if change.key % count == number] for number in range(count)]
    assert proven(step, by_key, there) == betrayed
    mixed: list[list[Logged]] = [[] for _ in range(count)]
    for change in log:
        random.choice(mixed).append(change)
    assert proven(step, mixed, there) <= betrayed


def test_a_part_that_only_inserts_is_no_proof_and_no_reason_against_one() -> None:
    step = window_of("", 2)
    deleted, again = Logged(10, Op.DELETE, 1), Logged(20, Op.INSERT, 1)
    assert proven(step, [[deleted], [again]], set()) == {1}
    assert proven(step, [[deleted], [again]], {1}) == set()
    assert proven(step, [[again], [Logged(30, Op.UPDATE, 1)]], set()) == set()


def test_what_lies_between_two_changes_of_another_part_is_not_known() -> None:
    step = window_of("", 2)
    outer = [Logged(10, Op.DELETE, 1), Logged(30, Op.UPDATE, 1)]
    assert proven(step, [outer, [Logged(20, Op.INSERT, 1)]], {1}) == set()
    assert proven(step, [outer, [Logged(40, Op.UPDATE, 1)]], {1}) == {1}
    assert FIRST_IMAGE in changes_of(outer, 0).column_names
