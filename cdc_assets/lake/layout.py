"""Layouts of tables in Iceberg's own words: specs, sort orders, statements of Spark, the partitions of data files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from cdc_assets.errors import TableHeld
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.model.layout import PLAIN, TableLayout, Transform, transforms_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameWriterV2

_PLURALS = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
"""Spark's names of transforms, for those that differ."""


def layout_of_table(session: StepSession, table: Any) -> TableLayout | None:
    """Return the layout of Iceberg's `Table`, None where it has a transform that is not known here."""
    java = session.iceberg.java
    if not table.spec().isPartitioned() and not table.sortOrder().isSorted():
        return PLAIN
    names = {int(field.fieldId()): str(field.name()) for field in table.schema().columns()}
    partition, sort = (
        transforms_of(((field["transform"], field["source-id"]) for field in json.loads(text)["fields"]), names)
        for text in (
            java("org.apache.iceberg.PartitionSpecParser").toJson(table.spec()),
            java("org.apache.iceberg.SortOrderParser").toJson(table.sortOrder()),
        )
    )
    return None if partition is None or sort is None else TableLayout(partition, sort)


def known_layout(session: StepSession, table: Any) -> TableLayout:
    """Return the layout of a table that is to be written anew; raises TableHeld where it cannot be told."""
    layout = layout_of_table(session, table)
    if layout is None:
        raise TableHeld(
            f"{table.name()} has a partition or an order by a transform that is not known here, so it cannot be "
            "written anew in the same layout. Give it a layout by partition_by and sort_by, and rebuild it.",
            table=str(table.name()),
        )
    return layout


def partition_spec(session: StepSession, schema: Any, layout: TableLayout) -> Any:
    """Return the partition spec of a layout, for columns of Iceberg's `Schema`."""
    builder = session.iceberg.java("org.apache.iceberg.PartitionSpec").builderFor(schema)
    for transform in layout.partition:
        numbers = (transform.number,) if transform.number else ()
        builder = getattr(builder, transform.name)(transform.column, *numbers)
    return builder.build()


def ordered(session: StepSession, builder: Any, layout: TableLayout) -> Any:
    """Return a builder of a sort order, or a change of one, with the order of a layout."""
    expressions = session.iceberg.java("org.apache.iceberg.expressions.Expressions")
    nulls_first = session.iceberg.java("org.apache.iceberg.NullOrder").NULLS_FIRST
    for transform in layout.sort:
        make = expressions.ref if transform.name == "identity" else getattr(expressions, transform.name)
        numbers = (transform.number,) if transform.number else ()
        builder = builder.asc(make(transform.column, *numbers), nulls_first)
    return builder


def set_order(session: StepSession, table: Any, layout: TableLayout) -> None:
    """Give Iceberg's `Table` the sort order of a layout, in a commit of its metadata; without one it keeps its own."""
    if layout.sort:
        ordered(session, table.replaceSortOrder(), layout).commit()


def sort_order(session: StepSession, schema: Any, layout: TableLayout) -> Any:
    """Return the sort order of a layout, for columns of Iceberg's `Schema`."""
    builder = session.iceberg.java("org.apache.iceberg.SortOrder").builderFor(schema)
    return ordered(session, builder, layout).build()


def write_anew(
    session: StepSession,
    act: str,
    name: str,
    rows: DataFrame,
    layout: TableLayout,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
) -> None:
    """Create or replace a table as rows, in partitions, in one commit whose snapshot has the properties of `summary`.

    `act` is `create` or `replace`. The table has no sort order afterwards (`ordered` sets one).
    """
    writer = rows.writeTo(name).using("iceberg")
    if layout.partition:
        writer = _partitioned(session, writer, layout)
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    getattr(writer, act)()


def _partitioned(session: StepSession, writer: DataFrameWriterV2, layout: TableLayout) -> DataFrameWriterV2:
    """Give a writer the partitions of a layout. Spark's function takes no `truncate`, while its writer passes it on."""
    if all(transform.name != "truncate" for transform in layout.partition):
        return writer.partitionedBy(*map(_spark_transform, layout.partition))
    expressions = session.iceberg.java("org.apache.spark.sql.connector.expressions.Expressions")
    kind = session.jvm.java.lang.Class.forName("org.apache.spark.sql.connector.expressions.Expression")
    transforms = session.jvm.java.util.ArrayList()
    for transform in layout.partition:
        numbers = [expressions.literal(transform.number)] if transform.number else []
        arguments = [*numbers, expressions.column(quoted(transform.column))]
        array = session.jvm.java.lang.reflect.Array.newInstance(kind, len(arguments))
        for place, argument in enumerate(arguments):
            array[place] = argument
        transforms.add(expressions.apply(_PLURALS.get(transform.name, transform.name), array))
    java_writer: Any = writer._jwriter
    partitioning = java_writer.getClass().getDeclaredField("partitioning")
    partitioning.setAccessible(True)
    sequence = session.iceberg.java("org.apache.spark.api.python.PythonUtils").toSeq(transforms)
    partitioning.set(java_writer, session.jvm.scala.Some(sequence))
    return writer


def _spark_transform(transform: Transform) -> Column:
    column = sql.col(quoted(transform.column))
    if transform.name == "identity":
        return column
    numbers = (transform.number,) if transform.number else ()
    make: Any = getattr(sql.partitioning, _PLURALS.get(transform.name, transform.name))
    made: Column = make(*numbers, column)
    return made


def partition_data(session: StepSession, spec: Any, values: str) -> Any:
    """Return the partition of a file as Iceberg's API has it, from its values in the order of a spec (a JSON list)."""
    kind = spec.partitionType()
    fields = kind.fields()
    named = {str(fields.get(place).fieldId()): value for place, value in enumerate(json.loads(values))}
    return session.iceberg.java("org.apache.iceberg.SingleValueParser").fromJson(kind, json.dumps(named))
