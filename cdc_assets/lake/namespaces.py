"""The catalog's namespaces, created when needed, and people's decisions, which are properties of the lake's own one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError

from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import encoded
from cdc_assets.model.decisions import Decisions, KeptDecision

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from cdc_assets.lake.catalogs.catalog import LazyCatalog


def ensure_namespace(catalog: Catalog, namespace: str) -> None:
    """Create a namespace if it does not exist; concurrent callers all succeed."""
    try:
        with answering():
            catalog.create_namespace((namespace,))
    except NamespaceAlreadyExistsError:
        return
    except Exception:
        try:
            with answering():
                catalog.load_namespace_properties((namespace,))
        except NoSuchNamespaceError:
            pass
        else:
            return
        raise


def own_properties(catalog: Catalog, own: str) -> Mapping[str, str]:
    """Return the properties of the lake's own namespace; none before it exists."""
    try:
        with answering():
            return catalog.load_namespace_properties((own,))
    except NoSuchNamespaceError:
        return {}


def set_own_properties(catalog: Catalog, own: str, updates: Mapping[str, str], removals: Iterable[str] = ()) -> None:
    """Set properties of the lake's own namespace and remove others, in one update."""
    ensure_namespace(catalog, own)
    with answering():
        catalog.update_namespace_properties((own,), removals=set(removals) - set(updates), updates=dict(updates))


def remove_own_properties(catalog: Catalog, own: str, names: Iterable[str]) -> None:
    """Remove properties of the lake's own namespace; nothing happens if it does not exist."""
    removals = set(names)
    if removals:
        with answering(), suppress(NoSuchNamespaceError):
            catalog.update_namespace_properties((own,), removals=removals)


_PREFIX = "cdc.decision."
_PIECE = 900
"""Catalogs store at most 1000 characters of a property in one row, and 255 of its name."""


@dataclass(frozen=True)
class DecisionStore:
    """The decisions about one changefeed. `own` is the lake's namespace."""

    catalog: LazyCatalog
    changefeed: str
    own: str

    def read(self) -> Decisions:
        """Return the decisions of people about this changefeed: one query."""
        return parse_decisions(own_properties(self.catalog.open(), self.own), self.changefeed)

    def keep(self, decision: KeptDecision) -> None:
        """Store a decision in one update, in place of those that it replaces: others may be made meanwhile."""
        catalog = self.catalog.make()
        properties = own_properties(catalog, self.own)
        replaced = parse_decisions(properties, self.changefeed).of(type(decision))
        old = self._names(properties, [decision, *filter(decision.replaces, replaced)])
        set_own_properties(catalog, self.own, format_decision(self.changefeed, decision), old)

    def remove(self, decision: KeptDecision) -> None:
        """Remove the decisions about the same as this one."""
        catalog = self.catalog.open()
        properties = own_properties(catalog, self.own)
        decisions = parse_decisions(properties, self.changefeed).of(type(decision))
        about = [other for other in decisions if other.subject == decision.subject]
        remove_own_properties(catalog, self.own, self._names(properties, about))

    def _names(self, properties: Mapping[str, str], decisions: Iterable[KeptDecision]) -> set[str]:
        """Return the names of properties that hold decisions."""
        keys = {_key(self.changefeed, decision) for decision in decisions}
        return {name for name in properties if name.rpartition("#")[0] in keys}


def format_decision(changefeed: str, decision: KeptDecision) -> dict[str, str]:
    """Return the namespace properties that hold a decision, for `parse_decisions`."""
    key, text = _key(changefeed, decision), json.dumps({"changefeed": changefeed, **asdict(decision)})
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return {f"{key}#{number}": piece for number, piece in enumerate(pieces, 1)}


def parse_decisions(properties: Mapping[str, str], changefeed: str) -> Decisions:
    """Return a changefeed's decisions among a namespace's properties."""
    pieces: dict[str, dict[int, str]] = {}
    for name, piece in properties.items():
        key, _, number = name.rpartition("#")
        if key.startswith(_PREFIX):
            pieces.setdefault(key, {})[int(number)] = piece
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for key, parts in pieces.items():
        fields: dict[str, Any] = json.loads("".join(parts[number] for number in sorted(parts)))
        if fields.pop("changefeed") == changefeed:
            entries.setdefault(key.removeprefix(_PREFIX).partition(".")[0], []).append(fields)
    return Decisions({kept_as: tuple(decisions) for kept_as, decisions in entries.items()})


def _key(changefeed: str, decision: KeptDecision) -> str:
    """Return the beginning of the names of a decision's properties, in a bounded length."""
    place = sha256(repr(decision.place).encode()).hexdigest()[:32]
    return f"{_PREFIX}{decision.KEPT_AS}.{encoded(changefeed)}.{place}"
