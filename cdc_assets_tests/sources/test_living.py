"""Which names live after renames, several of one statement among them."""

from __future__ import annotations

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.sources.topics.fence import names_at

CREATED, RENAMED = 10, 20


def file(name: str, version: int, query: str, action: int) -> SchemaFile:
    return SchemaFile("", "", TableId("db", name), version, query, action, ())


def living(*pairs: tuple[str, str]) -> set[str]:
    files = [file(name, CREATED, f"CREATE TABLE `{name}` (`i` INT)", 3) for name in "ab"]
    files += [file(new, RENAMED, f"RENAME TABLE `db`.`{old}` TO `db`.`{new}`", 14) for old, new in pairs]
    return {name.table for name in names_at(files, RENAMED).living}


AS_WRITTEN = [("a", "t"), ("b", "a"), ("t", "b")]
BY_NAMES_BEFORE = [("a", "t"), ("b", "a"), ("a", "b")]
"""How the new and the old architecture send RENAME TABLE a TO t, b TO a, t TO b."""


@pytest.mark.parametrize("pairs", [AS_WRITTEN, BY_NAMES_BEFORE])
def test_tables_that_exchange_their_names_leave_no_name_in_between(pairs: list[tuple[str, str]]) -> None:
    assert living(*pairs) == {"a", "b"}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_parts_of_a_statement_may_come_in_another_order_from_several_topics(place: int) -> None:
    pairs = [BY_NAMES_BEFORE[0], BY_NAMES_BEFORE[2]]  # both are in the topic of a
    pairs.insert(place, BY_NAMES_BEFORE[1])
    assert living(*pairs) == {"a", "b"}


@pytest.mark.parametrize("pairs", [AS_WRITTEN, BY_NAMES_BEFORE])
def test_a_name_that_tables_only_pass_through_is_not_left_then(pairs: list[tuple[str, str]]) -> None:
    files = [file("a", CREATED, "CREATE TABLE `a` (`i` INT)", 3)]
    files += [file(new, RENAMED, f"RENAME TABLE `db`.`{old}` TO `db`.`{new}`", 14) for old, new in pairs]
    assert TableId("db", "t") not in names_at(files, RENAMED).ended


def test_a_chain_ends_at_its_last_name() -> None:
    assert living(("a", "x"), ("x", "y"), ("y", "z")) == {"z", "b"}


def test_a_name_that_was_left_and_taken_lives() -> None:
    assert living(("a", "c"), ("b", "a")) == {"a", "c"}
