"""A recorded changefeed as TiCDC would have begun it at a checkpoint of it: the tables that stand then have no DDL.

What lives there gets one schema file of version = start-ts with an empty query and type 0, as TiCDC writes it before
the first row of a table that existed before; files of later versions stay, those before are gone.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cdc_assets.history.history import read_history
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests.cases import Config
from cdc_assets_tests.schema_documents import write_schema

__all__ = ["cut"]


def cut(config: Config, start: Tso, bucket: Path) -> set[TableId]:
    """Write the feed that begins at `start` into `bucket`; return the tables that existed before."""
    source = config.bucket()
    listing = config.settings().open_source().listing()
    later = [file.path for file in listing.schema_files if file.version > start]
    later += [file.path for file in listing.data_files if file.version > start]
    for path in later:
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, bucket / path)
    standing = read_history(listing.schema_files, start).lives.values()
    named = {table.name: table.events[-1].file.path for table in standing if table.name is not None}
    for name, schema_path in named.items():
        document = json.loads((source / schema_path).read_text())
        document |= {"Schema": name.schema, "Table": name.table, "TableVersion": start, "Query": "", "Type": 0}
        write_schema(bucket, document)
    fence(bucket, start)
    return set(named)


def fence(bucket: Path, checkpoint: Tso) -> None:
    """Let the feed be complete through a checkpoint."""
    (bucket / "metadata").write_text(json.dumps({"checkpoint-ts": checkpoint}))
