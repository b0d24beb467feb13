"""Dagster's view of a changefeed: thin assets, checks, a sensor and jobs over `pipeline`.

bucket ──▶ ddl ──▶ dml ──▶ one asset for each lake table
            └─ partitions schema.table@version ─┘
"""

from __future__ import annotations

from cdc_assets.defs.changefeed import build_changefeed_defs, build_defs

__all__ = ["build_changefeed_defs", "build_defs"]
