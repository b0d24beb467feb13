"""Wire formats: bytes of one data file -> one Arrow table of changes. Runs on Spark executors: no JVM, no Dagster.

Every decoder returns the same shape, so that nothing after it knows the format. One row per row image:

    _cdc_op          int8    what happened, see Op
    _cdc_commit_ts   int64   commit-ts; null where the format carries none
    _cdc_line        int64   number of the record in its file, from 1 (a header line counts)
    …                        the table's stored columns, in table order, in the Arrow types of `mysql_types`
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "COMMIT_TS",
    "FORMATS",
    "LINE",
    "MESSAGE_FORMATS",
    "OP",
    "Decoded",
    "Decoder",
    "Op",
    "decoder",
    "record_reader",
]

OP = "_cdc_op"
COMMIT_TS = "_cdc_commit_ts"
LINE = "_cdc_line"


class Op(enum.IntEnum):
    """What a row image says. The sign is its direction: negative images leave the table, positive ones enter it."""

    DELETE_KEY = -2
    """A delete of which only the key columns are known."""
    DELETE = -1
    """A deleted row, or the image before an update."""
    INSERT = 1
    """An inserted row, or the image after an update whose image before is a row of its own."""
    UPDATE = 2
    """The image after an update whose image before the file does not tell."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The changes of one file; `rejects` are records that do not fit, `tail` a last record without terminator.

    `notes` counts values changed by a rule of the type table, by (column, rule).
    """

    changes: pa.Table
    rejects: tuple[Reject, ...] = ()
    tail: Reject | None = None
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)


Decoder = Callable[[bytes, str, TableId, TableSchema, SinkOptions], Decoded]
"""(bytes of the file, its path for messages, table its rows must name, schema of its version, options) -> changes.

Raises MalformedData where nothing of the file can be trusted: another column count than the schema, another table's
rows, options that the bytes contradict.
"""

FORMATS: Mapping[str, str] = {
    "csv": "cdc_assets.formats.csv.decode",
    "canal-json": "cdc_assets.formats.canal_json.decode",
}
"""Protocol of the sink URI -> module with `decode`, `raw_records` and `EXTENSION`."""

MESSAGE_FORMATS: Mapping[str, str] = {
    "craft": "cdc_assets.formats.craft.messages",
    "open-protocol": "cdc_assets.formats.open_protocol.messages",
}
"""Protocol of messages -> module with `classify`, `decode` and `schemas`, see `cdc_assets.formats.messages`."""


def decoder(protocol: str) -> Decoder:
    """Return the decoder of a protocol; raises BadSettings that lists the known ones."""
    if protocol not in FORMATS:
        raise BadSettings(
            f'protocol "{protocol}" cannot be read; known are {", ".join(sorted(FORMATS))}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    decode: Decoder = import_module(FORMATS[protocol]).decode
    return decode


def record_reader(protocol: str) -> Callable[[bytes, Collection[int] | None, SinkOptions], dict[int, bytes]]:
    """Return what cuts records out of a file by their lines, as `decoder` counts them; those not there are left out.

    All whole records for None.
    """
    found: Callable[[bytes, Collection[int] | None, SinkOptions], dict[int, bytes]]
    found = import_module(FORMATS[protocol]).raw_records
    return found
