"""Generated histories with masks of every kind: masking commutes with windows, kinds, kills and rebuilds.

What a lake without masks has is masked afterwards, and compared; what is masked in one go, and window by window with
runs that are killed, is the same to the last value of the history tables' own columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.decoding import PLACE
from cdc_assets.errors import BadSettings, RebuildRefused
from cdc_assets.formats import COMMIT_TS
from cdc_assets.model.progress import Life
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.generated import CHECKS, PICKS, STEPS, STYLES, Feed
from cdc_assets_tests.histories import history
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.landing.test_generated_topics import any_history, any_style
from cdc_assets_tests.masked import KEY, differences_of_masked
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.message_writer import marks
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.pipeline.test_masks import KILLED_AT, KINDS, SEALED, of_every_kind, rows_of, stopped
from cdc_assets_tests.states import state_differences, states_of
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.writer import Publication, Style, publications

BOTH: Mapping[str, Any] = {"*.*": ["log", "scd2"]}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)


def lives_held(outcome: Outcome) -> set[Life]:
    return {table.life for table in outcome.tables if table.reason}


def rows_by_life(lake: MemoryLake, but_for: Collection[Life]) -> dict[str, Counter[str]]:
    """Return what tables hold, but for where the input of a change is, as files are called otherwise.

    Of rows without a key that masks made equal any may be deleted, so their positions are not compared.
    """
    rows_by_table = {}
    for life, table in lake.tables.items():
        if life not in but_for:
            left_out = {PLACE} if life.kind or table.schema.key else {PLACE, COMMIT_TS}
            rows = [{name: row[name] for name in row.keys() - left_out} for row in table.rows.to_pylist()]
            rows_by_table[f"{life} {table.name}"] = Counter(repr(sorted(row.items())) for row in rows)
    return rows_by_table


def pipeline_of(feed: Feed | TopicFeed) -> Pipeline:
    return feed.pipeline() if isinstance(feed, TopicFeed) else feed.pipeline


def compare(made: Callable[..., Any], shows: Sequence[Callable[[Any], None]], turn: int) -> None:
    """Mask feeds that `made` gives, to which each of `shows` shows more of the input, the last one all."""
    plain = made()
    shows[-1](plain)
    pipeline_of(plain).apply()
    planned = pipeline_of(plain).planner.plan()[1]
    privacy = of_every_kind(planned, turn)
    once, often = (made(privacy=privacy, **SEALED) for _ in range(2))
    shows[-1](once)
    outcome = pipeline_of(once).apply()
    held, held_lives = stopped(outcome), lives_held(outcome)
    named = {table.name for life, table in planned.history.lives.items() if not life.kind}
    mirrors = {name: rows for name, rows in rows_of(once.lake, held).items() if name in named}
    assert differences_of_masked(rows_of(plain.lake), mirrors, planned, once.settings.masks) == []
    for number, show in enumerate(shows):
        show(often)
        trap = Trap(lambda crossed, _, at=2 * number + 2: crossed == at)  # type: ignore[misc]
        with suppress(Killed), trapped(trap, KILLED_AT):
            pipeline_of(often).apply()
        held_lives |= lives_held(pipeline_of(often).apply())
    assert rows_by_life(often.lake, held_lives) == rows_by_life(once.lake, held_lives)
    for feed in (often, once):
        assert [*fold_differences(feed.lake)] == []
        for table in states_of(feed.lake):
            if table.life not in held_lives and table.life.source not in held_lives:
                assert [*state_differences(table.rows, table.lives, table.mirror)] == []
    for name in rows_of(often.lake):
        with suppress(RebuildRefused, BadSettings):  # held, exchanged with such a table, or gone from the source
            rebuild(pipeline_of(often), MemoryRebuilds(often.lake), [str(name)])
    held_lives = lives_held(pipeline_of(once).apply()) | lives_held(pipeline_of(often).apply())
    assert rows_by_life(often.lake, held_lives) == rows_by_life(once.lake, held_lives), "rebuilt"


def check(steps: list[tuple[str, bytes]], style: Style, raw: bytes, turn: int, tomls: Mapping[str, Path]) -> None:
    source, made = history(steps, style.old_values), list[Feed]()
    note(f"{style}\n{source.script}")

    def feed(**more: Any) -> Feed:
        made.append(Feed(style, tomls[style.rendering], history=BOTH, **more))
        return made[-1]

    def showing(publication: Publication) -> Callable[[Feed], None]:
        return lambda feed: feed.publish(publication)

    compare(feed, [showing(publication) for publication in publications(source, style, Picks(raw))], turn)
    for opened_feed in made:
        opened_feed.close()


CASES = st.fixed_dictionaries({"steps": STEPS, "style": STYLES, "raw": PICKS, "turn": st.integers(0, len(KINDS) - 1)})


@settings(CHECKS, max_examples=2, derandomize=True, database=None)
@given(case=CASES)
def test_a_generated_history_is_masked_the_same_however_it_is_cut_killed_and_rebuilt(
    tomls: Mapping[str, Path], case: dict[str, Any]
) -> None:
    check(**case, tomls=tomls)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(CHECKS, max_examples=1000)
@given(case=CASES)
def test_thousands_of_generated_histories_are_masked_the_same_however_they_are_cut_killed_and_rebuilt(
    tomls: Mapping[str, Path], case: dict[str, Any]
) -> None:
    check(**case, tomls=tomls)


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n == 2 else pytest.mark.soak) for n in range(100)])
def test_a_generated_history_in_messages_is_masked_the_same_however_it_is_cut_killed_and_rebuilt(
    seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    (toml := tmp_path / "changefeed.toml").write_text(style.toml)
    log = MemoryLog([])
    ends = [len(log.lines) for _ in marks(source, style, Picks(random.randbytes(600)), log)]

    def feed(**more: Any) -> TopicFeed:
        return TopicFeed.of(MemoryLog([]), sink_uri=style.uri, changefeed_config=toml, name="c", history=BOTH, **more)

    def showing(end: int) -> Callable[[TopicFeed], None]:
        def show(feed: TopicFeed) -> None:
            feed.log.lines = log.lines[:end]

        return show

    compare(feed, [showing(end) for end in ends], seed % len(KINDS))
