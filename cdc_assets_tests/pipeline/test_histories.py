"""Generated histories: random DDL and rows end equal to a small oracle, in one go and checkpoint by checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.alterations import Picks, values
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.source import Col, Contents, Source, Table
from cdc_assets_tests.writer import TOMLS, Publication, Style, Writer, publications

_NUMBERS = itertools.count()

STYLES = st.builds(
    Style,
    rendering=st.sampled_from(sorted(TOMLS)),
    new=st.booleans(),
    dates=st.booleans(),
    ids=st.booleans(),
    dispatchers=st.sampled_from([0, 0, 3]),
    defaults=st.booleans(),
).filter(lambda style: style.new or not style.dispatchers)

RAW = st.binary(min_size=24, max_size=24)
KIND = st.sampled_from(["nothing", *["rows"] * 12, *KINDS, *["create", "rename tables", "exchange partition"] * 2])
STEPS = st.builds(
    lambda tables, steps: [("create", raw) for raw in tables] + steps,
    st.lists(RAW, min_size=1, max_size=4),
    st.lists(st.tuples(KIND, RAW), min_size=12, max_size=40),
)
PICKS = st.binary(min_size=150, max_size=150)

CHECKS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # without the phase that explains failures: it traces every line
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


# --- a changefeed in memory -------------------------------------------------------------------------------------------


class Feed:
    """A bucket in memory, a lake (in memory too by default) and a ledger.

    `apply` brings the bucket to a publication and applies it.
    """

    def __init__(self, style: Style, toml: Path, lake: Any = None, **more: Any) -> None:
        self.root = f"histories{next(_NUMBERS)}"
        given = {"sink_uri": f"memory://{self.root}?{style.parameters}", "changefeed_config": toml, **more}
        self.settings = ChangefeedSettings(**given)
        self.files: dict[str, bytes] = {}
        self.lake: Any = MemoryLake() if lake is None else lake
        self.ledger = Ledger("sqlite://")

    def apply(self, publication: Publication) -> Outcome:
        self.publish(publication)
        return self.pipeline.apply("test")

    def publish(self, publication: Publication) -> None:
        memory = fsspec.filesystem("memory")
        metadata = {"metadata": b'{"checkpoint-ts":%d}' % publication.checkpoint}
        for path, data in {**publication.files, **metadata}.items():
            if self.files.get(path) != data:
                memory.pipe_file(f"/{self.root}/{path}", data)
                self.files[path] = data

    def close(self) -> None:
        self.ledger.close()
        if self.files:
            fsspec.filesystem("memory").rm(f"/{self.root}", recursive=True)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(self.settings, self.settings.open_source(), self.lake, self.ledger)

    @property
    def contents(self) -> Contents:
        return {name: contents_of(self.lake.read(name)) for name in self.lake.names()}

    @property
    def journal(self) -> set[tuple[Any, ...]]:
        return {(e.life, e.tso, e.name, e.action, e.query) for e in self.ledger.journal(self.settings.name)}


@contextmanager
def feeds(style: Style, toml: Path, **more: Any) -> Iterator[tuple[Feed, Feed]]:
    both = Feed(style, toml, **more), Feed(style, toml, **more)
    yield both
    for feed in both:
        feed.close()


@pytest.fixture(scope="module")
def tomls(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    directory = tmp_path_factory.mktemp("changefeeds")
    for name, text in TOMLS.items():
        (directory / f"{name}.toml").write_text(text)
    return {name: directory / f"{name}.toml" for name in TOMLS}


# --- the truth --------------------------------------------------------------------------------------------------------


def faults(feed: Feed, publication: Publication, expected: Contents) -> list[str]:
    """Apply a publication and say what is wrong afterwards."""
    outcome = feed.apply(publication)
    found = [f"{t.life} is {t.state}: {t.reason}" for t in outcome.tables if t.state in ("held", "failed")]
    found += [f"{path}: {problem}" for path, problem in outcome.problems.items()]
    actual = feed.contents
    for name in sorted({*expected, *actual}):
        wanted, got = expected.get(name), actual.get(name)
        if wanted is None or got is None:
            found.append(f"{name} is {'missing' if got is None else 'too many'}")
        elif wanted[0] != got[0]:
            found.append(f"{name}: columns are {got[0]}, expected {wanted[0]}")
        elif wanted != got:
            found.append(f"{name}: missing {list(wanted[1] - got[1])}, too many {list(got[1] - wanted[1])}")
    left = feed.pipeline.plan()[1].steps
    return found + [f"still to be done: {step}" for step in left]


def play_back(source: Source, style: Style, tomls: Mapping[str, Path], since: int) -> list[str]:
    """Write the whole log, restart before its event number `since`, and say what is wrong in the end."""
    writer = Writer(style, lambda below: 0)
    for event in source.log:
        writer.write(event)
    writer.restart(source.log[since - 1].ts)
    for event in source.log[since:]:
        writer.write(event)
    writer.flush()
    end = source.log[-1].ts
    with feeds(style, tomls[style.rendering]) as (feed, _):
        return faults(feed, Publication(end, end, writer.files), source.contents(end))


def small(*columns: Col) -> tuple[Source, Table]:
    """A table keyed by `i` with the rows 1 and 2, each of a transaction of its own."""
    source = Source()
    source.create_database("one")
    numbered = tuple(replace(col, id=n + 1) for n, col in enumerate((Col("i", "INT", nullable=False), *columns)))
    table = Table(TableId("one", "a"), source.number(), numbered, ("i",), True, numbered=len(numbered))
    source.create(table)
    for number in (1, 2):
        row = {col.name: values(col)[number % len(values(col))] for col in columns}
        source.commit({table.name: {**table.rows, (number,): {"i": number, **row}}})
    return source, table


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_of_before_a_reordering_are_read_right_in_the_directory_of_after_it(
    tomls: Mapping[str, Path], rendering: str
) -> None:
    source, table = small(Col("p", "INT"), Col("q", "BIGINT"))
    i, p, q = table.columns
    source.alter(table, "MODIFY COLUMN `q` BIGINT FIRST", 12, replace(table, columns=(q, i, p)))
    assert play_back(source, Style(rendering), tomls, since=3) == []


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_of_before_a_renumbering_of_members_are_read_right_in_the_directory_of_after_it(
    tomls: Mapping[str, Path], rendering: str
) -> None:
    source, table = small(Col("e", "ENUM", elems=("x", "y")))
    i, e = table.columns
    turned = replace(e, elems=("y", "x"))
    source.alter(table, f"MODIFY COLUMN {turned.sql}", 12, replace(table, columns=(i, turned)))
    assert play_back(source, Style(rendering), tomls, since=3) == []


def check_history(steps: list[tuple[str, bytes]], style: Style, raw: bytes, tomls: Mapping[str, Path]) -> None:
    source = history(steps, style.old_values)
    note(f"{style}\n{source.script}")
    with feeds(style, tomls[style.rendering]) as (often, once):
        for publication in publications(source, style, Picks(raw)):
            assert faults(often, publication, source.contents(publication.shown)) == [], publication.checkpoint
        assert faults(once, publication, source.contents(publication.shown)) == [], "in one go"
        assert often.journal == once.journal


@settings(CHECKS, max_examples=7, derandomize=True, database=None)
@given(steps=STEPS, style=STYLES, raw=PICKS)
def test_a_generated_history_ends_equal_to_the_source(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes
) -> None:
    check_history(steps, style, raw, tomls)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(CHECKS, max_examples=5000)
@given(steps=STEPS, style=STYLES, raw=PICKS)
def test_thousands_of_generated_histories_end_equal_to_the_source(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes
) -> None:
    check_history(steps, style, raw, tomls)
