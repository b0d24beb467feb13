"""What it takes to look at a feed of very many files in an object store, each look in a process of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cdc_assets.ledger import Ledger
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.pipeline.planner import Planner
from cdc_assets.pipeline.settled import settle
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.bench.contenders import _contender
from cdc_assets_tests.bench.feeds import VERSION, Feed
from cdc_assets_tests.bench.topic_contenders import CONTENDERS
from cdc_assets_tests.servers.object_store import OWNER

__all__ = ["CONTENDERS", "DAY", "files_of", "look"]

DAY: Tso = 24 * 3_600_000 << 18
_ROW = b'"I","t","bench",1,1\r\n'


def files_of(feed: Feed, days: Iterable[int], count: int) -> Iterator[tuple[str, bytes]]:
    """Yield `count` files of a line for each table and day, as TiCDC names them, with the directories' index files."""
    for table in range(feed.tables):
        name = feed.name(table)
        for day in days:
            directory = f"{name.schema}/{name.table}/{VERSION}/{tso_time(VERSION + day * DAY)[:10]}"
            names = [f"CDC{number:020d}.csv" for number in range(1, count + 1)]
            yield from ((f"{directory}/{name}", _ROW) for name in names)
            yield f"{directory}/meta/CDC.index", f"{names[-1]}\n".encode()


class _Standing:
    """A lake in which every table stands at a TSO."""

    def __init__(self, tables: Sequence[TableId], through: Tso) -> None:
        self._state = {
            Life(table, VERSION): AppliedState(Progress(through, Phase.ROWS), VERSION, table) for table in tables
        }

    def applied(self) -> Mapping[Life, AppliedState]:
        return self._state

    def decisions(self) -> Decisions:
        return Decisions()

    def refused_names(self, claims: Iterable[tuple[Life, TableId]]) -> Mapping[tuple[Life, TableId], str]:
        return {}


@_contender
def look(
    uri: str, config: str, ledger: str, tables: int, through: Tso, learn: bool, later: float = 0
) -> dict[str, Any]:
    """List and plan; with `learn` all that is listed is then recorded as read, and settled where it may be.

    The clock is `later` by so many seconds.
    """
    feed = Feed(Path(config).parent, tables=tables)
    login = {"key": OWNER[0], "secret": OWNER[1], "client_kwargs": {"region_name": "us-east-1"}}
    given: dict[str, Any] = {"name": "look", "sink_uri": uri, "changefeed_config": config, "storage_options": login}
    settings = ChangefeedSettings(**given)
    lake = _Standing([feed.name(table) for table in range(tables)], through)
    with_ledger = Ledger(ledger)
    planner = Planner(settings, settings.open_source(), lake, with_ledger)
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    now = time.time() + later
    with patch.object(time, "time", lambda: now):
        listing, planned = planner.plan()
    figures = {
        "cpu_seconds": time.process_time() - begun,
        "grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "files": len(listing.data_files),
        "all": listing.file_count,
        "steps": len(planned.steps),
    }
    if learn:
        by_life: dict[Life, list[FileStats]] = {}
        lives = {f"{life.born_as.schema}/{life.born_as.table}": life for life in lake.applied()}
        for file in listing.data_files:
            by_life.setdefault(lives[file.root], []).append(
                FileStats(file.path, file.size, file.etag, 1, VERSION + 1, VERSION + 1)
            )
        for life, files in by_life.items():
            with_ledger.record_files("look", life, files, "known", None)
        stats = with_ledger.file_stats("look")
        with_ledger.settled.keep("look", settle(listing, planned, stats, time.time()))
    return figures
