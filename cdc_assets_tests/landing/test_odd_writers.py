"""What some versions of TiCDC send otherwise than the others: each a little topic, landed and applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, canal, ddl, mark
from cdc_assets_tests.topic_feed import TopicFeed

T = TableId("shop", "t")
MINUTE = 60_000 << 18
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` INT, `n` INT NOT NULL, `secret` VARCHAR(9))"


def update(ts: int, old: dict[str, str], **data: str) -> bytes:
    return canal("UPDATE", ts, data=[data], old=[old], sqlType={"id": 4, "v": 4}, mysqlType={"id": "int", "v": "int"})


def applied(*messages: bytes, **given: Any) -> tuple[TopicFeed, list[str]]:
    """Land and apply messages and a mark behind them; return the feed, and why tables are held."""
    feed = TopicFeed.of(Broker(), sink_uri=URI, **given)
    broker(feed).send(0, *messages, mark(900))
    return feed, [table.reason for table in feed.apply().tables if table.reason]


SELECTORS = ["{matcher = ['shop.*'], columns = ['ID', 'v']}", "{matcher = ['*.T'], columns = ['*', '!n', '!sec*']}"]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("hidden", [{}, {"n": "", "secret": ""}, {"n": "5"}], ids=["absent", "empty", "one"])
def test_columns_that_a_selector_leaves_out_are_not_read(hidden: dict[str, str], selector: str, tmp_path: Path) -> None:
    config = tmp_path / "changefeed.toml"
    config.write_text(f"[sink]\ncolumn-selectors = [{selector}]")
    before = {"id": "1", "v": "1"}
    rows = (canal("INSERT", 110, data=[before]), update(120, {**before, **hidden}, id="1", v="2"))
    feed, reasons = applied(ddl(100, CREATE), *rows, changefeed_config=config)
    assert reasons == []
    assert feed.lake.read(T).drop_columns(["_cdc_commit_ts"]).to_pylist() == [
        {"id": 1, "v": 2, "n": None, "secret": None}
    ]


@pytest.mark.parametrize("value", ["5", "0", "x", None, ""])
@pytest.mark.parametrize("kind", ["INSERT", "UPDATE"])
def test_a_value_of_a_column_that_selectors_leave_out_refutes_them(
    kind: str, value: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "changefeed.toml"
    config.write_text("[sink]\ncolumn-selectors = [{matcher = ['shop.*'], columns = ['*', '!secret']}]")
    row = {"id": "1", "v": "1", "n": "3", "secret": value}
    first = {"id": "1", "v": "1", "n": "3"}
    changes = [canal("INSERT", 110, data=[row])]
    if kind == "UPDATE":
        changes = [canal("INSERT", 105, data=[first]), canal("UPDATE", 110, data=[row], old=[first])]
    feed, reasons = applied(ddl(100, CREATE), *changes, changefeed_config=config)
    if value:
        assert "column-selectors in the changefeed TOML leave it out" in reasons[0]
        assert feed.lake.read(T).num_rows == 0
    else:
        assert reasons == []
        assert feed.lake.read(T)["secret"].to_pylist() == [None]


SOFT = [
    ddl(100, "CREATE TABLE t (id INT PRIMARY KEY, v INT) SOFTDELETE RETENTION 7 DAY"),
    ddl(100, "create table t (id int primary key, v int) active_active='on' softdelete retention 7 day"),
    ddl(100),  # of a database that makes its tables so
]


@pytest.mark.parametrize("create", SOFT, ids=["soft-delete", "active-active", "inherited"])
def test_a_soft_delete_table_is_held_for_being_one(create: bytes) -> None:
    data = {"id": "1", "v": "1", "_tidb_softdelete_time": None}
    _, (reason,) = applied(create, canal("INSERT", 110, data=[data]))
    assert "soft-delete or active-active table" in reason
    assert "Exclude the table" in reason
    assert "file" not in reason


@pytest.mark.parametrize(
    "create",
    [
        "CREATE TABLE t (id INT PRIMARY KEY, v INT COMMENT 'SOFTDELETE') SOFTDELETE = 'OFF'",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) COMMENT = 'softdelete retention 7 day'",
    ],
)
def test_a_table_that_only_speaks_of_soft_deletes_is_applied(create: str) -> None:
    _, reasons = applied(ddl(100, create), canal("INSERT", 110, data=[{"id": "1", "v": "1"}]))
    assert reasons == []


def test_what_all_rows_of_a_range_lack_is_said_of_its_offsets() -> None:
    rows = canal("INSERT", 110, data=[{"id": "1", "v": "1"}]), update(120, {"v": "1"}, id="1", v="2")
    _, (reason,) = applied(ddl(100), *rows)
    assert reason.startswith('cdc[0] offsets 1 to 2 record 2: old lacks the column "id"')


MODIFY = "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(9)"
ADD = "ALTER TABLE `t` ADD COLUMN `n` INT"


@pytest.mark.parametrize(
    ("minutes", "sql", "expected"), [(1, MODIFY, ["v"]), (9, MODIFY, ["v"]), (11, MODIFY, []), (1, ADD, [])]
)
def test_rows_that_changed_shortly_before_tidb_rewrote_their_column_are_approximate(
    minutes: int, sql: str, expected: list[str]
) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, history={"shop.t": ["log", "scd2"]})
    modified = MINUTE + minutes * MINUTE
    alter = ddl(modified, sql).replace(b'"CREATE"', b'"ALTER"')
    rows = (
        canal("INSERT", MINUTE, data=[{"id": "1", "v": "1"}]),
        canal("INSERT", modified + 2, data=[{"id": "2", "v": "2"}]),
    )
    broker(feed).send(0, ddl(100), rows[0], alter, rows[1], mark(modified + 9))
    assert [table.reason for table in feed.apply().tables if table.reason] == []
    reports = [feed.ledger.fidelity(feed.settings.name, life) for life in feed.lake.tables]
    assert len(reports) == 3
    for report in reports:
        rules = [fidelity.column for fidelity in report if "approximate in rows that changed" in fidelity.rule]
        assert rules == expected
