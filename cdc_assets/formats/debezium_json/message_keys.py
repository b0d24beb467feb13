"""The keys of a connector's messages: which columns they have, which of those the rows lack, and their values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.envelope import Envelope, envelopes_among
from cdc_assets.formats.json_records import print_json
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits
from cdc_assets.formats.values.connect import Field

__all__ = ["NO_JSON_KEY", "ROUTED", "KeyKind", "MessageKeys"]

ROUTED = "__dbz__physicalTableIdentifier"
"""What ByLogicalTableRouter adds to keys, where `key.field.name` does not call it otherwise."""
NO_JSON_KEY = "Let the connector have key.converter = JsonConverter"


class KeyKind(NamedTuple):
    """The columns of keys that are alike, in order: by name the field of the key's schema block, None without one."""

    fields: Mapping[str, Field | None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    def beside(self, columns: Collection[str]) -> dict[str, Field | None]:
        """Return the columns of the key that rows with these columns lack, as where a column list leaves them out."""
        return {name: field for name, field in self.fields.items() if name not in columns}

    def shape(self, columns: Collection[str], text: str) -> str:
        """Return what is equal for rows whose messages describe the same columns, as this text has them, and key."""
        left = [[name, field.meaning if field else ""] for name, field in self.beside(columns).items()]
        return _shape_text(text if not left else f"{text} {print_json(left)}", self.names)


class MessageKeys:
    """The keys of messages, which are read only where they matter."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self.keys = keys

    @cached_property
    def given(self) -> Marks:
        """Mark the messages that have a key."""
        return bits(pc.fill_null(pc.not_equal(self.keys, b"null"), False))

    @cached_property
    def _read(self) -> tuple[Sequence[KeyKind], npt.NDArray[np.int64], Mapping[int, str]]:
        """Return kinds of keys, of which kind each is, and what is wrong with any.

        A router of topics puts another field into keys, by which rows of several tables differ: it is no column.
        """
        kinds = [KeyKind({})]
        numbers, faults = np.zeros(len(self.keys), np.int64), dict[int, str]()
        for rows in envelopes_among(self.keys, self.given, of_keys=True) if self.given.any() else ():
            for names, some in rows.by_members():
                none = some.kinds() == CellKind.NULL
                some.records.require(none | some.are_objects(), "it is a value alone")
                faults |= {message: f"its key is no object of columns: {reason}. {NO_JSON_KEY}"
                           for _, message, reason in some.records.refused()}  # fmt: skip
                numbers[some.records.messages] = len(kinds)
                kinds.append(KeyKind({name: rows.block.columns.get(name) for name in names if name != ROUTED}))
        return kinds, numbers, faults

    def of(self, rows: Envelope, mask: Marks) -> tuple[Sequence[KeyKind], npt.NDArray[np.int64]]:
        """Return kinds of keys, and of which each row's is; refuse those of a mask whose key cannot be read."""
        kinds, numbers, faults = self._read
        if faults:
            wrong = np.isin(rows.records.messages, list(faults)) & mask
            rows.records.require(~wrong, lambda place: faults[int(rows.records.messages[place])])
        return kinds, numbers[rows.records.messages]

    def column(self, rows: Envelope, name: str) -> RecordColumn:
        """Return a column of the keys of rows, absent where a row has no key with it."""
        own = np.zeros(len(self.keys), bool)
        own[rows.records.messages] = True
        places, parts, count = np.full(len(self.keys), -1), list[RecordColumn](), 0
        for some in envelopes_among(self.keys, own & self.given, of_keys=True) if (own & self.given).any() else ():
            places[some.records.messages] = np.arange(count, count + len(some.records))
            parts.append(some.column(name))
            count += len(some.records)
        cells = RecordColumn.joined([*parts, RecordColumn.absent(1)])
        wanted = places[rows.records.messages] % (count + 1)
        return RecordColumn(cells.kinds[wanted], cells.texts.take(pa.array(wanted)))


@lru_cache(maxsize=1024)
def _shape_text(columns: str, key: tuple[str, ...]) -> str:
    return f"{columns} {print_json(list(key))}"
