"""Large messages that lie elsewhere: the file that a message names -> the message that is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.formats.message_codecs import MessageCodec
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import Kind, read_claim

__all__ = ["whole_message"]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_ANOTHER = "the file holds {}, and the message that names it is of a row of {}.{} with the commit-ts {}"


def whole_message(
    content: bytes, row: Mapping[str, Any], codec: MessageCodec, options: MessageOptions
) -> tuple[bytes | None, bytes]:
    """Return key and value of the message in a claim-check file, which a landed row names that has its key only.

    Raises MalformedData for a file that holds anything else than the whole of that row.
    """
    key, value = read_claim(content, options)
    batch = pa.RecordBatch.from_arrays([pa.array([one], pa.binary()) for one in (key, value)], ["key", "value"])
    lines = codec.classify(batch, options).to_pylist()
    names = ("schema", "table", "ordinals", "commit_ts")
    same = [one["kind"] == Kind.ROW.value and all(one[name] == row[name] for name in names) for one in lines]
    if same != [True] or lines[0]["claim"]:
        raise _another("; ".join(map(_shown, lines)), row)
    if codec.lone_row is not None:
        try:
            part, whole = codec.lone_row(row["key"], row["value"], options), codec.lone_row(key, value, options)
        except _TROUBLE:
            raise _another("a row that cannot be read", row) from None
        if any(name not in whole or whole[name] != one for name, one in part.items()):
            raise _another("a row with another key", row)
    return key, value


def _another(found: str, row: Mapping[str, Any]) -> MalformedData:
    return MalformedData(_ANOTHER.format(found, row["schema"], row["table"], row["commit_ts"]))


def _shown(line: Mapping[str, Any]) -> str:
    if line["kind"] == Kind.BAD.value:
        return f"what cannot be read ({line['reason']})"
    named = "" if line["table"] is None else f" of {line['schema']}.{line['table']}"
    where = ", which names a file itself" if line["claim"] else f" with the commit-ts {line['commit_ts']}"
    return f"a message of the kind {line['kind']}{named}{where}"
