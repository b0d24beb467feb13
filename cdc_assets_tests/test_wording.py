"""Sentences with a count: the noun goes with it, in every sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc_assets.model.wording import counted, range_text, seconds_text
from cdc_assets_tests.package_code import MODULES, PACKAGE, identifiers, text_of

NOUNS = (
    "table|record|row|file|run|change|statement|column|version|snapshot|step|field|value|directory|directories|attempt"
)
UNINFLECTED = re.compile(
    r"\{(?:[^{}]*\b(?:len|sum|count|number)\b[^{}]*|[^{}]*:,)\} (?:more |data |new )?(?:" + NOUNS + r")s?\b"
    r"|(?:" + NOUNS + r")\(s\)"
)
MANY = ("> 1 else", "num_rows")
"""What stands in a line whose count is never one."""


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1200, "1,200 rows"), (1_000_000, "1,000,000 rows")]
)
def test_a_noun_goes_with_its_count(count: int, text: str) -> None:
    assert counted(count, "row") == text


def test_a_verb_goes_with_it_too() -> None:
    assert [counted(n, "table is", "tables are") for n in (1, 2)] == ["1 table is", "2 tables are"]


@pytest.mark.parametrize(("numbers", "text"), [(range(7, 8), "7"), (range(7, 10), "7 to 9")])
def test_a_range_of_one_number_is_that_number(numbers: range, text: str) -> None:
    assert range_text(numbers) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (119, "119.0 s"), (720, "12.0 min"), (12600, "3.5 h"), (20_287_186, "234.8 days")],
)
def test_a_duration_is_shown_in_the_unit_that_people_use(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_no_sentence_has_a_count_beside_a_noun_of_its_own() -> None:
    problems = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNINFLECTED.search(line) and not any(many in line for many in MANY)
    ]
    assert problems == []


def test_nothing_is_named_told() -> None:
    files = [*MODULES, *Path(__file__).parent.rglob("*.py")]
    assert [path for path in files if "told" in identifiers(path)] == []
