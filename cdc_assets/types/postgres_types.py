"""PostgreSQL's types -> the types as which Debezium's connector writes them, where no schema block states them.

Facts: Debezium's PostgreSQL connector, data type mappings; `time.precision.mode` and `interval.handling.mode` decide
how moments are written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import BITS, DECIMAL, NO_WIDTH, STRUCTURED, VARIABLE_DECIMAL

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data", "io.debezium.time", "io.debezium.data"

_PLAIN: Mapping[str, str] = {
    **dict.fromkeys(("smallint", "int2", "smallserial", "serial2"), "int16"),
    **dict.fromkeys(("integer", "int", "int4", "serial", "serial4"), "int32"),
    **dict.fromkeys(("bigint", "int8", "bigserial", "serial8", "oid"), "int64"),
    **dict.fromkeys(("real", "float4"), "float"),
    **dict.fromkeys(("double precision", "float8", "float"), "double"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(
        (
            *("text", "character varying", "varchar", "character", "char", "bpchar", "name", "citext"),
            *("inet", "cidr", "macaddr", "macaddr8", "tsvector", "tsquery"),
            *("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"),
        ),
        "string",
    ),
    **dict.fromkeys(
        (
            *("bytea", "line", "lseg", "box", "path", "polygon", "circle", "jsonpath", "pg_lsn", "pg_snapshot"),
            *("xid", "xid8", "cid", "tid", "txid_snapshot", "aclitem"),
            *("int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange"),
        ),
        "bytes",  # all but the first: their texts, where `include.unknown.datatypes` is set
    ),
    "uuid": f"{_DATA}.Uuid",
    "xml": f"{_DATA}.Xml",
    "ltree": f"{_DATA}.Ltree",
    **dict.fromkeys(("json", "jsonb", "hstore"), f"{_DATA}.Json"),
    "point": f"{_DATA}.geometry.Point",
    "geometry": f"{_DATA}.geometry.Geometry",
    "geography": f"{_DATA}.geometry.Geography",
    **dict.fromkeys(("timestamp with time zone", "timestamptz"), f"{_TIME}.ZonedTimestamp"),
    **dict.fromkeys(("time with time zone", "timetz"), f"{_TIME}.ZonedTime"),
}
_TIMESTAMPS = ("timestamp", "timestamp without time zone")
_TIMES = ("time", "time without time zone")
_BY_MODE: Mapping[str, tuple[str, str, str]] = {
    "connect": (f"{_CONNECT}.Date", f"{_CONNECT}.Time", f"{_CONNECT}.Timestamp"),
    "isostring": (f"{_TIME}.IsoDate", f"{_TIME}.IsoTime", f"{_TIME}.IsoTimestamp"),
    "microseconds": (f"{_TIME}.Date", f"{_TIME}.MicroTime", f"{_TIME}.MicroTimestamp"),
    "nanoseconds": (f"{_TIME}.Date", f"{_TIME}.NanoTime", f"{_TIME}.NanoTimestamp"),
    "structured": (f"{STRUCTURED}Date", f"{STRUCTURED}Time", f"{STRUCTURED}Timestamp"),
}
"""`time.precision.mode` -> what dates, times and timestamps are, whatever their digits."""


def postgres_column(name: str, text: str, modes: Mapping[str, str], own: Mapping[str, str]) -> Column:
    """Return the column of a definition such as `numeric(12,2)` or `timestamp(3) with time zone[]`.

    `modes` are the connector's settings, `own` the database's own types: "enum", or the type below a domain. A type
    that is not known leaves the column's type "".
    """
    kind = re.sub(r"\s*\.\s*", ".", " ".join(text.lower().replace('"', "").split()))
    if kind.endswith("]"):
        element = postgres_column(name, kind[: kind.index("[")], modes, own)
        return Column(name, "array", precision=element.precision, scale=element.scale, elems=(element.type,))
    digits = [int(number) for number in re.findall(r"-?\d+", (re.search(r"\(([-\d\s,]*)\)", kind) or ["", ""])[1])]
    kind = re.sub(r"\s*\([^)]*\)", "", kind).strip()
    kind = kind.rpartition(".")[2] if kind.rpartition(".")[2] in own else kind
    if own.get(kind, "enum") != "enum":
        return postgres_column(
            name, own[kind], modes, {type_name: two for type_name, two in own.items() if type_name != kind}
        )
    if kind == "enum" or kind in own:
        return Column(name, f"{_DATA}.Enum")
    if kind in ("numeric", "decimal"):
        scale = digits[1] if len(digits) > 1 else 0
        if not digits:
            return Column(name, VARIABLE_DECIMAL)
        whole = max(digits[0], scale) - min(0, scale)  # numeric(3,5) is below 0.01, numeric(3,-2) has hundreds
        return Column(name, DECIMAL, precision=whole, scale=max(0, scale))
    if kind == "money":
        return Column(name, DECIMAL, scale=2)
    if kind in ("bit", "bit varying", "varbit"):
        width = digits[0] if digits else 1 if kind == "bit" else NO_WIDTH
        return Column(name, "boolean") if kind == "bit" and width == 1 else Column(name, BITS, precision=width)
    plain_type = _PLAIN.get(kind, "")
    if modes.get("time.precision.mode") == "structured":
        if kind.partition(" ")[0] == "interval":
            return Column(name, f"{STRUCTURED}Duration")
        if plain_type.startswith(f"{_TIME}.Zoned"):
            return Column(name, plain_type.replace(f"{_TIME}.", STRUCTURED))
    if kind.partition(" ")[0] == "interval":  # or `interval day to second`
        in_text = modes.get("interval.handling.mode") == "string"
        return Column(name, f"{_TIME}.Interval" if in_text else f"{_TIME}.MicroDuration")
    if kind == "date" or kind in _TIMES or kind in _TIMESTAMPS:
        return Column(name, _moment(kind, digits[0] if digits else 6, modes.get("time.precision.mode", "adaptive")))
    return Column(name, plain_type)


def _moment(kind: str, digits: int, mode: str) -> str:
    date, time, timestamp = _BY_MODE.get(mode, (f"{_TIME}.Date", "", ""))
    if kind == "date":
        return date
    if kind in _TIMES:
        return time or f"{_TIME}.{'Time' if digits <= 3 and mode == 'adaptive' else 'MicroTime'}"
    return timestamp or f"{_TIME}.{'Timestamp' if digits <= 3 else 'MicroTimestamp'}"
