"""Tables whose values were read with other settings than those now: equal texts would become different values in them.

A label has the settings with which a table's values were read, as far as these depend on any. What a person says of a
change, from which TSO on it is in force, lies in the lake (`SettingsChange`): rows from before then are read with the
former settings, at any time. Anything else that differs holds the table, until it is rebuilt, the settings are as they
were, or a person says from when the change is in force.

Each format says, column by column, what its decoder makes of a setting (`Wire.read_by`): a zone of TIMESTAMP texts, the
form of decimals. Settings are compared by that, not by their words: another name of the same zone is the same.

Masks belong to these settings, one for each column (`privacy.COLUMN`, by the name that the column had first): a label
has the fingerprint of the mask of its values, never a key. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_assets.formats import Wire
from cdc_assets.history.masks import mask_holds, origins
from cdc_assets.model.dumps import DUMP_ZONE
from cdc_assets.model.forgetting import ForgottenKeys
from cdc_assets.model.masks import NO_MASK, Mask, MaskPolicy
from cdc_assets.model.progress import AppliedState, Life, Phase
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RetypeColumn, SchemaChange
from cdc_assets.model.settings_changes import SettingsChange
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type, defaults_to_now
from cdc_assets.types.zones import Zone

__all__ = [
    "ValueSettings", "deciding", "has_masks", "masked_otherwise", "masked_since", "masks_before", "masks_of",
    "read_otherwise",
]  # fmt: skip

_COLLATIONS, _KEYS = "new_collations", "keys"
_MASK = "privacy."
_BEFORE = " before "

Differences = Mapping[str, tuple[str, str, tuple[str, ...]]]
"""Name of a setting -> its value then, its value now, and the columns that it concerns."""


@dataclass(frozen=True, slots=True)
class ValueSettings:
    """How a changefeed is read now, what people said of former settings, in the order of their TSO, and which keys'
    rows are kept out.

    With `compared` tables are held whose labels have other settings; a label of the past, of which nobody kept these,
    cannot be compared.
    """

    wire: Wire
    changes: tuple[SettingsChange, ...] = ()
    masks: MaskPolicy | None = None
    forgotten: tuple[ForgottenKeys, ...] = ()
    compared: bool = True

    def at(self, life: Life, position: Tso) -> Wire:
        """Return how rows at a position are read."""
        former = self.former(life, position)
        return self.wire.having(former) if former else self.wire

    def zone(self, life: Life, position: Tso) -> str:
        """Return the zone in which a table's TIMESTAMP texts at a position were written."""
        return self.at(life, position).timezone

    def former(self, life: Life, position: Tso) -> dict[str, str]:
        """Return the settings with which rows at a position are read, where these are not the present ones."""
        found: dict[str, str] = {}
        for change in sorted(self._of(life), key=lambda one: one.since, reverse=True):
            found.update(change.before if change.since > position else {})
        return found

    def changes_of(self, life: Life) -> tuple[Tso, ...]:
        """Return the positions after which a table's rows are read with other settings, in order."""
        return tuple(sorted({change.since - 1 for change in self._of(life)}))

    def of(self, life: Life, schema: TableSchema, position: Tso, had: Mapping[str, str] | None) -> dict[str, str]:
        """Return the settings with which a table's values up to a position were read, as far as they depend on any.

        With the present ones are those of before each change since the table began, as `tz before TSO`. `had` are those
        of the table as it stands, None for one that is built from nothing: all rows are masked as the policy says now,
        so of a former mask a table only has values that it had already.
        """
        found, collated = deciding(self.at(life, position), schema.stored), _collated(schema)
        then, masks = self.former(life, position), masks_of(schema)
        mixed = {
            name
            for name, mask in masks.items()
            if had is not None and (had.get(name, NO_MASK) != mask or any(_is_before(one, name) for one in had))
        }
        found |= {name: then.get(name, mask) if name in mixed else mask for name, mask in masks.items()}
        passed = [change for change in self._of(life) if life.version < change.since <= position]
        former = {
            _before(name, change.since): value
            for change in passed
            for name, value in change.before.items()
            if name in found and (name in mixed or name not in masks)
        }
        return {**found, **former, **({_COLLATIONS: _collations(collated)} if collated else {})}

    def of_ddl(self, life: Life, changes: Iterable[SchemaChange], after: TableSchema, position: Tso) -> dict[str, str]:
        """Return the settings by which a DDL at a position gives values to rows that are there.

        It does so where another type becomes TIMESTAMP, and where its text alone states the default of one.
        """
        made = set()
        for change in changes:
            match change:
                case RetypeColumn(old, Column(name=name, type="TIMESTAMP")) if old.type != "TIMESTAMP":
                    made.add(name)
                case AddColumn(Column(name=name, type="TIMESTAMP") as column, default, guess) if default and guess:
                    made |= set() if defaults_to_now(column) else {name}
        if not made:
            return {}
        return self.of(life, replace(after, columns=tuple(c for c in after.columns if c.name in made)), position, None)

    def _of(self, life: Life) -> list[SettingsChange]:
        return [change for change in self.changes if change.concerns(life)]

    # --- what differs ---

    def differing(self, table: TableHistory, state: AppliedState) -> Differences:
        """Return the settings with which a table's values would be read otherwise now than they were."""
        seen = [event.after for event in table.events if event.at <= state.ddl]
        if not seen:
            return {}
        schema, wire = seen[-1], self.at(table.life, _first_due(state) - 1)
        read = read_otherwise(wire, state.settings, schema.stored)
        found = {name: (state.settings[name], wire.settings[name], columns) for name, columns in read.items()}
        known = self.of(table.life, schema, _first_due(state) - 1, state.settings)
        for name in (name for name in state.settings if _BEFORE in name and name not in known):
            found[name] = (state.settings[name], wire.settings.get(name.partition(_BEFORE)[0], ""), ())
        collated, then = _collated(schema), state.settings.get(_COLLATIONS, "")
        if collated and then and then != _collations(collated):
            found[_COLLATIONS] = (then, _collations(collated), tuple(column.name for column in collated))
        found |= self._other_masks(table, state, schema)
        return {**found, **_other_zone(table, state, schema), **_other_key(table, state, schema)}

    def _other_masks(self, table: TableHistory, state: AppliedState, schema: TableSchema) -> Differences:
        """Return the masks of columns whose values are there with another one, or without."""
        then = {name: mask for name, mask in state.settings.items() if name.startswith(_MASK) and _BEFORE not in name}
        now = {
            name: mask
            for name, mask in self.of(table.life, schema, _first_due(state) - 1, state.settings).items()
            if name in masks_of(schema)
        }
        if not then and not now:
            return {}
        names = next(after for event, _, after in reversed(origins(table)) if event.at <= state.ddl)
        found: Differences = {
            name: (then.get(name, NO_MASK), now.get(name, NO_MASK), (column.name,))
            for column in schema.stored
            for name in [f"{_MASK}{names[column.name] if column.mask is None else column.mask.origin}"]
        }
        return {name: masks for name, masks in found.items() if masks[0] != masks[1]}

    def holds(self, history: History, applied: Mapping[Life, AppliedState]) -> Iterator[HoldTable]:
        """Yield the tables whose next rows would be read otherwise than those they have, or cannot be masked."""
        for hold in mask_holds(history) if self.masks else ():
            state = applied.get(hold.life)
            if hold.releasable and state is not None and hold.at <= state.ddl:
                continue  # its rows were masked without a doubt of then
            yield hold if state is None else replace(hold, at=max(hold.at, _first_due(state)))
        for life, state in applied.items() if self.compared else ():
            table = history.lives.get(life)
            found = self.differing(table, state) if table is not None and state.name is not None else {}
            if table is not None and found:
                yield HoldTable(life, _first_due(state), _reason(state, found), self._ways(table, state, found))

    def _ways(self, table: TableHistory, state: AppliedState, found: Differences) -> tuple[str, ...]:
        name = shlex.quote(str(table.name or table.life))
        back = ", ".join(f'{setting} "{then}"' for setting, (then, _, _) in found.items())
        ways = (f"set them as they were: {back}", f"read all rows anew: cdc-assets rebuild {name}")
        if not all(self.is_releasable(name, values, table) for name, values in found.items()):
            return ways
        return (
            *ways,
            f"say that rows from there on are written so: cdc-assets release {name} {_first_due(state)} --new-settings",
        )

    def is_releasable(self, name: str, values: tuple[str, str, tuple[str, ...]], table: TableHistory) -> bool:
        """Return whether rows from a position on can be of another setting than those before it.

        Those of another mask can where the lake's type stays and rows are not told apart by the column.
        """
        if not name.startswith(_MASK):
            return name in self.wire.settings
        (then, now, (shown,)), schema = values, table.schema
        column = next((one for one in schema.stored if one.name == shown), None)
        if column is None or now == NO_MASK or shown in schema.exact:
            return False
        way, _, detail = then.partition(" ")
        before = replace(column, mask=None if then == NO_MASK else Mask(way, detail)).in_lake
        return before is not None and column.in_lake is not None and arrow_type(before) == arrow_type(column.in_lake)


def masks_of(schema: TableSchema) -> dict[str, str]:
    """Return which masks a table's columns have, as settings of its label."""
    masks = (column.mask for column in schema.stored)
    return {f"{_MASK}{mask.origin}": mask.fingerprint for mask in masks if mask is not None}


def masks_before(table: TableHistory, version: Tso) -> dict[str, str]:
    """Return which mask each column of a table has right before a DDL of that version, as settings of its label."""
    found: dict[str, str] = {}
    for event, before, after in origins(table):
        schema, names = (event.before, before) if event.at >= version else (event.after, after)
        masks = {names[c.name] if c.mask is None else c.mask.origin: c.mask for c in schema.stored}
        found = {f"{_MASK}{name}": NO_MASK if mask is None else mask.fingerprint for name, mask in masks.items()}
        if event.at >= version:
            break
    return found


def has_masks(settings: Mapping[str, str], masks: Mapping[str, str]) -> bool:
    """Return whether all values of a table's label have these masks: none has another one, from before it changed."""
    return all(settings.get(name, NO_MASK) == mask for name, mask in masks.items()) and all(
        masks.get(name.partition(_BEFORE)[0], value) == value for name, value in settings.items() if _BEFORE in name
    )


def masked_otherwise(table: TableHistory, position: Tso, settings: Mapping[str, str]) -> set[str]:
    """Return the columns of a table as of a position of which values have another mask, by the settings of a label."""
    found = set()
    for column, name, mask in _masks_at(table, position):
        mine = {one: mask for one, mask in settings.items() if one == name or _is_before(one, name)}
        if not has_masks(mine, {name: mask}):
            found.add(column)
    return found


def masked_since(table: TableHistory, position: Tso, settings: Mapping[str, str]) -> Tso | None:
    """Return from where on a label's values have the masks of a table as of a position: 0 if all have, None if none."""
    since: Tso = 0
    for _, name, mask in _masks_at(table, position):
        if settings.get(name, NO_MASK) != mask:
            return None
        changes = (one for one, then in settings.items() if _is_before(one, name) and then != mask)
        since = max((since, *(int(one.rpartition(_BEFORE)[2]) for one in changes)))
    return since


def _masks_at(table: TableHistory, position: Tso) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of a table as of a position, each with the name of its mask among settings, and that mask."""
    traced = origins(table)
    names = next((after for event, _, after in reversed(traced) if event.at <= position), traced[-1][2])
    for column in table.schema_at(position).stored:
        name = f"{_MASK}{names[column.name] if column.mask is None else column.mask.origin}"
        yield column.name, name, NO_MASK if column.mask is None else column.mask.fingerprint


def deciding(wire: Wire, columns: Iterable[Column]) -> dict[str, str]:
    """Return the settings on which values of these columns depend, by the names that a person gives them."""
    names = {name for column in columns for name in wire.read_by(column)}
    return {name: value for name, value in wire.settings.items() if name in names} if names else {}


def read_otherwise(wire: Wire, then: Mapping[str, str], columns: Iterable[Column]) -> dict[str, tuple[str, ...]]:
    """Return which columns were read otherwise with these former settings, by setting; {} where none was."""
    every, found = tuple(columns), dict[str, tuple[str, ...]]()
    for name in then.keys() & wire.settings.keys():
        before = wire.having({name: then[name]})
        changed = (column for column in every if wire.read_by(column).get(name) != before.read_by(column).get(name))
        found[name] = tuple(column.name for column in changed)
    return {name: found[name] for name in sorted(found) if found[name]}


def _before(name: str, since: Tso) -> str:
    return f"{name}{_BEFORE}{since}"


def _is_before(name: str, setting: str) -> bool:
    return name.startswith(f"{setting}{_BEFORE}")


def _first_due(state: AppliedState) -> Tso:
    return state.progress.tso + (state.progress.phase is Phase.ROWS)


def _collated(schema: TableSchema) -> list[Column]:
    """Return the columns of the key whose texts compare otherwise in a cluster without new collations."""
    keys = (column for column in schema.columns if column.name in schema.key)
    return [column for column in keys if column.collation and not is_plain(column.collation)]


def _collations(collated: Sequence[Column]) -> str:
    return "false" if collated[0].bytewise else "true"


def _other_zone(table: TableHistory, state: AppliedState, schema: TableSchema) -> Differences:
    """Return the zone of a dump, if it is another one now than when the table's rows were read by it."""
    then, before, now = state.settings.get(DUMP_ZONE), state.base, table.base
    if then is None or before is None or now is None or (before.at, before.uri) != (now.at, now.uri):
        return {}
    present = now.timezone or "UTC"
    left = tuple(column.name for column in schema.stored if column.type == "TIMESTAMP")
    return {DUMP_ZONE: (then, present, left)} if left and Zone(then) != Zone(present) else {}


def _other_key(table: TableHistory, state: AppliedState, schema: TableSchema) -> Differences:
    """Return the key, if the table's rows were told apart by another one."""
    ahead = next((event.after.key for event in table.events if event.at > state.ddl), schema.key)
    if state.key is None or state.key in (schema.key, ahead):
        return {}
    return {_KEYS: (", ".join(state.key) or "none", ", ".join(schema.key) or "none", ())}


def _reason(state: AppliedState, found: Differences) -> str:
    masks = [name for name in found if name.startswith(_MASK)]
    if len(masks) == len(found):
        said = ", ".join(f'"{names[0]}" ({then}, now {now})' for then, now, names in found.values())
        return f"its rows through {_first_due(state) - 1} have columns that are masked otherwise now: {said}."
    then = ", ".join(f'{name} "{before}"' for name, (before, _, _) in found.items())
    now = ", ".join(f'{name} "{after}"' for name, (_, after, _) in found.items())
    columns = sorted({f'"{column}"' for _, _, names in found.values() for column in names})
    through, listed = _first_due(state) - 1, ", ".join(columns)
    mixed = f"equal texts in {listed} would be different values in one table" if columns else ""
    mixed = "rows would be told apart by two keys in one table" if _KEYS in found else mixed
    said = f"its rows through {through} were read with {then}, and the settings now have {now}"
    return f"{said}: {mixed}." if mixed else f"{said}."
