"""Extracts as files: Parquet, JSON lines or CSV, and what they are, in a directory or a bucket."""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from cdc_assets.errors import BadSettings
from cdc_assets.features.verification.operations_rows import python_rows
from cdc_assets.io.scratch import scratch
from cdc_assets.io.storage import Opener
from cdc_assets.io.storage_uri import display, opener
from cdc_assets.model.reports import Aside, OperationReport
from cdc_assets.model.wording import counted
from cdc_assets.operations.extract import Extract, extract
from cdc_assets.operations.moments import position_of
from cdc_assets.operations.requests import ChangesRequest, OperationRun, pairs
from cdc_assets.pipeline.pipeline import looking_again

if TYPE_CHECKING:
    from cdc_assets.operations.lake_pipeline import LakePipeline

_PART = re.compile(r"\.[0-9a-f]{32}\.part$")
"""The end of the name of a copy that is not finished."""

_ABANDONED_SECONDS = 86_400
"""A copy that is not finished after so long was left by a process that was killed."""


@dataclass(frozen=True, slots=True)
class Output:
    """A directory, or the prefix of a bucket, that gets files."""

    place: Opener

    def refuse_filled(self, but: Collection[str] = ()) -> None:
        """Raise BadSettings where there is a file already, whole or cut short, `but` for those of these names."""
        allowed = {*but, *(f".{name}.part" for name in but)}
        entries = (name for name, *_ in self.place.entries())
        try:
            foreign_name = next((name for name in entries if _PART.sub(".part", name) not in allowed), None)
        except FileNotFoundError:
            return
        if foreign_name is not None:
            raise BadSettings(
                f"{self.place.uri} has files already, such as {foreign_name}: what is written there must be all that "
                "is there. Give another place, or empty it."
            )

    def put(self, file: Path, name: str) -> None:
        """Copy a finished local file; a copy that is cut short is never there under the name.

        Two at once do not disturb each other: the later one counts. Raises BadSettings where no
        directory can be made.
        """
        target = f"{self.place.prefix}/{name}"
        if self.place.protocol == "file":
            try:
                os.makedirs(self.place.prefix, exist_ok=True)
            except OSError as error:
                raise BadSettings(
                    f"{self.place.uri} cannot be made a directory: {error.strerror}. Give a place that may be "
                    "written to."
                ) from error
            for part_file in Path(self.place.prefix).glob(f".{name}.*.part"):
                if part_file.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    part_file.unlink(missing_ok=True)
            beside = f"{self.place.prefix}/.{name}.{uuid.uuid4().hex}.part"
            shutil.copyfile(file, beside)
            os.replace(beside, target)
            return
        self.place.attempt(lambda: self.place.file_system.put_file(str(file), target))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        target = f"{self.place.prefix}/{name}"
        if self.place.protocol == "file":
            Path(target).unlink(missing_ok=True)
        elif self.place.attempt(lambda: self.place.file_system.exists(target)):
            self.place.attempt(lambda: self.place.file_system.rm_file(target))


def output(uri: str, options: Mapping[str, Any]) -> Output:
    """Return the place that a URI names; `options` are fsspec's, in clear text. Raises BadSettings."""
    return Output(opener(uri, options, "--out"))


_BATCH_ROWS = 10_000

_PLAIN_SCALE = 6
"""Digits behind the point that a decimal has at most whose text never has an exponent."""


def carry_out(pipeline: LakePipeline, run: OperationRun, request: ChangesRequest) -> Iterator[tuple[Extract, int]]:
    """Write the requested changes, and yield the extract with its number of rows: see `write_extract`."""
    since, until = position_of(pipeline, request.since), position_of(pipeline, request.until)
    changes = partial(extract, pipeline, request.table, since, until, net=request.net)
    yield write_extract(changes, request.out, request.format, pairs(request.out_options, "--out-option"))


def report(feed: str, request: ChangesRequest, parts_done: Sequence[tuple[Extract, int]]) -> OperationReport:
    """Return the report on the rows that were written, and on those that are missing."""
    ((extraction, count),) = parts_done
    rows = counted(count, "row" if request.net else "change")
    span = f"after {extraction.since} and through {extraction.until}"
    lines: list[str] = [f"{extraction.table}: {rows} {span}, from the {extraction.source}"]
    if extraction.forgotten_through >= 0:
        lines.append(f"not in it: changes through {extraction.forgotten_through} of keys that were forgotten")
    lines += [Aside(f"changes may be missing: {reason}") for reason in extraction.lacks]
    lines.append(f"written to {display(request.out)}: changes.{request.format}, extract.json")
    about = {**extraction.description(), "rows": count}
    return OperationReport({**about, "file": f"changes.{request.format}"}, lines, {**about, "out": request.out})


def write_extract(
    look: Callable[[], Extract], uri: str, kind: str, options: Mapping[str, Any], again: bool = False
) -> tuple[Extract, int]:
    """Write an extract as `changes.<kind>` and, after it, `extract.json`, which says what it is.

    Return the extract, which `look` makes, once more where a file of its changes is gone meanwhile, and its number of
    rows. The directory or prefix must have no file; with `again` it may have an extract, in whose place this
    comes. Each file appears as a whole, and `extract.json` last: where it is missing, the extract was not finished.
    Raises BadSettings for the place, and what reading the changes raises.
    """
    place, about_name = output(uri, options), "extract.json"
    place.refuse_filled(but=[f"changes.{suffix}" for suffix in FORMATS] + [about_name] if again else ())
    name = f"changes.{kind}"
    with scratch() as directory:
        changes, about = directory / name, directory / about_name

        def written() -> tuple[Extract, int]:
            extract, rows = look(), 0
            with FORMATS[kind](changes, extract.columns) as write:
                for piece in extract.pieces():
                    write(piece)
                    rows += piece.num_rows
            return extract, rows

        extract, rows = looking_again(written)
        place.remove(about_name)
        place.put(changes, name)
        description = {**extract.description(), "rows": rows, "file": name}
        about.write_text(json.dumps(description, ensure_ascii=False, indent=2) + "\n")
        place.put(about, about_name)
    return extract, rows


_Write = Callable[[pa.Table], None]


@contextmanager
def _parquet(file: Path, columns: pa.Schema) -> Iterator[_Write]:
    with pq.ParquetWriter(file, columns, compression="zstd") as writer:
        yield writer.write_table


@contextmanager
def _jsonl(file: Path, columns: pa.Schema) -> Iterator[_Write]:
    with file.open("w", encoding="utf-8") as lines:

        def write(changes: pa.Table) -> None:
            for batch in changes.to_batches(_BATCH_ROWS):
                for row in python_rows(batch):
                    lines.write(json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False))
                    lines.write("\n")

        yield write


@contextmanager
def _csv(file: Path, columns: pa.Schema) -> Iterator[_Write]:
    """Write texts in quotes and NULL as nothing; lists as JSON, bytes in base64."""
    texts = [_is_text(column.type) for column in columns]
    shown = pa.schema(
        pa.field(column.name, pa.string() if text else column.type) for column, text in zip(columns, texts, strict=True)
    )
    with csv.CSVWriter(file, shown) as writer:

        def write(changes: pa.Table) -> None:
            arrays = [_texts(column) if text else column for column, text in zip(changes.columns, texts, strict=True)]
            writer.write_table(pa.table(arrays, shown))

        yield write


def _is_text(kind: pa.DataType) -> bool:
    """Return whether Arrow's CSV has no values of a type, or has some with an exponent, such as 0E-8."""
    exponents = pa.types.is_decimal(kind) and kind.scale > _PLAIN_SCALE
    return bool(exponents or pa.types.is_nested(kind) or pa.types.is_binary(kind))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = (_plain(value) for value in column.to_pylist())
    texts = (value if value is None or isinstance(value, str) else json.dumps(value) for value in values)
    return pa.chunked_array([pa.array(texts, pa.string())])


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: exact numbers and times as texts, bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return f"{value:f}" if isinstance(value, Decimal) else value


FORMATS: Mapping[str, Callable[[Path, pa.Schema], AbstractContextManager[_Write]]] = {
    "parquet": _parquet,
    "jsonl": _jsonl,
    "csv": _csv,
}
"""Formats of files of changes -> the writer that takes changes piece by piece."""
