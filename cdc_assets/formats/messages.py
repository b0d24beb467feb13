"""Change messages of a topic: what each speaks of, what is the same for all protocols, and the functions of each.

`messages` is a batch with the columns `key` and `value` (binary, null for none); others are passed over. `rows` has the
column `ordinals` (list<int32>) too: the row events of the message that belong to the table, as `classify` numbered them
from 0. Reading takes up to some twenty times the bytes of a batch in memory: give a few megabytes to a few dozen at a
time. Without commit-ts (Canal-JSON without the extension) `_cdc_commit_ts` is null. `_cdc_line` of a change counts
these row events from 1 over the batch, see `lines_of`.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.json_records import NO_VALUE, json_value
from cdc_assets.formats.records import Marks, Records, bits, explained
from cdc_assets.io.compression import snappy_block
from cdc_assets.model.schema import Column, ReadColumn, TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.zones import Zone

__all__ = [
    "ACTIONS",
    "CLASSIFIED",
    "CORRUPTED",
    "HANDLE_KEY_ONLY",
    "SNAPSHOT_DDL",
    "Classification",
    "KeysAlone",
    "Kind",
    "MessageCodec",
    "SchemaEvent",
    "SourceSql",
    "Written",
    "by_nothing",
    "by_row",
    "by_zone",
    "classified",
    "classified_rows",
    "codec_of",
    "dialect_of",
    "in_order",
    "is_of_snapshot",
    "lines_of",
    "one_row_messages",
    "parts",
    "position_text",
    "position_texts",
    "read_claim",
    "refused_lines",
    "source_text",
    "unpack",
    "unpacked_array",
    "why_refused",
]

Rows = npt.NDArray[np.int64]

ACTIONS = {"CREATE": 3, "ERASE": 4, "CINDEX": 7, "DINDEX": 8, "TRUNCATE": 11, "RENAME": 14}
"""Word of Canal for a kind of DDL -> TiDB's number of the action; ALTER and QUERY stand for several."""

HANDLE_KEY_ONLY = (
    "it holds the key of its row only, because the row is larger than a message may be. Set "
    "large-message-handle-option = claim-check with a claim-check-storage-uri in the changefeed, or a larger "
    "max-message-bytes in its sink URI, and let it send the row again; handle-key-only leaves the rest to the source"
)

CORRUPTED = (
    "TiCDC says that it is corrupted: its values do not fit the checksum with which TiDB wrote them. Look for the "
    "cause, and let the changefeed send the row again; corruption-handle-level = error stops it at the next one"
)

_PART_BYTES = 8 << 20
_POSITION_DIGITS, _TEN_THOUSAND = 20, np.uint64(10_000)
_BEYOND = 10**_POSITION_DIGITS
"""More than any number of a place in a log."""
_FOUR_DIGITS = np.array([b"%04d" % number for number in range(10_000)]).view("<u4")
"""Each number below ten thousand as four characters."""


class Kind(str, enum.Enum):
    """The kind of a message."""

    ROW = "row"
    DDL = "ddl"
    RESOLVED = "resolved"
    SCHEMA = "schema"
    IGNORED = "ignored"
    BAD = "bad"


CLASSIFIED = pa.schema(
    [
        pa.field("message", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("ordinals", pa.list_(pa.int32())),
        pa.field("commit_ts", pa.int64()),
        pa.field("last_commit_ts", pa.int64()),
        pa.field("query", pa.string()),
        pa.field("type", pa.int32()),
        pa.field("claim", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("source", pa.string()),
        pa.field("source_position", pa.string()),
        pa.field("shape", pa.string()),
        pa.field("read_at", pa.string()),
        pa.field("phase", pa.string()),
    ]
)
"""Columns about the tables that messages mention: a line for each message and table, in message order
(`classified_rows`).

`message` is the position in the batch. `schema` and `table` are null where a message names none or is too broken to
read; `table` is "" for a DDL of the database. `ordinals` are the table's row events, null for all but rows. `commit_ts`
is that of the DDL or mark, or the least of the rows; `last_commit_ts` the greatest. `query` and `type` (TiDB's number
of the action, null if the protocol has none) are a DDL's. `claim` is where the whole message lies, of which this
one holds the key only. `reason` says why a message is bad or ignored; a bad one that names its table holds that alone.

Protocols by offset (`MessageOptions.by_offset`) have more. `source_position` is the place in the source's own log, as
a text that sorts as the log goes (see `position_text`); null where the message has none, or where the protocol never
sends anything twice. What stands at or below the greatest one of its table in its partition has come before. `source`
names that log where there may be several whose positions do not compare (see `source_text`), null for the only
one. `shape` is equal for rows of a table whose messages describe the same columns; null where messages do not describe
them. `commit_ts` is when the change was made, as a TSO, null if the message does not have it. `read_at` is how far the
log was when a row was read from the table, which has no place in it itself; of a schema change in a snapshot, the
place that the rows of that snapshot have. `phase` is where in a snapshot a row is:
"first" or "last" of its table, "begin" and "end" for the first and the last one of all tables, "within" for the rest;
null for a row that is of none.
"""


@dataclass(frozen=True, slots=True)
class Classification:
    """A line of CLASSIFIED."""

    message: int
    kind: Kind
    table: TableId | None = None
    ordinals: tuple[int, ...] | None = None
    commit_ts: Tso | None = None
    query: str | None = None
    type: int | None = None
    claim: str | None = None
    reason: str | None = None
    source: str | None = None
    source_position: str | None = None
    shape: str | None = None
    read_at: str | None = None
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """The columns of a table, as in message number `message`.

    `version` is the commit-ts from which they hold at the latest, 0 where the message says only that they do.
    `approximate` are sentences on what was taken from the rows and may be otherwise in the source; () for a schema that
    is exact. `grows` says that a table that is there gets what is new in it: no DDL says what changed. `lags` says that
    the message is older than others of its table that came before it. `altered` is when the columns became what they
    are, by a message's own account: just before the commit-ts of the DDL that did it, 0 where none says it.
    """

    message: int
    table: TableId
    version: Tso
    schema: TableSchema
    approximate: tuple[str, ...] = ()
    grows: bool = False
    lags: bool = False
    altered: Tso = 0


# --- lines of CLASSIFIED ----------------------------------------------------------------------------------------------


def classified(lines: Iterable[Classification]) -> pa.RecordBatch:
    """Return lines as a batch."""
    listed = list(lines)
    own = {
        "kind": [line.kind.value for line in listed],
        "schema": [None if line.table is None else line.table.schema for line in listed],
        "table": [None if line.table is None else line.table.table for line in listed],
        "last_commit_ts": [line.commit_ts for line in listed],
    }
    columns = {name: own.get(name) or [getattr(line, name) for line in listed] for name in CLASSIFIED.names}
    return pa.RecordBatch.from_pydict(columns, CLASSIFIED)


def _columns(count: int, **arrays: pa.Array | pa.ChunkedArray) -> list[pa.Array | pa.ChunkedArray]:
    """Return the columns of so many lines of CLASSIFIED, null where they are not given."""
    return [
        arrays[field.name].cast(field.type) if field.name in arrays else pa.nulls(count, field.type)
        for field in CLASSIFIED
    ]


def why_refused(reason: str) -> str:
    """Return the sentence on a message that was refused: where it has no value, that may be for its compression."""
    return f"{reason}, or one not compressed as large-message-handle-compression says" if reason == NO_VALUE else reason


def refused_lines(records: Records, what: str) -> pa.RecordBatch:
    """Return the lines of records that are refused: `what` says that they are no messages of the protocol."""
    return classified(
        Classification(message, Kind.BAD, reason=f"{what}: {why_refused(reason)}")
        for _, message, reason in records.refused()
    )


def classified_rows(
    messages: Rows,
    ordinals: Rows,
    schemas: pa.Array,
    tables: pa.Array,
    commit_ts: Rows,
    claims: pa.Array | None = None,
    source_positions: pa.Array | None = None,
) -> pa.RecordBatch:
    """Return the lines of row events; events come by message, then by ordinal.

    There is one for each message and table, and one more wherever the table's commit-ts steps back in the message: a
    sender that began anew has put what it sent again behind what it had. An event that lies elsewhere has its own.
    """
    claims = pa.nulls(len(messages), pa.string()) if claims is None else claims
    runs = _runs(messages, schemas, tables, commit_ts, bits(pc.is_valid(claims)))
    events = pa.table(
        {
            "message": pa.array(messages, pa.int32()),
            "schema": schemas.cast(pa.string()),
            "table": tables.cast(pa.string()),
            "ordinals": pa.array(ordinals, pa.int32()),
            "ts": pa.array(commit_ts, pa.int64()),
            "claim": claims,
            "at": pa.nulls(len(messages), pa.string()) if source_positions is None else source_positions,
            "run": pa.array(runs),
        }
    )
    made = events.group_by(["message", "schema", "table", "run"], use_threads=False).aggregate(
        [("ordinals", "list"), ("ts", "min"), ("ts", "max"), ("claim", "first"), ("at", "first")]
    )
    if runs.any():
        made = made.sort_by("run")
    count = made.num_rows
    columns = _columns(
        count,
        message=made.column("message"),
        kind=pa.repeat(Kind.ROW.value, count),
        schema=made.column("schema"),
        table=made.column("table"),
        ordinals=made.column("ordinals_list"),
        commit_ts=made.column("ts_min"),
        last_commit_ts=made.column("ts_max"),
        claim=made.column("claim_first"),
        source_position=made.column("at_first"),
    )
    return in_order(pa.table(columns, schema=CLASSIFIED).combine_chunks().to_batches())


def _runs(messages: Rows, schemas: pa.Array, tables: pa.Array, commit_ts: Rows, claimed: Marks) -> Rows:
    """Return for each row event the number of its run among those of its table in its message.

    A run ends where the commit-ts steps back, and before and behind an event that is `claimed`.
    """
    runs = np.zeros(len(messages), np.int64)
    within = np.diff(messages) == 0
    if not (within & ((np.diff(commit_ts) < 0) | claimed[1:] | claimed[:-1])).any():
        return runs
    last: dict[tuple[object, ...], tuple[Tso, int, bool]] = {}
    names = zip(schemas.to_pylist(), tables.to_pylist(), strict=True)
    events = zip(messages.tolist(), names, commit_ts.tolist(), claimed.tolist(), strict=True)
    for place, (message, name, ts, alone) in enumerate(events):
        before, run, was_alone = last.get((message, name), (ts, 0, False))
        runs[place] = run + (ts < before or alone or was_alone)
        last[message, name] = ts, int(runs[place]), alone
    return runs


def one_row_messages(
    messages: Rows, schemas: pa.Array, tables: pa.Array, commit_ts: pa.Array, **more: pa.Array
) -> pa.RecordBatch:
    """Return the lines of messages that hold one row event each; `more` are other columns of CLASSIFIED."""
    count = len(messages)
    columns = _columns(
        count,
        message=pa.array(messages, pa.int32()),
        kind=pa.repeat(Kind.ROW.value, count),
        schema=schemas,
        table=tables,
        ordinals=pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array(np.zeros(count, np.int32))),
        commit_ts=commit_ts,
        last_commit_ts=commit_ts,
        **more,
    )
    return pa.RecordBatch.from_arrays(columns, schema=CLASSIFIED)


def position_texts(*parts: pa.Array) -> pa.Array:
    """Return the texts of positions (see `position_text`) of which parts are columns; null where the first is."""
    count, width = len(parts[0]), len(parts) * (_POSITION_DIGITS + 1) - 1
    texts = np.full((count + 1, width), ord("."), np.uint8)  # one more, for none has no place for a digit
    for part, start in zip(parts, range(0, width, _POSITION_DIGITS + 1), strict=True):
        rest = part.fill_null(0).to_numpy().astype(np.uint64)
        for place in range(start + _POSITION_DIGITS - 4, start - 1, -4):
            rest, four = rest // _TEN_THOUSAND, rest % _TEN_THOUSAND
            column = np.ndarray((count,), "<u4", texts, place, (width,))
            column[:] = _FOUR_DIGITS[four]
    offsets = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    positions = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(texts)])
    return (
        positions
        if not parts[0].null_count
        else pc.if_else(parts[0].is_valid(), positions, pa.scalar(None, pa.string()))
    )


def position_text(*parts: int) -> str:
    """Return numbers of a source's log, the most significant first, as a text that sorts as they do.

    Raises ValueError for numbers that no log has.
    """
    for part in parts:
        if not 0 <= part < _BEYOND:
            raise ValueError(f"{str(part)[:40]} is no place in a log")
    return ".".join(f"{part:0{_POSITION_DIGITS}d}" for part in parts)


SNAPSHOT_DDL = position_text(0)
"""The position of all schema changes of a connector's snapshot, of which each is of a table of its own."""
_SNAPSHOT = f"{position_text(1)}."
"""Prefix of the positions of a connector's snapshots."""


def source_text(dialect: str, name: str) -> str:
    """Return the name of a source's log: the kind of database, whose name has no blank, and the name of the source."""
    return f"{dialect} {name}"


def dialect_of(source: str) -> str:
    """Return the kind of database in the name of a source's log, "" where it has none."""
    return source.partition(" ")[0] if " " in source else ""


def is_of_snapshot(position: str) -> bool:
    """Return whether a position in the source's log is that of a connector's snapshot, which stands before the log."""
    return position.startswith(_SNAPSHOT)


def truncating(table: TableId) -> str:
    """Return the DDL for a message that says without words that a table was emptied."""
    return f"TRUNCATE TABLE `{table.table.replace('`', '``')}`"


def in_order(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Return lines by message."""
    table = pa.Table.from_batches(list(batches), CLASSIFIED).combine_chunks()
    numbers = table.column("message").to_numpy()
    if (np.diff(numbers) < 0).any():
        table = table.take(pa.array(np.argsort(numbers, kind="stable"))).combine_chunks()
    record_batches = table.to_batches()
    return record_batches[0] if record_batches else classified(())


# --- messages and their places ----------------------------------------------------------------------------------------


def parts(messages: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch into parts of a few megabytes, so that what is made of a part stays small; each with its start."""
    sizes = pc.binary_length(messages.column("value")).fill_null(0).to_numpy().astype(np.int64)
    pieces = (np.cumsum(sizes) - sizes) // _PART_BYTES
    starts = np.flatnonzero(np.diff(pieces, prepend=-1)) if len(pieces) else np.zeros(0, np.int64)
    for start, stop in pairwise([*starts.tolist(), len(pieces)]):
        yield start, messages.slice(start, stop - start)


def lines_of(rows: pa.RecordBatch) -> tuple[Rows, Rows]:
    """Return for each line, in order, the position of its message in the batch and its ordinal there."""
    lists = rows.column("ordinals")
    owners = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    return owners, pc.list_flatten(lists).to_numpy().astype(np.int64)


def by_row(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages once for each of their row events, in the order of these."""
    owners, _ = lines_of(rows)
    return rows if len(owners) == rows.num_rows else rows.take(pa.array(owners))


def read_claim(content: bytes, options: MessageOptions) -> tuple[bytes | None, bytes]:
    """Return key and value of the message that a claim-check file holds. Raises MalformedData for any other file.

    TiCDC writes `{"key":base64|null,"value":base64}`, or with claim-check-raw-value the bare value.
    """
    if options.claim_check_raw_value:
        return None, content
    try:
        message = json_value(content)
        if type(message["value"]) is not str or type(message["key"]) not in (
            str,
            type(None),
        ):  # a number has its digits
            raise ValueError("its key and value are no texts")
        key = None if message["key"] is None else base64.b64decode(message["key"], validate=True)
        return key, base64.b64decode(message["value"], validate=True)
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise MalformedData(
            f"a claim-check file holds no message ({explained(error)}); expected an object with key and "
            "value in base64. If the changefeed has claim-check-raw-value, give it in the changefeed TOML."
        ) from None


# --- compressed values ------------------------------------------------------------------------------------------------

_MOST_SNAPPY, _MOST_LZ4 = 64, 256
"""The greatest ratio of a value to its compressed size; a claimed size beyond it is not a compressed value.

Values are compressed by `large-message-handle-compression`, large or not: nothing in a message says so. snappy is the
block format (not the framed one, nor Kafka's), lz4 the frame format.
"""


def unpack(value: bytes, compression: str) -> bytes:
    """Return a value as it was before compression. Raises ValueError for one that is not compressed so."""
    if compression == "none":
        return value
    try:
        return snappy_block(value, _MOST_SNAPPY * len(value)) if compression == "snappy" else _lz4(value)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise ValueError(f"it is not compressed with {compression}: {str(error)[:100]}") from None


def unpacked_array(values: pa.Array, options: MessageOptions) -> pa.Array:
    """Return values as they were before compression; null, and what is not compressed as the option says, is null.

    Raises BadSettings for a compression that TiCDC does not have.
    """
    compression = options.large_message_handle_compression
    if compression == "none":
        return values
    if compression not in ("snappy", "lz4"):
        raise BadSettings(
            f'large-message-handle-compression is "{compression}"; TiCDC knows none, snappy and lz4. '
            "Give the changefeed TOML exactly as TiCDC has it."
        )
    payloads = list[bytes | None]()
    for value in values.to_pylist():
        payloads.append(None)
        with suppress(ValueError):
            payloads[-1] = None if value is None else unpack(value, compression)
    return pa.array(payloads, pa.binary())


def _lz4(value: bytes) -> bytes:
    if not value.startswith(b"\x04\x22\x4d\x18"):
        raise ValueError("it does not begin with the mark of a frame")
    with pa.input_stream(pa.BufferReader(value), compression="lz4") as stream:
        payload = bytes(stream.read(_MOST_LZ4 * len(value) + 1))
    if len(payload) > _MOST_LZ4 * len(value):
        raise ValueError("it holds more than its bytes can")
    return payload


# --- protocols --------------------------------------------------------------------------------------------------------

Classify = Callable[[pa.RecordBatch, MessageOptions], pa.RecordBatch]
"""Messages -> CLASSIFIED, what each speaks of without its columns. Raises for no message: a broken one is `bad`."""
Decode = Callable[[pa.RecordBatch, str, TableId, TableSchema, MessageOptions], Decoded]
"""Rows, path, table, its schema -> its changes, in the shape of files. Of what does not fit, the row event is a Reject.
"""
Schemas = Callable[[pa.RecordBatch, MessageOptions], tuple[SchemaEvent, ...]]
"""Messages -> the columns of their tables: exact if the protocol carries schemas, else from the types of their rows,
and marked as approximate."""
SchemaIds = Callable[[pa.RecordBatch, MessageOptions], Mapping[str, int]]
"""Messages -> the ids of schemas in a registry that they name, each with the first message that does."""
Whole = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Messages, here with the column `headers` -> messages that say in keys and values what their headers say."""
ReadRow = Callable[["bytes | None", bytes, int, MessageOptions], Mapping[str, Any]]
"""Key, value, the ordinal of a row event in them -> that row, as it is written. Raises what Python does for another."""
WithRow = Callable[[tuple["bytes | None", bytes], int, tuple["bytes | None", bytes]], tuple["bytes | None", bytes]]
"""Key and value of a message, the ordinal of a row event in it, key and value of another one that holds that event
alone -> the first message, with the event as it is in the other one."""
Written = Callable[[str], str]
"""A name of the source -> as messages write it."""
AsDescribed = Callable[[TableSchema, tuple[str, ...], TableSchema], tuple[TableSchema, tuple[str, ...]]]
"""The columns that rows show, what is doubtful of them, and what the setting `schemas` has -> the columns by its names
and types, and what stays doubtful."""
ReadBy = Callable[[Column, MessageOptions], Mapping[str, object]]
"""A column -> what settings make of its values, by the name of the setting (see `Wire.read_by`)."""


def by_zone(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return the settings that decide values where a TIMESTAMP is written without its zone, and all else is exact."""
    return {"tz": Zone(options.timezone)} if column.type == "TIMESTAMP" else {}


def by_nothing(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return the settings that decide values, none, where each value is exact and moments have their zone."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSql:
    """Rules for reading CREATE TABLE texts of the source: its types, and the schema of a name without one.

    With `nulls_in_key` a column of the key may be NULL unless it says NOT NULL. With `folds_names` a name is in small
    letters where it has no quotes.
    """

    types: Callable[[MessageOptions], ReadColumn]
    schema: str
    nulls_in_key: bool = False
    folds_names: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysAlone:
    """Rows that have their key alone: as the one that was written, or as all of a writer that sends no more.

    `show_columns` says of messages whether they tell the two apart: true for a row with columns beside its key, false
    for one with its key alone, null for any other. `whole` are the values of the source's setting with which rows have
    their columns. `reason` is the sentence on a topic of which neither is known, `refused` on one of another value.
    """

    show_columns: Callable[[pa.RecordBatch], pa.Array]
    whole: frozenset[str]
    reason: str
    refused: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageCodec:
    """The functions of a protocol. All but the first three are None where a protocol has no need of them.

    `schema_ids` is of protocols whose messages name schemas of a registry: what they stand for is in `options.registry`
    when messages are classified and decoded. `whole` is of one whose headers say something: messages are landed as it
    returns them, and what is landed is read by keys and values alone. `source_sql` is of one whose messages may have
    the names of columns without their types, `keys_alone` of one whose rows may have their keys alone, `read_row` of
    one whose large rows may lie elsewhere, `with_row` of such a one that has several of them in a message. `written`
    and `as_described` are of one that writes names otherwise than the source, and types less exactly. `charset_of_ddl`
    is of one whose messages of DDL say which charset texts of their table have by default. `read_by` says on which
    settings values depend.
    """

    classify: Classify
    decode: Decode
    schemas: Schemas
    schema_ids: SchemaIds | None = None
    whole: Whole | None = None
    source_sql: SourceSql | None = None
    keys_alone: KeysAlone | None = None
    read_row: ReadRow | None = None
    with_row: WithRow | None = None
    written: Written | None = None
    as_described: AsDescribed | None = None
    charset_of_ddl: Callable[[bytes], str] | None = None
    read_by: ReadBy = by_zone


def codec_of(options: MessageOptions) -> MessageCodec:
    """Return the functions of a protocol."""
    codec: MessageCodec = options.codec
    return codec
