"""What a real connector sent of statements on a real MariaDB leads to the tables of that server, or holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.connector_topics import plain_rows, row_differences
from cdc_assets_tests.marked_topics import marks, recorded

RECORDED = Path(__file__).resolve().parents[1] / "corpus" / "mariadb_ddl"
OTHERWISE = {f"shop.p{number:02}" for number in (4, 5, 39, 42, 45, 53)}
"""Tables of `conversions` whose change of type MariaDB carries out otherwise than TiDB."""


@pytest.mark.parametrize(
    ("case", "connector", "with_lists", "held"),
    [
        ("ansi_quotes", "all", True, {"shop.a"}),
        ("ansi_quotes", "all", False, {"shop.a"}),
        ("ansi_quotes", "some", True, {"shop.a"}),
        ("conversions", "all", True, OTHERWISE),
    ],
)
def test_tables_equal_those_of_the_server_at_each_mark(
    case: str, connector: str, with_lists: bool, held: set[str]
) -> None:
    """The connector misses that CREATE OR REPLACE gives `shop.a` other columns, and sends its rows by the old ones."""
    feed, send_until = recorded(RECORDED / case, connector, with_lists)
    for mark in (recording_marks := marks(RECORDED / case)):
        send_until(mark["lines"][connector])
        outcome = feed.apply()
        stopped = {str(table.name) for table in outcome.tables if table.reason}
        assert stopped <= held
        assert not outcome.problems
        assert not [table for table in outcome.tables if table.gap]
        names, differences = {str(name) for name in feed.lake.names()}, []
        for name, table in mark["tables"].items():
            if connector == "all" or name in names:
                rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
                lake = plain_rows(feed.lake.read(TableId(*name.split(".", 1)))) if name in names else []
                if name not in stopped:
                    differences += row_differences(name, lake, rows, table["columns"])
        assert differences == []
        assert names <= mark["tables"].keys()
    assert stopped == held
    left_out = recording_marks[-1]["tables"].keys() - names
    assert left_out == (set() if connector == "all" else {"shop.renamed plain", "shop.select"})
