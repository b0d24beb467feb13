"""Which tables are due, which rest, and which runs they make; from schema files and progress alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.model.steps import ApplyRows, HoldTable
from cdc_assets.planning.plan import Plan, plan
from cdc_assets.planning.run_batches import (
    Attempt,
    Due,
    RunBatch,
    backoff,
    backoff_seconds,
    batches,
    due,
    families,
    open_attempts,
)
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.planning.test_plan import A, B, C, at, create, data_file, schema_file

LIFE, OTHER = Life(A, 10), Life(B, 10)
TRUNCATE = schema_file(A, 60, "TRUNCATE TABLE `a`", 11)
RENAME = schema_file(B, 60, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)


def planned(checkpoint: int, *files: SchemaFile | DataFile, applied: dict[Life, AppliedState] | None = None) -> Plan:
    schemas = tuple(file for file in files if isinstance(file, SchemaFile))
    data = tuple(file for file in files if isinstance(file, DataFile))
    return plan(
        Listing(checkpoint, schemas, data), applied or {}, replace(TABLE_RULES, ddl=Rules({"truncate table": "hold"}))
    )


# --- what is due ------------------------------------------------------------------------------------------------------


def test_a_table_with_new_rows_is_due_and_one_without_is_not() -> None:
    files = (create(A, 10), create(B, 10), data_file(A, 10))
    applied = {**at(50), OTHER: AppliedState(Progress(50, Phase.ROWS), 10, B)}
    (due_work,) = due(planned(80, *files, applied=applied))
    assert (due_work.lives, due_work.since, due_work.file_bytes) == ((LIFE,), 50, 100)


def test_a_reported_hold_is_not_due_and_an_unreported_one_is_once() -> None:
    held = planned(80, create(A, 10), TRUNCATE, applied=at(59))
    (step,) = held.steps
    assert isinstance(step, HoldTable)
    assert due(held, reported={str(LIFE): step.reason}) == ()
    assert [due_work.lives for due_work in due(held, reported={str(LIFE): "another reason"})] == [(LIFE,)]


def test_the_mark_stays_while_only_the_checkpoint_moves_and_changes_when_the_table_does() -> None:
    files = (create(A, 10), data_file(A, 10))
    marks = [due(planned(checkpoint, *files, applied=at(50)))[0].mark for checkpoint in (70, 80)]
    assert marks[0] == marks[1]
    assert due(planned(80, *files, applied=at(60)))[0].mark != marks[0]


def test_the_mark_changes_with_a_new_schema_file_and_with_settings() -> None:
    files = (create(A, 10), data_file(A, 10))
    index = schema_file(A, 55, "ALTER TABLE `a` ADD INDEX `i`(`v`)", 7)
    mark = due(planned(80, *files, applied=at(50)))[0].mark
    assert due(planned(80, *files, index, data_file(A, 55), applied=at(50)))[0].mark != mark
    same = planned(80, *files, applied=at(50))
    aside = tuple(replace(step, sets_aside=True) for step in same.steps if isinstance(step, ApplyRows))
    assert due(replace(same, steps=aside))[0].mark != mark
    assert due(replace(same, steps=tuple(replace(step, sets_aside=False) for step in aside)))[0].mark == mark


def test_tables_that_exchange_names_are_one_family() -> None:
    swap = [
        schema_file(C, 60, "RENAME TABLE `s`.`a` TO `s`.`c`", 14),
        schema_file(A, 61, "RENAME TABLE `s`.`b` TO `s`.`a`", 14),
        schema_file(B, 62, "RENAME TABLE `s`.`c` TO `s`.`b`", 14),
    ]
    history = read_history((create(A, 10), create(B, 10), create(TableId("s", "d"), 10), *swap))
    families_by_life = families(history)
    assert families_by_life[LIFE] == families_by_life[OTHER] == (LIFE, OTHER)
    assert families_by_life[Life(TableId("s", "d"), 10)] == (Life(TableId("s", "d"), 10),)


def test_a_family_is_due_together() -> None:
    files = (create(A, 10), RENAME, create(A, 70), data_file(A, 10), data_file(A, 70))
    assert [due_work.lives for due_work in due(planned(80, *files))] == [(LIFE, Life(A, 70))]


# --- asking again -----------------------------------------------------------------------------------------------------


def test_a_rest_doubles_up_to_its_bound() -> None:
    assert [backoff_seconds(n, 60, 600) for n in range(1, 7)] == [60, 120, 240, 480, 600, 600]
    assert backoff_seconds(10**6, 60, 3600) == 3600


def test_what_was_asked_for_in_vain_rests_and_then_is_asked_for_again() -> None:
    attempts = [Attempt(1000, 2, ("a", "b"))]
    assert backoff(attempts, 1119, 60, 600) == {"a": 1120, "b": 1120}
    assert backoff(attempts, 1120, 60, 600) == {}


def test_a_mark_that_is_not_due_any_more_is_forgotten() -> None:
    due_work, other_work = Due((LIFE,), "a", 1, 0), Due((OTHER,), "b", 1, 0)
    attempts = [Attempt(5, 1, ("a", "b", "gone"))]
    assert open_attempts(attempts, [due_work, other_work], ["b"]) == (Attempt(5, 1, ("a",)),)
    assert open_attempts(attempts, [], []) == ()


# --- runs -------------------------------------------------------------------------------------------------------------


def dues(sizes: Sequence[int]) -> list[Due]:
    return [
        Due((Life(TableId("s", f"t{n}"), 10),), f"m{n}", since=100 - n, file_bytes=size) for n, size in enumerate(sizes)
    ]


def made(sizes: Sequence[int], attempts: Sequence[int] = (), everything: bool = False) -> tuple[RunBatch, ...]:
    known = dues(sizes)
    attempt = {due_work.mark: n for due_work, n in zip(known, attempts, strict=False)}
    return batches(
        known, lambda due_work: attempt.get(due_work.mark, 1), tables=8, file_bytes=1000, everything=everything
    )


def test_small_tables_share_a_run_and_a_large_one_has_its_own() -> None:
    assert sorted(len(batch.dues) for batch in made([10, 5000, 10, 10])) == [1, 3]


def test_a_rest_that_fits_into_one_run_takes_all_tables_when_no_other_run_does() -> None:
    assert [batch.everything for batch in made([10, 10], everything=True)] == [True]
    assert [batch.everything for batch in made([10, 10])] == [False]
    assert not any(batch.everything for batch in made([10] * 20, everything=True))


def test_what_failed_goes_apart_in_ever_smaller_runs() -> None:
    assert sorted((b.attempt, len(b.dues)) for b in made([1] * 6, [1, 1, 1, 1, 2, 2])) == [(1, 4), (2, 2)]
    assert sorted(len(b.dues) for b in made([1] * 8, [2] * 8)) == [2, 2, 2, 2]
    assert sorted(len(b.dues) for b in made([1] * 8, [9] * 8)) == [1] * 8


def test_who_is_behind_for_longest_comes_first() -> None:
    assert [batch.since for batch in made([5000, 10, 5000])] == [98, 99, 100]


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 12)), max_size=40), st.booleans())
def test_every_table_is_in_exactly_one_run_and_no_run_is_too_large(sizes: list[tuple[int, int]], all_: bool) -> None:
    run_batches = made([size for size, _ in sizes], [n for _, n in sizes], all_)
    known = dues([size for size, _ in sizes])
    assert sorted(due_work.mark for batch in run_batches for due_work in batch.dues) == sorted(
        due_work.mark for due_work in known
    )
    for batch in run_batches:
        assert len(batch.dues) <= 8
        assert len(batch.dues) == 1 or sum(due_work.file_bytes for due_work in batch.dues) <= 1000
    assert sum(batch.everything for batch in run_batches) <= 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_lives_of_a_batch_are_those_of_its_families(count: int) -> None:
    known = [replace(due_work, lives=(*due_work.lives, OTHER)) for due_work in dues([1] * count)]
    assert len(RunBatch(tuple(known)).lives) == 2 * count
