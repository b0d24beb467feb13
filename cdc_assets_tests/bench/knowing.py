"""A lake and a ledger that know many tables and files, made in seconds: where a long life would have brought them.

Tables are what a first load of nothing leaves: metadata with columns, identity and progress, and no rows.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import write_manifest_list

from cdc_assets.history.history import read_history
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import CHANGEFEED, IDENTITY, NAME
from cdc_assets.lake.names import format_identity, format_name, location
from cdc_assets.lake.namespaces import ensure_namespace
from cdc_assets.lake.schema import schema_json
from cdc_assets.lake.state import LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.layout import OWN_PROPERTIES
from cdc_assets.model.ledger_entries import JournalEntry, TableState
from cdc_assets.model.progress import Life, Phase, Progress, State
from cdc_assets.model.recipe import Recipe
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.operations.opening import ledger_url
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.types.fidelity import column_fidelity
from cdc_assets_tests.bench.feeds import Feed

__all__ = ["know"]


def know(feed: Feed, warehouse: Path) -> LakeSettings:
    """Make a lake that holds every table of the feed through its checkpoint, and a ledger that has read every file."""
    lake = LakeSettings.from_warehouse(warehouse)
    settings = feed.settings
    reader = settings.open_source()
    listing = reader.listing()
    history = read_history(listing.schema_files)
    checkpoint = listing.checkpoint
    state = LakeState(lake, settings.name)
    rows = []
    for life, table in history.lives.items():
        assert table.name is not None
        place = _write_metadata(warehouse, settings.name, life, table.name, table.schema, checkpoint)
        rows.append(
            {"c": lake.name, "n": table.name.schema, "t": table.name.table, "m": f"file://{place}"},
        )
    for namespace in {row["n"] for row in rows}:
        ensure_namespace(state.lazy_catalog.make(), namespace)
    with sa.create_engine(f"sqlite:///{warehouse}/catalog.db").begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO iceberg_tables "
                "(catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
                "VALUES (:c, :n, :t, :m, 'TABLE')"
            ),
            rows,
        )
    state.close()
    ledger = Ledger(ledger_url(lake))
    ledger.record_schema_files(settings.name, listing.fresh)
    by_root = {f"{life.born_as.schema}/{life.born_as.table}": life for life in history.lives}
    by_life: dict[Life, list[FileStats]] = {}
    for file in listing.data_files:
        stats = FileStats(file.path, file.size, file.etag, 1, checkpoint, checkpoint)
        by_life.setdefault(by_root[file.root], []).append(stats)
    for life, files in by_life.items():
        ledger.record_files(settings.name, life, files, "known", None)
    ledger.record_states(
        settings.name,
        [
            TableState(life.born_as, life.version, checkpoint, State.APPLIED, life=str(life), checkpoint=checkpoint)
            for life in history.lives
        ],
        {},
    )
    ledger.record_journal(
        settings.name,
        [
            JournalEntry(str(life), event.at, str(table.name), event.journal_action, event.file.query,
                (), None, None, 0.0, "known")
            for life, table in history.lives.items()
            for event in table.events
        ],
    )  # fmt: skip
    tables = {life: column_fidelity(table.schema) for life, table in history.lives.items()}
    ledger.record_columns(settings.name, tables)
    ledger.close()
    return lake


def _write_metadata(
    warehouse: Path, changefeed: str, life: Life, name: TableId, schema: TableSchema, through: Tso
) -> Path:
    directory = Path(location(str(warehouse), changefeed, life))
    fields: dict[str, Any] = schema_json(schema)
    label = Label(Progress(through, Phase.ROWS), life.version, recipe=Recipe(key=schema.key))
    metadata = {
        "format-version": 3,
        "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, str(life))),
        "location": str(directory),
        "last-sequence-number": 1,
        "last-updated-ms": through >> 18,
        "last-column-id": max(field["id"] for field in fields["fields"]),
        "current-schema-id": 0,
        "schemas": [fields],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            **{key: value for key, value in OWN_PROPERTIES.items() if key != "format-version"},
            CHANGEFEED: changefeed,
            IDENTITY: format_identity(life),
            NAME: format_name(name),
        },
        "current-snapshot-id": 1,
        "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
        "snapshots": [
            {
                "snapshot-id": 1,
                "sequence-number": 1,
                "timestamp-ms": through >> 18,
                "schema-id": 0,
                "manifest-list": f"file://{_empty_manifest_list(warehouse)}",
                "first-row-id": 0,
                "added-rows": 0,
                "summary": {"operation": "append", "total-records": "0", **label.properties()},
            }
        ],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"snapshot-id": 1, "timestamp-ms": through >> 18}],
        "metadata-log": [],
        "next-row-id": 0,
    }
    path = directory / "metadata" / "00000-known.metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(metadata))
    return path


def _empty_manifest_list(warehouse: Path) -> Path:
    """Return the one manifest list of all, which names nothing."""
    path = warehouse / "empty.avro"
    if not path.exists():
        with write_manifest_list(2, PyArrowFileIO().new_output(f"file://{path}"), 1, None, 1, "null"):
            pass
    return path
