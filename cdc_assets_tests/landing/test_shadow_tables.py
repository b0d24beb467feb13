"""Online schema changes as connectors for MySQL send them: with the rows of the shadow table, and without."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.model.progress import Lack
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_history import Held
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.landing.test_renamed_by_connectors import ddl, send, source
from cdc_assets_tests.marked_topics import recorded
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

Message = tuple[str, dict[str, Any]]

URI = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
LEFT_OUT = f"{URI}&table.include.list=d.t,d.u"
MADE = "CREATE TABLE `t` (`n` int NOT NULL, `v` varchar(20) DEFAULT NULL, `w` int DEFAULT NULL, PRIMARY KEY (`n`))"
ROWS = [(1, "a", 10), (2, "b", 20), (3, "c", 30)]


class Binlog:
    """Places in the source's log, and what stands there; rows of `unseen` tables are in no message."""

    def __init__(self, unseen: Sequence[str] = ()) -> None:
        self.messages: list[Message] = []
        self._unseen = unseen
        self._places = itertools.count(1)

    def ddl(self, text: str, *changed: str) -> None:
        self.messages.append(ddl(next(self._places), text, ",".join(changed), changed))

    def renames(self, *pairs: tuple[str, str]) -> None:
        """One statement, of which the connector sends a record a rename."""
        place = next(self._places)
        names = ",".join(sorted({name for pair in pairs for name in pair}))
        self.messages += [ddl(place, f"RENAME TABLE `d`.`{a}` TO `d`.`{b}`", names, [b]) for a, b in pairs]

    def row(self, table: str, **after: Any) -> None:
        if table not in self._unseen:
            value = {"before": None, "after": after, "source": source(next(self._places), table), "op": "c", "ts_ms": 1}
            self.messages.append((f"px.d.{table}", {**value, "key": {"n": after["n"]}}))


def copied(log: Binlog, shadow: str, alter: str, made: str = "") -> None:
    """Make a shadow table, alter it, and copy rows into it while the table goes on."""
    log.ddl(made or f"create /* gh-ost */ table `d`.`{shadow}` like `d`.`t`", shadow)
    if alter:
        log.ddl(f"alter /* gh-ost */ table `d`.`{shadow}` {alter}", shadow)
    for n, v, w in ROWS[:2]:
        log.row(shadow, n=n, v=v, w=w)
    log.row("t", n=3, v="c", w=30)
    log.row(shadow, n=3, v="c", w=30)


def gh_ost(log: Binlog, alter: str) -> None:
    log.ddl("drop /* gh-ost */ table if exists `d`.`_t_gho`", "_t_gho")
    log.ddl("create /* gh-ost */ table `d`.`_t_ghc` (id int primary key, hint varchar(64))", "_t_ghc")
    copied(log, "_t_gho", alter)
    log.ddl("create /* gh-ost */ table `d`.`_t_del` (id int auto_increment primary key)", "_t_del")
    log.ddl("drop /* gh-ost */ table if exists `d`.`_t_del`", "_t_del")
    log.renames(("t", "_t_del"), ("_t_gho", "t"))
    log.ddl("drop /* gh-ost */ table if exists `d`.`_t_ghc`", "_t_ghc")


def gh_ost_in_two_steps(log: Binlog, alter: str) -> None:
    copied(log, "_t_gho", alter)
    log.renames(("t", "_t_20261128180000_del"))
    log.renames(("_t_gho", "t"))


def pt_osc(log: Binlog, alter: str) -> None:
    copied(log, "__t_new", alter, MADE.replace("`t`", "`d`.`__t_new`"))
    log.ddl(
        "CREATE TRIGGER `pt_osc_d_t_ins` AFTER INSERT ON `d`.`t` FOR EACH ROW REPLACE INTO `d`.`__t_new` VALUES (1)"
    )
    log.renames(("t", "_t_old"), ("__t_new", "t"))
    log.ddl("DROP TABLE IF EXISTS `d`.`_t_old`", "_t_old")
    log.ddl("DROP TRIGGER IF EXISTS `d`.`pt_osc_d_t_ins`")


def pt_osc_with_drop(log: Binlog, alter: str) -> None:
    copied(log, "_t_new", alter)
    log.ddl("DROP TABLE IF EXISTS `d`.`t`", "t")
    log.renames(("_t_new", "t"))


GH_OST, PT_OSC = (gh_ost, gh_ost_in_two_steps), (pt_osc, pt_osc_with_drop)
TOOLS = (*GH_OST, *PT_OSC)
SHADOWS = ("_t_gho", "__t_new", "_t_new")


def before(unseen: Sequence[str] = SHADOWS) -> Binlog:
    log = Binlog(unseen)
    log.ddl(MADE, "t")
    for n, v, w in ROWS[:2]:
        log.row("t", n=n, v=v, w=w)
    return log


def fed(
    messages: Sequence[Message], uri: str = LEFT_OUT, cut: int | None = None, drops: str = "apply"
) -> tuple[TopicFeed, Outcome]:
    feed = TopicFeed.of(MemoryLog([]), sink_uri=uri, name="c", initial={}, policies={"drop table": drops})
    for part in (messages[:cut], messages[cut:]) if cut else (messages,):
        send(feed.log, part)
        feed.apply()
    return feed, feed.apply()


def rows(feed: TopicFeed, name: str = "t") -> list[dict[str, Any]]:
    lake_rows = feed.lake.read(TableId("d", name)).to_pylist()
    return sorted(
        ({k: v for k, v in row.items() if not k.startswith("_cdc")} for row in lake_rows), key=lambda row: row["n"]
    )


def held(outcome: Outcome) -> dict[str, str]:
    return {str(table.name): table.reason for table in outcome.tables if table.reason}


ALTERS: Mapping[str, tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]] = {
    "a new column": (
        "ADD COLUMN x varchar(9) NOT NULL DEFAULT 'x' AFTER n",
        {"x": "y"},
        [{"n": n, "x": "x", "v": v, "w": w} for n, v, w in ROWS],
    ),
    "without one": ("DROP COLUMN w", {}, [{"n": n, "v": v} for n, v, _ in ROWS]),
    "a wider type": ("MODIFY w bigint, MODIFY v varchar(60)", {}, [{"n": n, "v": v, "w": w} for n, v, w in ROWS]),
    "another name": ("CHANGE v label varchar(20)", {}, [{"n": n, "label": v, "w": w} for n, v, w in ROWS]),
    "an index": ("ADD KEY by_v (v), ADD UNIQUE KEY (n, v)", {}, [{"n": n, "v": v, "w": w} for n, v, w in ROWS]),
    "nothing": ("engine=innodb", {}, [{"n": n, "v": v, "w": w} for n, v, w in ROWS]),
}


@pytest.mark.parametrize(
    ("tool", "uri", "alter"),
    [
        *((tool, LEFT_OUT, alter) for tool, alter in zip(itertools.cycle(TOOLS), ALTERS, strict=False)),
        *((tool, uri, "another name") for tool in TOOLS for uri in (f"{URI}&table.exclude.list=d._.*", URI)),
        *(pytest.param(tool, LEFT_OUT, alter, marks=pytest.mark.soak) for tool in TOOLS for alter in ALTERS),
    ],
)
def test_the_alter_of_a_copy_without_rows_is_carried_out_on_the_table(tool: Any, uri: str, alter: str) -> None:
    text, more, expected = ALTERS[alter]
    log = before()
    tool(log, text)
    last = {**expected[0], "n": 4, **more}
    log.row("t", **last)
    feed, outcome = fed(log.messages, uri)
    assert held(outcome) == {}
    assert rows(feed) == [*expected, last]
    assert list(rows(feed)[0]) == list(expected[0])
    assert outcome.complete
    assert "d.t" in {str(name) for name in feed.lake.names()}
    assert uri == URI or [str(name) for name in feed.lake.names()] == ["d.t"]


@pytest.mark.parametrize(("tool", "drops"), [*((tool, "apply") for tool in TOOLS), (pt_osc_with_drop, "keep")])
def test_it_does_not_matter_what_a_run_has_seen_of_it(tool: Any, drops: str) -> None:
    text, more, expected = ALTERS["a new column"]
    log = before()
    tool(log, text)
    log.row("t", **{**expected[0], "n": 4, **more})
    for cut in range(2, len(log.messages)):
        feed, outcome = fed(log.messages, cut=cut, drops=drops)
        assert held(outcome) == {}, cut
        assert {state.dropped for state in feed.lake.applied().values()} == {None}, cut
        assert rows(feed) == [*expected, {**expected[0], "n": 4, **more}], cut


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("uri", [URI, f"{URI}&connector.class=MySqlConnector"], ids=["unknown", "listed"])
def test_rows_of_a_shadow_table_are_the_table_s_once_it_has_the_name(tool: Any, uri: str) -> None:
    log = before(unseen=())
    tool(log, "ADD UNIQUE KEY (v)")
    log.row("t", n=4, v="d", w=40)
    feed, outcome = fed(log.messages, uri)
    assert held(outcome) == {}
    assert [tuple(row.values()) for row in rows(feed)] == [*ROWS, (4, "d", 40)]


@pytest.mark.parametrize("tool", TOOLS)
def test_both_histories_of_a_change_are_there_whether_a_run_saw_what_was_before_it_or_not(tool: Any) -> None:
    log = before(unseen=())
    tool(log, "ADD COLUMN x int DEFAULT 5")
    log.row("t", n=4, v="d", w=40, x=5)
    feeds = [
        TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c", initial={}, history={"d.t": ["log", "scd2"]})
        for _ in range(2)
    ]
    send(feeds[0].log, log.messages)
    for message in log.messages:
        send(feeds[1].log, [message])
        feeds[1].apply()
    contents = list[list[tuple[str, str, str, list[int]]]]()
    for feed in feeds:
        assert held(feed.apply()) == {}
        contents.append(
            sorted(
                (
                    str(life.born_as),
                    life.kind,
                    str(table.name).removesuffix(f"_{life.version}"),
                    sorted(row["n"] for row in table.rows.to_pylist()),
                )
                for life, table in feed.lake.tables.items()
            )
        )
    assert contents[0] == contents[1]
    logs = {born: keys for born, kind, _, keys in contents[0] if kind == "log"}
    assert {frozenset(keys) for keys in logs.values()} == {frozenset({1, 2, 3}), frozenset({4})}


def test_a_table_may_change_several_times_and_a_tool_may_give_up_in_between() -> None:
    log = before()
    gh_ost(log, "ADD COLUMN x int DEFAULT 7")
    log.ddl("create table `d`.`_t_gho` like `d`.`t`", "_t_gho")
    log.ddl("alter table `d`.`_t_gho` add column wrong int", "_t_gho")
    log.ddl("drop table if exists `d`.`_t_gho`", "_t_gho")
    pt = "CREATE TABLE `d`.`_t_new` (`n` int NOT NULL, `v` varchar(20), `w` int, `x` int DEFAULT 7, PRIMARY KEY (`n`))"
    log.ddl(pt, "_t_new")
    log.ddl("ALTER TABLE `d`.`_t_new` DROP COLUMN w", "_t_new")
    log.renames(("t", "_t_old"), ("_t_new", "t"))
    log.row("t", n=4, v="d", x=8)
    feed, outcome = fed(log.messages)
    assert held(outcome) == {}
    assert rows(feed) == [*({"n": n, "v": v, "x": 7} for n, v, _ in ROWS), {"n": 4, "v": "d", "x": 8}]


@pytest.mark.parametrize(("tool", "former"), [(gh_ost, "_t_del"), (pt_osc, "_t_old"), (gh_ost_in_two_steps, "_t_.*")])
@pytest.mark.parametrize("drops", [True, False])
def test_a_former_table_that_the_connector_captures_is_another_one_without_rows(
    tool: Any, former: str, drops: bool
) -> None:
    text, more, expected = ALTERS["a new column"]
    log = before()
    tool(log, text)
    if not drops:
        log.messages = [message for message in log.messages if "DROP TABLE" not in json.dumps(message)]
    name = next(name for name in ("_t_del", "_t_old", "_t_20261128180000_del") if f"`{name}`" in str(log.messages))
    if drops and tool is not pt_osc:
        log.ddl(f"DROP TABLE `d`.`{name}`", name)
    log.row("t", **{**expected[0], "n": 4, **more})
    for cut in (None, *range(2, len(log.messages))):
        feed, outcome = fed(log.messages, f"{LEFT_OUT},d.{former}".replace("_t_.*", name), cut)
        assert held(outcome) == {}, cut
        assert rows(feed) == [*expected, {**expected[0], "n": 4, **more}], cut
        gaps = {str(table.name): table.gap is not None for table in outcome.tables if table.name in feed.lake.names()}
        assert gaps == {"d.t": False, **({} if drops else {f"d.{name}": True})}, cut


# --- what cannot be proven --------------------------------------------------------------------------------------------

DOUBTS = {
    "ADD UNIQUE KEY (v)": "unique index over v",
    "ADD UNIQUE KEY (v(3))": "unique index over v",
    "ADD COLUMN x int UNIQUE": "unique index over x",
    "MODIFY v varchar(2)": 'column "v" has another type',
    "MODIFY w smallint": 'column "w" has another type',
    "MODIFY w varchar(20)": 'column "w" has another type',
    "MODIFY w int NOT NULL": 'column "w" is NOT NULL',
    "DROP PRIMARY KEY, ADD PRIMARY KEY (n, w)": "its key is another one",
    "ADD COLUMN at datetime DEFAULT CURRENT_TIMESTAMP": "differs from row to row",
    "ADD CONSTRAINT c CHECK (w > 10)": "its constraint",
    "DROP COLUMN w, ADD COLUMN w int DEFAULT 5": 'column "w" has the name of one that goes',
    "DROP COLUMN w, CHANGE v w varchar(20)": 'column "w" has the name of one that goes',
    "CHANGE v w varchar(20), CHANGE w v int": 'column "v" has the name of one that goes',
    "PARTITION BY RANGE (n) (PARTITION p VALUES LESS THAN (2))": "its partitions",
    "RENAME COLUMN v TO label": "RENAME COLUMN",
    "": "it was not altered",
}


@pytest.mark.parametrize(
    ("tool", "alter"),
    [
        *zip(itertools.cycle(TOOLS), DOUBTS, strict=False),
        *(pytest.param(tool, alter, marks=pytest.mark.soak) for tool in TOOLS for alter in DOUBTS),
    ],
)
def test_a_copy_that_may_have_other_rows_holds_the_table(tool: Any, alter: str) -> None:
    log = before()
    tool(log, alter)
    log.row("t", n=4, v="d", w=4)
    feed, outcome = fed(log.messages)
    (reason,) = held(outcome).values()
    assert DOUBTS[alter] in reason
    (table,) = feed.lake.tables.values()
    assert sorted((row["n"], row["v"], row["w"]) for row in table.rows.to_pylist()) == ROWS


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("alter", ["a new column", "another name"])
def test_values_of_a_column_that_gh_ost_renames_are_told_to_be_uncertain(tool: Any, alter: str) -> None:
    log = before()
    tool(log, ALTERS[alter][0])
    findings = [finding for finding in fed(log.messages)[1].findings if finding.rule == "renamed-by-copy"]
    assert len(findings) == (alter == "another name" and tool in GH_OST)
    assert all((finding.table, finding.detail[:6]) == ("d.t", "label ") for finding in findings)


def test_a_ddl_of_the_table_after_the_copy_was_made_holds_it() -> None:
    for text in ("TRUNCATE TABLE t", "ALTER TABLE t ADD COLUMN y int"):
        log = before()
        log.ddl("create table `d`.`_t_gho` like `d`.`t`", "_t_gho")
        log.ddl("alter table `d`.`_t_gho` add column x int", "_t_gho")
        log.ddl(text, "t")
        log.renames(("t", "_t_del"), ("_t_gho", "t"))
        (reason,) = held(fed(log.messages)[1]).values()
        assert "changed by a DDL after that one was made" in reason


def half() -> Iterator[Message]:
    """What a connector sends that sends no DDL of tables which it leaves out."""
    log = before()
    log.row("t", n=3, v="c", w=30)
    log.renames(("_t_new", "t"))
    log.row("t", n=4, v="d", w=40, x="x")
    yield from log.messages


@pytest.mark.parametrize("uri", [LEFT_OUT, URI])
def test_half_of_a_rename_holds_the_table(uri: str) -> None:
    feed, outcome = fed([*half()], uri)
    assert "d._t_new takes the name of d.t" in held(outcome)["d.t"]
    assert [tuple(row.values()) for row in rows(feed)] == ROWS


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (("apply", "ALTER TABLE d.t ADD COLUMN x varchar(9) DEFAULT 'o'"), [(*row, "o") for row in ROWS]),
        (("rebuild", ""), []),
    ],
)
def test_each_way_out_of_half_a_rename_can_be_taken(release: tuple[str, str], expected: list[Any]) -> None:
    messages = [*half()]
    if release[0] != "apply":
        messages[-1][1]["after"].pop("x")
    feed, _ = fed(messages)
    assert held(release_all(feed, *release)) == {}
    last = (4, "d", 40, "x") if release[0] == "apply" else (4, "d", 40)
    assert [tuple(row.values()) for row in rows(feed)] == [*expected, last]


def release_all(feed: TopicFeed, way: str, text: str = "") -> Outcome:
    history = feed.pipeline().planner.plan()[1].history
    (held_event,) = [
        (life, event)
        for life, table_history in history.lives.items()
        for event in table_history.events
        if isinstance(event, Held)
    ]
    life, event = held_event
    assert any(f"--{way}" in way_out for way_out in event.ways)
    feed.lake.keep_decision(Release(life, event.at, way, text))
    return feed.apply()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("way", ["apply", "skip", "rebuild"])
def test_each_way_out_of_a_copy_that_may_have_other_rows_can_be_taken(tool: Any, way: str) -> None:
    log = before()
    tool(log, "ADD COLUMN x int DEFAULT 5, ADD UNIQUE KEY (v)")
    log.row("t", n=4, v="d", w=40, x=6)
    feed, _ = fed(log.messages)
    text = "ALTER TABLE d.t ADD COLUMN x int DEFAULT 5" if way == "apply" else ""
    assert held(release_all(feed, way, text)) == {}
    expected = [(*row, 5 if way == "apply" else None) for row in ROWS if way != "rebuild"]
    assert [tuple(row.values()) for row in rows(feed)] == [*expected, (4, "d", 40, 6)]


# --- other exchanges --------------------------------------------------------------------------------------------------


def exchange(unseen: Sequence[str]) -> Binlog:
    log = before(unseen)
    log.ddl("CREATE TABLE `d`.`other` LIKE `d`.`t`", "other")
    log.row("other", n=7, v="g", w=70)
    log.renames(("t", "gone"), ("other", "t"))
    log.row("t", n=8, v="h", w=80)
    return log


@pytest.mark.parametrize("uri", [LEFT_OUT, f"{URI}&table.exclude.list=d.other"])
def test_a_table_that_the_connector_leaves_out_is_incomplete_under_a_name_that_it_captures(uri: str) -> None:
    feed, outcome = fed(exchange(["other"]).messages, uri)
    assert held(outcome) == {}
    gaps = {str(table.name): table.gap and table.gap.filling.lack for table in outcome.tables}
    assert gaps == {"d.gone": None, "d.t": Lack.LEFT_OUT}
    assert [tuple(row.values()) for row in rows(feed, "gone")] == ROWS[:2]


def test_a_copy_of_which_only_some_rows_came_is_incomplete_under_the_table_s_name() -> None:
    """The connector left the shadow table out at first, as the lists that were given say, and then did not any more."""
    log = before(unseen=())
    log.ddl("create table `d`.`_t_gho` like `d`.`t`", "_t_gho")
    log.ddl("alter table `d`.`_t_gho` add column x int", "_t_gho")
    log.row("_t_gho", n=2, v="b", w=20, x=None)
    log.renames(("t", "_t_del"), ("_t_gho", "t"))
    _, outcome = fed(log.messages)
    assert held(outcome) == {}
    assert {str(table.name): table.gap and table.gap.filling.lack for table in outcome.tables}["d.t"] is Lack.LEFT_OUT


def test_rows_behind_a_rename_from_a_table_that_nobody_knows_are_told(tmp_path: Path) -> None:
    log = before()
    log.renames(("t", "aside"), ("unknown", "t"))
    log.row("t", n=5, v="e", w=50)
    feed, outcome = fed(log.messages)
    (reason,) = outcome.problems.values()
    assert "d.t has rows behind RENAME TABLE `d`.`unknown` TO `d`.`t`" in reason
    assert not outcome.complete
    assert TableId("d", "t") not in feed.lake.names()
    schemas = tmp_path / "schemas.sql"  # the way out
    schemas.write_text(MADE.replace("`t`", "`d`.`unknown`") + ";\n")
    described = TopicFeed.of(feed.log, sink_uri=LEFT_OUT, name="c", initial={}, schemas=str(schemas))
    outcome = described.apply()
    assert (held(outcome), outcome.problems) == ({}, {})
    assert {str(table.name) for table in outcome.tables if table.gap} == {"d.t"}
    assert [tuple(row.values()) for row in rows(described)] == [(5, "e", 50)]


def test_a_former_table_that_a_tool_brings_back_is_told_where_rows_follow() -> None:
    log = before()
    gh_ost(log, "ADD COLUMN x int DEFAULT 1")
    log.renames(("t", "_t_rev_del"), ("_t_del", "t"))
    log.row("t", n=5, v="e", w=50)
    (reason,) = fed(log.messages)[1].problems.values()
    assert "RENAME TABLE `d`.`_t_del` TO `d`.`t`" in reason


def test_without_the_connector_s_lists_a_table_without_rows_that_takes_a_name_is_incomplete() -> None:
    _, outcome = fed(exchange(["other"]).messages, URI)
    assert {str(table.name): table.gap and table.gap.filling.lack for table in outcome.tables}["d.t"] is Lack.LEFT_OUT
    (sentence,) = [table.incomplete for table in outcome.tables if table.gap]
    assert "d.other" in sentence
    known, outcome = fed(exchange(["other"]).messages, f"{URI}&connector.class=MySqlConnector")
    assert outcome.complete
    assert [tuple(row.values()) for row in rows(known)] == [(8, "h", 80)]


def test_a_table_with_rows_takes_a_name_as_ever() -> None:
    feed, outcome = fed(exchange([]).messages, URI)
    assert outcome.complete
    assert [tuple(row.values()) for row in rows(feed)] == [(7, "g", 70), (8, "h", 80)]


def test_tables_that_the_connector_leaves_out_are_in_no_lake() -> None:
    log = before()
    log.ddl("CREATE TABLE `d`.`aside` (id int PRIMARY KEY)", "aside")
    log.ddl("ALTER TABLE `d`.`aside` ADD COLUMN x int", "aside")
    feed, outcome = fed(log.messages)
    assert [str(name) for name in feed.lake.names()] == ["d.t"]
    assert outcome.complete
    log.row("aside", id=1, x=2, n=1)  # the lists that were given are not the connector's
    del log.messages[-1][1]["after"]["n"]
    send(feed.log, log.messages[-1:])
    feed.apply()
    assert [(row["id"], row["x"]) for row in feed.lake.read(TableId("d", "aside")).to_pylist()] == [(1, 2)]


# --- a real connector on a real server --------------------------------------------------------------------------------

RECORDED = Path(__file__).resolve().parents[1] / "corpus" / "shadow_tables"
"""What connectors of Debezium sent of the tools' statements on MariaDB; `recording.json` has these."""


@pytest.mark.parametrize("with_lists", [True, False])
@pytest.mark.parametrize("connector", ["some", "every"])
def test_recorded_changes_lead_to_the_source_s_tables(connector: str, with_lists: bool) -> None:
    recording = json.loads((RECORDED / "recording.json").read_text())
    feed, send_until = recorded(RECORDED, connector, with_lists)
    for mark in recording["marks"]:
        send_until(mark["lines"][connector])
        outcome = feed.apply()
        assert held(outcome) == {}
        assert {str(table.name) for table in outcome.tables if table.gap} <= {
            "shop.beat"
        }  # its one row is the first of all
        for name, table in mark["tables"].items():
            if connector == "every" or not name.startswith("shop._"):
                lake_rows = feed.lake.read(TableId(*name.split("."))).to_pylist()
                values = [[plain(row[column]) for column in table["columns"]] for row in lake_rows]
                assert sorted(values) == sorted(table["rows"]), (name, mark["lines"])


def test_recorded_changes_of_which_half_of_each_rename_came_hold_the_tables() -> None:
    feed, send_until = recorded(RECORDED, "half")
    send_until(None)
    assert held(feed.apply()).keys() == {"shop.orders", "shop.items", "shop.visits"}


def plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value
