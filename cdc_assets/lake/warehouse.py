"""The warehouse's store, tried before a JVM starts: a wrong key or a missing bucket is known in a second then.

Java takes several to start, and repeats what was refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from cdc_assets.errors import BadSettings
from cdc_assets.lake.failures import answering
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.lake.staging.storage import storage

if TYPE_CHECKING:
    from cdc_assets.settings.lake import LakeSettings

_KEYS = ("s3.secret-access-key", "adls.account-key", "adls.sas-token")
"""Properties that say with which credentials to try; without them the clients' own chains decide, and differ."""


def refuse_unusable(settings: LakeSettings) -> None:
    """Raise SetupError or BadSettings for a store that refuses the given keys or has no such bucket.

    One place below the warehouse is looked at, since grants may reach no further. What else fails is left to Java.
    """
    properties = settings.pyiceberg_properties()
    if settings.local_directory is not None or not any(key in properties for key in _KEYS):
        return
    with suppress(OSError), answering("the lake's warehouse"):
        system, place = storage(properties, f"{settings.root}/{STAGE}")
        if system.get_file_info(place).type != pafs.FileType.NotFound:
            return
        bucket = place.partition("/")[0]
        with suppress(OSError):  # to look at the bucket itself may not be granted
            if system.get_file_info(bucket).type == pafs.FileType.NotFound:
                raise BadSettings(
                    f"the lake's warehouse {settings.root} is in {bucket!r}, which is not there. Check lake.warehouse, "
                    "and the endpoint in lake.catalog."
                )
