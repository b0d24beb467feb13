"""A row predicate -> Spark SQL, and -> a polars expression, which select the same rows.

Integers are computed wide enough for every intermediate result that MySQL accepts; DIV and MOD cut towards zero.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema_changes import Predicate
from cdc_assets.types.frames import exact

if TYPE_CHECKING:
    import polars as pl

_DAY_0 = 719528
_COMPARISONS = ("<", ">=", "=")
_PARTS = ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekday", "hour", "minute", "second")
"""Functions of 32 bits in Spark."""


# --- rows that it cannot decide ---------------------------------------------------------------------------------------


def undated(predicate: Predicate) -> Predicate | None:
    """Return the condition for rows without a value in a DATE or DATETIME that the condition uses; None without any.

    The lake keeps a partial date (2020-00-00) as NULL, and TiDB has it in the partition of its year. A TIMESTAMP can
    only be zero, which is where NULL is.
    """
    conditions = tuple(Predicate("is_null", (column,)) for column in dict.fromkeys(_dates(predicate)))
    return None if not conditions else conditions[0] if len(conditions) == 1 else Predicate("or", conditions)


def _dates(node: Predicate) -> Iterator[Predicate]:
    if node.op == "column" and node.type in ("date", "datetime") and not node.nulls_confirmed:
        yield node
    for arg in node.args:
        yield from _dates(arg)


def confirm_nulls(predicate: Predicate) -> Predicate:
    """Return the condition as a person confirmed it: rows without a date have NULL in the source too."""
    return replace(predicate, args=tuple(map(confirm_nulls, predicate.args)), nulls_confirmed=True)


def undated_rows(table: str, predicate: Predicate, ways: tuple[str, ...] = ()) -> TableHeld:
    """Return the error for a partition whose rows cannot be identified, because rows without a date exist."""
    names = ", ".join(dict.fromkeys(f'"{column.value}"' for column in _dates(predicate)))
    return TableHeld(
        f"{table}: rows have no value in {names}, by which the table is partitioned. Each may be a partial date in the "
        "source, which is NULL in the lake, so whether it is in the partition that the DDL names is not known. Where "
        "all of them are NULL in the source too, say what the DDL did by its own text.",
        table=table,
        ways=ways,
    )


# --- Spark ------------------------------------------------------------------------------------------------------------


def spark_sql(predicate: Predicate, narrow: Collection[str] = ()) -> str:
    """Return the condition as Spark SQL over backquoted column names, the same in ANSI mode and without.

    `narrow` names the columns of 32 bits; integers in others, and in all expressions, have 64.
    """
    op, args = predicate.op, predicate.args
    if op == "column":
        return "`" + predicate.value.replace("`", "``") + "`"
    if op == "literal":
        return _spark_literal(predicate)
    if op in ("and", "or"):
        joined = f" {op.upper()} ".join(spark_sql(arg, narrow) for arg in args)
        return f"({joined})" if args else str(op == "and").lower()
    if op in _COMPARISONS:
        return _spark_comparison(predicate, narrow)
    if op == "not":
        return f"(NOT {spark_sql(args[0], narrow)})"
    if op == "is_null":
        return f"({spark_sql(args[0], narrow)} IS NULL)"
    return _SPARK[op](*(_spark_wide(arg) for arg in args))


def _spark_comparison(predicate: Predicate, narrow: Collection[str]) -> str:
    """A bound that the left side's type does not have decides alone.

    Spark would make a null of such a comparison while it optimizes, and fail where a scan is to take that as a filter.
    """
    first, second = predicate.args
    value = spark_sql(first, narrow)
    if first.type == "int" and first.op != "literal" and second.op == "literal":
        bits = 32 if first.value in narrow or first.op in _PARTS else 64
        bound, limit = int(second.value), 1 << (bits - 1)
        if not -limit <= bound < limit:
            holds = predicate.op != "=" and (predicate.op == "<") == (bound > 0)
            return str(holds).lower() if not holds or not predicate.nullable else f"({value} IS NOT NULL)"
    comparison = f"{value} {predicate.op} {spark_sql(second, narrow)}"
    return f"coalesce({comparison}, false)" if predicate.nullable else f"({comparison})"


def _spark_wide(node: Predicate) -> str:
    """An INT column would overflow where MySQL computes with 64 bits."""
    text = spark_sql(node)
    return f"CAST({text} AS BIGINT)" if node.type == "int" and node.op in ("column", "literal") else text


def _spark_literal(node: Predicate) -> str:
    if node.type == "int":
        return node.value if not node.value.startswith("-") else f"({node.value})"
    if node.type == "date":
        return f"DATE'{node.value}'"
    if node.type == "datetime":
        return f"TIMESTAMP_NTZ'{node.value}'"
    if node.type == "binary":
        return f"X'{node.value}'"
    # a text as bytes: no quote, no backslash, whatever the parser's settings are
    return f"CAST(X'{node.value.encode().hex()}' AS STRING)"


_SPARK: Mapping[str, Callable[..., str]] = {
    "+": lambda a, b: f"({a} + {b})",
    "-": lambda a, b: f"({a} - {b})",
    "*": lambda a, b: f"({a} * {b})",
    "div": lambda a, b: f"({a} div {b})",
    "mod": lambda a, b: f"({a} % {b})",
    "abs": lambda a: f"abs({a})",
    "signed64": lambda a: f"CAST(CASE WHEN {a} > {2**63 - 1} THEN {a} - {2**64} ELSE {a} END AS BIGINT)",
    "trim": lambda a: f"rtrim({a})",
    "year": lambda a: f"year({a})",
    "quarter": lambda a: f"quarter({a})",
    "month": lambda a: f"month({a})",
    "day": lambda a: f"day({a})",
    "dayofweek": lambda a: f"dayofweek({a})",
    "dayofyear": lambda a: f"dayofyear({a})",
    "weekday": lambda a: f"weekday({a})",
    "to_days": lambda a: f"CAST(datediff({a}, DATE'1970-01-01') + {_DAY_0} AS BIGINT)",
    "hour": lambda a: f"hour({a})",
    "minute": lambda a: f"minute({a})",
    "second": lambda a: f"second({a})",
    "unix_timestamp": lambda a: f"unix_seconds({a})",
}


# --- polars -----------------------------------------------------------------------------------------------------------


def polars_expr(predicate: Predicate) -> pl.Expr:
    """Return the condition as a polars expression over the Arrow types of `mysql_types`."""
    import polars as pl

    op, args = predicate.op, predicate.args
    if op == "column":
        column = pl.col(exact(predicate.value))
        return column.cast(pl.Int128) if predicate.type in ("int", "unsigned") else column
    if op == "literal":
        return _polars_literal(predicate)
    if op in ("and", "or"):
        condition = pl.lit(op == "and")
        for arg in args:
            condition = condition & polars_expr(arg) if op == "and" else condition | polars_expr(arg)
        return condition
    values = [polars_expr(arg) for arg in args]
    if op in _COMPARISONS:
        first, second = values
        result = first < second if op == "<" else first >= second if op == ">=" else first == second
        return result.fill_null(False)
    if op == "not":
        return ~values[0]
    if op == "is_null":
        return values[0].is_null()
    return _polars_function(op, values)


def _polars_literal(node: Predicate) -> pl.Expr:
    import polars as pl

    if node.type == "int":
        return pl.lit(int(node.value), dtype=pl.Int128)
    if node.type == "date":
        return pl.lit(date.fromisoformat(node.value))
    if node.type == "datetime":
        return pl.lit(datetime.fromisoformat(node.value), dtype=pl.Datetime("us"))
    if node.type == "binary":
        return pl.lit(bytes.fromhex(node.value))
    return pl.lit(node.value)


def _polars_function(op: str, values: list[pl.Expr]) -> pl.Expr:
    import polars as pl

    a = values[0]
    if op in ("+", "-", "*", "div", "mod"):
        b = values[1]
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return a * b
        whole = (a.abs() // b.abs()) * a.sign() * b.sign()
        return whole if op == "div" else a - whole * b
    if op == "abs":
        return a.abs()
    if op == "signed64":
        return pl.when(a > 2**63 - 1).then(a - pl.lit(2**64, dtype=pl.Int128)).otherwise(a)
    if op == "trim":
        return a.str.strip_chars_end(" ")
    return _POLARS[op](a).cast(pl.Int128)


def _days(a: pl.Expr) -> pl.Expr:
    import polars as pl

    return a.cast(pl.Date).cast(pl.Int32) + _DAY_0


_POLARS: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda a: a.dt.year(),
    "quarter": lambda a: a.dt.quarter(),
    "month": lambda a: a.dt.month(),
    "day": lambda a: a.dt.day(),
    "dayofweek": lambda a: a.dt.weekday() % 7 + 1,
    "dayofyear": lambda a: a.dt.ordinal_day(),
    "weekday": lambda a: a.dt.weekday() - 1,
    "to_days": _days,
    "hour": lambda a: a.dt.hour(),
    "minute": lambda a: a.dt.minute(),
    "second": lambda a: a.dt.second(),
    "unix_timestamp": lambda a: a.dt.epoch("s"),
}
