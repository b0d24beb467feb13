"""What the settings say of a feed beside its sink URI and changefeed TOML."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Given"]


@dataclass(frozen=True, slots=True)
class Given:
    """`archive` is where archived topics lie, and their layout; `topics` are patterns of topics.

    `schemas` is a file of CREATE TABLE statements of tables that are older than the topics.
    """

    archive: tuple[str, str] | None = None
    topics: tuple[str, ...] = ()
    schemas: Path | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that are given."""
        told = {"archive": self.archive, "topics": self.topics, "schemas": self.schemas}
        return tuple(name for name, value in told.items() if value)
