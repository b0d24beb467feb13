"""A person's decisions about single DDL, and all that a lake keeps of people's decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_assets.model.cuts import CutRequest, SnapshotPin
from cdc_assets.model.forgetting import ForgottenKeys
from cdc_assets.model.gaps import CompletePattern
from cdc_assets.model.progress import Life
from cdc_assets.model.settings_changes import SettingsChange
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class Release:
    """A person's decision about the DDL of one version in one life.

    `way` is apply (`text` is the DDL that says what really happened, "" the schema file's own), skip (its effect on
    existing rows is left out) or rebuild (the rows up to here are dropped). `when` is ISO text in UTC.
    """

    life: Life
    version: Tso
    way: str
    text: str = ""
    who: str = ""
    when: str = ""

    def __str__(self) -> str:
        own_text = f" {self.text!r}" if self.text else ""
        return f"released: {self.way}{own_text}"


Releases = Mapping[tuple[Life, Tso], Release]

KeptDecision = Release | CompletePattern | SettingsChange | CutRequest | ForgottenKeys | SnapshotPin
"""What a person decided, as a lake keeps it: one about the same replaces an earlier one."""
