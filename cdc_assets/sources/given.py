"""Settings of a feed beside its sink URI and changefeed TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class FeedInputs:
    """`archive` is where archived topics lie, and their layout; `topics` are patterns of topics.

    `schemas` is a file of CREATE TABLE statements of tables that are older than the topics. `kafka` are options of the
    broker's client, `schema_registry` those of the registry whose schemas messages name, as they were given.
    `patch_without_row` is the policy of that name, "" for none. Of a `confidential` feed messages are shown nowhere.
    With `passes_bad` messages that cannot be read do not stop those after them.
    """

    archive: tuple[str, str] | None = None
    topics: tuple[str, ...] = ()
    schemas: Path | None = None
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)
    schema_registry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    patch_without_row: str = ""
    confidential: bool = False
    passes_bad: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that are given."""
        settings = {
            "archive": self.archive,
            "topics": self.topics,
            "schemas": self.schemas,
            "kafka": self.kafka,
            "schema_registry": self.schema_registry,
        }
        return tuple(name for name, value in settings.items() if value)
