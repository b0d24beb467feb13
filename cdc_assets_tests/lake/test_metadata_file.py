"""What we read of a table's metadata file is what PyIceberg's model says, for tables that PyIceberg wrote."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from cdc_assets.errors import LakeUnavailable
from cdc_assets.lake.metadata_file import MetadataFile, parse_metadata_file
from cdc_assets.lake.state import LakeState
from cdc_assets.settings.lake import LakeSettings

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    return catalog.create_table("shop.orders", ROWS.schema, properties={"cdc.name": "shop.orders"})


def written(table: Table) -> bytes:
    return Path(table.metadata_location.removeprefix("file://")).read_bytes()


def agrees(ours: MetadataFile, theirs: TableMetadata) -> bool:
    known = {
        snapshot.snapshot_id: (
            snapshot.parent_snapshot_id,
            snapshot.timestamp_ms,
            snapshot.summary.additional_properties,
        )
        for snapshot in theirs.snapshots
        if snapshot.summary is not None
    }
    read = {
        snapshot.snapshot_id: (snapshot.parent_id, snapshot.made_ms, dict(snapshot.summary))
        for snapshot in ours.snapshots.values()
    }
    for _, _, summary in read.values():
        summary.pop("operation")
    return (
        (ours.location, ours.properties, ours.snapshot_id) == (theirs.location, theirs.properties, current(theirs))
        and read == known
        and list(ours.log) == [entry.snapshot_id for entry in theirs.snapshot_log]
        and dict(ours.refs) == {name: ref.snapshot_id for name, ref in theirs.refs.items()}
    )


def current(theirs: TableMetadata) -> int | None:
    snapshot = theirs.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def test_a_table_without_rows_has_no_snapshot(table: Table) -> None:
    ours = parse_metadata_file(written(table))
    assert agrees(ours, table.metadata)
    assert ours.snapshot is None
    assert list(ours.lineage(across_rewrites=True)) == []


def test_appended_overwritten_and_tagged_tables_are_read_as_pyiceberg_reads_them(table: Table) -> None:
    table.append(ROWS, snapshot_properties={"cdc.applied-ts": "7"})
    table.overwrite(ROWS.slice(1))
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "first").commit()
    ours = parse_metadata_file(written(table))
    assert agrees(ours, table.metadata)
    assert ours.snapshot is not None
    assert ours.snapshot.rows == 2
    assert "7" in [snapshot.summary.get("cdc.applied-ts") for snapshot in ours.lineage()]


def test_a_compressed_file_says_the_same(table: Table) -> None:
    table.append(ROWS)
    assert parse_metadata_file(gzip.compress(written(table))) == parse_metadata_file(written(table))


def test_the_lineage_goes_on_before_a_snapshot_without_parent_only_where_asked(table: Table) -> None:
    table.append(ROWS)
    data = written(table)
    (old,) = parse_metadata_file(data).snapshots
    fresh = b'{"location":"l","current-snapshot-id":5,"snapshot-log":[{"snapshot-id":%d,"timestamp-ms":1},' % old
    fresh += b'{"snapshot-id":5,"timestamp-ms":2}],"snapshots":[{"snapshot-id":5,"timestamp-ms":2},'
    fresh += b'{"snapshot-id":%d,"timestamp-ms":1,"summary":{"total-records":"3"}}]}' % old
    file = parse_metadata_file(fresh)
    assert [snapshot.snapshot_id for snapshot in file.lineage()] == [5]
    assert [snapshot.snapshot_id for snapshot in file.lineage(across_rewrites=True)] == [5, old]


def test_a_current_snapshot_of_minus_one_is_none() -> None:
    document = b'{"format-version":1,"location":"l","current-snapshot-id":-1}'
    assert parse_metadata_file(document).snapshot_id is None


BROKEN = {
    "empty": b"",
    "no JSON": b"no JSON",
    "no object": b"[]",
    "no location": b'{"properties":{}}',
    "compressed": gzip.compress(b"{}"),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_file_that_is_no_metadata_is_named_with_what_to_do(tmp_path: Path, table: Table, data: bytes) -> None:
    place = Path(table.metadata_location.removeprefix("file://"))
    place.write_bytes(data)
    state = LakeState(LakeSettings.from_warehouse(tmp_path / "lake"), "default")
    with pytest.raises(LakeUnavailable, match=r"not an Iceberg metadata file.*Restore the file"):
        state.file(str(place))
    state.close()
