"""The recipe of a table: what the values of its rows depend on, beside the input. Its label has it.

A setting counts for the rows of some positions: the newest rows were read with its present value, and those below a
position at which a person said that it changed with a former one. The masks of columns are settings, too, each called
`privacy.COLUMN` by the first name of its column, with the fingerprint of the mask, never a key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cdc_assets.model.dumps import DUMP_ZONE
from cdc_assets.model.masks import NO_MASK
from cdc_assets.model.tso import Tso

MASK = "privacy."
"""Prefix of the names of settings that are masks of columns."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a recipe: the `value` with which the newest rows were read.

    `before` are former values, each behind the position before which it counts, in the order of these.
    """

    value: str
    before: tuple[tuple[Tso, str], ...] = ()

    @property
    def values(self) -> frozenset[str]:
        """Every value with which rows were read."""
        return frozenset((self.value, *(value for _, value in self.before)))

    @property
    def since(self) -> Tso:
        """The position from which on all rows were read with the present value, 0 where all rows were."""
        return max((at for at, value in self.before if value != self.value), default=0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The recipe of a table: how its rows were read.

    Attributes:
        settings: The settings on which values of its columns depend, by the names that a person gives them.
        key: The columns by which rows are told apart, None for a table that is none.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    key: tuple[str, ...] | None = None

    @property
    def fingerprint(self) -> str:
        """A text that is equal for equal recipes; the inverse of `parse`."""
        settings = {name: (setting.value, *setting.before) for name, setting in self.settings.items()}
        return json.dumps({"key": self.key, "settings": settings}, sort_keys=True)

    @classmethod
    def parse(cls, fingerprint: str) -> Recipe:
        """Return the recipe of a fingerprint."""
        fields = json.loads(fingerprint)
        settings = {
            name: Setting(value, tuple((at, former) for at, former in before))
            for name, (value, *before) in fields["settings"].items()
        }
        return cls(settings, None if fields["key"] is None else tuple(fields["key"]))

    def mask(self, name: str) -> Setting:
        """Return the mask of a column, by the name of the setting."""
        return self.settings.get(name, Setting(NO_MASK))

    def has_masks(self, masks: Mapping[str, str]) -> bool:
        """Return whether all values of columns have these masks, also those from before a mask changed."""
        return all(self.mask(name).values == {mask} for name, mask in masks.items())

    def joined(self, later: Recipe) -> Recipe:
        """Return the recipe of rows of both, in which settings and key of `later` count where it has them."""
        return Recipe({**self.settings, **later.settings}, self.key if later.key is None else later.key)

    def after(self, window: Recipe, used: Collection[str]) -> Recipe:
        """Return the recipe after a window, which was read with some of its settings.

        Settings of earlier rows stay for as long as values of a column depend on them; of a dump's a window of the feed
        says nothing. It is this recipe itself where nothing of it changes.
        """
        merged_settings = {**self.settings, **{name: window.settings[name] for name in used}}
        settings = {name: merged_settings[name] for name in (*window.settings, DUMP_ZONE) if name in merged_settings}
        return self if settings == self.settings else Recipe(settings, self.key)


EMPTY_RECIPE = Recipe()


@dataclass(frozen=True, slots=True)
class ExcludedKeys:
    """Keys whose rows a recipe leaves out: by their HMAC with `key`, the position through which they are.

    `versions` are the directories and versions whose rows have such keys, none if all have: those of others are told
    apart otherwise.
    """

    key: bytes = field(repr=False)
    until: Mapping[str, Tso] = field(repr=False)
    versions: frozenset[tuple[str, Tso]] = frozenset()
