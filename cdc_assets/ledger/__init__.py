"""The record of what was read and done. It speeds up and explains; it never decides."""

from __future__ import annotations

from cdc_assets.ledger.ledger import UNREAD, FileEntry, JournalEntry, Ledger, TableState

__all__ = ["UNREAD", "FileEntry", "JournalEntry", "Ledger", "TableState"]
