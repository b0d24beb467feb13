"""Columns of polars frames by the names that people gave them."""

from __future__ import annotations

import re


def exact(name: str) -> str:
    """Return a column's name as polars takes it in expressions, keys and subsets: it reads `^…$` as a pattern there."""
    return f"^{re.escape(name)}$" if name.startswith("^") and name.endswith("$") else name
