"""Data files that are missing though an index names them (lost, still to come, never written), or that are foreign."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cdc_assets.cli import commands
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake


class _Feed:
    """A table with two files and an index; `dispatcher` is that of a writer that writes the index last."""

    def __init__(self, directory: Path, dispatcher: str = "") -> None:
        self.feed = LittleFeed(directory)
        self.feed.create("shop.a")
        self.feed.create("shop.b")
        self.feed.rows("shop.b", FIRST, [("I", FIRST + 5, 1, "b")])
        self.lake, self.ledger = MemoryLake(), Ledger(f"sqlite:///{directory}/ledger.db")
        self.prefix = f"CDC_{dispatcher}_" if dispatcher else "CDC"
        self.index = f"CDC_{dispatcher}.index" if dispatcher else "CDC.index"
        self.paths = [self._renamed(self.feed.rows("shop.a", FIRST, [("I", FIRST + n, n, "a")])) for n in (1, 2)]
        self.point_to(self.paths[1])

    def _renamed(self, path: Path) -> Path:
        return path.rename(path.with_name(path.name.replace("CDC", self.prefix)))

    def point_to(self, path: Path) -> None:
        (path.parent / "meta").mkdir(exist_ok=True)
        (path.parent / "meta" / self.index).write_text(path.name + "\n")

    def apply(self, checkpoint: int) -> Outcome:
        """Apply as a new process does, which knows what the ledger knows."""
        self.feed.publish(FIRST + checkpoint)
        return self.feed.pipeline_into(self.lake, self.ledger).apply("test")

    def rows(self) -> list[int]:
        return sorted(
            row["id"] for name in self.lake.names() if name.table == "a" for row in self.lake.read(name).to_pylist()
        )


def forget(warehouse: Path, *paths: str) -> Result:
    options = [word for path in paths for word in ("--forget", path)]
    return CliRunner().invoke(commands, ["files", "--warehouse", str(warehouse), *options], standalone_mode=False)


def states(outcome: Outcome) -> dict[str, str]:
    return {str(table.name): table.state for table in outcome.tables}


def test_a_last_file_that_a_writer_of_the_index_wrote_before_it_is_lost(tmp_path: Path) -> None:
    feed = _Feed(tmp_path, "7")
    content = feed.paths[1].read_bytes()
    feed.paths[1].unlink()
    for checkpoint in (10, 11):  # the second look reads no index
        outcome = feed.apply(checkpoint)
        assert states(outcome) == {"shop.a": "held", "shop.b": "applied"}, checkpoint
        (reason,) = (table.reason for table in outcome.tables if table.state == "held")
        assert feed.paths[1].name in reason
        assert "--forget" in reason
    feed.paths[1].write_bytes(content)
    assert states(feed.apply(12)) == {"shop.a": "applied", "shop.b": "applied"}
    assert feed.rows() == [1, 2]


def test_a_person_can_say_that_a_lost_file_does_not_matter(tmp_path: Path) -> None:
    feed = _Feed(tmp_path, "7")
    feed.paths[1].unlink()
    feed.apply(10)
    (path,) = (entry.path for entry in feed.ledger.unread("little"))
    forgotten = forget(tmp_path, path)
    assert (forgotten.exit_code, path in forgotten.output, "snapshot" in forgotten.output) == (0, True, False)
    assert states(feed.apply(11))["shop.a"] == "applied"
    assert feed.rows() == [1]


@pytest.mark.parametrize("dispatcher", ["", "7"])
def test_a_number_that_is_missing_between_others_stops_each_run_until_a_person_lets_it_go(
    tmp_path: Path, dispatcher: str
) -> None:
    feed = _Feed(tmp_path, dispatcher)
    last = feed._renamed(feed.feed.rows("shop.a", FIRST, [("I", FIRST + 3, 3, "a")]))
    feed.point_to(last)
    content = feed.paths[1].read_bytes()
    feed.paths[1].unlink()
    for checkpoint in (10, 11):
        outcome = feed.apply(checkpoint)
        (missing,) = (finding for finding in outcome.warnings if finding.rule == "files-missing")
        assert (outcome.settled, missing.detail) == (False, f"shop/a/{FIRST}/{feed.paths[1].name}")
    assert "is not known" in str(forget(tmp_path, f"shop/b/{FIRST}/none.csv").exception)
    assert forget(tmp_path, missing.detail).exit_code == 0
    assert feed.apply(12).settled
    assert feed.rows() == [1, 3]
    feed.paths[1].write_bytes(content)
    assert states(feed.apply(13))["shop.a"] == "held"


def test_what_may_still_be_written_or_is_unknown_cannot_be_forgotten(tmp_path: Path) -> None:
    feed = _Feed(tmp_path)
    feed.paths[1].unlink()
    feed.apply(10)
    (path,) = feed.ledger.noted("little")
    read = f"shop/a/{FIRST}/{feed.paths[0].name}"
    for paths, reason in (([path], "may still write it"), ([read, "shop/a/1/none.csv"], "none.csv is not known")):
        refused = forget(tmp_path, *paths)
        assert reason in str(refused.exception)
    assert feed.ledger.noted("little") == {path}
    assert read in {entry.path for entry in feed.ledger.files("little")}


def test_a_file_that_is_read_may_be_removed(tmp_path: Path) -> None:
    feed = _Feed(tmp_path, "7")
    feed.apply(10)
    feed.paths[1].unlink()
    feed.point_to(feed.paths[1])
    assert states(feed.apply(11))["shop.a"] == "applied"


def test_of_older_writers_a_missing_last_file_is_a_finding(tmp_path: Path) -> None:
    feed = _Feed(tmp_path)
    content = feed.paths[1].read_bytes()
    feed.paths[1].unlink()
    for checkpoint in (10, 11):
        outcome = feed.apply(checkpoint)
        assert states(outcome)["shop.a"] == "applied"
        assert any(feed.paths[1].name in warning.text for warning in outcome.warnings), checkpoint
    feed.paths[1].write_bytes(content.replace(str(FIRST + 2).encode(), str(FIRST + 12).encode()))
    assert not any(feed.paths[1].name in warning.text for warning in feed.apply(13).warnings)
    assert feed.rows() == [1, 2]


def test_an_index_is_read_once_for_each_of_its_contents(tmp_path: Path) -> None:
    feed = _Feed(tmp_path)
    source = feed.feed.settings().open_source()
    feed.feed.publish(FIRST + 10)
    first = source.listing()
    index = f"shop/a/{FIRST}/meta/CDC.index"
    assert [path for path, _, _ in first.fresh if path.endswith(".index")] == [index]
    again = feed.feed.settings().open_source().listing(first.fresh)
    assert again.fresh == {}
    feed.point_to(feed.paths[0].with_name("CDC00000000000000000003.csv"))
    changed = feed.feed.settings().open_source().listing(first.fresh)
    assert [path for path, _, _ in changed.fresh] == [index]
    assert changed.unwritten == (f"shop/a/{FIRST}/CDC00000000000000000003.csv",)


def test_an_index_of_no_use_is_no_finding(tmp_path: Path) -> None:
    feed = _Feed(tmp_path, "7")
    for text in ("", "CDC0", "../../metadata", "CDC_7_00000000000000000009.json"):
        (feed.paths[0].parent / "meta" / feed.index).write_text(text)
        assert states(feed.apply(10)) == {"shop.a": "applied", "shop.b": "applied"}, text


def test_a_file_of_another_protocol_holds_its_table_until_it_is_forgotten(tmp_path: Path) -> None:
    feed = _Feed(tmp_path)
    foreign = feed.paths[1].with_suffix(".json")
    foreign.write_text("{}")
    outcome = feed.apply(9)
    assert states(outcome) == {"shop.a": "held", "shop.b": "applied"}
    assert not outcome.complete
    foreign.rename(tmp_path / foreign.name)
    assert states(feed.apply(9)) == {"shop.a": "held", "shop.b": "applied"}
    assert forget(tmp_path, str(foreign.relative_to(feed.feed.bucket))).exit_code == 0
    assert feed.apply(9).complete
    assert feed.rows() == [1, 2]


@pytest.mark.parametrize("protocols", [("csv", "canal-json"), ("canal-json", "csv")])
@pytest.mark.parametrize("version", [FIRST, FIRST + 15], ids=["in the same directory", "in another directory"])
def test_no_row_is_lost_where_a_changefeed_changes_its_protocol(
    tmp_path: Path, protocols: tuple[str, str], version: int
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path, protocols[0]), MemoryLake(), Ledger("sqlite://")

    def apply(protocol: str) -> tuple[str, list[int]]:
        feed.protocol = protocol
        (table,) = feed.pipeline_into(lake, ledger).apply().tables
        return table.state.value, sorted(lake.read(TableId("shop", "a")).column("id").to_pylist())

    feed.create("shop.a")
    older = [feed.rows("shop.a", FIRST, [("I", FIRST + 1, 1, "x")])]
    feed.publish(FIRST + 5)
    assert apply(protocols[0]) == ("applied", [1])
    older.append(feed.rows("shop.a", FIRST, [("I", FIRST + 10, 2, "x")]))
    feed.protocol = protocols[1]
    if version != FIRST:
        feed.ddl("shop.a", version, "ALTER TABLE `a` COMMENT 'x'", 5)
    newer = feed.rows("shop.a", version, [("I", FIRST + 20, 3, "x")])
    feed.publish(FIRST + 30)
    assert apply(protocols[1]) == ("held", [1])
    through = [1] if version == FIRST else [1, 2]
    assert apply(protocols[0]) == ("held", through)
    newer.rename(tmp_path / newer.name)
    assert apply(protocols[0]) == ("held", through)  # its rows would be before the position of the table
    (tmp_path / newer.name).rename(newer)
    for path in older:
        path.unlink()
    assert apply(protocols[1]) == (("held", [1]) if version == FIRST else ("applied", [1, 2, 3]))
