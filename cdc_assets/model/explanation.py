"""The explanation of a row: how it came to be as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of the row in the input: `kind` is insert, update or delete. Values are texts, None is NULL.

    `changed` has the former and the new value of each column that changed, of an insert and a delete of all. `place` is
    the file and line, or topic, partition and offset. The change was applied with the window (`lo`, `hi`], by a `run`
    that made a `snapshot`; 0, "" and None where no record of that is left. Of an update whose former row is not in what
    was read (not `former_known`), the former values are None and all new ones are there.
    """

    position: Tso
    time: str
    kind: str
    changed: Mapping[str, tuple[str | None, str | None]]
    place: str
    lo: Tso
    hi: Tso
    run: str = ""
    snapshot: int | None = None
    former_known: bool = True


@dataclass(frozen=True, slots=True)
class TableChange:
    """A DDL of the table, with the record of how it was carried out where there is one."""

    position: Tso
    time: str
    action: str
    query: str
    run: str = ""
    snapshot: int | None = None


@dataclass(frozen=True, slots=True)
class SetAside:
    """A record in quarantine whose bytes have the key's values: it may be of the row."""

    place: str
    reason: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExplanation:
    """A row by its `key`: as it is in the lake (`row`, None if it is not there), and what made it so, in order.

    With `row_is_hidden` nothing is said of the row, since the lake has it with other masks than the settings.
    `position` is that of the row's last change by the lake. `gone` are sentences on input that is not there any more,
    so that changes in it are not among these.
    """

    table: TableId
    key: Mapping[str, str | None]
    row: Mapping[str, str | None] | None
    row_is_hidden: bool = False
    position: Tso | None = None
    changes: tuple[RowChange, ...] = ()
    events: tuple[TableChange, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    gone: tuple[str, ...] = field(default_factory=tuple)
