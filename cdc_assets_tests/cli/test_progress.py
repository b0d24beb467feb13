"""What a command prints while something slow goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from cdc_assets.cli.progress import show_log, watching
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import DropTable
from cdc_assets_tests.little_feed import FIRST


@pytest.fixture
def package_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("cdc_assets")
    before = logger.handlers[:], logger.level
    logger.handlers = []
    yield logger
    logger.handlers, logger.level = before


def test_slow_starts_are_told_once_and_to_people_only(
    package_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    show_log(logging.WARNING)
    gateway = package_logger.getChild("lake.spark.gateway")
    gateway.info("Java starts")
    show_log(logging.INFO)
    gateway.info("Java starts")
    assert capsys.readouterr().err == "Java starts\n"


def test_a_log_has_a_line_before_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    table = TableId("shop", "orders")
    with watching(quiet=False) as watch:
        assert capsys.readouterr().err == "reading the changefeed\n"
        assert watch is not None
        watch(DropTable(Life(table, FIRST), FIRST), table, 0, 3)
    assert capsys.readouterr().err.startswith("1/3 shop.orders: drop (")
