"""When a table's files are maintained, and what is kept."""

from __future__ import annotations

from pydantic import Field

from cdc_assets.settings.model import Model


class MaintenanceSettings(Model):
    """When a table's files are maintained, and what is kept. `cron` is Dagster's schedule, which `running` turns on.

    A table is compacted when it has `small_files` files below three quarters of `target_file_bytes`, or when
    `deleted_share` of its rows are deleted. Snapshots older than `snapshot_days` expire once there are
    `expire_at_least` of them, but never the last `snapshots_kept` (nor those that progress or an open exchange needs).
    Of more than `snapshots_most` the oldest expire before that, unless they are younger than ten minutes.
    Orphan files are removed after `orphan_days`: no run may take longer than that. Landed rows of topics that their
    table has taken expire after `landing_days`, and with them the way to rebuild it from further back.
    """

    inside = "maintenance"

    cron: str = "17 3 * * *"
    running: bool = False
    small_files: int = Field(default=12, ge=2)
    target_file_bytes: int = Field(default=256 << 20, ge=1 << 20)
    deleted_share: float = Field(default=0.1, gt=0, le=1)
    manifests: int = Field(default=20, ge=4)
    snapshot_days: float = Field(default=5, ge=0.05)
    snapshots_kept: int = Field(default=10, ge=1)
    snapshots_most: int = Field(default=500, ge=10)
    expire_at_least: int = Field(default=10, ge=1)
    orphan_days: float = Field(default=3, ge=1)
    landing_days: float = Field(default=30, gt=0)

    @property
    def small_bytes(self) -> int:
        """Files below this size in bytes are small."""
        return self.target_file_bytes * 3 // 4
