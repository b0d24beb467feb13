"""A cursor that reads rows as they are asked for, and may be left before the last one. Imports the client library."""

from __future__ import annotations

from typing import Any

from pymysql.cursors import SSCursor


class UnbufferedCursor(SSCursor):  # type: ignore[misc]  # PyMySQL ships no types
    """PyMySQL's own reads all that is left when it is closed or forgotten; here the connection is closed instead."""

    _result: Any

    def close(self) -> None:
        """Forget the rows that were not read."""
        result, self._result = self._result, None
        if result is not None:
            result.unbuffered_active = False
            result.connection = None
        self.connection = None

    __del__ = close
