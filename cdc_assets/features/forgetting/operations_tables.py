"""Find the lake tables that may contain rows of given keys, and convert the keys to the types of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.errors import BadSettings, ForgetRefused
from cdc_assets.features.kinds.planning import beside
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.operations.keys import keys_of, masked_keys
from cdc_assets.operations.named import is_called, table_called
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.planning.plan import Plan

__all__ = [
    "MeantTable",
    "applied_through",
    "keys_by_source",
    "meant_table",
    "standing_others",
    "targets_of",
]


@dataclass(frozen=True)
class MeantTable:
    """A table of the source that a person named, with keys as `texts`, and as its columns have them, before any mask.

    `sources` are the tables of the source that are looked through, `others` such that had its name and are not.
    """

    history: TableHistory
    schema: TableSchema
    texts: Sequence[Sequence[str]]
    keys: pa.Table
    sources: Collection[Life]
    others: Collection[Life]

    @property
    def life(self) -> Life:
        """The identity of the table."""
        return self.history.life

    @property
    def name(self) -> TableId:
        """The newest name of the table."""
        return self.history.last_name or self.life.born_as

    @property
    def keys_in_lake(self) -> pa.Table:
        """The keys as the lake has them."""
        return masked_keys(self.keys, self.schema)

    @property
    def asked(self) -> set[tuple[Life, bool]]:
        """The tables that are looked through, each as it is and, where all that had its name are, as one of these."""
        return {(life, alone) for life in self.sources for alone in {True, bool(self.others)}}


def meant_table(planned: Plan, text: str, texts: Sequence[Sequence[str]]) -> MeantTable:
    """Return the table that a person means, and the others that have to be looked through with it.

    By its identity that is one alone; by a name all that had it at some time. Raises BadSettings for a table or keys
    that do not fit, and ForgetRefused where the columns of one of these tables are not known.
    """
    table = table_called(text, planned.sources, planned)
    schema, name = _schema(table, planned.applied.get(table.life)), table.last_name
    keys = keys_of(schema, texts, text)
    namesakes = {
        life
        for life, other in planned.sources.items()
        if name is not None and any(former.folded == name.folded for former, _, _ in other.names)
    }
    if name is None or is_called(text, (table.life,)):
        return MeantTable(table, schema, texts, keys, {table.life}, namesakes - {table.life})
    unknown = (
        life
        for life, state in planned.applied.items()
        if life.source not in planned.sources
        and not state.is_purged
        and any(former is not None and former.folded == name.folded for former in (life.born_as, state.name))
    )
    if places := [str(life) for life in sorted(unknown)]:
        raise ForgetRefused(
            f"nothing was forgotten: {first_of(places, 'table')} of the lake had the name {name}, and no schema file "
            "says which columns it has. Restore that, purge it (cdc-assets purge), or forget the rows of one table by "
            f"its identity: {table.life}.",
            table=str(name),
        )
    return MeantTable(table, schema, texts, keys, {table.life, *namesakes}, set())


def targets_of(planned: Plan, meant: MeantTable) -> dict[Life, WantedKeys]:
    """Return the lake's tables that may have rows of the keys, each with the keys as it has them.

    So may history tables of kinds that are switched off. Raises ForgetRefused for a table with another key.
    """
    return {life: _keys_in(meant.texts, schema, life) for life, schema in _standing(planned, meant.sources)}


def _standing(planned: Plan, sources: Collection[Life]) -> Iterator[tuple[Life, TableSchema]]:
    """Yield the lake's tables of these tables of the source, with their columns."""
    lives = {**planned.sources, **planned.history.lives}
    for life, state in sorted(planned.applied.items()):
        if life.source in sources and not state.is_purged:
            yield life, _schema(lives.get(life) or beside(planned.sources[life.source], life.kind), state)


def standing_others(planned: Plan, meant: MeantTable) -> set[Life]:
    """Return the tables that had the name and are not looked through, as far as the lake has them."""
    return {life.source for life, _ in _standing(planned, meant.others)}


def _keys_in(texts: Sequence[Sequence[str]], schema: TableSchema, life: Life) -> WantedKeys:
    """Return the keys as a table has them: those that are no value of its key are in none of its rows."""
    if any(len(key) != len(schema.key) for key in texts):
        raise ForgetRefused(
            f"nothing was forgotten: {life} had the same name and has the key ({', '.join(schema.key) or 'none'}), "
            "which the values that came do not fit. Forget the rows of each table by its identity, with keys of its "
            "own.",
            table=str(life),
        )
    fitting = [pa.schema([(name, arrow_type(schema.column(name))) for name in schema.key]).empty_table()]
    try:
        fitting.append(keys_of(schema, texts, str(life)))
    except BadSettings:
        for key in texts:
            with suppress(BadSettings):
                fitting.append(keys_of(schema, [key], str(life)))
    return WantedKeys(masked_keys(pa.concat_tables(fitting), schema), schema.in_lake)


def keys_by_source(planned: Plan, targets: Mapping[Life, WantedKeys]) -> dict[Life, pa.Table]:
    """Return the keys by the source's tables that the lake's are of; their columns have the names that stay."""
    keys: dict[Life, pa.Table] = {}
    for life, target in targets.items():
        names = planned.sources[life.source].origins_at(planned.applied[life].ddl)
        columns = (target.schema.column(name).source_name for name in target.keys.column_names)
        keys[life.source] = target.keys.rename_columns([names.get(name, name) for name in columns])
    return keys


def applied_through(planned: Plan, targets: Collection[Life]) -> dict[Life, Tso]:
    """Return through which position all tables of each table of the source have its rows."""
    through: dict[Life, Tso] = {}
    for life in set(targets).difference(planned.idle):
        progress = planned.applied[life].progress
        position = progress.through
        through[life.source] = min(position, through.get(life.source, position))
    return through


def _schema(history: TableHistory, state: AppliedState | None) -> TableSchema:
    """Return the columns of a table as far as its DDL is applied."""
    seen = [event.after for event in history.events if state is not None and event.at <= state.ddl]
    return seen[-1] if seen else history.schema
