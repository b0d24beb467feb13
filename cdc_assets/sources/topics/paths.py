"""Names of what was landed, as splits and schema files have them.

    shop/orders/00465283340709396484/ddl/cdc+0/00000000000000000017
    shop/orders/00465283340709396484/rows/cdc+0/00000000000000000018-00000000000000000042

The first parts are the table and the version whose columns rows have; then the topic, the partition and the offsets. A
slash in a name of a table is written `%2F`, a percent sign `%25`. A topic may have slashes, as YDB's are paths.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

_PATH = re.compile(
    r"(?P<root>[^/]+(?:/[^/]+)?)/(?P<version>\d{20})/(?P<kind>[a-z]+)/(?P<topic>.+)\+(?P<number>\d+)/"
    r"(?P<first>\d{20})(?:-(?P<last>\d{20}))?"
)


class LandedPath(NamedTuple):
    """A name taken apart. `kind` is rows, ddl, schema or bad; of one message `last` is `first`."""

    root: str
    version: Tso
    kind: str
    topic: str
    number: int
    first: int
    last: int

    @property
    def directory(self) -> str:
        """The part of the name before the offsets."""
        return f"{self.root}/{self.version:020d}/{self.kind}/{self.topic}+{self.number}"

    def __str__(self) -> str:
        end = f"-{self.last:020d}" if self.kind == "rows" else ""
        return f"{self.directory}/{self.first:020d}{end}"


def parse_path(path: str) -> LandedPath | None:
    """Return the parts of a name, None for any other; the inverse of `str`."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    first = int(match["first"])
    last = int(match["last"]) if match["last"] else first
    return LandedPath(
        match["root"], int(match["version"]), match["kind"], match["topic"], int(match["number"]), first, last
    )


def format_root(table: TableId) -> str:
    """Return the beginning of a name for a table, or a database."""
    parts = (table.schema, table.table) if table.table else (table.schema,)
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
