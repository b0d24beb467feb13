"""Names in the SQL that the package writes: none may meet the name of a column of the source.

Columns of lake tables never begin with `_cdc_` but for the lake's own ones, so each alias of a table does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

__all__ = ["checked_statements", "foreign_names"]

_OWN = ("_cdc_", "__start_at", "__end_at", "_change_type")


def foreign_names(statement: str) -> list[str]:
    """Return the names of a statement of Spark SQL that a column of the source may have too.

    These are aliases of tables, and in a MERGE the columns without a table that its other side has as well.
    """
    tree = sqlglot.parse_one(statement, dialect="spark")
    aliases = (str(alias.this.name) for alias in tree.find_all(exp.TableAlias) if alias.this is not None)
    names = [name for name in aliases if not name.startswith("_cdc_")]
    for merge in tree.find_all(exp.Merge):
        using = merge.args["using"]
        query = using.this if isinstance(using, exp.Subquery) else None
        others = {name.lower() for name in query.named_selects} if query is not None else set()
        bare = {column.name.lower() for column in merge.args["on"].find_all(exp.Column) if not column.table}
        names += [name for name in bare & others if not name.startswith(_OWN)]
    return names


@contextmanager
def checked_statements() -> Iterator[None]:
    """Refuse a statement of the package that has such names, whichever test runs it."""
    from pyspark.sql import SparkSession

    original = SparkSession.sql

    def checked(self: SparkSession, statement: str, *given: Any, **more: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("cdc_assets."):
            assert foreign_names(statement) == [], statement
        return original(self, statement, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSession, "sql", checked)
        yield
