"""Names of the lake's tables: encoded into one word, and which table has which name.

A changefeed's table has its source name in the namespace of its database. It waits aside while another table still has
that name, and is retained aside once it is dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from cdc_assets.errors import TableHeld
from cdc_assets.model.features import WITH_TABLES
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId

Identifier = tuple[str, str]
"""Namespace and name of a lake table. A namespace is one level, whatever characters it has."""


@dataclass(frozen=True, slots=True)
class OwnNamespaces:
    """The namespaces of the lake itself. `main` has tombstones and the quarantine; all others begin with its name."""

    main: str = "_cdc"

    @property
    def dropped(self) -> str:
        """Namespace of dropped tables."""
        return f"{self.main}_dropped"

    @property
    def moving(self) -> str:
        """Namespace of tables that wait for their name."""
        return f"{self.main}_moving"

    @property
    def landing(self) -> str:
        """Namespace of landed messages."""
        return f"{self.main}_landing"

    def of(self, feature: str) -> str:
        """Return the namespace of a feature's own tables."""
        return f"{self.main}_{feature}"

    @property
    def aside(self) -> str:
        """The prefix of namespaces of a rebuild's tables; its token and the database's namespace follow."""
        return f"{self.main}_rebuild_"


def encoded(text: str) -> str:
    """Encode any text into one word without dots."""
    return quote(text, safe="").replace(".", "%2E")


def format_name(name: TableId | None) -> str:
    """Encode a table's name into one word; "" for none."""
    return "" if name is None else f"{encoded(name.schema)}.{encoded(name.table)}"


def parse_name(text: str) -> TableId | None:
    """Parse a name; the inverse of `format_name`."""
    schema, _, table = text.partition(".")
    return TableId(unquote(schema), unquote(table)) if text else None


def format_identity(life: Life) -> str:
    """Encode a life into one word: `schema.table@version`, percent-encoded, and `.kind` of a history table."""
    return f"{format_name(life.born_as)}@{life.version}{f'.{life.kind}' if life.kind else ''}"


def parse_identity(text: str) -> Life:
    """Parse a life; the inverse of `format_identity`. Raises ValueError."""
    name, _, rest = text.rpartition("@")
    version, _, kind = rest.partition(".")
    born_as = parse_name(name)
    if born_as is None:
        raise ValueError(text)
    return Life(born_as, int(version), kind)


def _short(text: str) -> str:
    """Keep a path component below 255 bytes: 64 characters of a name may be 576 bytes when encoded."""
    return text if len(text) <= 200 else f"{text[:150]}~{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def location(warehouse: str, changefeed: str, life: Life | None) -> str:
    """Return a table's own directory, inside the warehouse whatever its name; without a life that of all tables."""
    place = f"{warehouse.rstrip('/')}/{encoded(changefeed)}"
    return place if life is None else f"{place}/{_short(format_identity(life))}"


def aside_changefeed(changefeed: str, token: str) -> str:
    """Return the changefeed name of a rebuild's tables. It contains a `~`, which no changefeed's own name has."""
    return f"{changefeed}~{token}"


def aside_name(changefeed: str, life: Life) -> str:
    """Return the name under which a table waits outside its namespace."""
    return _short(f"{encoded(changefeed)}.{format_identity(life)}")


@dataclass(frozen=True, slots=True)
class Places:
    """The names of one changefeed's tables. `namespace` is its pattern, such as `src_{schema}`.

    `folds` is set for a catalog that stores names in lower case, `plain` for one whose names are letters, digits and
    "_": there tables outside their namespaces have a digest in the place of what else is in their names.
    """

    changefeed: str
    namespace: str = "{schema}"
    own: OwnNamespaces = OwnNamespaces()
    folds: bool = False
    plain: bool = False

    def home(self, name: TableId) -> Identifier:
        """Return the identifier of a table of that source name."""
        return self._spelled((self.namespace.format(schema=name.schema), name.table))

    def aside(self, life: Life) -> Identifier:
        """Return the identifier of a dropped table."""
        return self._spelled((self.own.dropped, self._aside_name(life)))

    def waiting(self, life: Life) -> Identifier:
        """Return the identifier of a table whose name is still taken."""
        return self._spelled((self.own.moving, self._aside_name(life)))

    def _aside_name(self, life: Life) -> str:
        name = aside_name(self.changefeed, life)
        if not self.plain:
            return name
        words = re.sub(r"[^A-Za-z0-9]+", "_", unquote(name))[:80]
        return f"{words}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"

    def _spelled(self, identifier: Identifier) -> Identifier:
        return (identifier[0].lower(), identifier[1].lower()) if self.folds else identifier

    def refuse_reserved(self, name: TableId, life: Life) -> None:
        """Raise TableHeld for a database that has the name of one of the lake's own namespaces."""
        namespace = self.home(name)[0]
        reserved = namespace.startswith(self.own.aside) and not self.namespace.startswith(self.own.aside)
        own = self.own
        if reserved or namespace in (own.main, own.dropped, own.moving, own.landing, *map(own.of, WITH_TABLES)):
            raise TableHeld(
                f"{life}: the namespace {namespace} is reserved for the lake itself. "
                "Give the changefeed another namespace pattern (setting namespace), such as src_{schema}.",
                table=str(life),
            )


# --- renames that are due ---------------------------------------------------------------------------------------------


class Move(NamedTuple):
    """A rename that is due."""

    life: Life
    source: Identifier
    target: Identifier


def moves(
    now: Mapping[Life, Identifier],
    targets: Mapping[Life, Identifier],
    waiting: Mapping[Life, Identifier],
    taken: Iterable[Identifier],
) -> list[Move]:
    """Return the renames, in order, that bring tables to their wanted names, as far as those become free.

    `taken` are all names in the catalog. Of tables that wait for each other one moves to its `waiting` name first; one
    whose name belongs to a table that stays waits where it is.
    """
    place, busy, plan = dict(now), set(taken), []

    def go(life: Life, target: Identifier) -> None:
        plan.append(Move(life, place[life], target))
        busy.discard(place[life])
        busy.add(target)
        place[life] = target

    pending = sorted(life for life in now if now[life] != targets[life])
    while pending:
        free = [life for life in pending if targets[life] not in busy]
        if free:
            go(free[0], targets[free[0]])
            pending.remove(free[0])
            continue
        holders = {place[life]: life for life in pending}
        ring = next((life for life in pending if _leads_back(life, targets, holders)), None)
        if ring is None:
            break
        go(ring, waiting[ring])
    return plan


def _leads_back(life: Life, targets: Mapping[Life, Identifier], holders: Mapping[Identifier, Life]) -> bool:
    """Return whether the table waits, through others that have to move, for its own name to become free."""
    seen: set[Life] = set()
    at: Life | None = life
    while at is not None and at not in seen:
        seen.add(at)
        at = holders.get(targets[at])
    return at == life
