"""Rows without key whose values the source prints in several ways: what is deleted is found by forms of the values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from cdc_assets.decoding import COUNT
from cdc_assets.features.columns.lake import own_names
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.printed_values import OF_BOTH, form_of


def count_rows(session: StepSession, view: str, condition: str = "true", each: str = "1") -> int:
    """Return the sum of an expression over the rows of a view, 0 where there are none."""
    row = session.spark.sql(f"SELECT coalesce(sum({each}), 0) FROM {view} WHERE {condition}").head()
    assert row is not None
    return int(row[0])


def make_forms(session: StepSession, view: str, query: str, form: Callable[[Any], Any]) -> None:
    """Make a view of the different values that a query has, each with its form: `_cdc_value` and `_cdc_form`."""
    values = session.spark.sql(query).distinct().toArrow().column(0)
    forms = [None if value is None else form(value) for value in values.to_pylist()]
    pairs = pa.table({"_cdc_value": values, "_cdc_form": pa.array(forms, values.type)})
    session.spark.createDataFrame(pairs).createOrReplaceTempView(view)


def find_by_form(target: CommitTarget, schema: TableSchema, places: Sequence[str]) -> int:
    """Find rows to delete whose values have equal forms: first in the table, then among those that enter.

    The view `every_leaving` has the former, too, `still_entering` lacks the latter. Returns how many there are.
    """
    spark, columns = target.session.spark, dict(zip(places, schema.stored, strict=True))
    functions = {place: function for place, column in columns.items() if (function := form_of(column))}
    printed = list(functions)
    own = own_names(target.table)
    plain, all_places = [place for place in places if place not in printed], ", ".join(places)
    spark.sql(
        f"SELECT _cdc_a.*, -{COUNT} - coalesce(_cdc_met, 0) AS _cdc_due FROM changes _cdc_a LEFT JOIN "
        f"(SELECT {all_places}, count(*) AS _cdc_met FROM leaving GROUP BY {all_places}) _cdc_b ON {_same(places)} "
        f"WHERE {COUNT} < 0"
    ).where("_cdc_due > 0").createOrReplaceTempView("open")
    named = ", ".join(f"{quoted(column.name)} AS {place}" for place, column in columns.items())
    spark.sql(
        f"SELECT _cdc_a.* FROM (SELECT _file AS _cdc_file, _pos AS _cdc_pos, {named} FROM {target.name}) _cdc_a "
        f"LEFT SEMI JOIN open _cdc_b ON {_same(plain)} LEFT ANTI JOIN leaving _cdc_c "
        "ON _cdc_a._cdc_file = _cdc_c._cdc_file AND _cdc_a._cdc_pos = _cdc_c._cdc_pos"
    ).createOrReplaceTempView("there")
    for view in ("open", "there", "entering"):
        forms, joins = [f"_cdc_a.{place} AS _cdc_{place}" for place in printed], ""
        for number, place in enumerate(printed):
            of_both = columns[place].type in OF_BOTH
            if view == "open":
                views = ("open", "there", "entering") if of_both else ("open",)
                values = " UNION ".join(f"SELECT {place} FROM {name}" for name in views)
                make_forms(target.session, f"forms_of_{place}", values, functions[place])
            if view == "open" or of_both:
                forms[number] = f"_cdc_{place}._cdc_form AS _cdc_{place}"
                joins += f" JOIN forms_of_{place} _cdc_{place} ON _cdc_a.{place} <=> _cdc_{place}._cdc_value"
        formed = spark.sql(f"SELECT _cdc_a.*, {', '.join(forms)} FROM {view} _cdc_a{joins}")
        formed.createOrReplaceTempView(f"{view}_by_form")
    by = [*plain, *(f"_cdc_{place}" for place in printed)]
    key, groups = ", ".join(by), ", ".join(f"_cdc_a.{name}" for name in by)
    spark.sql(f"SELECT {key}, sum(_cdc_due) AS _cdc_due FROM open_by_form GROUP BY {key}").createOrReplaceTempView(
        "due"
    )
    spark.sql(
        f"SELECT {groups}, _cdc_file, _cdc_pos, _cdc_due, "
        f"row_number() OVER (PARTITION BY {groups} ORDER BY _cdc_file, _cdc_pos) AS _cdc_turn "
        f"FROM there_by_form _cdc_a JOIN due _cdc_b ON {_same(by)}"
    ).where("_cdc_turn <= _cdc_due").createOrReplaceTempView("alike")
    spark.sql(
        f"SELECT _cdc_a.*, _cdc_due - coalesce(_cdc_met, 0) AS _cdc_left FROM due _cdc_a LEFT JOIN "
        f"(SELECT {key}, count(*) AS _cdc_met FROM alike GROUP BY {key}) _cdc_b ON {_same(by)}"
    ).createOrReplaceTempView("due_of_entering")
    spark.sql(
        f"SELECT {', '.join(f'_cdc_a.{name}' for name in (*places, *own))}, {COUNT} AS _cdc_n, {COUNT} - "
        f"greatest(0, least({COUNT}, coalesce(_cdc_left, 0) + {COUNT} - _cdc_upto)) AS {COUNT} FROM "
        f"(SELECT *, sum({COUNT}) OVER (PARTITION BY {key} ORDER BY {all_places}) AS _cdc_upto FROM entering_by_form) "
        f"_cdc_a LEFT JOIN due_of_entering _cdc_b ON {_same(by)}"
    ).createOrReplaceTempView("counted")
    spark.table("counted").where(f"{COUNT} > 0").createOrReplaceTempView("still_entering")
    spark.sql(
        "SELECT _cdc_file, _cdc_pos FROM leaving UNION ALL SELECT _cdc_file, _cdc_pos FROM alike"
    ).createOrReplaceTempView("every_leaving")
    return count_rows(target.session, "alike") + count_rows(target.session, "counted", each=f"_cdc_n - {COUNT}")


def _same(columns: Iterable[str]) -> str:
    return " AND ".join(["true", *(f"_cdc_a.{name} <=> _cdc_b.{name}" for name in columns)])
