"""People's decisions, kept where the tables are: as JSON in properties of the lake's own namespace.

cdc.release.…   what people decided about single DDL (`history.releases`)
cdc.complete.…  which tables people said to have had no rows before the changefeed, or to lack rows that they accept
                (`history.completeness`)
cdc.settings.…  from when on people said that settings are in force (`planning.recipe`)
cdc.pin.…       which snapshots somebody reads for long
cdc.cut.…       which cuts were decided, and are not made yet or are to be removed (`planning.cuts`)
cdc.kept-out.…  keys of rows that are kept out, as HMACs (`planning.forgotten`)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from cdc_assets.lake.names import encoded, format_identity, format_name, parse_identity
from cdc_assets.lake.namespaces import own_properties, remove_own_properties, set_own_properties
from cdc_assets.model.cuts import CutRequest, SnapshotPin
from cdc_assets.model.forgetting import ForgottenKeys, united
from cdc_assets.model.gaps import CompletePattern
from cdc_assets.model.releases import Decisions, KeptDecision, Release, SettingsChange
from cdc_assets.model.schema import TableId

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_PREFIXES: Mapping[type[KeptDecision], str] = {
    Release: "cdc.release.",
    CompletePattern: "cdc.complete.",
    SettingsChange: "cdc.settings.",
    CutRequest: "cdc.cut.",
    SnapshotPin: "cdc.pin.",
    ForgottenKeys: "cdc.kept-out.",
}
_PIECE = 900
"""Catalogs store at most 1000 characters of a property in one row, and 255 of its name."""

DecisionT = TypeVar("DecisionT", Release, CompletePattern, SettingsChange, CutRequest, ForgottenKeys, SnapshotPin)


@dataclass(frozen=True)
class DecisionStore:
    """The decisions about one changefeed. `catalog` opens the catalog on first use, `own` is the lake's namespace."""

    catalog: Callable[[], Catalog]
    changefeed: str
    own: str

    def read(self) -> Decisions:
        """Return what people have decided about this changefeed: one query."""
        properties = own_properties(self.catalog(), self.own)
        return Decisions(
            {
                (release.life, release.version): release
                for release in parse_decisions(properties, self.changefeed, Release)
            },
            _sorted(
                parse_decisions(properties, self.changefeed, CompletePattern),
                lambda decision: (decision.when, decision.pattern),
            ),
            _sorted(
                parse_decisions(properties, self.changefeed, SettingsChange),
                lambda change: (change.since, change.pattern),
            ),
            united(parse_decisions(properties, self.changefeed, ForgottenKeys)),
            _sorted(
                parse_decisions(properties, self.changefeed, CutRequest), lambda request: (request.at, request.name)
            ),
        )

    def pins(self) -> tuple[SnapshotPin, ...]:
        """Return which snapshots somebody reads, or read when it was killed: one query."""
        return tuple(parse_decisions(own_properties(self.catalog(), self.own), self.changefeed, SnapshotPin))

    def keep(self, decision: KeptDecision) -> None:
        """Store a decision in one update, in place of an earlier one about the same.

        One about forgotten keys takes the place only of those that it has all keys of: others may be made meanwhile.
        """
        catalog = self.catalog()
        properties = own_properties(catalog, self.own)
        old = self._names(properties, decision)
        if isinstance(decision, ForgottenKeys):
            kept = parse_decisions(properties, self.changefeed, ForgottenKeys)
            gone = {_key(self.changefeed, kept_decision) for kept_decision in kept if decision.replaces(kept_decision)}
            old = {name for name in old if name.rpartition("#")[0] in gone}
        set_own_properties(catalog, self.own, format_decision(self.changefeed, decision), old)

    def remove(self, decision: KeptDecision) -> None:
        """Remove the decisions about the same as this one."""
        catalog = self.catalog()
        remove_own_properties(catalog, self.own, self._names(own_properties(catalog, self.own), decision))

    def _names(self, properties: Iterable[str], decision: KeptDecision) -> set[str]:
        """Return the names of properties that hold a decision about the same."""
        end = "." if isinstance(decision, ForgottenKeys) else "#"
        return {name for name in properties if name.startswith(f"{_about(self.changefeed, decision)}{end}")}


def _sorted(decisions: Iterable[DecisionT], key: Callable[[DecisionT], tuple[int | str, ...]]) -> tuple[DecisionT, ...]:
    return tuple(sorted(decisions, key=key))


def format_decision(changefeed: str, decision: KeptDecision) -> dict[str, str]:
    """Return the namespace properties that hold a decision; the inverse of `parse_decisions`."""
    key, text = _key(changefeed, decision), _text(changefeed, decision)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return {f"{key}#{number}": piece for number, piece in enumerate(pieces, 1)}


def parse_decisions(properties: Mapping[str, str], changefeed: str, kind: type[DecisionT]) -> list[DecisionT]:
    """Return a changefeed's decisions of a kind among a namespace's properties."""
    prefix = f"{_PREFIXES[kind]}{encoded(changefeed)}."
    pieces: dict[str, dict[int, str]] = {}
    for name, piece in properties.items():
        key, _, number = name.rpartition("#")
        if key.startswith(prefix):
            pieces.setdefault(key, {})[int(number)] = piece
    decisions: list[DecisionT] = []
    for parts in pieces.values():
        fields: dict[str, Any] = json.loads("".join(parts[number] for number in sorted(parts)))
        if fields.pop("changefeed") == changefeed:
            if kind in (Release, SnapshotPin):
                fields["life"] = parse_identity(fields["life"])
            if kind is CutRequest:
                fields["without"] = tuple(fields["without"])
            if kind is ForgottenKeys:
                fields["table"] = TableId(**fields["table"])
                fields |= {name: tuple(map(parse_identity, fields[name])) for name in ("lives", "others")}
                fields |= {name: tuple(fields[name]) for name in ("form", "digests")}
            decisions.append(kind(**fields))
    return decisions


def _text(changefeed: str, decision: KeptDecision) -> str:
    fields = {"changefeed": changefeed, **asdict(decision)}
    if isinstance(decision, Release | SnapshotPin):
        fields["life"] = format_identity(decision.life)
    if isinstance(decision, ForgottenKeys):
        fields |= {
            "lives": [format_identity(life) for life in decision.lives],
            "others": [format_identity(life) for life in decision.others],
        }
    return json.dumps(fields)


def _key(changefeed: str, decision: KeptDecision) -> str:
    """Return the beginning of the names of a decision's properties, in a bounded length.

    One about forgotten keys is named by what it says, too: of two that are made at once none takes the other's place.
    """
    about = _about(changefeed, decision)
    return f"{about}.{_digest(_text(changefeed, decision))}" if isinstance(decision, ForgottenKeys) else about


def _about(changefeed: str, decision: KeptDecision) -> str:
    """Return what a decision is about."""
    match decision:
        case Release(life, version):
            name = format_name(life.born_as)
            name = f"{name[:80]}~{_digest(name)}" if len(name) > 120 else name
            subject = f"{name}@{life.version}.{version}"
        case CompletePattern(pattern):
            subject = _digest(f"{pattern}\n{decision.accepted}" if decision.accepted else pattern)
        case SettingsChange(pattern, since):
            subject = f"{_digest(pattern)}.{since}"
        case CutRequest(name):
            subject = _digest(name)
        case ForgottenKeys(name):
            subject = _digest(repr((name, decision.part)))
        case SnapshotPin(life, snapshot_id, reader):
            subject = _digest(f"{format_identity(life)}.{snapshot_id}.{reader}")
    return f"{_PREFIXES[type(decision)]}{encoded(changefeed)}.{subject}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
