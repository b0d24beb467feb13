"""The pages: links lead somewhere, and there is no more to read than a person reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc_assets.report.metrics import metrics_page

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
GENERATED = {"types.md", "settings.md", "metrics.md"}
GENERATED_PART = re.compile(r"<!-- connections -->.*?<!-- end of connections -->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
WORDS_OF_README = 1300
WORDS_OF_DOCS = 20_000
"""Words of the pages that people write, the README among them. Neither number rises."""


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


def test_the_page_of_metrics_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page()


def test_the_pages_are_no_longer_than_agreed() -> None:
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES if page.name not in GENERATED}
    words = {name: len(GENERATED_PART.sub("", text).split()) for name, text in texts.items()}
    assert words["README.md"] <= WORDS_OF_README
    assert sum(words.values()) <= WORDS_OF_DOCS


def test_modules_that_the_page_about_architecture_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+(?:\.py|/))`", page)
    rooms = [ROOT / "cdc_assets", ROOT / "cdc_assets_tests", ROOT]
    assert len(named) > 30
    assert [name for name in named if not any((room / name).exists() for room in rooms)] == []


NAMING = re.compile(r"\bdocs/\w+\.md(?:#[\w-]+)?")


@pytest.mark.parametrize("folder", ["cdc_assets", "deploy"])
def test_pages_that_messages_and_comments_name_exist(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yaml")]
    named = {name for path in files for name in NAMING.findall(path.read_text(encoding="utf-8"))}
    broken = []
    for name in named:
        path, _, anchor = name.partition("#")
        if not (ROOT / path).exists() or (anchor and anchor not in anchors(ROOT / path)):
            broken.append(name)
    assert broken == []
