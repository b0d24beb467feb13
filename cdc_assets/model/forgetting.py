"""Rows that are taken out of a lake for good: what was done, and what was read afterwards to prove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId

__all__ = ["ForgetReport", "RemovedRows", "SearchedFiles"]


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """What was done to one table. `rows` counts copies: a row stands in as many data files as it had states.

    `tags` are those that were made anew, with their new snapshots; `orphans` counts files that nothing referred to.
    `moved` are keys that rows had before one of these, or after it, as far as a log tells.
    """

    life: Life
    rows: int = 0
    files_rewritten: int = 0
    bytes_rewritten: int = 0
    snapshots_expired: int = 0
    tags: Mapping[str, int] = field(default_factory=dict)
    orphans: int = 0
    moved: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedFiles:
    """What was read in one place, to prove that nothing is left there. `having` are files that have rows even so."""

    place: str
    files: int
    bytes: int
    having: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """What was done to forget some keys of a table, in a form that can be filed: it has none of them but for `moved`.

    `moved` are the keys, as texts, under which rows were before they had one of these, or afterwards; they are not
    forgotten. `cuts` are those that were made anew, `records` those of the quarantine that were removed. `messages`
    counts those of the landing that were emptied, `lost` are tables that had other rows in them: the landing does not
    bring these back. `feed` says what of the input is not ours and may bring the rows back. Times are ISO 8601 in UTC.
    """

    changefeed: str
    table: TableId
    keys: int
    run: str
    begun: str
    ended: str
    removed: tuple[RemovedRows, ...] = ()
    searched: tuple[SearchedFiles, ...] = ()
    cuts: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    messages: int = 0
    lost: tuple[str, ...] = ()
    moved: tuple[tuple[str, ...], ...] = ()
    feed: str = ""

    @property
    def complete(self) -> bool:
        """Return whether nothing of the rows was found in what is left."""
        return not any(place.having for place in self.searched)
