"""A name that no lake can have holds its table, and no other."""

from __future__ import annotations

import pytest

from cdc_assets.model.names import unfit_name
from cdc_assets.model.progress import State
from cdc_assets_tests.landing.test_landing import URI, Broker, canal, ddl, mark, row
from cdc_assets_tests.topic_feed import TopicFeed


@pytest.mark.parametrize(("database", "table"), [(" ", "u"), ("a\0b", "u"), ("shop", "\t"), ("shop", "u\0")])
def test_a_name_that_no_catalog_takes_holds_its_table_alone(database: str, table: str) -> None:
    log = Broker()
    feed = TopicFeed.of(log, sink_uri=URI)
    create = "CREATE TABLE `u` (`id` INT PRIMARY KEY, `v` INT)"
    made = canal("CREATE", 100, database=database, table=table, isDdl=True, sql=create, pkNames=None, sqlType=None,
                 mysqlType=None)  # fmt: skip
    data = canal("INSERT", 120, database=database, table=table, data=[{"id": "1", "v": "2"}])
    log.send(0, ddl(100), made, row(120, 1, 7), data, mark(150))
    states = {table.name.table: (table.state, table.reason) for table in feed.apply().tables}
    assert states["t"] == (State.APPLIED, "")
    state, reason = states[table]
    assert state is State.HELD
    assert "which no table of the lake can have" in reason
    assert repr(table if database == "shop" else database) in reason


@pytest.mark.parametrize("name", ["a/b", "..", ".", "50%", "a%2Eb", "表" * 64, "x" * 300, "😀", "a\nb", '"', "a b"])
def test_any_other_name_is_fit(name: str) -> None:
    assert unfit_name(name) == ""


@pytest.mark.parametrize("name", ["", " ", "\t\n", "\0", "a\0", "\ud800"])
def test_a_catalog_takes_no_name_without_letters_nor_with_what_is_no_text(name: str) -> None:
    assert unfit_name(name)
