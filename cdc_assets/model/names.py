"""Names as TiDB prints and compares them."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["fold_name", "is_hidden_name"]


@lru_cache(maxsize=1 << 16)
def fold_name(name: str) -> str:
    """Return the form in which TiDB compares names of databases and tables (`lower_case_table_names=2`).

    Go lowers each character by itself into one character, so a final sigma is lowered as anywhere else in a word.
    """
    return "".join(char.lower()[0] for char in name)


def is_hidden_name(name: str) -> bool:
    """Return whether this is the name of the hidden column of an expression index: `_V$_{index}_{n}`."""
    return _HIDDEN_NAME.fullmatch(name) is not None


_HIDDEN_NAME = re.compile(r"_V\$_.*_\d+", re.DOTALL)
