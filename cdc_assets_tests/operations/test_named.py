"""The sentence on a text that is no table's."""

from __future__ import annotations

import pytest

from cdc_assets.operations.named import no_such_table

MANY = [f"shop.part_{number:02d}" for number in range(40)]


@pytest.mark.parametrize(
    ("text", "names", "sentence"),
    [
        ("shop.ordres", ["shop.orders", None], "known are shop.orders."),
        ("shop.ordres", [], "known are none."),
        ("SHOP.Ordres", ["shop.orders", *MANY], "nearest is shop.orders, of 41 tables."),
        ("shop.prt_07", MANY, "nearest are shop.part_07, "),
        ("zzz", MANY, "none of the 40 tables is called alike (`status` lists them)."),
    ],
)
def test_a_few_names_are_all_named_and_of_many_the_nearest(text: str, names: list[str | None], sentence: str) -> None:
    message = no_such_table(text, names).message
    assert f"no table is called {text}; {sentence}" in message
    assert message.count("shop.part_") <= 3
