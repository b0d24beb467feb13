"""Decisions of people about the tables of a changefeed, as a lake keeps them: their content is opaque here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from cdc_assets.model.progress import Life


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """A decision of a person: a frozen dataclass of texts, numbers, and dataclasses and tuples of such.

    `KEPT_AS` is a short name of its class, under which a lake keeps it.
    """

    KEPT_AS: ClassVar[str]

    @property
    def subject(self) -> tuple[Any, ...]:
        """The subject, such as a table and a version: a later decision of one class withdraws that about an equal
        subject.
        """
        raise NotImplementedError

    @property
    def place(self) -> tuple[Any, ...]:
        """Identity among all records kept with it: of two that are made at once with equal identity, one stays."""
        return self.subject

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key among those of its class."""
        return self.subject

    def replaces(self, other: KeptDecision) -> bool:
        """Return whether it takes the place of an earlier one of its class."""
        return self.subject == other.subject


DecisionT = TypeVar("DecisionT", bound=KeptDecision)


@dataclass(frozen=True, slots=True)
class SnapshotPin(KeptDecision):
    """A snapshot of a table that a `reader` reads for long: maintenance keeps it and those after it, for a day at most.

    `when` is ISO text in UTC.
    """

    KEPT_AS: ClassVar[str] = "pin"

    life: Life
    snapshot_id: int
    reader: str
    when: str

    @property
    def subject(self) -> tuple[Any, ...]:
        """The snapshot and its reader."""
        return self.life, self.snapshot_id, self.reader


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of people about the tables of a changefeed, as of one moment.

    Attributes:
        fields: The fields of each decision as JSON has them, by `KEPT_AS`.
    """

    fields: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def of(self, kind: type[DecisionT]) -> tuple[DecisionT, ...]:
        """Return the decisions of one class, in their order."""
        decisions = (_decoded(kind, fields) for fields in self.fields.get(kind.KEPT_AS, ()))
        return tuple(sorted(decisions, key=lambda decision: decision.order))

    def without(self, kind: type[KeptDecision]) -> Decisions:
        """Return these but for the decisions of one class."""
        return Decisions({name: fields for name, fields in self.fields.items() if name != kind.KEPT_AS})

    def changed(self, decisions: Iterable[KeptDecision], *, withdrawn: bool = False) -> Decisions:
        """Return these with other decisions, each in place of those that it replaces.

        With `withdrawn` those about the subjects of the given ones are taken out instead.
        """
        fields = dict(self.fields)
        for decision in decisions:
            unchanged = (
                other
                for other in Decisions(fields).of(type(decision))
                if not (other.subject == decision.subject if withdrawn else decision.replaces(other))
            )
            fields[decision.KEPT_AS] = tuple(asdict(it) for it in (*unchanged, *([] if withdrawn else [decision])))
        return Decisions(fields)


def _decoded(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Return a dataclass from its fields as JSON has them."""
    hints = _hints(kind)
    return kind(**{name: _value(hints[name], value) for name, value in fields.items()})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return _decoded(hint, value)
    if get_origin(hint) is tuple:
        item, *_ = get_args(hint)
        return tuple(_value(item, element) for element in value)
    return value
