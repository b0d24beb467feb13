"""Time zones by the names that settings have (`Asia/Shanghai`, `+08:00`), and whether two agree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import pyarrow as pa

_OFFSET = re.compile(r"([+-])(\d\d):([0-5]\d)")
_LAST_INSTANT = 2**31
"""TIMESTAMP ends here, in seconds since 1970."""
_QUARTER_SECONDS = 900


def zone_of(name: str) -> tzinfo:
    """Return a zone by its name; raises ValueError or zoneinfo.ZoneInfoNotFoundError for one that is not known."""
    offset = _OFFSET.fullmatch(name)
    if name == "UTC" or offset is None:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return timezone(-span if offset[1] == "-" else span)


@lru_cache(maxsize=64)
def is_zone(name: str) -> bool:
    """Return whether the zone database that Arrow reads has a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), name)
    except ValueError:  # Arrow's error for a zone that is not known is one
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """A zone by what its clocks show: equal to another that shows the same time at every instant of a TIMESTAMP."""

    name: str

    def __eq__(self, other: object) -> bool:
        """Return whether clocks agree; a name that is not known has none."""
        return isinstance(other, Zone) and (self.name == other.name or _agree(*sorted((self.name, other.name))))

    __hash__ = None  # type: ignore[assignment]  # equal zones have different names


@lru_cache(maxsize=64)
def _agree(zone: str, other: str) -> bool:
    try:
        return bool(_clock(zone).equals(_clock(other)))
    except ValueError:  # Arrow's error for a zone that is not known is one
        return False


def _clock(name: str) -> pa.Array:
    """Return the clock times of every quarter of an hour from 1970 to 2038."""
    import numpy as np  # settings are read where no row is
    import pyarrow as pa
    import pyarrow.compute as pc

    instants = pa.array(np.arange(0, _LAST_INSTANT, _QUARTER_SECONDS, dtype=np.int64))
    return pc.local_timestamp(instants.cast(pa.timestamp("s", name)))
