"""Whole records of recorded data files with their commit-ts, cut without the product's decoders."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdc_assets.model.tso import Tso
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets_tests.changefeed import option

__all__ = ["Record", "records"]


@dataclass(frozen=True, slots=True)
class Record:
    """One whole record of a data file, terminator included."""

    ts: Tso
    raw: bytes


def records(data: bytes, options: SinkOptions) -> tuple[bytes, list[Record]]:
    """Return the header (b"" for none) and the whole records of a data file; an unfinished one at the end is left out.

    Only for rows with commit-ts, and for CSV with the usual quote. Written without the product's decoders.
    """
    end = option(options.wire, "terminator").encode()
    if options.protocol == "canal-json":
        lines = [line for line in data.split(end)[:-1] if line]
        return b"", [Record(json.loads(line)["_tidb"]["commitTs"], line + end) for line in lines]
    raw_lines: list[bytes] = []
    at = start = 0
    while (stop := data.find(end, at)) >= 0:
        at = stop + len(end)
        # A terminator counts where all quotes before it are closed.
        if data.count(b'"', start, stop) % 2 == 0:
            raw_lines.append(data[start:at])
            start = at
    header = raw_lines.pop(0) if option(options.wire, "output_field_header") and raw_lines else b""
    return header, [Record(int(_fourth(line, option(options.wire, "delimiter").encode())), line) for line in raw_lines]


def _fourth(line: bytes, delimiter: bytes) -> bytes:
    field_start, fields, at, quoted = 0, 0, 0, False
    while True:
        if line[at : at + 1] == b'"':
            quoted = not quoted
        elif not quoted and line.startswith(delimiter, at):
            if fields == 3:
                return line[field_start:at]
            fields, field_start, at = fields + 1, at + len(delimiter), at + len(delimiter) - 1
        at += 1
        assert at < len(line), line
