"""The setting `history`: which tables have history tables beside their mirror, or in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from cdc_assets.errors import BadSettings
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.settings.model import Model


class HistorySettings(Model):
    """What the tables of a pattern have: `kinds` of history tables, and a mirror unless that is false.

    `track` names the columns whose change makes a new state in scd2, `track_except` those whose change makes none.
    `suffix` ends the names of the tables by kind, where that is not `__log` and `__scd2`.
    """

    inside = "history"

    kinds: tuple[Literal["log", "scd2"], ...]
    track: tuple[str, ...] = ()
    track_except: tuple[str, ...] = ()
    mirror: bool = True
    suffix: dict[Literal["log", "scd2"], str] = Field(default_factory=dict)

    @field_validator("suffix")
    @classmethod
    def _names(cls, suffix: dict[str, str]) -> dict[str, str]:
        if not all(suffix.values()):
            raise ValueError("an empty end gives a history table the name of its source table")
        return suffix

    @model_validator(mode="after")
    def _consistent(self) -> HistorySettings:
        if not self.kinds:
            raise ValueError("at least one kind is expected")
        if self.track and self.track_except:
            raise ValueError("give track or track_except, not both")
        if (self.track or self.track_except) and "scd2" not in self.kinds:
            raise ValueError("track and track_except are for scd2, which is not among the kinds")
        ends = [self.suffix.get(kind, f"__{kind}") for kind in self.kinds]
        if len(set(ends)) < len(ends):
            raise ValueError("two kinds of tables would have the same name: their suffixes are equal")
        return self


def history_rules(given: Mapping[str, Any]) -> tuple[HistoryRule, ...]:
    """Return the rules of a setting: for each pattern a kind, a list of kinds, or all in full. Raises BadSettings."""
    rules = []
    for pattern, value in given.items():
        full = value if isinstance(value, Mapping) else {"kinds": [value] if isinstance(value, str) else value}
        try:
            one = HistorySettings(**full)
        except BadSettings as error:
            raise BadSettings(f'history, pattern "{pattern}": {error.message}') from None
        kinds = tuple(dict.fromkeys(one.kinds))
        suffixes: dict[str, str] = dict(one.suffix.items())
        rules.append(HistoryRule(pattern, kinds, one.track, one.track_except, one.mirror, suffixes))
    return tuple(rules)
