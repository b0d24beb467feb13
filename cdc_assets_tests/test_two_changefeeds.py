"""Two changefeeds in one lake: a name that belongs to one of them holds the other's table, and no more than that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import RebuildRefused
from cdc_assets.lake import Lake
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed


class Feed(LittleFeed):
    """A changefeed with its pipeline into the lake that both share."""

    def __init__(self, name: str, directory: Path, lake: Lake, *tables: str) -> None:
        super().__init__(directory / name)
        self.lake = lake
        settings = self.settings(name)
        self.pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
        for table in tables:
            self.create(f"s.{table}")
            self.rows(f"s.{table}", FIRST, [("I", FIRST + 1, 1, name)])

    def apply(self, checkpoint: int) -> Outcome:
        self.publish(checkpoint)
        return self.pipeline.apply(f"run at {checkpoint}")


@pytest.fixture
def feeds(open_lake: Callable[..., Lake], tmp_path: Path) -> tuple[Feed, Feed]:
    feed = Feed("one", tmp_path, open_lake("one"), "taken")
    other_feed = Feed("two", tmp_path, open_lake("two"), "taken", "free")
    assert feed.apply(FIRST + 10).complete
    return feed, other_feed


def states_of(outcome: Outcome) -> dict[str, Any]:
    return {table.name.table: (table.state, table.reason) for table in outcome.tables}


def test_a_table_whose_name_is_another_changefeeds_is_held_and_the_others_are_applied(
    feeds: tuple[Feed, Feed],
) -> None:
    feed, other_feed = feeds
    states = states_of(other_feed.apply(FIRST + 10))
    assert states["free"] == ("applied", "")
    state, reason = states["taken"]
    assert state == "held"
    assert "s.taken is the changefeed one's" in reason
    assert "namespace" in reason
    assert [str(name) for name in other_feed.lake.names()] == ["s.free"]
    with pytest.raises(RebuildRefused, match=r"s\.taken is the changefeed one's"):
        rebuild(other_feed.pipeline, Rebuilds(other_feed.lake), ["s.taken"], "again")
    assert Rebuilds(other_feed.lake).tickets() == ()
    assert feed.apply(FIRST + 20).complete


def test_a_table_that_is_renamed_to_another_changefeeds_name_is_held_and_goes_on_once_it_is_free(
    feeds: tuple[Feed, Feed],
) -> None:
    feed, other_feed = feeds
    other_feed.apply(FIRST + 10)
    other_feed.create("s.more")
    other_feed.ddl("s.theirs", FIRST + 20, "RENAME TABLE `s`.`free` TO `s`.`theirs`", 14)
    other_feed.rows("s.theirs", FIRST + 20, [("I", FIRST + 21, 2, "two")])
    feed.create("s.theirs")
    assert feed.apply(FIRST + 30).complete
    states = states_of(other_feed.apply(FIRST + 30))
    assert states["theirs"][0] == "held"
    assert "s.theirs is the changefeed one's" in states["theirs"][1]
    assert states["more"] == ("applied", "")
    assert {str(name) for name in other_feed.lake.names()} == {"s.free", "s.more"}
    feed.ddl("s.theirs", FIRST + 40, "DROP TABLE `s`.`theirs`", 4, columns=False)
    assert feed.apply(FIRST + 50).complete
    assert states_of(other_feed.apply(FIRST + 50))["theirs"] == ("applied", "")
    assert {str(name) for name in other_feed.lake.names()} == {"s.theirs", "s.more"}


def test_tables_that_are_renamed_at_once_wait_for_the_one_whose_new_name_is_another_changefeeds(
    feeds: tuple[Feed, Feed],
) -> None:
    """Else `b` would be called applied, while readers of the name `b` still see the table that was `b` before."""
    feed, other_feed = feeds
    other_feed.create("s.a")
    other_feed.rows("s.a", FIRST, [("I", FIRST + 1, 1, "a")])
    other_feed.create("s.b")
    other_feed.rows("s.b", FIRST, [("I", FIRST + 1, 1, "b")])
    other_feed.apply(FIRST + 10)
    for new, old in (("b", "a"), ("x", "b")):
        other_feed.ddl(f"s.{new}", FIRST + 20, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`", 14)
    feed.create("s.x", FIRST + 20)
    assert feed.apply(FIRST + 30).complete
    outcome = other_feed.apply(FIRST + 30)
    held = {str(table.life.born_as): table.reason for table in outcome.tables if table.state == "held"}
    assert "s.x is the changefeed one's" in held["s.b"]
    assert held["s.a"].startswith("waits for s.b@")
    assert {"s.a", "s.b"} <= {str(name) for name in other_feed.lake.names()}
    assert [row["v"] for row in other_feed.lake.read(TableId("s", "b")).to_pylist()] == ["b"]
