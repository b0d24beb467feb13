"""Decoded changes: the columns that every decoder returns.

One row per row image, whatever the format, so that nothing behind a decoder knows it:

    _cdc_op          int8    what happened, see Op
    _cdc_commit_ts   int64   commit-ts, which the lake's rows get; null where the format carries none
    _cdc_line        int64   number of the record in its file, from 1 (a header line counts)
    …                        the table's stored columns, in table order, in the Arrow types of `mysql_types`
    _cdc_unchanged   list    names of the columns that an image leaves as they were, null for one that has all;
                             only there where a message brings some columns only
    _cdc_position    int64   what orders the changes and cuts windows where that is not the commit-ts: the place that
                             landing gave, or that in the files; only there where it differs (see `position_column`)
    _cdc_moved       text    equal for the delete of a row and the image of the same row under its new key, which may
                             leave columns as they were under the old one; only there where a source sends both
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from cdc_assets.model.reports import Reject

if TYPE_CHECKING:
    import pyarrow as pa


OP = "_cdc_op"
COMMIT_TS = "_cdc_commit_ts"
POSITION = "_cdc_position"
LINE = "_cdc_line"
UNCHANGED = "_cdc_unchanged"
MOVED = "_cdc_moved"
NOT_WRITTEN = "in the schema but not in the rows: a virtual generated column, or one that a selector hides"


class Op(enum.IntEnum):
    """The meaning of a row image. The sign is its direction: negative images leave the table, positive ones enter
    it.
    """

    DELETE_KEY = -2
    """A delete of which only the key columns are known."""
    DELETE = -1
    """A deleted row, or the image before an update."""
    INSERT = 1
    """An inserted row, or the image after an update whose image before is a row of its own.

    With UNCHANGED one that makes the row where there is none, the columns left out being NULL then.
    """
    UPDATE = 2
    """The image after an update whose image before is not in the file. With UNCHANGED its row must exist."""
    PATCH = 3
    """The image after an update, with UNCHANGED: it is passed over where its row does not exist."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The changes of one file; `rejects` are records that do not fit, `tail` a last record without terminator.

    `notes` counts values changed by a rule of the type table, by (column, rule).
    """

    changes: pa.Table
    rejects: tuple[Reject, ...] = ()
    tail: Reject | None = None
    notes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    stated: frozenset[str] = frozenset()
    """Settings on which no value of these depends, since the records themselves say how they were written."""
    deliveries: pa.ChunkedArray | None = None
    """For each change of a log a number of its delivery, -1 where nothing comes twice; None of files."""


Content: TypeAlias = Sized
"""The contents of a split for the decoder of its wire format: the bytes of a file, or messages of a topic as they were
landed (`landed.Frame`). Its length is in bytes."""
