"""Recipes of tables as they would be now, and what of the present recipe of a table differs from that.

A label has the recipe of a table's rows. What a person says of a change of settings, from which TSO on it is in force,
lies in the lake (`SettingsChange`): rows from before then are read with the former settings, at any time. Anything else
that differs holds the table, until it is rebuilt, the settings are as they were, or a person says from when the change
is in force: else equal texts would become different values in one table.

Each format says, column by column, what its decoder makes of a setting (`Wire.read_by`): a zone of TIMESTAMP texts, the
form of decimals. Settings are compared by that, not by their words: another name of the same zone is the same. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_assets.features.forgetting.planning import keeping_out
from cdc_assets.features.masks.history import mask_holds
from cdc_assets.features.masks.planning import in_lake
from cdc_assets.formats import Wire
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.dumps import DUMP_ZONE
from cdc_assets.model.forgetting import ForgottenKeys, kept_out
from cdc_assets.model.masks import NO_MASK, Mask, MaskPolicy
from cdc_assets.model.progress import AppliedState, Life, Phase
from cdc_assets.model.recipe import EMPTY_RECIPE, MASK, Recipe, Setting
from cdc_assets.model.releases import SettingsChange
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RetypeColumn, SchemaChange
from cdc_assets.model.steps import HoldTable, Step
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type, defaults_to_now
from cdc_assets.types.zones import Zone

__all__ = [
    "Difference", "Recipes", "deciding", "made_for", "masked_otherwise", "masked_since", "read_otherwise",
]  # fmt: skip

_COLLATIONS, _KEYS = "new_collations", "keys"


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting with which a table's rows were read that is another one now.

    `columns` are those whose values it concerns. It can count `from_here_on` where rows from a position on can be of
    the present setting, beside rows of the other one.
    """

    then: str
    now: str
    columns: tuple[str, ...] = ()
    from_here_on: bool = False


@dataclass(frozen=True, slots=True)
class Recipes:
    """The recipes of tables: how a changefeed is read now, what people said of former settings, in the order of their
    TSO, and which keys' rows are kept out.

    With `compared` tables are held whose labels have other settings; a label of the past, of which nobody kept these,
    cannot be compared.
    """

    wire: Wire
    changes: tuple[SettingsChange, ...] = ()
    masks: MaskPolicy | None = None
    kept_out: tuple[ForgottenKeys, ...] = ()
    compared: bool = True

    @classmethod
    def decided(cls, wire: Wire, decided: Decisions, masks: MaskPolicy | None) -> Recipes:
        """Return the recipes by people's decisions."""
        return cls(wire, decided.of(SettingsChange), masks, kept_out(decided))

    def at(self, life: Life, position: Tso) -> Wire:
        """Return the recipe of the rows at a position."""
        former = self.former(life, position)
        return self.wire.having(former) if former else self.wire

    def zone(self, life: Life, position: Tso) -> str:
        """Return the zone in which a table's TIMESTAMP texts at a position were written."""
        return self.at(life, position).timezone

    def former(self, life: Life, position: Tso) -> dict[str, str]:
        """Return the settings with which rows at a position are read, where these are not the present ones."""
        settings: dict[str, str] = {}
        for change in sorted(self._of(life), key=lambda change: change.since, reverse=True):
            settings.update(change.before if change.since > position else {})
        return settings

    def changes_of(self, life: Life) -> set[Tso]:
        """Return the positions after which a table's rows are read with other settings."""
        return {change.since - 1 for change in self._of(life)}

    def of(self, life: Life, schema: TableSchema, position: Tso, had: Recipe | None) -> Recipe:
        """Return the recipe of a table's rows up to a position.

        With the present settings it has those of before each change since the table began. `had` is the recipe of the
        table as it stands, None for one that is built from nothing: all rows are masked as the policy says now, so of a
        former mask a table only has values that it had already.
        """
        then, settings = self.former(life, position), dict(made_for(schema).settings)
        counting = {name for name, mask in settings.items() if had is not None and had.mask(name) != mask}
        counting |= (deciding_settings := deciding(self.at(life, position), schema.stored)).keys()
        passed = [change for change in self._of(life) if life.version < change.since <= position]
        for name in sorted(counting):
            before = sorted({change.since: change.before[name] for change in passed if name in change.before}.items())
            value = deciding_settings[name] if name in deciding_settings else then.get(name, settings[name].value)
            settings[name] = Setting(value, tuple(before))
        if collated := _collated(schema):
            settings[_COLLATIONS] = Setting(_collations(collated))
        return Recipe(settings, schema.key)

    def of_ddl(self, life: Life, changes: Iterable[SchemaChange], after: TableSchema, position: Tso) -> Recipe:
        """Return the recipe by which a DDL at a position gives values to rows that are there.

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
            return EMPTY_RECIPE
        return self.of(life, replace(after, columns=tuple(c for c in after.columns if c.name in made)), position, None)

    def carried_out(
        self, steps: Iterable[Step], life: Life, lives: Mapping[Life, TableHistory], *, stands: bool
    ) -> Iterable[Step]:
        """Return the steps of one table with masked columns and without rows of forgotten keys, as far as that goes.

        `lives` are the tables of the source; `stands` says that the lake has the table.
        """
        if self.masks:
            steps = in_lake(steps, self.masks)
        if not self.kept_out or life.source not in lives:
            return steps
        encryption_key = None if self.masks is None else self.masks.encryption_key
        return keeping_out(steps, lives[life.source], lives, self.kept_out, encryption_key, stands=stands)

    def before(self, table: TableHistory, version: Tso) -> dict[str, str]:
        """Return the mask of each column of a table right before a DDL of that version, by the names of settings."""
        mask_settings: dict[str, str] = {}
        for event, before, after in table.origins if self.masks else ():
            schema, names = (event.before, before) if event.at >= version else (event.after, after)
            masks = {names[c.name] if c.mask is None else c.mask.origin: c.mask for c in schema.stored}
            mask_settings = {
                f"{MASK}{name}": NO_MASK if mask is None else mask.fingerprint for name, mask in masks.items()
            }
            if event.at >= version:
                break
        return mask_settings

    def _of(self, life: Life) -> list[SettingsChange]:
        return [change for change in self.changes if change.concerns(life)]

    # --- what differs ---

    def difference(self, table: TableHistory, state: AppliedState) -> dict[str, Difference]:
        """Return the settings of a table's recipe that would be others if its rows were read now, by name."""
        seen = [event.after for event in table.events if event.at <= state.ddl]
        if not seen:
            return {}
        due, had, schema = _first_due(state) - 1, state.recipe, seen[-1]
        wire, now = self.at(table.life, due), self.of(table.life, schema, due, had)
        values = {name: setting.value for name, setting in had.settings.items()}
        differences = {
            name: Difference(values[name], wire.settings[name], columns, from_here_on=True)
            for name, columns in read_otherwise(wire, values, schema.stored).items()
        }
        for name in sorted(had.settings.keys() & now.settings.keys()):  # a statement may have been taken back
            former_values = dict(now.settings[name].before)
            for at, value in had.settings[name].before:
                if at not in former_values:
                    differences[f"{name} before {at}"] = Difference(value, wire.settings.get(name, ""))
        collated, then = _collated(schema), values.get(_COLLATIONS, "")
        if collated and then and then != _collations(collated):
            columns = tuple(column.name for column in collated)
            differences[_COLLATIONS] = Difference(then, _collations(collated), columns)
        differences |= _other_masks(table, state, schema, now)
        read, former, base = had.settings.get(DUMP_ZONE), state.base, table.base
        if read and former and base and (former.at, former.uri) == (base.at, base.uri):
            present, zoned_columns = (
                base.timezone or "UTC",
                [column.name for column in schema.stored if column.type == "TIMESTAMP"],
            )
            if zoned_columns and Zone(read.value) != Zone(present):
                differences[DUMP_ZONE] = Difference(read.value, present, tuple(zoned_columns))
        ahead = next((event.after.key for event in table.events if event.at > state.ddl), schema.key)
        if had.key is not None and had.key not in (schema.key, ahead):
            differences[_KEYS] = Difference(", ".join(had.key) or "none", ", ".join(schema.key) or "none")
        return differences

    def holds(self, history: History, applied: Mapping[Life, AppliedState]) -> Iterator[HoldTable]:
        """Yield the tables whose next rows would be read otherwise than those they have, or cannot be masked."""
        for hold in mask_holds(history) if self.masks else ():
            state = applied.get(hold.life)
            if hold.releasable and state is not None and hold.at <= state.ddl:
                continue  # its rows were masked without a doubt of then
            yield hold if state is None else replace(hold, at=max(hold.at, _first_due(state)))
        for life, state in applied.items() if self.compared else ():
            table = history.lives.get(life)
            differences = self.difference(table, state) if table is not None and state.name is not None else {}
            if table is not None and differences:
                yield HoldTable(life, _first_due(state), _reason(state, differences), _ways(table, state, differences))


def made_for(schema: TableSchema) -> Recipe:
    """Return the recipe of a table that is made for these columns: their masks, and its key."""
    masks = (column.mask for column in schema.stored)
    return Recipe({f"{MASK}{mask.origin}": Setting(mask.fingerprint) for mask in masks if mask is not None}, schema.key)


def masked_otherwise(table: TableHistory, position: Tso, recipe: Recipe) -> set[str]:
    """Return the columns of a table as of a position of which values have another mask, by the recipe of a label."""
    return {column for column, name, mask in _masks_at(table, position) if not recipe.has_masks({name: mask})}


def masked_since(table: TableHistory, position: Tso, recipe: Recipe) -> Tso | None:
    """Return from where on a label's values have the masks of a table as of a position: 0 if all have, None if none."""
    masks = [(recipe.mask(name), mask) for _, name, mask in _masks_at(table, position)]
    return None if any(had.value != mask for had, mask in masks) else max((had.since for had, _ in masks), default=0)


def _masks_at(table: TableHistory, position: Tso) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of a table as of a position, each with the name of its mask among settings, and that mask."""
    traced = table.origins
    names = next((after for event, _, after in reversed(traced) if event.at <= position), traced[-1][2])
    for column in table.schema_at(position).stored:
        name = f"{MASK}{names[column.name] if column.mask is None else column.mask.origin}"
        yield column.name, name, NO_MASK if column.mask is None else column.mask.fingerprint


def deciding(wire: Wire, columns: Iterable[Column]) -> dict[str, str]:
    """Return the settings on which values of these columns depend, by the names that a person gives them."""
    names = {name for column in columns for name in wire.read_by(column)}
    return {name: value for name, value in wire.settings.items() if name in names} if names else {}


def read_otherwise(wire: Wire, then: Mapping[str, str], columns: Iterable[Column]) -> dict[str, tuple[str, ...]]:
    """Return the columns that were read otherwise with these former settings, by setting; {} where none was."""
    all_columns, columns_by_setting = tuple(columns), dict[str, tuple[str, ...]]()
    for name in then.keys() & wire.settings.keys():
        before = wire.having({name: then[name]})
        changed = (
            column for column in all_columns if wire.read_by(column).get(name) != before.read_by(column).get(name)
        )
        columns_by_setting[name] = tuple(column.name for column in changed)
    return {name: columns_by_setting[name] for name in sorted(columns_by_setting) if columns_by_setting[name]}


def _first_due(state: AppliedState) -> Tso:
    return state.progress.tso + (state.progress.phase is Phase.ROWS)


def _collated(schema: TableSchema) -> list[Column]:
    """Return the columns of the key whose texts compare otherwise in a cluster without new collations."""
    keys = (column for column in schema.columns if column.name in schema.key)
    return [column for column in keys if column.collation and not is_plain(column.collation)]


def _collations(collated: Sequence[Column]) -> str:
    return "false" if collated[0].bytewise else "true"


def _other_masks(
    table: TableHistory, state: AppliedState, schema: TableSchema, now: Recipe
) -> Iterator[tuple[str, Difference]]:
    """Yield the masks of columns whose values are there with another one, or without."""
    if not any(name.startswith(MASK) for name in (*state.recipe.settings, *now.settings)):
        return
    names = next(after for event, _, after in reversed(table.origins) if event.at <= state.ddl)
    for column in schema.stored:
        name = f"{MASK}{names[column.name] if column.mask is None else column.mask.origin}"
        then, present = state.recipe.mask(name).value, now.mask(name).value
        if then != present:
            yield name, Difference(then, present, (column.name,), _may_be_mixed(table, column.name, then, present))


def _may_be_mixed(table: TableHistory, name: str, then: str, now: str) -> bool:
    """Return whether values of a column with two masks may stand in one table.

    They may where the lake's type stays and rows are not told apart by the column.
    """
    schema = table.schema
    column = next((column for column in schema.stored if column.name == name), None)
    if column is None or now == NO_MASK or name in schema.exact:
        return False
    way, _, detail = then.partition(" ")
    before = replace(column, mask=None if then == NO_MASK else Mask(way, detail)).in_lake
    return before is not None and column.in_lake is not None and arrow_type(before) == arrow_type(column.in_lake)


def _ways(table: TableHistory, state: AppliedState, differences: Mapping[str, Difference]) -> tuple[str, ...]:
    name = shlex.quote(str(table.name or table.life))
    back = ", ".join(f'{setting} "{difference.then}"' for setting, difference in differences.items())
    ways = (f"set them as they were: {back}", f"read all rows anew: cdc-assets rebuild {name}")
    if not all(difference.from_here_on for difference in differences.values()):
        return ways
    return (
        *ways,
        f"say that rows from there on are written so: cdc-assets release {name} {_first_due(state)} --new-settings",
    )


def _reason(state: AppliedState, differences: Mapping[str, Difference]) -> str:
    through = _first_due(state) - 1
    if all(name.startswith(MASK) for name in differences):
        text = ", ".join(
            f'"{", ".join(difference.columns)}" ({difference.then}, now {difference.now})'
            for difference in differences.values()
        )
        return f"its rows through {through} have columns that are masked otherwise now: {text}."
    then = ", ".join(f'{name} "{difference.then}"' for name, difference in differences.items())
    now = ", ".join(f'{name} "{difference.now}"' for name, difference in differences.items())
    listed = ", ".join(sorted({f'"{column}"' for difference in differences.values() for column in difference.columns}))
    mixed = f"equal texts in {listed} would be different values in one table" if listed else ""
    mixed = "rows would be told apart by two keys in one table" if _KEYS in differences else mixed
    reason = f"its rows through {through} were read with {then}, and the settings now have {now}"
    return f"{reason}: {mixed}." if mixed else f"{reason}."
