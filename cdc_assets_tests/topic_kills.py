"""Processes that land and apply topics, killed where it hurts or at any moment, alone or two at once.

What a chain of killed runs leaves is compared with the recorded source once a last one has ended: each message is
landed once, every table is the source's, and nothing is left over. The report of `make soak`:

    python -m cdc_assets_tests.topic_kills --kills 50 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from cdc_assets.errors import MetadataMissing, TableMoved
from cdc_assets.lake import LakeState
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets_tests import kills
from cdc_assets_tests.archived_topic import ArchivedTopic, stopped
from cdc_assets_tests.kills import Killed, Trap, leftovers, trapped
from cdc_assets_tests.topics import Topic, topics

__all__ = ["FEEDS", "SEAMS", "Chain", "landed_offsets", "soak"]

SEAMS = (
    "cdc_assets.landing.landing:Landing.landed",
    "cdc_assets.landing.landing:Landing._commit",
    "cdc_assets.landing.iceberg:LandingTable.write_rows",
    "cdc_assets.landing.iceberg:LandingTable.write_events",
    "cdc_assets.landing.iceberg:LandingTable.commit",
    "cdc_assets.landing.iceberg:LandingTable.replace",
    "cdc_assets.landing.iceberg:LandingTable.sweep",
    "cdc_assets.lake.growing:GrowingTable.try_once",
    "cdc_assets.lake.growing:GrowingTable.remove_unreferenced",
    "cdc_assets.pipeline.pipeline:Pipeline.land",
    "cdc_assets.pipeline.planner:Planner.plan",
    "cdc_assets.pipeline.pipeline:Pipeline.run_step",
)
"""Every function of a landing and its upkeep between whose crossings something has changed, or is about to."""

FEEDS = ("C_ddl_tables/simple", "E_partitions/canal-json", "B_ddl_columns/open-protocol", "H_bank/craft")


def named(text: str) -> Topic:
    """Return a recorded topic by `case/protocol`."""
    case, _, protocol = text.partition("/")
    return next(topic for topic in topics(protocol) if topic.case.name == case)


def landed_offsets(table: LandingTable) -> list[tuple[str, str, int, int]]:
    """Return the place of every row of the landing, one for each table that its message speaks of."""
    rows = table.table.load().scan(row_filter="part = 'rows'").to_arrow()
    columns = (rows.column(name).to_pylist() for name in ("table", "topic", "partition", "offset"))
    return sorted(zip(*columns, strict=True))


class Chain:
    """A topic that comes into an archive in pieces, and runs over it that are killed."""

    def __init__(self, topic: Topic, directory: Path) -> None:
        self.directory = directory
        self.feed = ArchivedTopic(topic, directory)

    def victim(self, *, at: int = 0, seam: str = "", after_seconds: float = 0) -> bool:
        """Land and apply in a process of its own; return whether it was killed. Raises RuntimeError when it failed."""
        command = ["-m", "cdc_assets_tests.topic_kills", "--victim", str(self.feed.topic)]
        command += ["--directory", str(self.directory), "--at", str(at), "--seam", seam]
        return kills.killed(command, after_seconds)

    def wrong(self) -> list[str]:
        """Return what differs from the source, came twice or is left over, once all has been sent and a run ended."""
        outcome = self.feed.apply()
        problems = [*stopped(outcome), *self.feed.differences()]
        again = self.feed.apply()
        problems += [f"{table.life}: {table.steps} steps were left to do" for table in again.tables if table.steps]
        with closing(LandingTable(self.feed.lake, self.feed.settings.name)) as table:
            offsets = landed_offsets(table)
        problems += [
            f"{offset} was landed more than once" for offset in sorted({o for o in offsets if offsets.count(o) > 1})
        ]
        state = LakeState(self.feed.lake, self.feed.settings.name)
        with closing(state):
            return problems + leftovers(state)


def soak(count: int, seed: int, names: Sequence[str], say: Callable[[str], object]) -> list[str]:
    """Kill runs at random crossings and moments until so many died; return what was wrong after each chain of them."""
    rng, done, chains, problems = random.Random(seed), 0, 0, list[str]()
    while done < count:
        topic = named(names[chains % len(names)])
        chains += 1
        with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(2) as pool:
            chain = Chain(topic, Path(place))
            for until in [*sorted(rng.sample(range(20, len(topic.lines)), 2)), len(topic.lines)]:
                chain.feed.write(until)
                for _ in range(rng.randint(1, 5)):
                    racers = 2 if rng.random() < 0.3 else 1
                    chosen = [_chosen(rng) for _ in range(racers)]
                    died = [
                        future.result()
                        for future in [pool.submit(chain.victim, **chosen_kill) for chosen_kill in chosen]
                    ]
                    done += sum(died)
                    say(f"{topic} to line {until}: {died} {chosen}; {done} kills")
            bad = chain.wrong()
            problems += [f"{topic}, seed {seed}: {problem}" for problem in bad]
            say(f"{topic}: {len(bad)} wrong {bad[:3]}".rstrip(" []"))
    say(f"kills: {done}, chains: {chains}, wrong results: {len(problems)}")
    return problems


def _chosen(rng: random.Random) -> dict[str, Any]:
    return {"at": rng.randint(1, 60)} if rng.random() < 0.6 else {"after_seconds": rng.uniform(1, 12)}


def _victim(topic: Topic, directory: Path, at: int, seam: str) -> None:
    """Land and apply, and kill the process group at the crossing `at`, or at the first one whose name has `seam`."""
    trap = Trap(lambda number, name: number == at or bool(seam and seam in name), kills.die)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with trapped(trap, tuple(dict.fromkeys((*SEAMS, *kills.SEAMS)))):
        try:
            ArchivedTopic(topic, directory).apply()
        except (MetadataMissing, TableMoved, Killed):
            pass  # no mark is there yet, or another run was always faster


def main() -> int:
    """Print the report, or be a victim."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets_tests.topic_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--feed", action="append", help="case/protocol, repeatedly")
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seam", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.victim:
        _victim(named(given.victim), given.directory, given.at, given.seam)
        return 0
    problems = soak(given.kills, given.seed, given.feed or FEEDS, lambda text: print(text, flush=True))
    sys.stdout.writelines(f"{line}\n" for line in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
