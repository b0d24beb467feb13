"""Tables without a key: a MERGE by file and position of the deleted rows."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from cdc_assets.decoding import COUNT
from cdc_assets.errors import TableHeld
from cdc_assets.formats import COMMIT_TS
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows


def alike_keys(target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Return none: there are no keys."""
    return AlikeKeys()


def write(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """Insert COUNT equal rows (> 0) or delete as many (< 0) for each row of `changes`, whichever of the equal ones.

    Raises TableHeld if there are fewer equal rows than are to be deleted.
    """
    session, columns = target.session, [column.name for column in step.schema.stored]
    places = [f"c{position}" for position in range(len(columns))]
    changes.createOrReplaceTempView("changes")
    same = " AND ".join(
        f"_cdc_t.{quoted(name)} <=> _cdc_d.{place}" for name, place in zip(columns, places, strict=True)
    )
    by = ", ".join(f"_cdc_d.{place}" for place in places)
    session.spark.sql(
        f"SELECT _cdc_d.{COUNT} AS _cdc_n, _cdc_t._file AS _cdc_file, _cdc_t._pos AS _cdc_pos, "
        f"row_number() OVER (PARTITION BY {by} ORDER BY _cdc_t._file, _cdc_t._pos) AS _cdc_turn "
        f"FROM {target.name} _cdc_t JOIN (SELECT * FROM changes WHERE {COUNT} < 0) _cdc_d ON {same}"
    ).where("_cdc_turn <= -_cdc_n").createOrReplaceTempView("leaving")
    _refuse_missing(session, str(step.life), step.schema)
    values = ", ".join(f"_cdc_s.{place}" for place in (*places, COMMIT_TS))
    nulls = ", ".join(f"NULL AS {place}" for place in (*places, COMMIT_TS))
    session.sql(
        f"MERGE INTO {target.name} _cdc_t USING ("
        f"SELECT _cdc_file, _cdc_pos, {nulls} FROM leaving UNION ALL "
        f"SELECT NULL, NULL, {', '.join(places)}, {COMMIT_TS} FROM "
        f"(SELECT *, explode(sequence(1L, {COUNT})) FROM changes WHERE {COUNT} > 0)) _cdc_s "
        "ON _cdc_t._file = _cdc_s._cdc_file AND _cdc_t._pos = _cdc_s._cdc_pos WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quoted, columns))}, {COMMIT_TS}) VALUES ({values})"
    )
    return 0


_PRINTED = ("JSON", "FLOAT", "io.debezium.data.Json")
"""Types whose values connectors of MySQL print in one way in a snapshot, and in another in changes."""


def _refuse_missing(session: StepSession, table: str, schema: TableSchema) -> None:
    """Compare the rows to delete with those found, in the state against which the commit is validated."""
    due = session.spark.sql(f"SELECT coalesce(sum(-{COUNT}), 0) FROM changes WHERE {COUNT} < 0").head()
    found = session.spark.sql("SELECT count(*) FROM leaving").head()
    assert due is not None
    assert found is not None
    if due[0] == found[0]:
        return
    equal = f"{table} has no key, and {due[0] - found[0]} of {due[0]} deleted rows equal no row of the lake table"
    printed = ", ".join(f'"{column.name}"' for column in schema.stored if column.type in _PRINTED)
    if printed:
        raise TableHeld(
            f"{equal}. A connector of MySQL prints JSON and FLOAT in a snapshot otherwise than in changes, and the "
            f"table has {printed}: the form may differ, or rows may be missing. Name columns that identify a row in "
            f'the setting keys ("{table}") and rebuild the table; or give the table a primary key at the source, and '
            "let a connector with a new topic.prefix bring it.",
            table=table,
        )
    raise TableHeld(
        f"{equal}, so rows of it are missing. If they are in quarantine, replay them; if the changefeed began later "
        "than the table, or files were removed, rebuild the table from a changefeed that has all of its rows.",
        table=table,
    )
