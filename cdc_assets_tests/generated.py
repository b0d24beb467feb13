"""Generated histories: steps that a source takes, ways in which its changefeed writes them, and feeds that are applied.

each_history    a check of many histories, drawn by Hypothesis, which shrinks one that fails
each_case       the same of histories with what else a check draws
Trial           a history by its number, for lakes in which each costs seconds
Feed            a bucket in memory with a lake and a ledger
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from cdc_assets.ledger import Ledger
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.source import Contents, Source
from cdc_assets_tests.writer import TOMLS, Publication, Style, publications

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


# --- many histories ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """A generated history, and bytes that say when and how its changefeed is published."""

    source: Source
    style: Style
    raw: bytes

    def publications(self) -> Iterator[Publication]:
        """Return the bucket at its checkpoints."""
        return publications(self.source, self.style, Picks(self.raw))


def how_many(quick: int, soak: int) -> pytest.MarkDecorator:
    """Return the parameter `count` of a test: a few histories, and in `make soak` thousands."""
    marks = [pytest.mark.soak, pytest.mark.timeout(0)]
    return pytest.mark.parametrize("count", [pytest.param(quick, id="few"), pytest.param(soak, id="many", marks=marks)])


def each_history(
    count: int,
    check: Callable[[Generated], object],
    steps: st.SearchStrategy[list[tuple[str, bytes]]] = STEPS,
    styles: st.SearchStrategy[Style] = STYLES,
) -> None:
    """Check so many histories: always the same few, and others each time that there are thousands."""

    @given(steps=steps, style=styles, raw=PICKS)
    def checked(steps: list[tuple[str, bytes]], style: Style, raw: bytes) -> None:
        source = history(steps, style.old_values)
        note(f"{style}\n{source.script}")
        check(Generated(source, style, raw))

    _run(count, checked, check.__qualname__)


def each_case(
    count: int, check: Callable[[dict[str, Any]], None], cases: st.SearchStrategy[dict[str, Any]], name: str
) -> None:
    """Check so many cases of the test of a name: always the same few, and others each time if there are thousands."""
    _run(count, given(case=cases)(lambda case: check(case)), name)


def _run(count: int, checked: Callable[[], object], name: str) -> None:
    checked = settings(CHECKS, max_examples=count, database=None)(checked)
    (seed(zlib.crc32(name.encode()))(checked) if count < 100 else checked)()


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


# --- by number -----------------------------------------------------------------------------------------------------


_OFTEN = ("delete all rows", "truncate", "modify column", "exchange partition", "recover table", "drop table")


@dataclass(frozen=True)
class Trial:
    """A history by its number: what happens at the source, how it is written, when the lake is tidied."""

    number: int

    @property
    def style(self) -> Style:
        random = Random(f"style {self.number}")
        new = random.random() < 0.5
        return Style(
            rendering=random.choice(sorted(TOMLS)),
            new=new,
            dates=random.random() < 0.5,
            ids=random.random() < 0.5,
            dispatchers=random.choice([0, 0, 3]) if new else 0,
        )

    @property
    def source(self) -> Source:
        random = Random(f"steps {self.number}")
        kinds = ["rows"] * 14 + [*KINDS, *_OFTEN, *_OFTEN]
        steps = [("create", random.randbytes(24)) for _ in range(random.randint(1, 2))]
        steps += [(random.choice(kinds), random.randbytes(24)) for _ in range(random.randint(5, 13))]
        return history(steps, self.style.old_values)

    def publications(self, source: Source) -> list[Publication]:
        """The bucket at some checkpoints: about half of those in memory, since each costs seconds here."""
        random = Random(f"picks {self.number}")
        *between, last = publications(source, self.style, Picks(random.randbytes(150)))
        return [*(publication for publication in between if random.random() < 0.5), last]

    def tidies(self, count: int) -> Iterator[bool]:
        """Return after which of the publications the lake is tidied."""
        random = Random(f"upkeep {self.number}")
        yield from (random.random() < 0.25 for _ in range(count))


# --- the truth --------------------------------------------------------------------------------------------------------


def faults(feed: Feed, publication: Publication, expected: Contents) -> list[str]:
    """Apply a publication and say what is wrong afterwards."""
    outcome = feed.apply(publication)
    problems = [f"{t.life} is {t.state}: {t.reason}" for t in outcome.tables if t.state in ("held", "failed")]
    problems += [f"{path}: {problem}" for path, problem in outcome.problems.items()]
    actual = feed.contents
    for name in sorted({*expected, *actual}):
        wanted, got = expected.get(name), actual.get(name)
        if wanted is None or got is None:
            problems.append(f"{name} is {'missing' if got is None else 'too many'}")
        elif wanted[0] != got[0]:
            problems.append(f"{name}: columns are {got[0]}, expected {wanted[0]}")
        elif wanted != got:
            problems.append(f"{name}: missing {list(wanted[1] - got[1])}, too many {list(got[1] - wanted[1])}")
    left = feed.pipeline.planner.plan()[1].steps
    return problems + [f"still to be done: {step}" for step in left]
