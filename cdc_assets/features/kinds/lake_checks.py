"""Is a history table what it should be? A look at all of it, for maintenance, which reads it anyway.

    scd2   the states of a key never overlap, and none is without length; those that are open are the mirror's rows
    log    its changes, folded in their order, are the mirror's rows

What compares with the mirror is asked where both tables are at the same place. Where a log does not say all (it begins
later than its table, emptied partitions, rows have had another key), it is not folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc_assets.decoding.states import END_TS, START_TS
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.formats.decoded import COMMIT_TS, POSITION
from cdc_assets.lake.key_matching import key_expression
from cdc_assets.lake.lake_table import KEYED_SINCE, LakeTable, parse_lives
from cdc_assets.lake.printed_rows import make_forms
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.state import LakeState
from cdc_assets.model.layout import LIVING
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.printed_values import form_of

_SHOWN = 3
_LEAVES = "_change_type IN ('DELETE', 'UPDATE_BEFORE')"
_OF_DDL = "startswith(coalesce(_cdc_place, ''), 'DDL of version ')"


def history_problem(state: LakeState, session: StepSession, life: Life, schema: TableSchema) -> str:
    """Return the fault of a history table of these columns, a sentence with the first keys; "" for none."""
    table, mirror = state.find(life), state.tables().get(life.source)
    properties = state.file(table.metadata_location).properties
    is_beside = mirror is not None and None not in (mirror.name, table.name)
    beside = mirror if is_beside and _place(mirror) == _place(table) else None
    check = _Check(session, table, beside, schema.in_lake, properties)
    faults = check.of_states() if keeps_states(life.kind) else check.of_log()
    return f"{life}: {' and '.join(faults)}. Rebuild it: cdc-assets rebuild {life}." if faults else ""


def _place(table: LakeTable | None) -> object:
    return None if table is None else (table.label.progress, table.label.ddl)


class _Check:
    """A look at one history table, beside its mirror where that is as far."""

    def __init__(
        self,
        session: StepSession,
        table: LakeTable,
        mirror: LakeTable | None,
        schema: TableSchema,
        properties: Mapping[str, str],
    ) -> None:
        self.session, self.table, self.mirror, self.schema = session, table, mirror, schema
        self.properties = properties
        self.rows = session.name(table.identifier)
        self.mirror_rows = "" if mirror is None else session.name(mirror.identifier)
        if mirror is not None and mirror.layout.marks_deletes:
            self.mirror_rows = f"(SELECT * FROM {self.mirror_rows} WHERE {LIVING})"
        self.mirror_name = "" if mirror is None else str(mirror.name)
        lives = [life.column for life in parse_lives(properties)]
        self.came_back = {name for name in lives if lives.count(name) > 1}  # older changes have what they held then
        self.columns = [(column.name, column.source_name) for column in schema.live]
        self.forms = [key_expression(schema.column(name), quoted(name)) for name in schema.key]

    def of_states(self) -> list[str]:
        """Return the fault of a table of states."""
        since = self.properties.get(KEYED_SINCE) or "-1"
        keys = self._keys()
        faults = self._faults(
            f"SELECT {keys} FROM (SELECT {keys}, {START_TS}, {END_TS}, "
            f"lead({START_TS}) OVER (PARTITION BY {', '.join(self.forms)} ORDER BY {START_TS}) AS next "
            f"FROM {self.rows} WHERE {END_TS} IS NULL OR {END_TS} > {since}) "
            f"WHERE next < coalesce({END_TS}, next + 1) OR {END_TS} <= {START_TS}",
            "{count:,} of its states overlap the next one of their key",
        )
        if self.mirror is None:
            return faults
        own_columns, mirror_columns = self._both([*self.columns, (COMMIT_TS, COMMIT_TS)])
        present = f"SELECT {own_columns} FROM {self.rows} WHERE {END_TS} IS NULL"
        rows = f"SELECT {mirror_columns} FROM {self.mirror_rows}"
        faults += self._faults(
            f"SELECT {keys} FROM ({present} EXCEPT ALL {rows})",
            f"{{count:,}} of its open states are no rows of {self.mirror_name}",
        )
        return faults + self._faults(
            f"SELECT {self._keys_of_mirror()} FROM ({rows} EXCEPT ALL {present})",
            f"of the rows of {self.mirror_name} {{count:,}} have no open state",
        )

    def of_log(self) -> list[str]:
        """Return the fault of a log."""
        if self.mirror is None or self.mirror.gap is not None or self.table.since is not None:
            return []
        if self.properties.get(KEYED_SINCE):
            return []
        emptied = self.session.spark.sql(
            f"SELECT max({POSITION}), count(_cdc_partitions) FROM {self.rows} WHERE _change_type = 'TRUNCATE'"
        ).head()
        if emptied is None or emptied[1]:
            return []
        since = -1 if emptied[0] is None else emptied[0]
        changes = f"(SELECT * FROM {self.rows} WHERE {POSITION} >= {since} AND _change_type <> 'TRUNCATE')"
        return self._folded(changes) if self.schema.key else self._counted(changes)

    def _folded(self, changes: str) -> list[str]:
        order = f"{POSITION} DESC, {_OF_DDL}, {_LEAVES}"
        whole = [pair for pair in self.columns if pair[0] not in self.came_back]
        own_columns, theirs = self._both(whole)
        present = (
            f"(SELECT *, coalesce(size(_cdc_absent), 0) > 0 AS _cdc_partly FROM (SELECT *, row_number() OVER "
            f"(PARTITION BY {', '.join(self.forms)} ORDER BY {order}) AS _cdc_turn FROM {changes}) "
            f"WHERE _cdc_turn = 1 AND NOT {_LEAVES})"
        )
        faults = self._faults(
            f"SELECT {self._keys()} FROM (SELECT {own_columns} FROM {present} WHERE NOT _cdc_partly "
            f"EXCEPT ALL SELECT {theirs} FROM {self.mirror_rows})",
            f"of the rows to which its changes lead {{count:,}} are not so in {self.mirror_name}",
        )
        key = [(self.schema.column(name), theirs) for name, theirs in self.columns if name in self.schema.key]
        equal_keys = " AND ".join(
            f"{key_expression(column, f'_cdc_p.{quoted(column.name)}')} <=> "
            f"{key_expression(column, f'_cdc_m.{quoted(theirs)}')}"
            for column, theirs in key
        )
        return faults + self._faults(
            f"SELECT {self._keys_of_mirror('_cdc_m.')} FROM {self.mirror_rows} _cdc_m "
            f"LEFT ANTI JOIN {present} _cdc_p ON {equal_keys}",
            f"to {{count:,}} of the rows of {self.mirror_name} its changes do not lead",
        )

    def _counted(self, changes: str) -> list[str]:
        whole = [pair for pair in self.columns if pair[0] not in self.came_back]
        own_columns, mirror_columns = self._both(whole)
        differing = (
            f"SELECT {own_columns}, sum(_cdc_count) AS _cdc_count FROM (SELECT {own_columns}, "
            f"CASE WHEN {_LEAVES} THEN -1 ELSE 1 END AS _cdc_count FROM {changes} UNION ALL "
            f"SELECT {mirror_columns}, -1 FROM {self.mirror_rows}) GROUP BY {own_columns} HAVING sum(_cdc_count) <> 0"
        )
        sentence = f"of its different rows {{count:,}} are there another number of times than in {self.mirror_name}"
        faults = self._faults(f"SELECT 1 AS differs FROM ({differing})", sentence)
        printed = {
            number: form for number, (name, _) in enumerate(whole) if (form := form_of(self.schema.column(name)))
        }
        if not faults or not printed:
            return faults
        # A change may have deleted a row that was printed otherwise.
        columns, joins = [f"_cdc_d.{quoted(name)}" for name, _ in whole], ""
        for number, form in printed.items():
            name = quoted(whole[number][0])
            make_forms(self.session, f"forms_{number}", f"SELECT {name} FROM ({differing})", form)
            joins += f" JOIN forms_{number} ON {columns[number]} <=> forms_{number}._cdc_value"
            columns[number] = f"forms_{number}._cdc_form"
        by_form = f"SELECT 1 FROM ({differing}) _cdc_d{joins} GROUP BY {', '.join(columns)} HAVING sum(_cdc_count) <> 0"
        return self._faults(f"SELECT 1 AS differs FROM ({by_form})", sentence)

    def _both(self, columns: Iterable[tuple[str, str]]) -> tuple[str, str]:
        own_columns, mirror_columns = zip(*columns, strict=True)
        return ", ".join(map(quoted, own_columns)), ", ".join(map(quoted, mirror_columns))

    def _keys(self) -> str:
        return ", ".join(map(quoted, self.schema.key))

    def _keys_of_mirror(self, table: str = "") -> str:
        of = dict(self.columns)
        return ", ".join(f"{table}{quoted(of[name])}" for name in self.schema.key)

    def _faults(self, query: str, sentence: str) -> list[str]:
        """Return the sentence with how many rows a query finds, and the first of them; nothing where there are none."""
        rows = self.session.spark.sql(query)
        first = rows.limit(_SHOWN).collect()
        if not first:
            return []
        text = sentence.format(count=rows.count())
        shown = ", ".join(str(row[0] if len(row) == 1 else tuple(row)) for row in first) if self.schema.key else ""
        return [f"{text} (key {shown})" if shown else text]
