"""What a reading brought -> one commit of the landing table, guarded by the offsets from which it was read."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cdc_assets.errors import BadSettings, TableMoved
from cdc_assets.landing.events import digest_of, event_rows
from cdc_assets.landing.reading import Reading
from cdc_assets.landing.spool import Spool
from cdc_assets.landing.store import Added, Store
from cdc_assets.model.landed import EventKind, Landed
from cdc_assets.model.offsets import Ends

__all__ = ["Advanced", "commit", "state_after"]


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a landing brought: messages by their offsets, rows, commits."""

    messages: int = 0
    rows: int = 0
    commits: int = 0

    def __add__(self, other: Advanced) -> Advanced:
        """Return what two landings brought together."""
        return Advanced(self.messages + other.messages, self.rows + other.rows, self.commits + other.commits)


def state_after(reading: Reading, ends: Ends, proven: int) -> Landed:
    """Return what is landed once a reading is, at these ends of the log."""
    ignored = {**reading.before.ignored}
    for reason, count in reading.ignored.items():
        ignored[reason] = ignored.get(reason, 0) + count
    return Landed(
        reading.before.identity,
        {**{partition: one.low for partition, one in ends.items()}, **reading.next},
        dict(reading.marks),
        {partition: one.high for partition, one in ends.items()},
        proven,
        int(time.time() * 1000),
        dict(reading.tables.began),
        ignored,
        dict(reading.streams),
        tuple(reading.sources),
        dict(reading.barriers),
        reading.before.topic_ids,
        reading.before.expired,
        dict(reading.restarts),
        last=reading.last,
        ahead=reading.ahead,
        newest=dict(reading.newest),
        firsts=reading.before.firsts,
        starts={one: start.with_least(reading.least.get(one, 0)) for one, start in reading.starts.items()},
    )


def commit(store: Store, spool: Spool, reading: Reading, state: Landed) -> int:
    """Land what was read, of which the spool has some rows, with the state after it; return how many rows.

    Raises TableMoved where others have landed since, BadSettings where no message is of the feed's protocol.
    """
    _refuse_foreign(reading)
    before = digest_of(reading.before.next) if reading.before.next else ""
    spool.take(reading.rows)  # none are left in it: it refers to itself, so it waits for the collector of cycles
    written = spool.finish()
    events = event_rows(reading.events, state, written.splits, reading.before)
    added = Added(written.files, (store.write_events(events),))
    try:
        after = digest_of(state.next) if state.next else ""
        store.commit(added, before, after, _changed(reading.before, state))
    except TableMoved as error:
        if not error.where.get("unsettled"):
            store.discard(added)
        raise
    return sum(split.rows for split in written.splits)


def _refuse_foreign(reading: Reading) -> None:
    """Raise BadSettings where of all that a feed begins with no message can be read: they are of another protocol."""
    rows = reading.stored_bytes or reading.brought_bytes
    begins = not (reading.before.next or rows or reading.marks or reading.ignored)
    if begins and reading.events and all(event.kind is EventKind.BAD for event in reading.events):
        first = reading.events[0]
        raise BadSettings(
            f"no message can be read by the protocol {reading.options.protocol}, of {len(reading.events):,} with which "
            f"the topics begin; the first is {first.place}: {first.reason}. Nothing was landed. Give the sink URI and "
            "the configuration exactly as the writer of the topics has them."
        )


def _changed(before: Landed, after: Landed) -> str:
    """Say which offsets a landing brings, as far as that is short."""
    moved = [
        f"{partition} {before.next.get(partition, 0)}..{until}"
        for partition, until in sorted(after.next.items())
        if until != before.next.get(partition)
    ]
    more = f" and {len(moved) - 20} more" if len(moved) > 20 else ""
    return ", ".join(moved[:20]) + more
