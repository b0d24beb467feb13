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
    same = " AND ".join(f"t.{quoted(name)} <=> d.{place}" for name, place in zip(columns, places, strict=True))
    by = ", ".join(f"d.{place}" for place in places)
    session.spark.sql(
        f"SELECT d.{COUNT} AS n, t._file AS f, t._pos AS p, "
        f"row_number() OVER (PARTITION BY {by} ORDER BY t._file, t._pos) AS r FROM {target.name} t "
        f"JOIN (SELECT * FROM changes WHERE {COUNT} < 0) d ON {same}"
    ).where("r <= -n").createOrReplaceTempView("leaving")
    _refuse_missing(session, str(step.life))
    values = ", ".join(f"s.{place}" for place in places)
    nulls = ", ".join(f"NULL AS {place}" for place in places)
    session.sql(
        f"MERGE INTO {target.name} t USING ("
        f"SELECT f, p, {nulls}, NULL AS ts FROM leaving UNION ALL "
        f"SELECT NULL, NULL, {', '.join(places)}, {COMMIT_TS} FROM "
        f"(SELECT *, explode(sequence(1L, {COUNT})) FROM changes WHERE {COUNT} > 0)) s "
        "ON t._file = s.f AND t._pos = s.p WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quoted, columns))}, {COMMIT_TS}) VALUES ({values}, s.ts)"
    )
    return 0


def _refuse_missing(session: StepSession, table: str) -> None:
    """Compare the rows to delete with those found, in the state against which the commit is validated."""
    due = session.spark.sql(f"SELECT coalesce(sum(-{COUNT}), 0) FROM changes WHERE {COUNT} < 0").head()
    found = session.spark.sql("SELECT count(*) FROM leaving").head()
    assert due is not None
    assert found is not None
    if due[0] != found[0]:
        raise TableHeld(
            f"{table} has no key, and {due[0] - found[0]} of {due[0]} deleted rows equal no row of the lake table, so "
            "rows of it are missing. If they are in quarantine, replay them; if the changefeed began later than the "
            "table, or files were removed, rebuild the table from a changefeed that has all of its rows.",
            table=table,
        )
