"""What keeps a run that forgets rows from losing what others write, and from leaving a file that it does not see."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.lake import Lake
from cdc_assets.lake.commit import expire
from cdc_assets.lake.forget import LakeForgetting
from cdc_assets.lake.forgetting.remake import Remaking
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.model.forgetting import RemovedRows, SearchedFiles
from cdc_assets.model.tickets import STALE_SECONDS
from cdc_assets_tests.lake.table_source import SCHEMA, Source

pytestmark = pytest.mark.timeout(900)


class Orders(Source):
    """A table whose row 1 was written, and changed since."""

    def __init__(self, lake: Lake, *, with_rows: bool = True) -> None:
        super().__init__(lake)
        if with_rows:
            self.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
            self.apply(300, [("U", 210, 1, "c")])

    def wanted(self, *keys: int) -> WantedKeys:
        return WantedKeys(pa.table({"id": pa.array(keys, pa.int64())}), SCHEMA)

    def forget(self, *keys: int) -> RemovedRows:
        progress = self.lake.applied()[self.life].progress
        return LakeForgetting(self.lake).forget(self.life, self.wanted(*keys), progress, "a run", kept_out=False)

    def search(self, *keys: int) -> SearchedFiles:
        return LakeForgetting(self.lake).search(self.life, self.wanted(*keys))

    def loaded(self, change: Callable[[Any], object]) -> None:
        """Change the table by Iceberg's API, as another writer does."""
        with self.lake.workbench.sessions.step() as session:
            change(session.load(self.lake.state.find(self.life).identifier))


def tag(name: str, table: Any) -> None:
    table.manageSnapshots().createTag(name, table.currentSnapshot().snapshotId()).commit()


def branch(name: str, table: Any) -> None:
    table.manageSnapshots().createBranch(name, table.currentSnapshot().snapshotId()).commit()


def let(name: str, value: str, table: Any) -> None:
    table.updateProperties().set(name, value).commit()


@pytest.mark.parametrize(
    ("what", "place"),
    [
        ("a tag", "commit"),
        ("a window", "_remade"),
        pytest.param("a window", "commit", marks=pytest.mark.soak),
        pytest.param("a tag", "_remade", marks=pytest.mark.soak),
        pytest.param("a property", "_remade", marks=pytest.mark.soak),
    ],
)
def test_what_another_writer_commits_meanwhile_is_not_lost_and_nothing_is_forgotten_before_it_is_seen(
    what: str, place: str, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, other = Orders(open_lake()), Source(open_lake(), create=False)
    original, writes = getattr(Remaking, place), list[str]()

    def overtaken(self: Remaking, *given: Any) -> Any:
        if not writes:
            writes.append(what)
            if what == "a window":
                other.apply(400, [("I", 310, 3, "d")])
            else:
                orders.loaded(partial(tag, "kept") if what == "a tag" else partial(let, "owner", "somebody"))
        return original(self, *given)

    monkeypatch.setattr(Remaking, place, overtaken)
    with pytest.raises(TableMoved):
        orders.forget(1)
    orders.lake = open_lake()
    assert (writes, orders.lake.state.find(orders.life).forgotten) == ([what], "")
    orders.forget(1)
    assert orders.rows() == [(2, "b"), *([(3, "d")] if what == "a window" else [])]
    assert orders.search(1).having == ()
    found = orders.lake.state.find(orders.life)
    assert (found.forgotten, list(found.tags)) == ("a run", ["kept"] if what == "a tag" else [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (partial(branch, "audit"), "its branch audit has rows"),
        (partial(let, "gc.enabled", "false"), "gc.enabled is false"),
    ],
)
def test_a_table_of_which_not_every_file_can_be_removed_is_left_as_it_is(
    change: Callable[[Any], object], why: str, open_lake: Callable[..., Lake]
) -> None:
    orders = Orders(open_lake())
    orders.loaded(change)
    before = orders.lake.state.find(orders.life).metadata_location
    with pytest.raises(TableHeld, match=why):
        orders.forget(1)
    assert orders.lake.state.find(orders.life).metadata_location == before


def test_snapshots_that_are_made_anew_share_files_and_tags_are_told_with_theirs(
    open_lake: Callable[..., Lake],
) -> None:
    orders = Orders(open_lake())
    orders.loaded(partial(tag, "one"))
    orders.lake.applied()
    orders.apply(400, [("I", 310, 3, "d")])
    orders.loaded(partial(tag, "two"))
    orders.lake.applied()
    removed = orders.forget(1)
    found = orders.lake.state.find(orders.life)
    assert (removed.files_rewritten, removed.tags) == (1, found.tags)
    table = orders.lake.state.catalog.load_table(found.identifier)
    tagged = {name: table.scan(snapshot_id=number).to_arrow().column("id") for name, number in found.tags.items()}
    assert {name: sorted(ids.to_pylist()) for name, ids in tagged.items()} == {"one": [2], "two": [2, 3]}
    orders.apply(500, [("U", 410, 2, "e"), ("D", 411, 3, "d")])
    assert (orders.rows(), orders.search(1).having) == ([(2, "e")], ())
    orders.loaded(lambda table: table.manageSnapshots().removeTag("one").commit())
    orders.loaded(lambda table: expire(table, [found.tags["one"]]))
    orders.lake.applied()
    assert table.scan(snapshot_id=found.tags["two"]).to_arrow().num_rows == 2
    assert (sorted(orders.forget(2).tags), orders.rows(), orders.search(2).having) == (["two"], [], ())


def test_a_table_without_a_snapshot_says_that_its_rows_were_forgotten(open_lake: Callable[..., Lake]) -> None:
    orders = Orders(open_lake(), with_rows=False)
    removed = orders.forget(1)
    assert (removed.rows, removed.files_rewritten, removed.snapshots_expired) == (0, 0, 0)
    assert orders.lake.state.find(orders.life).forgotten == "a run"
    orders.apply(200, [("I", 110, 1, "a")])
    assert orders.rows() == [(1, "a")]


def test_progress_is_kept_that_only_a_snapshot_with_the_rows_says(open_lake: Callable[..., Lake]) -> None:
    orders = Orders(open_lake())
    before, java = orders.lake.applied()[orders.life], orders.lake.workbench.sessions.iceberg.java
    every = java("org.apache.iceberg.expressions.Expressions").alwaysTrue()
    together = java("com.google.common.base.Functions").constant("")
    orders.loaded(lambda table: table.newDelete().deleteFromRowFilter(every).commit())
    orders.loaded(lambda table: table.rewriteManifests().clusterBy(together).commit())
    orders.lake.applied()
    removed = orders.forget(1)
    assert removed.snapshots_expired > 0
    assert orders.lake.state.find(orders.life).label.progress == before.progress
    assert orders.search(1).having == ()


def test_files_that_nothing_refers_to_are_found_in_every_directory_and_removed_unless_they_are_just_written(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders, directories = Orders(open_lake()), [tmp_path / "data", tmp_path / "metadata"]
    metadata_file = Path(orders.lake.state.find(orders.life).metadata_location.removeprefix("file:"))
    for directory in directories:
        orders.loaded(partial(let, f"write.{directory.name}.path", str(directory)))
        orders.lake.applied()
    orders.apply(400, [("I", 310, 3, "d")])
    files = {path: [row.get("id") for row in pq.read_table(path).to_pylist()] for path in tmp_path.rglob("*.parquet")}
    (with_key, *_), (without_key,) = ([path for path, ids in files.items() if ids == [key]] for key in (1, 3))
    hour, copies = 3600, list[Path]()
    for directory in (*directories, metadata_file.parent):
        for name, path, seconds in (
            ("of-a-killed-run.parquet", with_key, -hour),
            ("of-a-killed-run.metadata.json", metadata_file, -hour),
            ("of-another-key.parquet", without_key, -hour),
            ("of-a-living-run.parquet", with_key, hour),
            ("of-a-living-run.metadata.json", metadata_file, hour),
        ):
            copies.append(directory / name)
            shutil.copy(path, copies[-1])
            os.utime(copies[-1], (time.time() + seconds,) * 2)
    assert orders.forget(1).orphans >= 6
    left = ["of-a-living-run.metadata.json", "of-a-living-run.parquet", "of-another-key.parquet"]
    assert sorted(path.name for path in copies if path.exists()) == sorted(3 * left)
    assert [Path(location).name for location in orders.search(1).having] == 3 * ["of-a-living-run.parquet"]


def test_stages_with_the_rows_are_removed_and_of_those_that_cannot_be_read_only_old_ones(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders, now = Orders(open_lake()), int(time.time())
    for hi, key in ((400, 1), (500, 3)):
        step, files = orders.window(hi, [("I", hi - 10, key, "d")])
        orders.lake.stage(step, files)
    directory = tmp_path / "lake" / STAGE
    staged = list(directory.iterdir())
    for name in (f"{now}-young", f"{now - STALE_SECONDS - 60}-old", "notes"):
        (directory / name).mkdir()
        (directory / name / "part.parquet").write_bytes(b"PAR1 of a killed run")
    forgetting, targets = LakeForgetting(orders.lake), {orders.life: orders.wanted(1)}
    assert forgetting.forget_stages(targets, lambda _, raw: False) == 2
    assert len([path for path in staged if path.exists()]) == len(staged) - 1 == 1
    searched = forgetting.search_stages(targets, lambda _, raw: False)
    assert sorted(Path(one).parent.name for one in searched.having) == [f"{now}-young", "notes"]
    assert searched.files >= 3
