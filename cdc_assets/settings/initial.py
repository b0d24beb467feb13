"""What was in the tables before the changefeed began."""

from __future__ import annotations

from cdc_assets.settings.model import Model

__all__ = ["InitialSettings"]


class InitialSettings(Model):
    """What is known of the tables as they were before the changefeed began.

    `complete` are patterns (`shop.*`) of tables that had no rows then, by the names that they had then.
    """

    complete: tuple[str, ...] = ()
