"""A protocol of change messages: its functions, and which protocol has which.

`messages` is a batch with the columns `key` and `value` (binary, null for none); others are passed over. `rows` has the
column `ordinals` (list<int32>) too: the row events of the message that belong to the table, as `classify` numbered them
from 0. Reading takes up to some twenty times the bytes of a batch in memory: give a few megabytes to a few dozen at a
time. Without commit-ts (Canal-JSON without the extension) `_cdc_commit_ts` is null. `_cdc_line` of a change counts
these row events from 1 over the batch, see `messages.lines_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from cdc_assets.formats import Decoded
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.model.schema import Column, ReadColumn, TableId, TableSchema
from cdc_assets.types.zones import Zone

__all__ = ["KeysAlone", "MessageCodec", "SourceSql", "Written", "by_nothing", "by_zone", "codec_of"]

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
LoneRow = Callable[["bytes | None", bytes, MessageOptions], Mapping[str, Any]]
"""Key and value of a message that holds one row -> that row, as it is written. Raises what Python does for another."""
Written = Callable[[str], str]
"""A name of the source -> as messages write it."""
AsDescribed = Callable[[TableSchema, tuple[str, ...], TableSchema], tuple[TableSchema, tuple[str, ...]]]
"""The columns that rows show, what is doubtful of them, and what the setting `schemas` has -> the columns by its names
and types, and what stays doubtful."""
ReadBy = Callable[[Column, MessageOptions], Mapping[str, object]]
"""A column -> what settings make of its values, by the name of the setting (see `Wire.read_by`)."""


def by_zone(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return what decides values where a TIMESTAMP is written without its zone, and all else says what it is."""
    return {"tz": Zone(options.timezone)} if column.type == "TIMESTAMP" else {}


def by_nothing(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return what decides values where each says what it is, moments by their zone."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSql:
    """How CREATE TABLE texts of the source are read: its types, the schema of a name without one.

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
    the names of columns without their types, `keys_alone` of one whose rows may have their keys alone, `lone_row` of
    one whose large messages may lie elsewhere. `written` and `as_described` are of one that writes names otherwise than
    the source, and types less exactly. `read_by` says on which settings values depend.
    """

    classify: Classify
    decode: Decode
    schemas: Schemas
    schema_ids: SchemaIds | None = None
    whole: Whole | None = None
    source_sql: SourceSql | None = None
    keys_alone: KeysAlone | None = None
    lone_row: LoneRow | None = None
    written: Written | None = None
    as_described: AsDescribed | None = None
    read_by: ReadBy = by_zone


def codec_of(options: MessageOptions) -> MessageCodec:
    """Return the functions of a protocol."""
    found: MessageCodec = import_module(options.kind.module).CODEC
    return found
