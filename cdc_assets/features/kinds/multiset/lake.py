"""Tables without a key: a MERGE by file and position of the deleted rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import DataFrame

from cdc_assets.decoding import COUNT
from cdc_assets.errors import TableHeld
from cdc_assets.features.columns.lake import own_names
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.printed_rows import count_rows, find_by_form
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.printed_values import form_of


def alike_keys(target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Return none: there are no keys."""
    return AlikeKeys()


def write(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """Insert COUNT equal rows (> 0) or delete as many (< 0) for each row of `changes`, whichever of the equal ones.

    Rows are equal by their values; those that are still to be deleted then, by the forms of these (`printed_values`).
    Raises TableHeld if there are fewer equal rows than are to be deleted.
    """
    session, columns = target.session, [column.name for column in step.schema.stored]
    places = [f"c{position}" for position in range(len(columns))]
    changes.createOrReplaceTempView("changes")
    equal_values = " AND ".join(
        f"_cdc_t.{quoted(name)} <=> _cdc_d.{place}" for name, place in zip(columns, places, strict=True)
    )
    by = ", ".join(f"_cdc_d.{place}" for place in places)
    session.spark.sql(
        f"SELECT {by}, _cdc_d.{COUNT} AS _cdc_n, _cdc_t._file AS _cdc_file, _cdc_t._pos AS _cdc_pos, "
        f"row_number() OVER (PARTITION BY {by} ORDER BY _cdc_t._file, _cdc_t._pos) AS _cdc_turn "
        f"FROM {target.name} _cdc_t JOIN (SELECT * FROM changes WHERE {COUNT} < 0) _cdc_d ON {equal_values}"
    ).where("_cdc_turn <= -_cdc_n").createOrReplaceTempView("leaving")
    session.spark.table("changes").where(f"{COUNT} > 0").createOrReplaceTempView("entering")
    due, met = count_rows(session, "changes", f"{COUNT} < 0", f"-{COUNT}"), count_rows(session, "leaving")
    leaving, entering = "leaving", "entering"
    if met < due and any(map(form_of, step.schema.stored)):
        met += find_by_form(target, step.schema, places)
        leaving, entering = "every_leaving", "still_entering"
    if met < due:
        table = str(step.life)
        missing = due - met
        equal = f"{table} has no key, and {missing} of {due} deleted rows equal no row of the lake table"
        printed = ", ".join(
            f'"{column.name}"'
            for column in step.schema.stored
            if column.type == _PRINTED or (column.mask and form_of(replace(column, mask=None)))
        )
        if printed:
            raise TableHeld(
                f"{equal}. A connector of MySQL prints JSON in a snapshot otherwise than in changes, and the table has "
                f"{printed}: the form may differ, or rows may be missing. Let the connector send DDL "
                "(include.schema.changes = true); or name columns that identify a row in the setting keys "
                f'("{table}") and rebuild the table.',
                table=table,
            )
        raise TableHeld(
            f"{equal}, so rows of it are missing. If they are in quarantine, replay them; if the changefeed began "
            "later than the table, or files were removed, rebuild the table from a changefeed that has all of its "
            "rows.",
            table=table,
        )
    own = own_names(target.table)
    values = ", ".join(f"_cdc_s.{place}" for place in (*places, *own))
    nulls = ", ".join(f"NULL AS {place}" for place in (*places, *own))
    session.sql(
        f"MERGE INTO {target.name} _cdc_t USING ("
        f"SELECT _cdc_file, _cdc_pos, {nulls} FROM {leaving} UNION ALL "
        f"SELECT NULL, NULL, {', '.join([*places, *own])} FROM "
        f"(SELECT *, explode(sequence(1L, {COUNT})) FROM {entering})) _cdc_s "
        "ON _cdc_t._file = _cdc_s._cdc_file AND _cdc_t._pos = _cdc_s._cdc_pos WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join([*map(quoted, columns), *own])}) VALUES ({values})"
    )
    return 0


_PRINTED = "io.debezium.data.Json"
"""Type name that messages without DDL give JSON columns of MySQL, and those of PostgreSQL, whose texts are equal."""
