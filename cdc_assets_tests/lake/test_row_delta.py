"""Small windows without Spark: the same rows, label and counts as Spark's MERGE, and only where both must agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from py4j.clientserver import ClientServerConnection
from pyroaring import BitMap

from cdc_assets.decoding.states import END_AT, END_TS, START_AT, START_TS
from cdc_assets.lake import Lake, row_delta, windows
from cdc_assets.lake.staging import tasks
from cdc_assets.lake.staging.tasks import FirstLoad, StagePlace, write_data_files
from cdc_assets.model.layout import TableLayout, Transform
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RetypeColumn
from cdc_assets_tests.lake.conftest import Deltas
from cdc_assets_tests.lake.table_source import ID, NOTE, SCHEMA, Source

DAY = Column("day", "DATE", nullable=False, is_pk=True)
CODE = Column("code", "VARCHAR", precision=20, nullable=False, is_pk=True)
BIG = Column("big", "BIGINT", precision=20, unsigned=True, nullable=False, is_pk=True)
PRICE = Column("price", "DECIMAL", precision=9, scale=2, nullable=False, is_pk=True)
KEYS: dict[str, tuple[Column, Callable[[int], Any]]] = {
    "bigint": (ID, lambda n: n - 6),
    "text": (CODE, lambda n: f"k{n}'\\ "),
    "date": (DAY, lambda n: f"2026-03-{n + 1:02d}"),
    "unsigned bigint": (BIG, lambda n: 2**64 - 1 - n),
    "decimal": (PRICE, lambda n: f"{n}.50"),
}


def key_windows(key: Callable[[int], Any], seed: int, *, pair: bool) -> list[list[tuple[Any, ...]]]:
    """Return windows of a source's changes to twelve keys."""
    rng, alive, ts, window_rows = random.Random(seed), set[int](), 101, []
    for _ in range(5):
        rows: list[tuple[Any, ...]] = []
        for _ in range(rng.randrange(1, 9)):
            number = rng.randrange(12)
            op = "I" if number not in alive else rng.choice("UUD")
            alive = alive - {number} if op == "D" else alive | {number}
            values = (key(number), number % 3) if pair else (key(number),)
            rows.append((op, ts, *values, f"{op}{ts}"))
            ts += 1
        window_rows.append(rows)
    return window_rows


def outcome(result: StepResult) -> tuple[Any, ...]:
    return result.inserted, result.updated, result.deleted, result.rows_before, result.rows_after


SOAKED = ("date", "decimal")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name in SOAKED)) for name in KEYS])
def test_a_row_delta_leaves_what_a_merge_leaves_and_spark_reads_it(name: str, lake: Lake, deltas: Deltas) -> None:
    column, key = KEYS[name]
    pair = name in ("text", "date")
    second = (Column("part", "INT", nullable=False, is_pk=True),) if pair else ()
    schema = TableSchema((column, *second, NOTE), (column.name, *(key_column.name for key_column in second)))
    ours, theirs = (Source(lake, TableId("shop", table), schema) for table in ("ours", "theirs"))
    for number, rows in enumerate(key_windows(key, seed=len(name), pair=pair)):
        hi = rows[-1][1]
        metrics = ours.apply(hi, rows)
        with patch.object(windows, "row_delta_of", return_value=None):
            expected = theirs.apply(hi, rows)
        assert outcome(metrics) == outcome(expected), number
        assert ours.rows() == theirs.rows(), number
    assert deltas.made.count(True) >= 3
    table, other = (lake.state.find(source.life) for source in (ours, theirs))
    assert table.label == other.label
    assert table.rows == other.rows
    assert [lake.scan(source.life).count("") for source in (ours, theirs)] == [table.rows] * 2
    hidden = [lake.state.summary(table)["total-position-deletes"] for table in (table, other)]
    assert hidden[0] == hidden[1]
    with lake.workbench.sessions.step() as session:
        read = session.spark.table(session.name(table.identifier)).drop("_cdc_commit_ts").collect()
    assert sorted((tuple(row) for row in read), key=repr) == ours.rows()


def test_a_small_window_asks_java_little_and_little_more_for_each_file_of_its_table(
    lake: Lake, deltas: Deltas, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, commands = Source(lake), list[str]()
    source.apply(200, [("I", 100 + number, number, "a") for number in range(1, 20)])
    send = ClientServerConnection.send_command

    def counted(connection: ClientServerConnection, command: str) -> str:
        commands.append(command)
        answer: str = send(connection, command)
        return answer

    monkeypatch.setattr(ClientServerConnection, "send_command", counted)
    counts = []
    for number in range(1, 9):
        commands.clear()
        source.apply(200 + 10 * number, [("U", 200 + 10 * number - 1, number, "b")])
        counts.append(sum(not command.startswith("m\n") for command in commands))
    assert deltas.made == [True] * 8
    assert sorted(source.rows()) == [(number, "b" if number <= 8 else "a") for number in range(1, 20)]
    assert counts[1] <= 110, counts
    assert counts[7] - counts[1] <= 6 * 6


def test_a_table_goes_on_by_either_way_across_ddl(lake: Lake, deltas: Deltas) -> None:
    source = Source(lake)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("I", 103, 3, "c")])
    source.apply(120, [("U", 111, 1, "A"), ("D", 112, 2, "b")])
    with patch.object(windows, "row_delta_of", return_value=None):
        source.apply(130, [("U", 121, 1, "AA"), ("I", 122, 2, "B")])
    wide = TableSchema((ID, NOTE, Column("extra", "INT")), ("id",))
    source.change(140, wide, AddColumn(Column("extra", "INT"), "7"))
    source.apply(150, [("U", 141, 3, "C", 8), ("U", 142, 2, "BB", None)])
    assert source.rows() == [(1, "AA", 7), (2, "BB", None), (3, "C", 8)]
    assert deltas.made == [True, True]


def test_a_key_that_was_widened_is_found_in_older_files(lake: Lake, deltas: Deltas) -> None:
    narrow = Column("id", "INT", nullable=False, is_pk=True)
    source = Source(lake, schema=TableSchema((narrow, NOTE), ("id",)))
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    source.change(120, SCHEMA, RetypeColumn(narrow, ID))
    source.apply(130, [("U", 121, 1, "A"), ("I", 122, 1 << 40, "far")])
    assert source.rows() == [(1, "A"), (1 << 40, "far"), (2, "b")]
    assert deltas.made == [True]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (Column("id", "DOUBLE", nullable=False, is_pk=True), (1, 2)),
        (Column("id", "VARCHAR", precision=9, nullable=False, is_pk=True, collation="utf8mb4_general_ci"), ("a", "A")),
    ],
)
def test_keys_that_do_not_compare_by_value_are_sparks(key: Column, values: Any, lake: Lake, deltas: Deltas) -> None:
    source = Source(lake, schema=TableSchema((key, NOTE), ("id",)))
    source.apply(110, [("I", 101, values[0], "a")])
    source.apply(120, [("U", 111, values[1], "b")])
    assert deltas.made == [False]
    assert [row[-1] for row in source.rows()] == (["a", "b"] if values == (1, 2) else ["b"])


def test_a_table_that_a_person_lets_copy_on_write_is_sparks(lake: Lake, deltas: Deltas) -> None:
    source = Source(lake)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    with lake.workbench.on(source.life) as work:
        work.target.table.updateProperties().set("write.merge.mode", "copy-on-write").commit()
    source.apply(120, [("U", 111, 1, "A")])
    assert (deltas.made, source.rows()) == ([False], [(1, "A"), (2, "b")])


def test_a_row_delta_goes_where_a_person_lets_data_files_go(lake: Lake, deltas: Deltas, tmp_path: Path) -> None:
    source = Source(lake)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    with lake.workbench.on(source.life) as work:
        work.target.table.updateProperties().set("write.data.path", f"{tmp_path}/elsewhere").commit()
    source.apply(120, [("U", 111, 1, "A")])
    assert (deltas.made, source.rows()) == ([True], [(1, "A"), (2, "b")])


def test_a_data_file_that_is_no_parquet_is_sparks_to_report(lake: Lake) -> None:
    source = Source(lake)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    assert lake.settings.local_directory is not None
    (file,) = (path for path in lake.settings.local_directory.glob("**/data/*.parquet") if b"note" in path.read_bytes())
    whole = file.read_bytes()
    file.write_bytes(bytes(len(whole)))
    with pytest.raises(Exception, match="is not a Parquet file"):
        source.apply(120, [("U", 111, 1, "A")])
    file.write_bytes(whole)
    source.apply(120, [("U", 111, 1, "A")])
    assert source.rows() == [(1, "A"), (2, "b")]


def test_more_changes_rows_or_files_than_are_dealt_with_are_sparks(
    lake: Lake, deltas: Deltas, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(lake)
    source.apply(110, [("I", 100 + number, number, "a") for number in range(1, 5)])
    for hi, limit in ((120, "_CHANGES"), (130, "_ROWS"), (140, "_FILES")):
        with monkeypatch.context() as tight:
            tight.setattr(row_delta, limit, 1)
            source.apply(hi, [("U", hi - 5, 1, f"{hi}"), ("U", hi - 4, 2, f"{hi}")])
    assert deltas.made == [False] * 3
    assert source.rows() == [(1, "140"), (2, "140"), (3, "a"), (4, "a")]


def test_a_broken_deletion_vector_is_named_and_nothing_is_applied(lake: Lake) -> None:
    source = Source(lake)
    source.apply(110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    source.apply(120, [("U", 111, 1, "A")])
    assert lake.settings.local_directory is not None
    (vector,) = lake.settings.local_directory.glob("**/*.puffin")
    whole = vector.read_bytes()
    vector.write_bytes(whole[:12] + bytes([whole[12] ^ 1]) + whole[13:])
    with pytest.raises(Exception, match=f"{vector.name}: a deletion vector in it is broken"):
        source.apply(130, [("U", 121, 2, "B")])
    vector.write_bytes(whole)
    source.apply(130, [("U", 121, 2, "B")])
    assert source.rows() == [(1, "A"), (2, "B")]


_FILE_OF_STATES = pa.table(
    {
        "id": pa.array(range(10), pa.int64()),
        "a_x2Eb": pa.array([Decimal(f"{number}.5") for number in range(10)], pa.decimal128(9, 2)),
        **{name: pa.array([5] * 10, pa.int64()) for name in (START_AT, START_TS)},
        **{name: pa.array([None] * 9 + [7], pa.int64()) for name in (END_AT, END_TS)},
    }
)


@pytest.fixture
def states_file(tmp_path: Path) -> Path:
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(_FILE_OF_STATES.schema)
    ]
    pq.write_table(_FILE_OF_STATES.cast(pa.schema(fields)), tmp_path / "states.parquet", row_group_size=3)
    return tmp_path / "states.parquet"


def _open_rows(file: str, places: list[int]) -> pa.Table:
    names = [name.replace("_x2E", ".") for name in _FILE_OF_STATES.column_names]
    table = FirstLoad("", 1, {name: ("", number, None) for number, name in enumerate(names)}, False)
    planned = row_delta.PlannedFile(None, file, _FILE_OF_STATES.num_rows, None, {})
    positions, of = pl.Series(places, dtype=pl.UInt32), pl.Series(range(len(places)), dtype=pl.UInt32)
    return row_delta._rows({}, row_delta._Replaced(planned, positions, of, BitMap()), table)


def test_states_at_some_places_of_a_file_are_read_as_they_are_from_a_disk_and_from_a_store(
    states_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _open_rows(str(states_file), [1, 4, 8])
    assert rows.column_names == ["id", "a.b", START_AT, START_TS, END_AT, END_TS]
    assert rows.rename_columns(_FILE_OF_STATES.column_names).equals(_FILE_OF_STATES.take([1, 4, 8]))
    store = pafs.SubTreeFileSystem(str(states_file.parent), pafs.LocalFileSystem())
    monkeypatch.setattr(row_delta, "storage", lambda io, location: (store, states_file.name))
    assert _open_rows("s3://lake/states.parquet", [1, 4, 8]).equals(rows)


def test_a_state_that_has_ended_does_not_end_again_by_a_row_delta(states_file: Path) -> None:
    with pytest.raises(row_delta._SparksError):
        _open_rows(str(states_file), [8, 9])


def test_data_files_have_dictionaries_of_the_columns_of_which_values_repeat(tmp_path: Path) -> None:
    rows = pa.table({"id": range(1000), "kind": ["a", "b"] * 500, "names": [["c"]] * 1000})
    table = FirstLoad(str(tmp_path), 1, {})
    place = StagePlace(str(tmp_path / "stage"), {}, cast(Any, None))
    (written,) = write_data_files(place, table, rows, 0)
    group = pq.ParquetFile(written.location).metadata.row_group(0)
    assert [group.column(number).has_dictionary_page for number in range(3)] == [False, True, True]
    assert pq.read_table(written.location).equals(rows)


def test_data_files_of_many_row_groups_are_written_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": range(1001), "gone": [None, "a", "b"] * 333 + [None, None]})
    monkeypatch.setattr(tasks, "_GROUP_BYTES", 1024)
    place = StagePlace(str(tmp_path / "stage"), {}, cast(Any, None), writers=2)
    by_null = TableLayout((Transform("bucket", "gone", 1),))
    for table, files in ((FirstLoad(str(tmp_path), 1, {}), 2), (FirstLoad(str(tmp_path), 1, {}, layout=by_null), 4)):
        written = list(write_data_files(place, table, rows, 0))
        assert len({file.location for file in written}) == files
        assert [file.file_bytes for file in written] == [Path(file.location).stat().st_size for file in written]
        parts = [pq.read_table(file.location, partitioning=None) for file in written]
        assert pa.concat_tables(parts).sort_by("id").equals(rows)
    assert [part.column("gone").null_count for part in parts] == [168, 167, 0, 0]


def test_no_data_file_is_without_rows_where_one_row_is_as_large_as_many_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_GROUP_BYTES", 1024)
    place = StagePlace(str(tmp_path / "stage"), {}, cast(Any, None), writers=2)
    written = list(write_data_files(place, FirstLoad(str(tmp_path), 1, {}), pa.table({"v": ["x" * 4096]}), 0))
    assert [pq.read_metadata(file.location).num_rows for file in written] == [1]


def test_keys_are_found_at_their_places_in_each_of_several_files() -> None:
    kinds, keys = pa.schema([("k0", pa.int64())]), pl.DataFrame({"k0": [5, 2, 99]}).with_row_index("_cdc_change")
    files = [pa.array([1, 2, 3], pa.int32()), pa.array([], pa.int64()), pa.array([5, 2]), pa.array([7, 99, 5])]
    columns = [pa.table({f"name{number}": values}) for number, values in enumerate(files)]
    places = row_delta._places(columns, keys, kinds)
    assert [frame.rows() for frame in places] == [[(1, 1)], [], [(0, 0), (1, 1)], [(1, 2), (2, 0)]]
    assert all(frame.dtypes == [pl.UInt32, pl.UInt32] for frame in places)


def test_key_columns_of_however_many_files_take_no_more_memory_than_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    megabyte, read = pa.table({"id": pa.array(range(1 << 17))}), list[str]()

    def read_file(io: Any, path: str, ids: Any) -> pa.Table:
        read.append(path)
        return megabyte

    monkeypatch.setattr(row_delta, "_columns", read_file)
    columns = row_delta._KeyColumns()
    for number in (*range(200), 199, 0):
        assert columns.read({}, str(number), (1,)) is megabyte
    assert len(columns._kept) * megabyte.nbytes == columns._bytes <= row_delta._KEPT_BYTES
    assert read == [*map(str, range(200)), "0"]
