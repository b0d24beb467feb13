"""The page about holds: each reason in the code is on it, by words of its message."""

from __future__ import annotations

import re
from pathlib import Path

from cdc_assets_tests.hold_reasons import reasons

PAGE = (Path(__file__).parent.parent / "docs" / "held.md").read_text(encoding="utf-8")
FEWEST_REASONS = 70
"""So many at least are found in the code: with fewer the search itself is broken."""


def symptoms() -> list[str]:
    """Return the quoted messages of the page: those in the first cells of its tables, and after `The message:`."""
    cells = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    cells += [line for line in PAGE.splitlines() if line.startswith("The message:")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in quoted if not text.startswith("cdc-assets ")]


def is_of(symptom: str, reason: str) -> bool:
    """Return whether the words of a symptom are in a reason; `…` stands for anything between."""
    return re.search(".*".join(map(re.escape, re.split(r" ?… ?", symptom))), reason) is not None


def test_each_reason_of_a_hold_is_on_the_page() -> None:
    hold_reasons = reasons()
    assert len(hold_reasons) > FEWEST_REASONS
    known = symptoms()
    assert [
        f"{place} {text}" for place, text in hold_reasons if not any(is_of(symptom, text) for symptom in known)
    ] == []


def test_each_message_of_the_page_is_in_the_code() -> None:
    texts = [text for _, text in reasons()]
    assert [symptom for symptom in symptoms() if not any(is_of(symptom, text) for text in texts)] == []
