"""The record of what was read and done. It speeds up and explains; it never decides."""

from __future__ import annotations

from cdc_assets.ledger.ledger import Ledger
from cdc_assets.model.ledger_entries import UNREAD, UNWRITTEN, FileEntry, JournalEntry, TableState

__all__ = ["UNREAD", "UNWRITTEN", "FileEntry", "JournalEntry", "Ledger", "TableState"]
