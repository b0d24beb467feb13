"""A recorded changefeed joined to a dump of its source, as at a checkpoint of it: the dump by Dumpling's written rules.

overlap    the whole feed: its files cover the time before the dump too
bare       what it has of that time are schema files without DDL, as for tables that existed before
begun      it begins at the dump: rows of the tables of then lie under versions of the dump's TSO
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from cdc_assets.ddl import created
from cdc_assets.history.history import read_history
from cdc_assets.model.splits import DataFile, SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.schema_file import schema_checksum
from cdc_assets_tests.cases import Checkpoint, Config, ExpectedTable, expected_tables
from cdc_assets_tests.dump_cases import cell_of
from cdc_assets_tests.dump_writer import Row, Writing, dumped, write_dump

__all__ = ["FEEDS", "create_text", "dump_of", "feed_from", "joined_settings"]

FEEDS = ("overlap", "bare", "begun")


# --- the dump ---------------------------------------------------------------------------------------------------------


def dump_of(checkpoint: Checkpoint, into: Path, kind: str = "csv", **how: Any) -> None:
    """Write a dump of the recorded contents of a checkpoint, taken then."""
    tables, texts = {}, {}
    for table in expected_tables(_contents(checkpoint)).values():
        texts[table.id] = create_text(table)
        schema = created(texts[table.id])
        rows: list[Row] = [tuple(cell_of(row[c.name], c) for c in dumped(schema)) for row in table.rows]
        tables[table.id] = (schema, rows)
    write_dump(into, tables, checkpoint.ts, Writing(), kind, texts=texts, **{"chunk_rows": 7, **how})


def create_text(table: ExpectedTable) -> str:
    """Return SHOW CREATE TABLE of a recorded table: keys and partitions as recorded, with the types of its source."""
    types = {column["name"]: column for column in table.columns}
    lines = []
    for line in table.show_create.split("\n"):
        if "`_tidb_rowid`" in line:  # what stands in for TiDB's own
            continue
        named = re.match(r"  (`(?:[^`]|``)+`) (.*?),?$", line)
        if named is None:
            lines.append(line)
            continue
        column = types[named[1][1:-1].replace("``", "`")]
        text = f"  {named[1]} {column['type']}"
        if collate := re.search(r" COLLATE \w+", named[2]):
            text += collate[0]
        if generated := re.search(r" GENERATED ALWAYS AS \(.*\) (?:STORED|VIRTUAL)", named[2]):
            text += generated[0]
        lines.append(text + ("" if column["nullable"] else " NOT NULL") + ",")
    text = "\n".join(lines)
    return re.sub(r",\n\)", "\n)", text)


# --- the feed ---------------------------------------------------------------------------------------------------------


def feed_from(config: Config, checkpoint: Checkpoint, begin: Checkpoint, bucket: Path, way: str) -> None:
    """Write the feed as of a checkpoint into `bucket`, with what it has of the time up to `begin` as `way` says."""
    start, there = begin.ts, {name.folded for name in expected_tables(_contents(begin))}
    shutil.copytree(checkpoint.bucket, bucket)
    (bucket / "metadata").write_text(json.dumps({"checkpoint-ts": checkpoint.ts}))
    if way == "overlap":
        return
    listing = config.settings(bucket).open_source().listing()
    early = [file for file in listing.schema_files if file.version <= start]
    history = read_history(early, start)
    standing = {
        table.name.folded: table
        for table in history.lives.values()
        if table.name is not None and table.name.folded in there
    }
    by_id = config.options.use_table_id_as_path
    alike: set[tuple[str, Tso]] = set()
    for (root, version), schemas in history.decoding.items():
        tables = [(standing[name.folded], schema) for name, schema in schemas if name.folded in standing]
        tables = [(table, schema) for table, schema in tables if not by_id or table.events[-1].file.root == root]
        spelled = {name for name, _ in schemas}  # under another spelling lie rows from before it was renamed so
        if any(way == "bare" or (schema.decodes_like(t.schema) and t.name in spelled) for t, schema in tables):
            alike.add((root, version))
    newest = {root: max(version for known, version in alike if known == root) for root, _ in alike}
    for file in early:
        text = json.loads((bucket / file.path).read_text())
        (bucket / file.path).unlink()
        lives = file.table.folded in standing and (file.root, file.version) in alike
        if lives and (way == "bare" or file.version == newest[file.root]):
            _write_schema(bucket, file, text, file.version if way == "bare" else start)
    moved: dict[str, int] = {}
    older = sorted((data for data in listing.data_files if data.version <= start), key=lambda data: data.version)
    aside = {data.path: f".{number}.aside" for number, data in enumerate(older)}
    for data in older:
        if (data.root, data.version) not in alike:
            (bucket / data.path).unlink()
        elif way == "begun":
            (bucket / data.path).rename(bucket / aside[data.path])
    for data in older if way == "begun" else []:
        if (data.root, data.version) in alike:
            _move(bucket, aside[data.path], data, start, moved)


def _contents(checkpoint: Checkpoint) -> Path:
    assert checkpoint.expected is not None
    return checkpoint.expected


def _write_schema(bucket: Path, file: SchemaFile, text: dict[str, Any], version: Tso) -> None:
    document = {**text, "TableVersion": version, "Query": "", "Type": 0}
    name = f"schema_{version}_{schema_checksum(document):010d}.json"
    (bucket / file.path).parent.joinpath(name).write_text(json.dumps(document))


def _move(bucket: Path, aside: str, data: DataFile, start: Tso, moved: dict[str, int]) -> None:
    """Let a file, which lies aside, lie under the version `start`, numbered on behind those that lie there."""
    where = data.path.replace(f"/{data.version}/", f"/{start}/", 1)
    directory, _, name = where.rpartition("/")
    digits = re.search(r"(\d+)(\.\w+)$", name)
    assert digits is not None
    head = name[: digits.start()]
    number = moved[f"{directory}/{head}"] = moved.get(f"{directory}/{head}", 0) + 1
    target = bucket / directory / f"{head}{number:0{len(digits[1])}d}{digits[2]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    (bucket / aside).rename(target)


def joined_settings(config: Config, bucket: Path, dump: Path, **initial: Any) -> ChangefeedSettings:
    """Return the settings of the feed with the dump before it."""
    return config.settings(bucket, initial={"dump": str(dump), **initial})
