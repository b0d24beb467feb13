"""The pages: links lead somewhere, and there is no more to read than a person reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
GENERATED = {"types.md", "settings.md"}
GENERATED_PART = re.compile(r"<!-- connections -->.*?<!-- end of connections -->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
WORDS_OF_README = 2600
WORDS_OF_DOCS = 29_000
"""Words of the pages that people write, the README among them. Both numbers only fall, to 1,300 and 20,000."""


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as renderers of Markdown make them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_pages_are_no_longer_than_agreed() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES if page.name not in GENERATED}
    words = {name: len(GENERATED_PART.sub("", text).split()) for name, text in texts.items()}
    assert words["README.md"] <= WORDS_OF_README
    assert sum(words.values()) <= WORDS_OF_DOCS
