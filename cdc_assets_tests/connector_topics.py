"""Recorded topics of Debezium's connectors, and how a lake compares with the database at each mark.

for recording in recordings():
    feed = recording.feed()
    for mark in recording.marks:
        recording.send(feed, mark)
        feed.apply()
        recording.differences(feed, mark)      # [] but for what allow.json there names
"""

from __future__ import annotations

import functools
import gzip
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.model.schema import TableId
from cdc_assets_tests.cases import unpacked
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

__all__ = ["Mark", "Recording", "plain_rows", "recordings", "row_differences"]

_HERE = Path(__file__).resolve().parent
_DIRECTORIES = (_HERE / "corpus" / "topics", _HERE.parents[1] / "shared" / "topics")
_DAY = 86_400_000_000

Row = dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """A point at which the database was read: where its contents are, and how far each partition had come."""

    number: int
    expected: str
    next_offsets: Mapping[str, int]


@dataclass(frozen=True)
class Recording:
    """What one connector sent of a case."""

    case: str
    variant: str

    def __str__(self) -> str:
        return f"{self.case}/{self.variant}"

    @property
    def postgres(self) -> bool:
        return "postgres" in self.case

    def member(self, name: str) -> bytes:
        return next(path for path in _members(self.case) if path.as_posix().endswith(f"/{name}")).read_bytes()

    def document(self, name: str) -> Any:
        return json.loads(self.member(name))

    @property
    def connector(self) -> Mapping[str, str]:
        options: Mapping[str, str] = self.document(f"{self.variant}/options.json")["connector"]
        return options

    @property
    def has_schemas(self) -> bool:
        return self.connector["value.converter.schemas.enable"] == "true"

    @functools.cached_property
    def lines(self) -> list[dict[str, Any]]:
        text = gzip.decompress(self.member(f"{self.variant}/topic.jsonl.gz"))
        return [json.loads(line) for line in text.splitlines()]

    @property
    def marks(self) -> Iterator[Mark]:
        for mark in self.document(f"{self.variant}/marks.json"):
            if "mark" in mark:
                yield Mark(mark["mark"], mark["expected"], mark["next_offsets"])

    @property
    def uri(self) -> str:
        modes = {name: value for name, value in self.connector.items() if name.endswith(".mode")}
        query = "".join(f"&{name}={value}" for name, value in modes.items() if "snapshot" not in name)
        return f"kafka://127.0.0.1:9092/{self.connector['topic.prefix']}?protocol=debezium-json{query}"

    def feed(self, **given: Any) -> TopicFeed:
        return TopicFeed.of(MemoryLog([]), sink_uri=self.uri, name="connector", **given)

    @property
    def schemas(self) -> str:
        """CREATE TABLE texts as a person who knows the database through all marks would give them."""
        tables: dict[str, dict[str, str]] = {}
        for mark in self.marks:
            for table in self.document(f"{mark.expected}/tables.json")["tables"]:
                columns = tables.setdefault(f'"{table["schema"]}"."{table["table"]}"', {})
                columns.update({column["name"]: column["type"] for column in table["columns"]})
        texts = ["CREATE TYPE mood AS ENUM ('sad');", "CREATE DOMAIN posint AS integer;"]
        for name, columns in tables.items():
            listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
            texts.append(f"CREATE TABLE {name} ({listed});")
        return "\n".join(texts)

    def lines_at(self, mark: Mark) -> list[dict[str, Any]]:
        return [
            line
            for line in self.lines
            if line["offset"] < mark.next_offsets.get(f"{line['topic']}/{line['partition']}", 0)
        ]

    # --- the database ---

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(self.document("allow.json").get(self.variant, ()))

    def differences(self, feed: TopicFeed, mark: Mark) -> list[str]:
        mismatches = []
        for table in self.document(f"{mark.expected}/tables.json")["tables"]:
            name = f"{table['schema']}.{table['table']}"
            if name in self.allowed:
                continue
            rows = [json.loads(line) for line in self.member(f"{mark.expected}/{table['file']}").splitlines()]
            if TableId(table["schema"], table["table"]) not in feed.lake.names():
                mismatches += [f"{name} is not there"] if rows else []
                continue
            lake = plain_rows(feed.lake.read(TableId(table["schema"], table["table"])))
            columns = {column["name"]: column["type"] for column in table["columns"]}
            absent = {*self.allowed, *_VIRTUAL}
            compared = {
                column_name: kind for column_name, kind in columns.items() if f"{name}:{column_name}" not in absent
            }
            keys = [table["primary_key"], *(table.get("unique_not_null_keys") or [])]
            key = next((key for key in keys if key and name not in _KEYLESS), None)
            mismatches += row_differences(name, lake, rows, compared, key, postgres=self.postgres)
        return mismatches


def row_differences(
    name: str,
    lake: list[Row],
    rows: Sequence[Row],
    columns: Mapping[str, str],
    key: Sequence[str] | None = None,
    *,
    postgres: bool = False,
) -> list[str]:
    """Compare rows of a lake with those of a table, whose columns have these types; without a key as a multiset."""
    if len(lake) != len(rows):
        return [f"{name} has {len(lake)} rows, expected {len(rows)}"]
    equal = functools.partial(_same, postgres=postgres)
    left, mismatches = list(lake), []
    by = [column for column in (key or columns) if column in columns]
    for row in rows:
        pair = next((candidate for candidate in left if all(equal(candidate[c], row[c], columns[c]) for c in by)), None)
        if pair is None:
            mismatches.append(f"{name} lacks { ({c: row[c] for c in by}) }")
            continue
        left.remove(pair)
        mismatches += [
            f"{name}:{column} is {pair[column]!r}, expected {row[column]!r} ({kind}) { ({c: row[c] for c in by}) }"
            for column, kind in columns.items()
            if not equal(pair[column], row[column], kind)
        ]
    return mismatches


_KEYLESS = ("public.by_index",)
_VIRTUAL = ("bazaar.every_type:g_vi",)
"""Virtual generated columns, which no lake table has."""


@functools.cache
def _members(case: str) -> list[Path]:
    """Return the files of a case; none where it is out of reach."""
    places = (directory / f"debezium-{case}.tar.xz" for directory in _DIRECTORIES)
    archive = next((place for place in places if place.exists()), None)
    return [] if archive is None else sorted(path for path in unpacked(archive).rglob("*") if path.is_file())


def recordings() -> list[Recording]:
    """Return what is there of both databases, in every variant."""
    return [
        Recording(case, path.parent.name)
        for case in ("M_mariadb", "P_postgres")
        for path in _members(case)
        if path.name == "topic.jsonl.gz"
    ]


# --- values -----------------------------------------------------------------------------------------------------------


def plain_rows(table: pa.Table) -> list[Row]:
    """Return rows with moments as microseconds, dates as days: Python knows no year 0."""
    for field in table.schema:
        if pa.types.is_temporal(field.type):
            kind = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
            place = table.schema.get_field_index(field.name)
            table = table.set_column(place, field.name, table.column(field.name).cast(kind))
    rows: list[Row] = table.to_pylist()
    return rows


def _same(value: Any, text: Any, kind: str, *, postgres: bool) -> bool:
    if value is None or text is None:
        return value is None and text is None
    try:
        if postgres and kind.endswith("[]"):
            elements, held = _pg_array(text), json.loads(value)
            return len(elements) == len(held) and all(
                _same(_element(element), other, kind[:-2], postgres=True)
                for element, other in zip(held, elements, strict=True)
            )
        return _compare(value, str(text), kind.lower(), postgres)
    except (ValueError, TypeError, ArithmeticError):
        return False


def _element(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", value):
        return _micros(value)
    return value


_NOT_COMPARED = ("interval", "hstore", "time with time zone")


def _compare(value: Any, text: str, kind: str, postgres: bool) -> bool:
    base = kind.split("(")[0].split()[0]
    if kind in _NOT_COMPARED:
        return True
    if kind.startswith("timestamp") or base == "datetime":
        return bool(value == _micros(text))
    if base == "time":
        return _clock(value) == _clock(text)
    compare = _COMPARED.get(base)
    if compare is not None:
        return compare(value, text)
    if base in ("json", "jsonb") and postgres:
        return bool(json.loads(value) == json.loads(text))
    if base == "bit" and isinstance(value, bool):
        return value == (text in ("1", "b'1'"))
    if base == "bit":
        return int(value) == (int(text or "0", 2) if postgres else int(text))
    if base == "point" and postgres:
        x, y = text[1:-1].split(",")
        return struct.unpack("<dd", value[-16:]) == (float(x), float(y))
    if base == "point":
        return bool(value.hex().upper() == text)
    return bool(value == text)


def _single(value: Any) -> bytes:
    return struct.pack("f", float(value))


def _whole(value: Any, text: str) -> bool:
    return int(value) == int(text)


def _number(value: Any, text: str) -> bool:
    return Decimal(value) == Decimal(text.replace("$", "").replace(",", ""))


_COMPARED: Mapping[str, Callable[[Any, str], bool]] = {
    **dict.fromkeys(("smallint", "integer", "int", "bigint", "mediumint", "tinyint", "year", "oid"), _whole),
    **dict.fromkeys(("posint", "public.posint"), _whole),
    **dict.fromkeys(("decimal", "numeric", "money"), _number),
    **dict.fromkeys(("float", "real"), lambda value, text: _single(value) == _single(text)),
    "double": lambda value, text: str(float(value)) == str(float(text)),
    "boolean": lambda value, text: value == (text in ("t", "true")),
    "bytea": lambda value, text: value.hex() == text[2:],
    "date": lambda value, text: value * _DAY == _micros(f"{text} 00:00:00"),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        lambda value, text: value == bytes.fromhex(text),
    ),
}


def _clock(text: str) -> int:
    match = re.fullmatch(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?", text)
    assert match is not None
    micros = ((int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])) * 10**6 + int((match[5] or "0").ljust(6, "0"))
    return -micros if match[1] else micros


def _micros(text: str) -> int:
    match = re.fullmatch(r"(\d+)-(\d\d)-(\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z|\+00)?( BC)?", text)
    if match is None:
        raise ValueError(text)
    year = 1 - int(match[1]) if match[5] else int(match[1])
    return _days(year, int(match[2]), int(match[3])) * _DAY + _clock(match[4])


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date of the Gregorian calendar, reckoned back before it began."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _pg_array(text: str) -> list[str | None]:
    elements: list[str | None] = []
    for quoted, plain in re.findall(r'(?:[{,])(?:"((?:[^"\\]|\\.)*)"|([^,{}"]+))', text):
        elements.append(re.sub(r"\\(.)", r"\1", quoted) if not plain else None if plain == "NULL" else plain)
    return elements
