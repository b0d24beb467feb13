"""How tables are compared with their source."""

from __future__ import annotations

from pydantic import Field

from cdc_assets.errors import BadSettings
from cdc_assets.settings.initial import ServerAddress
from cdc_assets.settings.model import Model


class VerifySettings(Model):
    """How tables are compared with their `source`; `tables` are patterns (`shop.*`), () for all.

    `quiet` says that nothing is written into them while they are compared, which is needed where the source has no TSO
    to read at. At most `threads` connections read it, together no more than `rows_per_second` rows, and of a table
    `shown` rows that differ are named. `sample` is the share of the rows that is compared (`1%`), "" for all. `cron` is
    Dagster's schedule, which `running` turns on; a table that was equal has to be compared again once it is applied
    `stale_days` further.
    """

    inside = "verify"

    source: ServerAddress | None = None
    tables: tuple[str, ...] = ()
    quiet: bool = False
    threads: int = Field(default=4, ge=1, le=64)
    rows_per_second: int | None = Field(default=None, ge=1)
    shown: int = Field(default=100, ge=0)
    sample: str = ""
    cron: str = "47 5 * * 6"
    running: bool = False
    stale_days: float = Field(default=7, gt=0)

    @property
    def server(self) -> ServerAddress:
        """The server that has the tables; raises BadSettings where none is named."""
        if self.source is None:
            raise BadSettings(
                "no source to compare with is named. Give --source mysql://user@host:4000, or in the settings "
                "verify: {source: {uri: …, password: {env: NAME}}}."
            )
        return self.source
