"""The layout of a lake table: partitions and order by Iceberg's transforms, Iceberg's properties, marks of deletes.

A person names the column behind the transform's number, as Iceberg's SQL does: `day(created_at)`, `bucket(16, id)`.
A column with other signs in its name stands between backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cdc_assets.model.names import fits_pattern
from cdc_assets.model.schema import TableId

V = TypeVar("V")

_DATES, _MOMENTS = ("date",), ("timestamp", "timestamptz")
_WHOLE, _EXACT = ("int", "long"), ("int", "long", "decimal", "string")

PARTITION_TYPES: Mapping[str, Sequence[str]] = {
    "identity": (*_EXACT, "boolean", *_DATES),
    "year": (*_DATES, *_MOMENTS),
    "month": (*_DATES, *_MOMENTS),
    "day": (*_DATES, *_MOMENTS),
    "hour": _MOMENTS,
    "bucket": (*_EXACT, "binary", *_DATES, *_MOMENTS),
    "truncate": _EXACT,
}
"""Iceberg's types of the columns that a table may be partitioned by, by the name of the transform."""

SORT_TYPES: Mapping[str, Sequence[str]] = {
    **PARTITION_TYPES,
    "identity": (*PARTITION_TYPES["identity"], "float", "double", "binary", *_MOMENTS),
}
"""Types of columns by which rows may be sorted."""

_NUMBERED = ("bucket", "truncate")
_FIELDS = {"identity": "{}", "truncate": "{}_trunc"}
_GREATEST = (1 << 31) - 1

_COLUMN = r"(?:`(?P<{0}quoted>(?:[^`]|``)+)`|(?P<{0}plain>[^\s,()`]+))"
_ITEM = re.compile(
    rf"\s*(?:(?P<name>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?{_COLUMN.format('of_')}\s*\)|{_COLUMN.format('own_')})\s*"
)
_OF_ICEBERG = re.compile(r"(\w+)(?:\[(\d+)\])?")


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform of a column; `number` is that of the buckets, or the width, 0 for a transform without one.

    `label` is the name of the partition field in a table that has it: that stays when the column is renamed.
    """

    name: str
    column: str
    number: int = 0
    label: str = field(default="", compare=False)

    def __str__(self) -> str:
        plain = re.fullmatch(r"[^\s,()`]+", self.column)
        column = self.column if plain else "`" + self.column.replace("`", "``") + "`"
        if self.name == "identity":
            return column
        return f"{self.name}({f'{self.number}, ' if self.number else ''}{column})"

    @property
    def new_label(self) -> str:
        """The name that Iceberg gives to a new partition field."""
        return _FIELDS.get(self.name, "{}_" + self.name).format(self.column)

    @classmethod
    def of_iceberg(cls, transform: str, column: str) -> Transform | None:
        """Return a transform of a column by Iceberg's text, such as `bucket[16]`; None for one that is not known."""
        parts = _OF_ICEBERG.fullmatch(transform)
        if parts is None or parts[1] not in PARTITION_TYPES:
            return None
        return cls(parts[1], column, int(parts[2] or 0))


def transforms_of(
    fields: Iterable[tuple[str, int]], names: Mapping[int, str], labels: Sequence[str] = ()
) -> tuple[Transform, ...] | None:
    """Return the transforms of the fields of a partition spec or a sort order; None where one is not known.

    A field is Iceberg's text of a transform, and the id of its column, whose name is in `names`. `labels` are the names
    of partition fields.
    """
    transforms = list[Transform]()
    for place, (text, source) in enumerate(fields):
        transform = Transform.of_iceberg(text, names[source]) if source in names else None
        if transform is None:
            return None
        transforms.append(replace(transform, label=labels[place]) if labels else transform)
    return tuple(transforms)


def parse_transforms(text: str) -> tuple[Transform, ...]:
    """Return the transforms of a list with commas between.

    Raises ValueError for what is no transform, and for a column that is there twice.
    """
    transforms, place = list[Transform](), 0
    while place < len(text):
        item = _ITEM.match(text, place)
        if item is None or (item.end() < len(text) and text[item.end()] != ","):
            raise ValueError(
                f'"{text[place:].strip()}" is neither a column nor a transform of one, such as day(created_at) or '
                "bucket(16, id)"
            )
        transforms.append(_transform(item))
        place = item.end() + 1
    columns = [transform.column.lower() for transform in transforms]
    for transform in transforms:
        if columns.count(transform.column.lower()) > 1:
            raise ValueError(f'the column "{transform.column}" is there twice')
    return tuple(transforms)


def _transform(item: re.Match[str]) -> Transform:
    name, number = item["name"], int(item["number"] or 0)
    column = item["of_plain"] or item["own_plain"] or (item["of_quoted"] or item["own_quoted"]).replace("``", "`")
    if name is None:
        return Transform("identity", column)
    if name not in PARTITION_TYPES:
        raise ValueError(f'no transform is called "{name}"; known are {", ".join(PARTITION_TYPES)}')
    if (name in _NUMBERED) != (0 < number <= _GREATEST) or (item["number"] and not number):
        shape = f"{name}(16, {column})" if name in _NUMBERED else f"{name}({column})"
        raise ValueError(f'"{item[0].strip()}" is not the transform {name}; expected one like {shape}')
    return Transform(name, column, number)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a table: its partitions, the order of rows in each file, and the properties that a person gave.

    With `marks_deletes` a deleted row stays, marked in a column of its own.
    """

    partition: tuple[Transform, ...] = ()
    sort: tuple[Transform, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    marks_deletes: bool = False

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """The transforms of its partitions, then those of its order."""
        return (*self.partition, *self.sort)

    def with_columns(self, named: Callable[[str], str | None]) -> TableLayout:
        """Return the layout with other names of its columns; transforms of those named None are left out."""
        partition, sort = (
            tuple(
                replace(transform, column=name) for transform in some if (name := named(transform.column)) is not None
            )
            for some in (self.partition, self.sort)
        )
        return replace(self, partition=partition, sort=sort)

    def renamed(self, renames: Mapping[str, str]) -> TableLayout:
        """Return the layout after renames of columns, by the old names; partition fields keep theirs."""
        partition = tuple(
            replace(transform, label=transform.label or transform.new_label) for transform in self.partition
        )
        return replace(self, partition=partition).with_columns(lambda name: renames.get(name, name))

    def only(self, transform: Transform) -> TableLayout:
        """Return the layout of this transform alone."""
        return self.without([other for other in self.transforms if other != transform])

    def without(self, transforms: Collection[Transform]) -> TableLayout:
        """Return the layout without some transforms."""
        partition, sort = (
            tuple(transform for transform in some if transform not in transforms)
            for some in (self.partition, self.sort)
        )
        return replace(self, partition=partition, sort=sort)

    def __str__(self) -> str:
        parts = [
            f"{word} {', '.join(map(str, some))}"
            for word, some in (("partitions", self.partition), ("order", self.sort))
            if some
        ]
        return " and ".join(parts) or "neither partitions nor an order"

    def misfit(self, types: Mapping[str, str]) -> str:
        """Return the reason why a table of these Iceberg types cannot have the layout, a clause; "" where it can."""
        for some, fitting in ((self.partition, PARTITION_TYPES), (self.sort, SORT_TYPES)):
            for transform in some:
                kind = types.get(transform.column)
                if kind is None:
                    return f'there is no column "{transform.column}"'
                if kind.partition("(")[0] not in fitting[transform.name]:
                    names = ", ".join(fitting[transform.name])
                    return f'the column "{transform.column}" has the type {kind}, and {transform.name} is for {names}'
        for transform in self.partition:
            for label in (transform.label, transform.new_label):
                if label != transform.column and label in types:
                    return f'the column "{label}" is called as the partitions of {transform}'
        return ""


PLAIN = TableLayout()
"""No partitions, no order, and no properties of a person."""


# --- properties -------------------------------------------------------------------------------------------------------

OWN_PROPERTIES: Mapping[str, str] = {
    "format-version": "3",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.wap.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}
"""Properties of every table that commits depend on."""

_REFUSED = {
    **dict.fromkeys(OWN_PROPERTIES, "commits depend on its value"),
    **dict.fromkeys(("write.format.default", "write.delete.format.default"), "files are Parquet, deletes are vectors"),
    **dict.fromkeys(
        ("location", "write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path",
         "write.object-storage.enabled", "write.location-provider.impl"),
        "a table's files are below its own location, where upkeep and forget look for them",
    ),
    **dict.fromkeys(("gc.enabled", "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep",
                     "history.expire.max-ref-age-ms"), "the settings of maintenance say what expires"),
    **dict.fromkeys(("uuid", "snapshot-count", "current-snapshot-summary", "current-snapshot-id", "provider", "owner",
                     "current-snapshot-timestamp-ms", "current-schema", "default-partition-spec", "default-sort-order",
                     "sort-order"), "Iceberg and Spark keep the name for themselves"),
}  # fmt: skip
_REFUSED_PREFIXES = {
    "cdc.": "the project records progress in properties of that prefix",
    "_cdc": "the project records progress in properties of that prefix",
    "encryption.": "files that are written beside Spark would not be encrypted",
}
_CODEC = "write.parquet.compression-codec"
_LEVEL = "write.parquet.compression-level"
_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "brotli": "brotli", "uncompressed": "none"}
_WITH_LEVEL = ("zstd", "gzip", "brotli")


def refused_property(name: str, value: str) -> str:
    """Return the reason why a person cannot give a property to tables, a clause; "" for one that a person can."""
    if name in _REFUSED:
        return _REFUSED[name]
    for prefix, reason in _REFUSED_PREFIXES.items():
        if name.startswith(prefix):
            return reason
    if name == _CODEC and value not in _CODECS:
        return f"no codec is called {value!r}; known are {', '.join(_CODECS)}"
    if name == _LEVEL and not re.fullmatch(r"-?\d+", value):
        return "it is a number"
    return ""


def parquet_options(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the options of Arrow's writer of Parquet by a table's properties: compression and its level."""
    codec = _CODECS.get(properties.get(_CODEC, "zstd"), "zstd")
    level = {"compression_level": int(properties[_LEVEL])} if _LEVEL in properties and codec in _WITH_LEVEL else {}
    return {"compression": codec, **level}


# --- settings ---------------------------------------------------------------------------------------------------------


EVERY_TABLE = "*"
"""The pattern of a setting that is given without patterns."""


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The layouts that a person wants, by patterns of tables' names.

    Of partitions and of orders the most exact pattern counts that a name fits, and so it does of several values of a
    property. `deletes` says of tables whether their deleted rows stay, marked.
    """

    partition_by: Mapping[str, tuple[Transform, ...]] = field(default_factory=dict)
    sort_by: Mapping[str, tuple[Transform, ...]] = field(default_factory=dict)
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deletes: Mapping[str, bool] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.partition_by or self.sort_by or self.properties or self.deletes)

    def of(self, name: TableId) -> TableLayout:
        """Return the layout of a table of that name."""
        partition, sort = (_fitting(some, name) for some in (self.partition_by, self.sort_by))
        merged = {
            key: value for own_properties in _fitting(self.properties, name) for key, value in own_properties.items()
        }
        marks = _fitting(self.deletes, name)[-1:] == [True]
        return TableLayout(partition[-1] if partition else (), sort[-1] if sort else (), merged, marks)


def _fitting(values: Mapping[str, V], name: TableId) -> list[V]:
    """Return the values of the patterns that a name fits, that of the most exact one last."""
    fitting = [pattern for pattern in values if fits_pattern(str(name), pattern)]
    return [
        values[pattern] for pattern in sorted(fitting, key=lambda pattern: sum(sign not in "*?" for sign in pattern))
    ]


PLACE = "_cdc_place"
"""text: file and line, or topic, partition and offset; logs have it, too."""
INGESTED_AT = "_cdc_ingested_at"
"""timestamp: when the window of the row's last change was staged."""
LAKE_COLUMNS = {"place": PLACE, "ingested_at": INGESTED_AT}
"""The columns of the setting `columns`, by its switches, in the order of the lake."""
DELETED_AT = "_cdc_deleted_at"
"""timestamp: when the source deleted the row, NULL for one that lives; mirrors that mark deleted rows have it."""
LIVING = f"{DELETED_AT} IS NULL"
"""The condition by which engines read the source's rows of a mirror that marks deleted ones."""
