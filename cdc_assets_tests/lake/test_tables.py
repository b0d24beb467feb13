"""The lake on real Spark and Iceberg: what steps leave behind, that they repeat, and that races are lost safely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, TableHeld, TableMoved
from cdc_assets.formats import Wire
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.lake import Lake, settling
from cdc_assets.lake.label import Label
from cdc_assets.lake.names import format_identity, format_name, location, moves, parse_identity, parse_name
from cdc_assets.lake.staging import stage as staging
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import AlikeKeys, StepResult
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Predicate,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import (
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    RecoverTable,
    RenameTable,
)

pytestmark = pytest.mark.xdist_group("spark")

OPTIONS = CsvOptions(include_commit_ts=True, terminator="\n")
ORDERS = TableId("shop", "orders")
ID = Column("id", "BIGINT", nullable=False, is_pk=True)
NOTE = Column("note", "VARCHAR", precision=20)
SCHEMA = TableSchema((ID, NOTE), ("id",))


@dataclass(frozen=True)
class Files:
    """Data files by path, read as OPTIONS say."""

    files: Mapping[str, bytes]

    def read(self, path: str) -> bytes:
        return self.files[path]

    def wire(self, path: str) -> Wire:
        return OPTIONS


class Source:
    """One table's source: writes its CSV rows as (op, commit-ts, values…) and carries steps into a lake."""

    def __init__(
        self, lake: Lake, name: TableId = ORDERS, schema: TableSchema = SCHEMA, at: int = 100, create: bool = True
    ) -> None:
        self.lake = lake
        self.life = Life(name, at)
        self.schema = schema
        self.progress = Progress(at, Phase.DDL)
        self.name = name
        self.birth = CreateTable(self.life, at, name, schema)
        if create:
            lake.run(self.birth)

    def window(self, hi: int, *files: list[tuple[Any, ...]]) -> tuple[ApplyRows, Files]:
        """Build the step that applies the rows of some files through `hi`, and the files."""
        applied = self.lake.state.find(self.life).applied
        lo = applied.progress.tso - (applied.progress.phase is Phase.DDL)
        root, version = "r", self.life.version
        data = {
            f"r/{version}/CDC{number:06d}.csv": "".join(self._line(row) for row in rows).encode()
            for number, rows in enumerate(files, 1)
        }
        listed = tuple(
            DataFile(path, root, version, f"r/{version}", number, len(raw))
            for number, (path, raw) in enumerate(data.items(), 1)
        )
        names = ((self.name, 0, 1 << 62),)
        decoding = {(root, version): (self.name, self.schema)}
        return ApplyRows(self.life, lo, hi, listed, decoding, self.schema, version, names), Files(data)

    def _line(self, row: tuple[Any, ...]) -> str:
        op, ts, *values = row
        texts = [
            "\\N" if v is None else str(v) if isinstance(v, int) else '"' + v.replace('"', '""') + '"' for v in values
        ]
        named = ['"' + text.replace('"', '""') + '"' for text in (op, self.name.table, self.name.schema)]
        return ",".join([*named, str(ts), *texts]) + "\n"

    def apply(self, hi: int, *files: list[tuple[Any, ...]]) -> StepResult:
        step, opener = self.window(hi, *files)
        return self.lake.commit(step, self.lake.stage(step, opener))

    def change(self, at: int, schema: TableSchema, *changes: SchemaChange) -> StepResult:
        result = self.lake.run(ChangeTable(self.life, at, changes, schema, self.schema))
        self.schema = schema
        return result

    def rows(self) -> list[tuple[Any, ...]]:
        """The lake's rows without the commit-ts, sorted."""
        table = self.lake.read(self.name).drop_columns(["_cdc_commit_ts"])
        return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)

    def columns(self) -> list[str]:
        return list(self.lake.read(self.name).column_names)


def test_rows_are_inserted_updated_and_deleted_and_the_table_says_through_which_commit_ts(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b"), ("I", 112, 3, None)])
    result = orders.apply(300, [("U", 210, 1, "A"), ("D", 220, 2, "b"), ("I", 230, 4, 'q"')])
    assert orders.rows() == [(1, "A"), (3, None), (4, 'q"')]
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 1)
    assert lake.state.named(ORDERS).rows == 3


def test_each_row_carries_the_commit_ts_of_its_last_change(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    orders.apply(300, [("U", 210, 1, "A")])
    assert dict(zip(*lake.read(ORDERS).select(["id", "_cdc_commit_ts"]).to_pydict().values(), strict=True)) == {
        1: 210,
        2: 111,
    }


def test_a_window_that_is_committed_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a")])
    lake.commit(step, lake.stage(step, files))
    snapshot = lake.state.find(orders.life).snapshot_id
    again = lake.commit(step, lake.stage(step, files))
    assert again.snapshot_after == again.snapshot_before == snapshot
    assert orders.rows() == [(1, "a")]


def test_a_window_without_rows_still_moves_the_progress(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.apply(300, [("I", 310, 2, "not yet due")])
    assert orders.rows() == [(1, "a")]
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)


def test_a_table_that_was_emptied_is_loaded_again(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(250, SCHEMA, DeleteRows(None))
    assert orders.rows() == []
    assert lake.applied()[orders.life].progress == Progress(250, Phase.DDL)
    orders.apply(300, [("I", 260, 1, "b")])
    assert orders.rows() == [(1, "b")]


@pytest.mark.usefixtures("several_tasks")
def test_tasks_that_share_a_window_agree_on_the_last_change_of_a_key(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(150, [("I", 110, 9, "not empty")])
    step, files = orders.window(
        400,
        [("I", 160, 1, "a"), ("I", 170, 2, "b"), ("D", 180, 2, "b")],
        [("U", 190, 1, "c"), ("I", 200, 3, "x"), ("I", 200, 9, "again")],
        [("U", 185, 1, "older"), ("D", 300, 3, "x")],
    )
    staged = lake.stage(step, files)
    assert len(list(Path(staged.path).glob("bucket-*.arrow"))) > 1
    lake.commit(step, staged)
    assert orders.rows() == [(1, "c"), (9, "again")]


def test_a_rejected_window_leaves_no_stage_behind_and_the_table_as_it_was(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a"), ("I", 111, "no number", "b")])
    staged = lake.stage(step, files)
    assert staged.report.failed
    assert staged.report.rejects[0].line == 2
    lake.discard(staged)
    assert orders.rows() == []
    assert not list((tmp_path / "lake" / "_cdc_stage").glob("*"))


def test_every_step_removes_its_stage(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    assert not list((tmp_path / "lake" / "_cdc_stage").glob("*"))


def test_stages_of_dead_runs_are_removed_after_a_day(lake: Lake, tmp_path: Path) -> None:
    old, new = (tmp_path / "lake" / "_cdc_stage" / name for name in ("1000-dead", "99999999999-alive"))
    old.mkdir(parents=True)
    new.mkdir()
    Source(lake).apply(200, [("I", 110, 1, "a")])
    assert new.exists()
    assert not old.exists()


# --- races ------------------------------------------------------------------------------------------------------------


def test_a_writer_that_was_overtaken_before_it_began_fails(open_lake: Callable[..., Lake]) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "a")])
    step, files = orders.window(200, [("U", 160, 1, "b")])
    slow = open_lake()
    staged = slow.stage(step, files)
    orders.apply(180, [("U", 170, 1, "c")])
    with pytest.raises(TableMoved, match="another writer"):
        slow.commit(step, staged)
    assert orders.rows() == [(1, "c")]


@pytest.mark.parametrize("loaded", [True, False], ids=["merge", "first load"])
def test_of_two_commits_at_once_the_later_one_fails_and_changes_nothing(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    orders = Source(open_lake())
    if loaded:
        orders.apply(150, [("I", 110, 1, "a")])
    slow, read = open_lake(), staging.read_manifest
    step, files = orders.window(200, [("I", 160, 2, "slow")])
    staged = slow.stage(step, files)

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(staging, "read_manifest", read)
        orders.apply(180, [("I", 170, 3, "fast")])
        return read(*args)

    monkeypatch.setattr(staging, "read_manifest", overtaken)
    with pytest.raises(TableMoved, match=r"[Pp]lan again"):
        slow.commit(step, staged)
    assert orders.rows()[-1] == (3, "fast")
    assert slow.applied()[orders.life].progress == Progress(180, Phase.ROWS)


def _overtake(monkeypatch: pytest.MonkeyPatch, lake: Lake, before: str, action: Callable[[], object]) -> None:
    """Run an action once, after the step has loaded its table and before it commits."""
    from cdc_assets.lake import schema

    original = getattr(schema, before)

    def overtaken(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(schema, before, original)
        action()
        return original(*args, **named)

    monkeypatch.setattr(schema, before, overtaken)


@pytest.mark.parametrize("change", ["add", "truncate", "delete"])
def test_a_ddl_that_is_overtaken_fails_whole(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    slow = open_lake()
    changes: dict[str, SchemaChange] = {
        "add": AddColumn(Column("n", "INT"), "5"),
        "truncate": DeleteRows(None),
        "delete": DeleteRows(_id_below(2)),
    }
    schema = TableSchema((ID, NOTE, Column("n", "INT")), ("id",)) if change == "add" else SCHEMA
    _overtake(
        monkeypatch,
        slow,
        "publish",
        lambda: orders.apply(180, [("I", 170, 3, "fast")]),
    )
    with pytest.raises(TableMoved):
        slow.run(ChangeTable(orders.life, 190, (changes[change],), schema, SCHEMA))
    assert orders.rows() == [(1, "a"), (2, "b"), (3, "fast")]
    assert slow.applied()[orders.life].progress == Progress(180, Phase.ROWS)


def test_a_rewrite_that_swallowed_a_window_says_so_and_the_progress_asks_for_it_again(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "7")])
    slow, number = open_lake(), Column("note", "INT")
    _overtake(monkeypatch, slow, "_converted", lambda: orders.apply(180, [("I", 170, 3, "8")]))
    with pytest.raises(TableMoved):
        slow.run(
            ChangeTable(orders.life, 190, (RetypeColumn(NOTE, number),), TableSchema((ID, number), ("id",)), SCHEMA)
        )
    assert slow.applied()[orders.life].progress in (Progress(190, Phase.DDL), Progress(180, Phase.ROWS))


def test_labels_of_neighbours_do_not_mix(lake: Lake) -> None:
    one, two = Source(lake), Source(lake, TableId("shop", "customers"))
    one.apply(200, [("I", 110, 1, "a")])
    one.apply(300, [("U", 210, 1, "b")])
    two.apply(150, [("I", 110, 1, "a")])
    applied = lake.applied()
    assert applied[one.life].progress.tso == 300
    assert applied[two.life].progress.tso == 150


# --- columns ----------------------------------------------------------------------------------------------------------

DEFAULTS: list[tuple[Column, object, object]] = [
    (Column("c", "INT"), "5", 5),
    (Column("c", "BIGINT", unsigned=True), "18446744073709551615", Decimal(18446744073709551615)),
    (Column("c", "VARCHAR", precision=9), "it's", "it's"),
    (Column("c", "VARCHAR", precision=9), "", ""),
    (Column("c", "DECIMAL", precision=10, scale=2), "1.50", Decimal("1.50")),
    (Column("c", "DECIMAL", precision=50, scale=2), "1.50", "1.50"),
    (Column("c", "DATETIME", scale=3), "2020-01-02 03:04:05.006", datetime(2020, 1, 2, 3, 4, 5, 6000)),
    (Column("c", "TIMESTAMP"), "2020-01-02 03:04:05", datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
    (Column("c", "DATE"), "2020-02-29", date(2020, 2, 29)),
    (Column("c", "DATE", nullable=False), "0000-00-00", None),
    (Column("c", "BIT", precision=1), "1", True),
    (Column("c", "BIT", precision=9), "257", 257),
    (Column("c", "FLOAT"), "1.25", 1.25),
    (Column("c", "DOUBLE"), "-1e300", -1e300),
    (Column("c", "BINARY", precision=3), b"\x00a\xff", b"\x00a\xff"),
    (Column("c", "ENUM", elems=("x", "y")), "y", "y"),
    (Column("c", "TIME"), "-838:59:59", "-838:59:59"),
    (Column("c", "VECTOR"), "[1,2.5]", [1.0, 2.5]),
    (Column("c", "JSON"), None, None),
]


def test_rows_from_before_an_added_column_read_its_default_of_any_type(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    columns = [replace(column, name=f"c{i}") for i, (column, _, _) in enumerate(DEFAULTS)]
    changes = [AddColumn(column, default) for column, (_, default, _) in zip(columns, DEFAULTS, strict=True)]
    scalars = [i for i, (column, _, _) in enumerate(DEFAULTS) if column.type != "VECTOR"]
    schema = TableSchema((ID, NOTE, *(columns[i] for i in scalars)), ("id",))
    result = orders.change(210, schema, *(changes[i] for i in scalars))
    assert orders.rows() == [(1, "a", *(DEFAULTS[i][2] for i in scalars))]
    assert not any("REPLACE" in statement for statement in result.statements)
    vector = next(i for i, (column, _, _) in enumerate(DEFAULTS) if column.type == "VECTOR")
    orders.change(220, TableSchema((*schema.columns, columns[vector]), ("id",)), changes[vector])
    assert orders.rows()[0][-1] == [1.0, 2.5]


def test_columns_end_in_the_order_of_the_schema_with_the_commit_ts_last(lake: Lake) -> None:
    orders = Source(lake)
    first = Column("first", "INT")
    orders.change(110, TableSchema((first, ID, NOTE), ("id",)), AddColumn(first), MoveColumns(("first", "id", "note")))
    assert orders.columns() == ["first", "id", "note", "_cdc_commit_ts"]


def test_two_columns_exchange_names_and_keep_their_values(lake: Lake) -> None:
    a, b = Column("a", "INT"), Column("B.c`", "INT")
    orders = Source(lake, schema=TableSchema((ID, a, b), ("id",)))
    orders.apply(200, [("I", 110, 1, 10, 20)])
    after = TableSchema((ID, replace(b, name="a"), replace(a, name="B.c`")), ("id",))
    orders.change(210, after, RenameColumn("a", "B.c`"), RenameColumn("B.c`", "a"), MoveColumns(("id", "a", "B.c`")))
    assert lake.read(ORDERS).select(["a", "B.c`"]).to_pylist() == [{"a": 20, "B.c`": 10}]


def test_a_dropped_and_added_column_starts_anew(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(210, SCHEMA, DropColumn("note"), AddColumn(NOTE))
    assert orders.rows() == [(1, None)]


def test_a_widened_type_is_no_rewrite(lake: Lake) -> None:
    old = (Column("i", "INT"), Column("f", "FLOAT"), Column("d", "DECIMAL", precision=5, scale=2))
    new = (Column("i", "BIGINT"), Column("f", "DOUBLE"), Column("d", "DECIMAL", precision=9, scale=2))
    orders = Source(lake, schema=TableSchema((ID, *old), ("id",)))
    orders.apply(200, [("I", 110, 1, 7, "0.5", "1.20")])
    changes = [RetypeColumn(a, b) for a, b in zip(old, new, strict=True)]
    result = orders.change(210, TableSchema((ID, *new), ("id",)), *changes)
    assert orders.rows() == [(1, 7, 0.5, Decimal("1.20"))]
    assert not any("REPLACE" in statement for statement in result.statements)


def test_a_type_that_iceberg_cannot_widen_is_rewritten_and_all_else_stays(lake: Lake) -> None:
    old = (Column("i", "INT"), Column("d", "DECIMAL", precision=5, scale=2), Column("t", "DATE"), Column("gone", "INT"))
    new = (Column("s", "VARCHAR", precision=9), Column("d", "DECIMAL", precision=9, scale=1), Column("t", "DATETIME"))
    added = Column("added", "INT", default="4")
    orders = Source(lake, schema=TableSchema((ID, *old), ("id",)))
    orders.apply(200, [("I", 110, 1, -7, "1.25", "2020-01-02", 9), ("I", 120, 2, None, None, None, None)])
    before = lake.state.find(orders.life)
    orders.change(
        210,
        TableSchema((new[0], ID, *new[1:], added), ("id",)),
        RenameColumn("i", "s"),
        RetypeColumn(replace(old[0], name="s"), new[0]),
        RetypeColumn(old[1], new[1]),
        RetypeColumn(old[2], new[2]),
        DropColumn("gone"),
        AddColumn(added, "4"),
        MoveColumns(("s", "id", "d", "t", "added")),
    )
    assert orders.rows() == [("-7", 1, Decimal("1.3"), datetime(2020, 1, 2), 4), (None, 2, None, None, 4)]
    after = lake.state.find(orders.life)
    assert (after.location, after.life, after.name) == (before.location, before.life, before.name)
    assert after.label.progress == Progress(210, Phase.DDL)
    table = lake.state.catalog.load_table(("shop", "orders"))
    assert table.schema().find_field("d").doc == "DECIMAL(9,1)"
    assert table.format_version == 3
    orders.apply(300, [("U", 250, "x", 1, "2.0", None, 5)])
    assert orders.rows()[0][:3] == ("x", 1, Decimal("2.0"))


def test_a_ddl_carried_out_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "5")])
    number = Column("note", "INT")
    step = ChangeTable(orders.life, 210, (RetypeColumn(NOTE, number),), TableSchema((ID, number), ("id",)), SCHEMA)
    lake.run(step)
    again = lake.run(step)
    assert again.snapshot_before == again.snapshot_after
    assert orders.rows() == [(1, 5)]


def test_a_ddl_at_the_very_tso_that_rows_reached_is_still_carried_out(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(200, SCHEMA, DeleteRows(None))
    applied = lake.applied()[orders.life]
    assert orders.rows() == []
    assert (applied.progress, applied.ddl) == (Progress(200, Phase.ROWS), 200)


def test_a_new_default_changes_no_row_and_is_documented(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(210, TableSchema((ID, replace(NOTE, default="x")), ("id",)), SetDefault("note", "x"))
    assert orders.rows() == [(1, "a")]
    field = lake.state.catalog.load_table(("shop", "orders")).schema().find_field("note")
    assert field.doc == 'VARCHAR(20) DEFAULT "x"'


def test_columns_that_do_not_lead_to_the_schema_hold_the_table(lake: Lake) -> None:
    orders = Source(lake)
    with pytest.raises(TableHeld, match="schema file"):
        orders.change(210, TableSchema((ID, NOTE, Column("x", "INT")), ("id",)), SetDefault("note", None))
    assert lake.applied()[orders.life].progress == Progress(100, Phase.DDL)


def test_a_column_with_a_name_of_the_lake_itself_holds_the_table(lake: Lake) -> None:
    with pytest.raises(TableHeld, match="_CDC_commit_ts"):
        Source(lake, schema=TableSchema((ID, Column("_CDC_commit_ts", "INT")), ("id",)))


# --- rows by a condition ----------------------------------------------------------------------------------------------


def _id_below(bound: int) -> Predicate:
    return Predicate(
        "<", (Predicate("column", value="id", type="int"), Predicate("literal", value=str(bound), type="int"))
    )


def test_a_partition_is_deleted_by_its_condition(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 110, 2, "b"), ("I", 110, 3, None)])
    orders.change(210, SCHEMA, DeleteRows(_id_below(3)))
    assert orders.rows() == [(3, None)]
    assert lake.applied()[orders.life].progress == Progress(210, Phase.DDL)


@pytest.mark.parametrize("crash", [None, 0, 1], ids=["no crash", "after the first table", "after both"])
def test_exchanging_a_partition_swaps_rows_however_often_it_is_begun(lake: Lake, crash: int | None) -> None:
    parted, plain = Source(lake), Source(lake, TableId("shop", "archive"))
    parted.apply(200, [("I", 110, i, "p") for i in (1, 2, 3)])
    plain.apply(200, [("I", 110, 1, "n")])
    steps = [
        ExchangePartition(parted.life, plain.life, 300, _id_below(3), True, SCHEMA),
        ExchangePartition(plain.life, parted.life, 300, _id_below(3), False, SCHEMA),
    ]
    for step in steps[: 0 if crash is None else crash + 1]:
        lake.run(step)
    for step in steps:
        lake.run(step)
    assert parted.rows() == [(1, "n"), (3, "p")]
    assert plain.rows() == [(1, "p"), (2, "p")]


# --- tables without key -----------------------------------------------------------------------------------------------

BAG = TableSchema((Column("a", "INT"), Column("b", "VARCHAR", precision=9), Column("f", "FLOAT")))


def test_a_table_without_key_holds_equal_rows_as_often_as_the_source(lake: Lake) -> None:
    bag = Source(lake, schema=BAG)
    bag.apply(
        200,
        [
            ("I", 110, 1, "x", "0.1"),
            ("I", 110, 1, "x", "0.1"),
            ("I", 120, None, None, None),
            ("I", 130, None, None, None),
        ],
    )
    bag.apply(
        300,
        [("D", 210, 1, "x", "0.1"), ("D", 220, None, None, None), ("I", 230, 2, "y", None), ("I", 231, 2, "y", None)],
    )
    assert [row[:2] for row in bag.rows()] == [(1, "x"), (2, "y"), (2, "y"), (None, None)]
    bag.apply(400, [("D", 310, 2, "y", None)])
    assert lake.state.named(ORDERS).rows == 3


def test_a_delete_that_finds_no_equal_row_holds_the_table(lake: Lake) -> None:
    bag = Source(lake, schema=BAG)
    bag.apply(200, [("I", 110, 1, "x", None)])
    with pytest.raises(TableHeld, match="no key"):
        bag.apply(300, [("D", 210, 1, "x", None), ("D", 220, 1, "x", None)])
    assert len(bag.rows()) == 1


def test_keys_match_by_their_collation(lake: Lake) -> None:
    name = Column("id", "VARCHAR", precision=9, nullable=False, is_pk=True, collation="utf8mb4_general_ci")
    orders = Source(lake, schema=TableSchema((name, NOTE), ("id",)))
    orders.apply(200, [("I", 110, "a", "1"), ("I", 110, "b", "1")])
    orders.apply(300, [("U", 210, "A", "2"), ("D", 220, "B", "1")])
    assert orders.rows() == [("A", "2")]


def test_keys_that_meet_a_living_one_of_other_letters_are_counted(lake: Lake) -> None:
    text = Column("code", "VARCHAR", precision=9, collation="utf8mb4_general_ci")
    orders = Source(lake, schema=TableSchema((NOTE, ID, text), ("id", "code")))
    first = orders.window(200, [("I", 110, "x", n, code) for n in (1, 2, 3) for code in ("a", None)])
    staged = lake.stage(*first)
    assert (lake.commit(first[0], staged).alike.count, staged.report.alike.count) == (0, 0)
    changed = [("D", 210, "x", 1, "a"), ("I", 210, "y", 1, "A"), ("I", 211, "y", 2, "a"), ("I", 212, "y", 4, "a")]
    assert orders.apply(300, changed).alike == AlikeKeys()
    met = orders.apply(400, [("I", 310, "z", 2, "A "), ("I", 311, "z", 3, "A"), ("I", 312, "z", 1, "A")])
    assert met.alike == AlikeKeys(2, '2, "A "')
    within = orders.window(500, [("I", 410, "z", 5, "a"), ("I", 411, "z", 5, "A")])
    assert lake.stage(*within).report.alike == AlikeKeys(1, '5, "A"')


def test_a_composite_key_with_a_nullable_column_matches_null(lake: Lake) -> None:
    other = Column("other", "INT")
    orders = Source(lake, schema=TableSchema((ID, other, NOTE), ("id", "other")))
    orders.apply(200, [("I", 110, 1, None, "a"), ("I", 110, 1, 1, "b")])
    orders.apply(300, [("U", 210, 1, None, "A")])
    assert sorted(row[2] for row in orders.rows()) == ["A", "b"]


# --- names ------------------------------------------------------------------------------------------------------------

NAMES = [
    TableId("shop", "Orders"),
    TableId("Shop", "orders"),
    TableId("a.b", "t"),
    TableId("a", "b.t"),
    TableId("..", "../x"),
    TableId("my db", "."),
    TableId("q'\"`", "t`'\""),
    TableId("50%", "a%2Eb"),
    TableId("s/l", "a/b"),
    TableId("表", "表" * 64),
    TableId("a\\b_", "😀 {x},;=()"),
]


def test_tables_of_any_name_are_made_filled_and_read_inside_the_warehouse(lake: Lake, tmp_path: Path) -> None:
    sources = [Source(lake, name) for name in NAMES]
    for number, source in enumerate(sources):
        source.apply(200, [("I", 110, number, "x")])
    assert [source.rows() for source in sources] == [[(number, "x")] for number in range(len(NAMES))]
    places = {lake.state.find(source.life).location for source in sources}
    assert len(places) == len(NAMES)
    assert all(Path(place).resolve().parent == tmp_path / "lake" / "default" for place in places)
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}


def test_three_tables_exchange_names_and_keep_their_rows_and_progress(lake: Lake) -> None:
    a, b, c = (Source(lake, TableId("shop", name)) for name in "abc")
    for number, source in enumerate((a, b, c)):
        source.apply(200, [("I", 110, number, "x")])
    for source, to in ((a, b.name), (b, c.name), (c, a.name)):
        lake.run(RenameTable(source.life, 300, to))
    lake.settle_names()
    assert {name: lake.read(TableId("shop", name)).column("id").to_pylist() for name in "abc"} == {
        "a": [2],
        "b": [0],
        "c": [1],
    }
    assert {held.identifier for held in lake.state.tables().values()} == {("shop", name) for name in "abc"}
    assert all(applied.progress == Progress(300, Phase.DDL) for applied in lake.applied().values())


def test_a_table_is_found_where_another_run_has_moved_it_and_not_taken_for_its_successor(
    open_lake: Callable[..., Lake],
) -> None:
    lake, other = open_lake(), open_lake()
    a, b = (Source(lake, TableId("shop", name)) for name in "ab")
    assert set(other.applied()) == {a.life, b.life}
    for source, to in ((a, b.name), (b, a.name)):
        lake.run(RenameTable(source.life, 300, to))
    lake.settle_names()
    assert [other.state.find(one.life).identifier for one in (a, b)] == [("shop", "b"), ("shop", "a")]
    assert [other.state.find(one.life).life for one in (a, b)] == [a.life, b.life]


def test_a_rename_that_stopped_half_way_is_finished_by_the_next_settling(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Source(lake)
    with monkeypatch.context() as patch:
        patch.setattr(settling, "settle_names", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lake.run(RenameTable(orders.life, 200, TableId("new", "orders")))
    assert lake.state.find(orders.life).identifier == ("shop", "orders")
    lake.settle_names()
    assert lake.state.find(orders.life).identifier == ("new", "orders")


def test_a_dropped_table_leaves_its_name_and_can_be_recovered_with_its_rows(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    lake.run(DropTable(orders.life, 300))
    assert lake.applied()[orders.life].name is None
    successor = Source(lake, at=310)
    assert successor.rows() == []
    lake.run(RecoverTable(orders.life, 400, TableId("shop", "old")))
    assert lake.read(TableId("shop", "old")).column("id").to_pylist() == [1]
    assert lake.state.find(orders.life).location != lake.state.find(successor.life).location


def test_a_purged_table_is_gone_and_its_drop_is_remembered(lake: Lake) -> None:
    orders = Source(lake)
    with pytest.raises(BadSettings, match="not dropped"):
        lake.purge(orders.life)
    lake.run(DropTable(orders.life, 300))
    place = Path(lake.state.find(orders.life).location)
    assert list(lake.dropped()) == [orders.life]
    lake.purge(orders.life)
    lake.purge(orders.life)
    assert lake.dropped() == {}
    applied = lake.applied()[orders.life]
    assert (applied.progress, applied.ddl, applied.name) == (Progress(300, Phase.DDL), 300, None)
    assert not [path for path in place.rglob("*") if path.is_file()]
    with pytest.raises(TableHeld, match="purged after its DROP"):
        lake.run(RecoverTable(orders.life, 400, orders.name))


def test_a_table_that_is_not_the_changefeeds_is_never_touched(open_lake: Callable[..., Lake]) -> None:
    Source(open_lake("one"))
    with pytest.raises(TableHeld, match=r"is the changefeed one's.*namespace"):
        Source(open_lake("two"))
    two = Source(open_lake("two", namespace="two_{schema}"))
    assert [str(life) for life in open_lake("two").applied()] == [str(two.life)]


@pytest.mark.parametrize("dropped_first", [False, True])
def test_a_name_of_another_changefeeds_table_is_taken_by_no_rename(
    open_lake: Callable[..., Lake], dropped_first: bool
) -> None:
    Source(open_lake("one"))
    lake = open_lake("two")
    bills = Source(lake, TableId("shop", "bills"))
    bills.apply(200, [("I", 110, 1, "a")])
    if dropped_first:
        lake.run(DropTable(bills.life, 300))
    step = (RecoverTable if dropped_first else RenameTable)(bills.life, 400, ORDERS)
    with pytest.raises(TableHeld, match=r"shop\.orders is the changefeed one's"):
        lake.run(step)
    assert lake.applied()[bills.life].ddl == (300 if dropped_first else 100)


def test_a_database_with_a_name_of_the_lake_itself_is_held(lake: Lake) -> None:
    with pytest.raises(TableHeld, match="namespace"):
        Source(lake, TableId("_cdc_dropped", "t"))


def test_creating_a_table_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    assert lake.run(CreateTable(orders.life, 100, ORDERS, SCHEMA)).statements == ()
    assert orders.rows() == [(1, "a")]


# --- labels -----------------------------------------------------------------------------------------------------------


def test_a_compaction_without_label_does_not_hide_the_progress(lake: Lake, spark: Any) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.apply(300, [("I", 210, 2, "b")])
    session = lake.workbench.sessions.side()
    session.sql(
        f"CALL {session.catalog}.system.rewrite_data_files("
        "table => 'shop.orders', options => map('rewrite-all', 'true'))"
    ).collect()
    assert lake.state.find(orders.life).snapshot_id != lake.applied()[orders.life].progress.tso
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)
    orders.apply(400, [("U", 310, 1, "A")])
    assert orders.rows() == [(1, "A"), (2, "b")]


def test_without_commit_ts_the_position_in_the_files_is_kept_with_the_rows(lake: Lake) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a"), ("U", 110, 1, "b")])
    step = replace(step, positions={"r/100||12": 1})
    lake.commit(step, lake.stage(step, files))
    assert orders.rows() == [(1, "b")]
    assert lake.applied()[orders.life].positions == {"r/100||12": 1}
    assert lake.read(ORDERS).column("_cdc_commit_ts").to_pylist() == [None]
    lake.run(ChangeTable(orders.life, 300, (DeleteRows(None),), SCHEMA, SCHEMA))
    assert lake.applied()[orders.life].positions == {"r/100||12": 1}


# --- without Spark ----------------------------------------------------------------------------------------------------


@given(st.permutations(range(5)), st.permutations(range(7)))
def test_settling_names_brings_every_table_home_in_whatever_order_they_wait(held: list[int], wish: list[int]) -> None:
    lives = [Life(TableId("s", f"t{i}"), i) for i in range(5)]
    now = {life: ("s", f"n{held[i]}") for i, life in enumerate(lives)}
    wanted = {life: ("s", f"n{wish[i]}") for i, life in enumerate(lives)}
    place, taken = dict(now), set(now.values())
    for life, source, target in moves(now, wanted, {life: ("w", str(life)) for life in lives}, taken):
        assert place[life] == source
        assert target not in taken
        taken = taken - {source} | {target}
        place[life] = target
    assert place == wanted


def test_a_table_whose_name_is_held_by_one_that_stays_waits_where_it_is() -> None:
    one, two = Life(TableId("s", "one"), 1), Life(TableId("s", "two"), 2)
    now = {one: ("s", "one"), two: ("s", "two")}
    assert moves(now, {one: ("s", "two"), two: ("s", "two")}, {}, now.values()) == []


texts = st.text(st.characters(codec="utf-8"), min_size=1)


@given(texts, texts, st.integers(0, 1 << 63))
def test_names_and_identities_are_read_as_they_were_written(schema: str, table: str, version: int) -> None:
    life = Life(TableId(schema, table), version)
    assert parse_identity(format_identity(life)) == life
    assert parse_name(format_name(life.born_as)) == life.born_as
    place = location("/w", "feed", life)
    assert Path(place).resolve().parent == Path("/w/feed")
    assert len(Path(place).name) < 250


@given(st.integers(0, 1 << 62), st.sampled_from(Phase), st.integers(0, 1 << 62), st.dictionaries(texts, st.integers()))
def test_labels_are_read_as_they_were_written(tso: int, phase: Phase, ddl: int, positions: dict[str, int]) -> None:
    label = Label(Progress(tso, phase), ddl, positions)
    assert Label.parse(label.properties()) == label
