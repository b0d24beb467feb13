"""Records that do not fit are kept aside, the rest is applied, and a replay makes the table what it should be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from cdc_assets.errors import InputError, RebuildRefused
from cdc_assets.features.quarantine.lake import Quarantine
from cdc_assets.features.quarantine.operations import ReplayResult, replay
from cdc_assets.lake import Lake
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.operations.purge import purge
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_purge import Dropped
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.schema_documents import document, file_column, write_schema

ORDERS = TableId("shop", "orders")
COLUMNS = [
    file_column("id", "BIGINT", "20", is_key=True),
    file_column("n", "INT", "11"),
]
CREATE = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY,`n` INT)"
TOML = '[sink]\nterminator = "\\n"\n[sink.cloud-storage-config]\n[sink.csv]\ninclude-commit-ts = true\n'
OLD_VALUES = "output-old-value = true\n"


@dataclass
class Bucket:
    """A changefeed's prefix that a test writes, and the pipeline over it."""

    path: Path
    lake: Any = field(default_factory=MemoryLake)
    ledger: Ledger = field(default_factory=lambda: Ledger("sqlite://"))
    toml: str = TOML
    extra: str = ""

    def schema(self, version: int, query: str, kind: int, columns: list[dict[str, str]], table: str = "orders") -> None:
        write_schema(self.path, document("shop", table, version, Query=query, Type=kind, TableColumns=columns))

    def data(self, version: int, number: int, *lines: str, table: str = "orders") -> str:
        path = f"shop/{table}/{version}/CDC{number:020d}.csv"
        self._write(path, "".join(line + "\n" for line in lines))
        return path

    def _write(self, path: str, text: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(text)

    def settings(self, quarantine: bool = True) -> ChangefeedSettings:
        config = self.path.parent / "changefeed.toml"
        config.write_text(self.toml + self.extra)
        uri = f"{self.path}?protocol=csv&date-separator=none"
        return ChangefeedSettings(sink_uri=SecretStr(uri), changefeed_config=config, quarantine=quarantine)

    def pipeline(self, quarantine: bool = True) -> Pipeline:
        given = self.settings(quarantine)
        return Pipeline(given, given.open_source(), self.lake, self.ledger)

    def apply(self, checkpoint: int, quarantine: bool = True) -> Outcome:
        self._write("metadata", json.dumps({"checkpoint-ts": checkpoint}))
        return self.pipeline(quarantine).apply("run-1")

    def replay(self) -> tuple[ReplayResult, ...]:
        return replay(self.pipeline())

    def rows(self) -> list[tuple[Any, ...]]:
        lake_rows = self.lake.read(ORDERS).drop_columns(["_cdc_commit_ts"]).to_pylist()
        return sorted((tuple(row.values()) for row in lake_rows), key=repr)

    def kept(self) -> list[tuple[str, int]]:
        return [(row.file.rsplit("/")[-1].lstrip("CD0"), row.line) for row in self.lake.quarantined()]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    made = Bucket(tmp_path / "feed")
    made.schema(100, CREATE, 3, COLUMNS)
    return made


def row(op: str, ts: object, key: object, n: object, table: str = "orders") -> str:
    return f'"{op}","{table}","shop",{ts},{key},{n}'


def test_a_bad_record_goes_to_quarantine_and_the_rest_is_applied(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x5"), row("I", 112, 3, 7))
    outcome = bucket.apply(200)
    assert bucket.rows() == [(1, 5), (3, 7)]
    assert [(t.state, t.quarantined) for t in outcome.tables] == [("applied", 1)]
    (kept,) = bucket.lake.quarantined()
    assert (kept.line, kept.column, kept.commit_ts, kept.schema_version, kept.lo) == (2, "n", 111, 100, 99)
    assert kept.raw == row("I", 111, 2, "x5").encode()
    assert '"x5" is not INT' in kept.reason


def test_without_the_setting_nothing_of_the_window_is_written(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x5"))
    outcome = bucket.apply(200, quarantine=False)
    assert [table.state for table in outcome.tables] == ["held"]
    assert bucket.rows() == []
    assert bucket.kept() == []


def test_a_record_that_fails_a_check_is_kept_with_its_bytes(bucket: Bucket) -> None:
    columns = [COLUMNS[0], file_column("n", "TINYINT", "4")]
    bucket.schema(100, CREATE, 3, columns, table="tiny")
    bucket.data(100, 1, row("I", 110, 1, 5, "tiny"), row("I", 111, 2, 128, "tiny"), table="tiny")
    bucket.apply(200)
    (kept,) = bucket.lake.quarantined()
    assert kept.raw == row("I", 111, 2, 128, "tiny").encode()
    assert kept.column == "n"


def test_all_records_are_kept_however_many_there_are(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 0, 0), *(row("I", 111, n, "x") for n in range(1, 1501)))
    bucket.apply(200)
    assert len(bucket.kept()) == 1500


def test_a_file_that_cannot_be_trusted_at_all_still_stops_its_table(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, 5, "other"))
    outcome = bucket.apply(200)
    assert [table.state for table in outcome.tables] == ["held"]
    assert 'names the table "other"' in outcome.tables[0].reason
    assert bucket.kept() == []


TSO = 465283339439308972
WHOLE, LAST = row("I", TSO + 10, 1, 5), row("I", TSO + 11, 2, 6)


@pytest.mark.parametrize("left", range(1, len(LAST) + 1))
def test_a_record_that_was_cut_off_anywhere_still_stops_its_table(tmp_path: Path, left: int) -> None:
    bucket = Bucket(tmp_path / "feed")
    bucket.schema(TSO, CREATE, 3, COLUMNS)
    file = bucket.path / bucket.data(TSO, 1, WHOLE)
    file.write_text(WHOLE + "\n" + LAST[:left])
    assert [table.state for table in bucket.apply(TSO + 200).tables] == ["held"]
    bucket.data(TSO, 2, WHOLE, LAST)
    assert [table.state for table in bucket.apply(TSO + 200).tables] == ["applied"]
    assert bucket.rows() == [(1, 5), (2, 6)]


def test_the_same_records_are_kept_once_however_often_they_are_read(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", "no-ts", 1, 5), row("I", 110, 2, "x"), row("I", 250, 3, 1))
    bucket.apply(200)
    bucket.apply(300)
    assert bucket.kept() == [("1.csv", 1), ("1.csv", 2)]


def test_a_replay_after_a_fix_brings_the_row(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x5"))
    bucket.apply(200)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "55"))
    (done,) = bucket.replay()
    assert (done.rows, done.waiting, bucket.rows(), bucket.kept()) == (1, 0, [(1, 5), (2, 55)], [])


def test_an_old_record_does_not_undo_newer_ones(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, "x"), row("I", 112, 3, "x"))
    bucket.apply(200)
    bucket.data(100, 2, row("U", 210, 1, 10), row("D", 220, 2, 0))
    bucket.apply(300)
    bucket.data(100, 1, row("I", 110, 1, 1), row("I", 111, 2, 2), row("I", 112, 3, 3))
    bucket.replay()
    assert bucket.rows() == [(1, 10), (3, 3)]


def test_a_replay_of_a_record_that_still_does_not_fit_leaves_it_open(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, "y"))
    bucket.apply(200)
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, 4))
    (done,) = bucket.replay()
    assert (done.rows, done.waiting) == (1, 1)
    assert bucket.kept() == [("1.csv", 1)]
    assert bucket.rows() == [(2, 4)]


def test_a_replay_without_a_fix_changes_nothing(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, 5))
    bucket.apply(200)
    (done,) = bucket.replay()
    assert (done.rows, done.waiting, bucket.rows()) == (0, 1, [(2, 5)])
    assert re.search(r'1.csv line 1.*"x" is not INT', done.reason)


def test_a_record_whose_key_was_not_readable_is_replayed_too(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, "??", 1), row("I", 111, 2, 5))
    bucket.data(100, 2, row("U", 150, 7, 9))
    bucket.apply(200)
    bucket.data(100, 1, row("I", 110, 7, 1), row("I", 111, 2, 5))
    bucket.replay()
    assert bucket.rows() == [(2, 5), (7, 9)]


def test_a_replay_goes_over_columns_that_were_added_since(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, "x"))
    wider = [*COLUMNS, file_column("c", "INT", "11", ColumnDefault="3")]
    bucket.schema(150, "ALTER TABLE `orders` ADD COLUMN `c` INT DEFAULT 3", 5, wider)
    bucket.data(150, 1, row("U", 160, 2, "6,8"))
    bucket.apply(200)
    bucket.data(100, 1, row("I", 110, 1, 4), row("I", 111, 2, 5))
    bucket.replay()
    assert bucket.rows() == [(1, 4, 3), (2, 6, 8)]


def test_a_record_from_before_a_truncate_does_not_come_back(bucket: Bucket) -> None:
    bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, 5))
    bucket.schema(150, "TRUNCATE TABLE `orders`", 11, COLUMNS)
    bucket.data(150, 1, row("I", 160, 2, 6))
    bucket.apply(200)
    bucket.data(100, 1, row("I", 110, 1, 4), row("I", 111, 2, 5))
    (done,) = bucket.replay()
    assert (done.waiting, bucket.rows()) == (0, [(2, 6)])


def test_a_replay_refuses_when_files_are_gone_and_names_them(bucket: Bucket) -> None:
    path = bucket.data(100, 1, row("I", 110, 1, "x"), row("I", 111, 2, 5))
    later = bucket.data(100, 2, row("U", 150, 1, 7))
    bucket.apply(200)
    (bucket.path / later).unlink()
    (done,) = bucket.replay()
    assert later in done.reason
    assert done.waiting == 1
    bucket.data(100, 2, row("U", 150, 1, 7))
    (bucket.path / path).unlink()
    (done,) = bucket.replay()
    assert path in done.reason
    assert isinstance(done.error, InputError)


def test_a_table_without_key_gets_what_the_record_adds(bucket: Bucket) -> None:
    bucket.extra = OLD_VALUES
    columns = [file_column("id", "BIGINT"), COLUMNS[1]]
    bucket.schema(100, "CREATE TABLE `orders` (`id` BIGINT,`n` INT)", 3, columns)
    for stale in (bucket.path / "shop/orders/meta").iterdir():
        if '"ColumnIsPk"' in stale.read_text():
            stale.unlink()

    def line(op: str, ts: int, key: int, n: object) -> str:
        return f'"{op}","orders","shop",{ts},false,{key},{n}'

    bucket.data(100, 1, line("I", 110, 1, 5), line("I", 111, 1, "x"), line("I", 112, 1, 5))
    bucket.apply(200)
    assert bucket.rows() == [(1, 5), (1, 5)]
    bucket.data(100, 1, line("I", 110, 1, 5), line("I", 111, 1, 5), line("I", 112, 1, 5))
    bucket.replay()
    assert bucket.rows() == [(1, 5), (1, 5), (1, 5)]
    assert bucket.replay() == ()


@pytest.mark.parametrize("checkpoints", [(200,), (112, 200), (111, 115, 200)], ids=str)
def test_a_row_without_key_that_was_kept_aside_leaves_aside_too(bucket: Bucket, checkpoints: tuple[int, ...]) -> None:
    bucket.extra = OLD_VALUES
    columns = [file_column("id", "BIGINT"), file_column("n", "TINYINT")]
    for stale in (bucket.path / "shop/orders/meta").iterdir():
        stale.unlink()
    bucket.schema(100, "CREATE TABLE `orders` (`id` BIGINT,`n` TINYINT)", 3, columns)
    rows = (("I", 110, 1, 5), ("I", 111, 2, 128), ("I", 111, 3, 129), ("D", 114, 2, 128), ("D", 120, 3, 129))
    lines = [f'"{op}","orders","shop",{ts},false,{key},{n}' for op, ts, key, n in (*rows, ("I", 120, 3, 7))]
    for checkpoint in checkpoints:
        bucket.data(100, 1, *lines)
        assert [table.state for table in bucket.apply(checkpoint).tables] == ["applied"]
    assert bucket.rows() == [(1, 5), (3, 7)]
    assert [line for _, line in bucket.kept()] == [2, 3, 4, 5]


CHANGES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from("IUD"), st.integers(0, 9), st.booleans()), max_size=12)


@given(CHANGES, st.integers(1, 11))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_fix_and_replay_the_table_is_as_if_nothing_had_been_wrong(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, str, int, bool]], cut: int
) -> None:
    broken, whole = (Bucket(tmp_path_factory.mktemp("feed") / "feed") for _ in range(2))
    for made, spoiled in ((broken, True), (whole, False)):
        made.lake.may_lack_rows = True
        made.schema(100, CREATE, 3, COLUMNS)
        lines = [
            row(op, 110 + place, key, "x" if bad and spoiled else n) for place, (key, op, n, bad) in enumerate(changes)
        ]
        made.data(100, 1, row("I", 105, 99, 0), *lines[:cut])
        made.apply(109 + cut)
        made.data(100, 2, row("I", 300, 99, 0), *lines[cut:])
        made.apply(400)
    assert len(broken.kept()) == sum(bad for *_, bad in changes)
    (broken.path / "shop").rename(broken.path.parent / "old")
    (whole.path / "shop").rename(broken.path / "shop")
    assert all(done.waiting == 0 for done in broken.replay())
    assert broken.rows() == whole.rows()


def test_the_lake_keeps_lists_and_replays_records(tmp_path: Path, lake: Lake, open_lake: Callable[..., Lake]) -> None:
    bucket = Bucket(tmp_path / "feed", lake)
    bucket.schema(100, CREATE, 3, COLUMNS)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x"), row("I", 112, 3, "y"))
    outcome = bucket.apply(200)
    assert [(t.state, t.quarantined) for t in outcome.tables] == [("applied", 2)]
    bucket.data(100, 2, row("U", 210, 2, 20))
    bucket.apply(300)
    assert bucket.rows() == [(1, 5), (2, 20)]
    other = open_lake()
    assert [(r.line, r.raw, r.run) for r in other.quarantined(raw=True)] == [
        (2, row("I", 111, 2, "x").encode(), "run-1"),
        (3, row("I", 112, 3, "y").encode(), "run-1"),
    ]
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, 2), row("I", 112, 3, 3))
    (done,) = bucket.replay()
    assert (done.rows, done.waiting, done.reason) == (2, 0, "")
    assert bucket.rows() == [(1, 5), (2, 20), (3, 3)]
    assert bucket.lake.quarantined() == ()
    assert dict(bucket.lake.quarantined_counts()) == {}
    assert [r.state for r in bucket.lake.quarantined(closed=True)] == ["replayed", "replayed"]
    assert lake.applied()[done.life].progress.tso == 300


KEYLESS = [file_column("id", "BIGINT"), COLUMNS[1]]
WIDER = [*KEYLESS, file_column("m", "INT", "11")]


def keyless_row(ts: int, n: object, more: str = "") -> str:
    return f'"I","orders","shop",{ts},false,1,{n}{more}'


def broken(tmp_path: Path, lake: Any) -> Bucket:
    """A table without key whose second row does not fit."""
    bucket = Bucket(tmp_path / "feed", lake, extra=OLD_VALUES)
    bucket.schema(100, "CREATE TABLE `orders` (`id` BIGINT,`n` INT)", 3, KEYLESS)
    bucket.data(100, 1, keyless_row(110, 5), keyless_row(111, "x"))
    return bucket


def mend(bucket: Bucket) -> None:
    """Make the second row equal to the first one."""
    bucket.data(100, 1, keyless_row(110, 5), keyless_row(111, 5))


def keyless(tmp_path: Path, lake: Lake) -> Bucket:
    """A table without key whose second row was kept aside, and is equal to the first one by now."""
    bucket = broken(tmp_path, lake)
    bucket.apply(200)
    mend(bucket)
    return bucket


def dies_over_some(_: Quarantine, __: Life, lines: Sized) -> None:
    if len(lines):
        raise KeyboardInterrupt


@pytest.mark.parametrize("dies", ["before it closes the records", "never"])
def test_of_two_replays_into_a_table_without_key_at_once_one_adds_the_row(
    tmp_path: Path, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    bucket, rival = keyless(tmp_path, open_lake()), open_lake()
    begin, close = Quarantine.begin_replay, Quarantine.close

    def overtaken(*given: Any) -> str:
        """The rival begins and ends between what this run looks at and its commit."""
        monkeypatch.setattr(Quarantine, "begin_replay", begin)
        if dies != "never":
            monkeypatch.setattr(Quarantine, "close", lambda *_: None)
        assert [(done.rows, done.waiting) for done in Bucket(bucket.path, rival, extra=OLD_VALUES).replay()] == [(1, 0)]
        monkeypatch.setattr(Quarantine, "close", close)
        return begin(*given)

    monkeypatch.setattr(Quarantine, "begin_replay", overtaken)
    assert ["another run has replayed records" in done.reason for done in bucket.replay()] == [True]
    bucket.replay()
    assert (bucket.rows(), bucket.kept()) == ([(1, 5), (1, 5)], [])


def test_records_of_a_table_that_was_purged_wait_no_longer(tmp_path: Path, lake: Lake) -> None:
    bucket = Bucket(tmp_path / "feed", lake)
    bucket.schema(100, CREATE, 3, COLUMNS)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x"))
    bucket.apply(200)
    bucket.schema(300, "DROP TABLE `orders`", 4, COLUMNS)
    bucket.apply(400)
    assert bucket.kept() == [("1.csv", 2)]
    (life,) = lake.dropped()
    lake.purge(life)
    assert (bucket.kept(), dict(lake.quarantined_counts())) == ([], {})
    assert [record.state for record in lake.quarantined(closed=True)] == ["purged"]


# --- records that another commit brings in ----------------------------------------------------------------------------


def dies(*_: object) -> None:
    raise KeyboardInterrupt


def kept_and_not_committed(bucket: Bucket, patched: pytest.MonkeyPatch, commit: tuple[Any, str]) -> None:
    """Apply, and die between the quarantine of a window's records and the commit of the window."""
    with patched.context() as patch:
        patch.setattr(*commit, dies)
        with pytest.raises(KeyboardInterrupt):
            bucket.apply(200)
    assert len(bucket.kept()) == 1


def test_a_record_that_fits_when_its_window_is_tried_again_is_not_replayed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = broken(tmp_path, MemoryLake())
    kept_and_not_committed(bucket, monkeypatch, (bucket.lake, "commit"))
    mend(bucket)
    bucket.apply(200)
    assert (bucket.rows(), bucket.kept(), bucket.replay()) == ([(1, 5), (1, 5)], [], ())


def test_a_record_whose_window_is_not_applied_is_not_closed_by_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = broken(tmp_path, MemoryLake())
    kept_and_not_committed(bucket, monkeypatch, (bucket.lake, "commit"))
    (done,) = bucket.replay()
    assert (done.rows, done.waiting) == (0, 1)
    assert "Apply the changefeed first" in done.reason
    assert [table.quarantined for table in bucket.apply(200).tables] == [1]


def test_what_cannot_be_replayed_is_brought_in_by_a_rebuild(tmp_path: Path) -> None:
    bucket = broken(tmp_path, MemoryLake())
    bucket.apply(200)
    bucket.schema(210, "ALTER TABLE `orders` ADD COLUMN `m` INT", 5, WIDER)
    bucket.data(210, 1, keyless_row(220, 6, ",7"))
    bucket.apply(300)
    (done,) = bucket.replay()
    assert "Rebuild the table" in done.reason
    with pytest.raises(RebuildRefused, match='"x" is not INT'):
        rebuild(bucket.pipeline(), MemoryRebuilds(bucket.lake))
    mend(bucket)
    rebuild(bucket.pipeline(), MemoryRebuilds(bucket.lake))
    assert (bucket.rows(), bucket.kept()) == ([(1, 5, None), (1, 5, None), (1, 6, 7)], [])
    assert [table.quarantined for table in bucket.apply(300).tables] == [0]


def test_the_lake_brings_a_record_in_once_whatever_commit_does_it(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdc_assets.lake import tables

    bucket = broken(tmp_path, lake)
    kept_and_not_committed(bucket, monkeypatch, (tables, "commit_window"))
    mend(bucket)
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "close", dies_over_some)
        with pytest.raises(KeyboardInterrupt):
            bucket.apply(200)
    assert (bucket.rows(), len(bucket.kept())) == ([(1, 5), (1, 5)], 1)
    bucket.replay()
    assert (bucket.rows(), bucket.kept()) == ([(1, 5), (1, 5)], [])
    bucket.data(100, 2, keyless_row(210, 6), keyless_row(211, "x"))
    bucket.apply(300)
    bucket.data(100, 2, keyless_row(210, 6), keyless_row(211, 6))
    with monkeypatch.context() as patch:
        patch.setattr(Quarantine, "close", dies_over_some)
        with pytest.raises(KeyboardInterrupt):
            rebuild(bucket.pipeline(), Rebuilds(lake))
    assert len(bucket.kept()) == 1
    bucket.replay()
    assert (bucket.rows(), bucket.kept()) == ([(1, 5), (1, 5), (1, 6), (1, 6)], [])


def test_records_of_a_dropped_table_are_brought_into_the_one_that_exchanged_rows_with_it(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), Dropped(), Ledger("sqlite://")
    parted = "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(40)) PARTITION BY RANGE (`id`) "
    feed.ddl("s.p", FIRST, f"{parted}(PARTITION `p0` VALUES LESS THAN (9))", 3)
    feed.create("s.x")
    file = feed.rows("s.x", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 1, "two", "b")])
    feed.ddl("s.p", FIRST + 2, "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`", 42)
    feed.ddl("s.x", FIRST + 2, "", 0)
    feed.ddl("s.x", FIRST + 3, "DROP TABLE `s`.`x`", 4)
    feed.publish(FIRST + 9)
    pipeline = feed.pipeline_into(lake, ledger, quarantine=True)
    assert [table.quarantined for table in pipeline.apply("run").tables] == [0, 1]
    file.write_bytes(file.read_bytes().replace(b"two", b"2"))
    (done,) = replay(pipeline)
    assert f"cdc-assets rebuild s.p@{FIRST}" in done.reason
    (kept,) = purge(pipeline, lake, "run")
    assert f"rows of s.p@{FIRST}" in kept.kept
    rebuild(pipeline, MemoryRebuilds(lake), ["s.p"])
    assert sorted(lake.read(TableId("s", "p")).column("v").to_pylist()) == ["a", "b"]
    assert lake.quarantined() == []
    assert [dropped_table.kept for dropped_table in purge(pipeline, lake, "run")] == [""]
