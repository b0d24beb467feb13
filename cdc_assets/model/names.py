"""Names as TiDB prints and compares them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache


@lru_cache(maxsize=1 << 16)
def fold_name(name: str) -> str:
    """Return the form in which TiDB compares names of databases and tables (`lower_case_table_names=2`).

    Go lowers each character by itself into one character, so a final sigma is lowered as anywhere else in a word.
    """
    return "".join(char.lower()[0] for char in name)


def fits_pattern(name: str, pattern: str) -> bool:
    """Return whether the name of a table, `schema.table`, fits a pattern with `*` and `?`, in any letter case.

    No other sign of a pattern has a meaning.
    """
    return fnmatchcase(fold_name(name), fold_name(pattern).replace("[", "[[]"))


def unfit_name(name: str) -> str:
    """Return the reason why no catalog can have a name of a database or table, "" for one that all can.

    Catalogs take any letters, signs and digits; names are kept as UTF-8, in databases that know no NUL.
    """
    if not name.strip():
        return "it is empty" if not name else "it has white space alone"
    if "\0" in name:
        return "it has a NUL character"
    return "" if name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name) else "it is not Unicode"


def is_hidden_name(name: str) -> bool:
    """Return whether this is the name of the hidden column of an expression index: `_V$_{index}_{n}`."""
    return _HIDDEN_NAME.fullmatch(name) is not None


_HIDDEN_NAME = re.compile(r"_V\$_.*_\d+", re.DOTALL)
