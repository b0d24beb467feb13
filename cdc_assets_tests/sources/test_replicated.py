"""A dump may have tables that the changefeed does not: they would never change in the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import TableId
from cdc_assets.sources.replicated import ReplicatedTables, replicated
from cdc_assets_tests.dump_writer import Row, Writing, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

OLD, KEYLESS, OTHER, SYSTEM = (TableId(*name.split(".")) for name in ("s.old", "s.log", "other.t", "mysql.user"))


def toml(directory: Path, text: str) -> Path:
    path = directory / "changefeed.toml"
    path.write_text(f"{text}\n[sink.csv]\ninclude-commit-ts = true\n")
    return path


def warnings(directory: Path, config: str, *, in_feed: bool = False) -> tuple[set[TableId], list[str]]:
    """Import a dump of four tables; return which are in the lake, and what is said of the dump."""
    feed, lake = LittleFeed(directory), MemoryLake()
    feed.toml = toml(directory, config)
    feed.ddl("s.old", FIRST, "", 0)
    if in_feed:
        feed.ddl("s.log", FIRST, "", 0)
    feed.publish(FIRST + 9)
    keyed, bare = (f"CREATE TABLE `{{}}` (`id` INT{key},`v` VARCHAR(40))" for key in (" PRIMARY KEY", ""))
    texts = {
        table: (bare if table is KEYLESS else keyed).format(table.table) for table in (OLD, KEYLESS, OTHER, SYSTEM)
    }
    rows: list[Row] = [("1", "x")]
    write_dump(
        directory / "dump", {t: (created(text), rows) for t, text in texts.items()}, FIRST, Writing(), texts=texts
    )
    outcome = feed.pipeline_into(lake, initial={"dump": str(directory / "dump")}).apply("test")
    return set(lake.names()), [warning.text for warning in outcome.warnings if "/dump: " in warning.text]


def test_tables_that_the_filter_excludes_are_left_out_of_a_dump_and_named(tmp_path: Path) -> None:
    names, (sentence,) = warnings(tmp_path, 'force-replicate = true\n[filter]\nrules = ["*.*", "!other.*"]')
    assert names == {OLD, KEYLESS}
    assert "filter excludes mysql.user, other.t, so nothing of that is imported" in sentence


def test_tables_without_a_key_are_left_out_where_the_changefeed_says_so(tmp_path: Path) -> None:
    names, sentences = warnings(tmp_path, "force-replicate = false")
    assert names == {OLD, OTHER}
    assert "force-replicate = false, so it does not replicate" in sentences[-1]
    assert ": s.log. Nothing of that is imported" in sentences[-1]


def test_tables_without_a_key_are_warned_about_where_nothing_says_that_they_are_replicated(tmp_path: Path) -> None:
    names, sentences = warnings(tmp_path, "")
    assert names == {OLD, KEYLESS, OTHER}
    assert "only if force-replicate is true" in sentences[-1]
    assert ": s.log. What is not replicated" in sentences[-1]


@pytest.mark.parametrize("config", ["", "force-replicate = false"])
def test_a_table_without_a_key_that_the_feed_has_is_replicated(tmp_path: Path, config: str) -> None:
    names, sentences = warnings(tmp_path, config, in_feed=True)
    assert KEYLESS in names
    assert not [text for text in sentences if "s.log" in text]


@pytest.mark.parametrize(
    ("text", "name", "replicates"),
    [
        ("", "a.b", True),
        ("", "Information_Schema.tables", False),
        ('[filter]\nrules = ["*.*", "!a.b"]', "A.B", False),
        ('case-sensitive = true\n[filter]\nrules = ["*.*", "!a.b"]', "A.B", True),
        ('[filter]\nrules = ["a.*"]', "b.b", False),
        ('[filter]\nrules = ["# by hand", "a.*"]', "a.b", True),
        ('[filter]\nrules = ["@rules.txt"]', "a.b", True),
    ],
)
def test_the_filter_of_the_changefeed_says_which_tables_it_has(
    tmp_path: Path, text: str, name: str, replicates: bool
) -> None:
    assert replicated(toml(tmp_path, text)).names(TableId(*name.split("."))) is replicates


def test_without_a_toml_the_defaults_count() -> None:
    assert replicated(None) == ReplicatedTables()


def test_rules_that_are_no_list_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"`filter.rules` is 'a\.\*'; expected a list"):
        replicated(toml(tmp_path, '[filter]\nrules = "a.*"'))
