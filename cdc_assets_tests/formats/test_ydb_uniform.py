"""YDB's records of one shape, read side by side: the same as read one by one, whatever they hold."""

from __future__ import annotations

import base64
import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import Decoded, alike
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.ydb_json.messages import classify, decode
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.schema_events import tables_by_text
from cdc_assets_tests.topics import rows_of

OPTIONS = MessageOptions(protocol="ydb-json")
TABLE = TableId("shop", "orders")
TYPES: dict[str, st.SearchStrategy[Any]] = {
    **{f"{sign}{bits}": st.integers(-(1 << bits), 1 << bits) for sign in ("Int", "Uint") for bits in (8, 32, 64)},
    "Bool": st.booleans(),
    "Float": st.floats(width=32) | st.just(1e39),
    "Double": st.floats() | st.integers(-(1 << 70), 1 << 70),
    "Decimal(9,2)": st.sampled_from(["12.5", "-0.01", "0", "1e5", "inf", "nan", "99999999", "1.005", "+1", ".5", "x"]),
    "Date": st.sampled_from(
        ["2022-02-22T00:00:00.000000Z", "2022-02-22", "2022-02-22T01:00:00.000000Z", "2022-02-30", ""]
    ),
    "Datetime": st.sampled_from(
        ["2022-12-12T00:00:00.000000Z", "2022-12-12T00:00:00Z", "2022-13-12T00:00:00.000000Z", "x"]
    ),
    "Timestamp": st.sampled_from(
        ["2022-12-12T00:00:00.123456Z", "2022-00-00T00:00:00.000000Z", "2022-12-12 00:00:00.000000Z"]
    ),
    "Interval": st.integers(-(1 << 65), 1 << 65),
    "Date32": st.integers(-(10**6), 10**6),
    "Timestamp64": st.integers(-(10**18), 10**18),
    "String": st.binary(max_size=4).map(lambda one: base64.b64encode(one).decode()) | st.just("?"),
    "Utf8": st.text(max_size=4),
    "Json": st.just({"a": [1, 2.50]}) | st.just("x"),
}
ANY = st.sampled_from([0, 7, -1, 1.5, True, "7", "x", "nan", [], {}])
NAMES = {f"c{number}": kind for number, kind in enumerate(TYPES)}
YQL = "CREATE TABLE `shop/orders` (k1 Uint64 NOT NULL, k2 Utf8 NOT NULL, {}, PRIMARY KEY (k1, k2));"
SCHEMA = tables_by_text(YQL.format(", ".join(f"{name} {kind}" for name, kind in NAMES.items())), "s", OPTIONS)[TABLE]


_EXTRA: list[dict[str, Any]] = [{}, {}, {"user": "me"}, {"z": 1}, {"resolved": [1, 2]}]


@st.composite
def records(draw: st.DrawFn) -> list[str]:
    """A handful of shapes, of each some records."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from(sorted(NAMES)), max_size=3, unique=True))
        members = draw(
            st.sampled_from([("update",), ("reset",), ("erase",), ("update", "newImage"), ("update", "oldImage")])
        )
        stamped = draw(st.booleans())
        extra: dict[str, Any] = draw(st.sampled_from(_EXTRA))
        for _ in range(draw(st.integers(1, 6))):
            wild = draw(st.integers(0, 9)) == 0
            image = {name: draw(st.none() | (ANY if wild else TYPES[NAMES[name]])) for name in names}
            record: dict[str, Any] = {one: {} if one != members[-1] or one == "erase" else image for one in members}
            record["key"] = [draw(st.integers(0, 1 << (65 if wild else 64))), draw(st.text(max_size=2))][
                : 1 if wild else 2
            ]
            if stamped:
                record["ts"] = [
                    draw(st.integers(0, 1 << (50 if wild else 44))),
                    draw(st.integers(0, 1 << (65 if wild else 63))),
                ]
            found.append(json.dumps(record | extra, separators=(",", ":"), ensure_ascii=draw(st.booleans())))
    return draw(st.permutations(found))


def read(sent: list[str]) -> tuple[list[Any], Decoded]:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["shop/orders/updates"] * len(sent)),
            "key": pa.nulls(len(sent), pa.binary()),
            "value": pa.array([one.encode("utf-8", "surrogatepass") for one in sent], pa.binary()),
        }
    )
    spoken = classify(batch, OPTIONS)
    return spoken.to_pylist(), decode(rows_of(batch, spoken), "split", TABLE, SCHEMA, OPTIONS)


def comparable(found: Decoded) -> tuple[Any, ...]:
    """What was read, in values that compare: not-a-number is a text."""
    return repr(found.changes.to_pylist()), found.rejects, dict(found.notes)


@given(records())
def test_records_read_side_by_side_are_those_read_one_by_one(sent: list[str]) -> None:
    with patch.object(alike, "_FEW", 1 << 40):
        spoken, alone = read(sent)
    with patch.object(alike, "_FEW", 1):
        assert read(sent)[0] == spoken
        assert comparable(read(sent)[1]) == comparable(alone)
