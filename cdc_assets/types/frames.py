"""Columns of polars frames by the names that people gave them."""

from __future__ import annotations

import re


def exact(name: str) -> str:
    """Return a column's name as polars takes it in expressions, keys and subsets.

    There polars reads `^…$` as a pattern and `*` as all columns.
    """
    is_pattern = name == "*" or (name.startswith("^") and name.endswith("$"))
    return f"^{re.escape(name)}$" if is_pattern else name
