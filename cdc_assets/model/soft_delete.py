"""TiDB's soft-delete and active-active tables, which cannot be followed: how they are known, and why they are held."""

from __future__ import annotations

SOFT_DELETE_COLUMNS = frozenset(("_tidb_softdelete_time", "_tidb_origin_ts"))
"""Their hidden columns (`ticdc:pkg/common/event/active_active.go`). The text of their CREATE TABLE has none of them."""


def soft_delete_reason(sign: str) -> str:
    """Return the sentence on such a table, which begins with what shows it to be one."""
    return (
        f"{sign}: a soft-delete or active-active table. TiCDC never writes its hard deletes, and whether a soft delete "
        "is written as a delete or as an update depends on settings that the feed does not record, so the lake table "
        "would keep rows that the source does not show. Exclude the table from the changefeed."
    )
