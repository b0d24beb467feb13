"""Two sides compared: every fault is named, nothing else is, whatever the order, the blocks and the ranges."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.decoding.split import hash_probe
from cdc_assets.errors import SetupError, StorageUnavailable
from cdc_assets.features.verification import operations_rows as comparison
from cdc_assets.features.verification.operations_rows import (
    BlockFacts,
    Comparison,
    PieceShares,
    SourceChanged,
    borders_of,
)
from cdc_assets.model.comparison import RowDifference
from cdc_assets.model.schema import TableSchema
from cdc_assets_tests.dump_contents import contents, expected
from cdc_assets_tests.dump_writer import Row
from cdc_assets_tests.landing.test_shares import Tasks


@dataclass
class Pieces:
    """Rows in pieces of a few; `later` are those that are read from the second time on."""

    rows: pa.Table
    size: int = 100
    later: pa.Table | None = None
    threads: int = 2
    reads: int = 0

    def pieces(self) -> Sequence[int]:
        return range(0, self.rows.num_rows, self.size)

    @property
    def reconnects(self) -> int:
        return 0

    def reader(self, count: int) -> Pieces:
        return self

    def note(self, piece: int | None, facts: BlockFacts) -> None:
        pass

    def read(self, piece: int) -> Iterator[tuple[pa.Table, BlockFacts]]:
        self.reads += 1
        rows = self.rows if self.later is None or self.reads <= len(self.pieces()) else self.later
        part = rows.slice(piece, self.size)
        yield part.slice(0, self.size // 2), BlockFacts(1)
        yield part.slice(self.size // 2), BlockFacts(1)


def shuffled(rows: pa.Table, seed: int) -> pa.Table:
    order = list(range(rows.num_rows))
    random.Random(seed).shuffle(order)
    return rows.take(pa.array(order, pa.int64()))


def named(rows: Sequence[RowDifference]) -> Counter[tuple[str, str | None, tuple[str, ...]]]:
    return Counter(
        (row.kind, row.key["id"], tuple(value.column for value in row.values)) for row in rows for _ in range(row.count)
    )


def keyed(values: pa.Table) -> pa.Table:
    return values.add_column(0, "id", pa.array(range(values.num_rows), pa.int64()))


@settings(max_examples=60)
@given(contents(), st.data())
def test_every_changed_value_of_every_type_is_named(table: tuple[TableSchema, list[Row]], data: st.DataObject) -> None:
    schema, rows = table
    source = keyed(expected(schema, [*rows, *rows]))
    lake = shuffled(source, 1)
    wanted: Counter[tuple[str, str | None, tuple[str, ...]]] = Counter()
    changed = []
    for row in lake.to_pylist():
        column = data.draw(st.sampled_from(lake.column_names))
        replacement = data.draw(st.sampled_from([None, *source.column(column).to_pylist()]))
        if column != "id" and replacement != row[column]:
            row = {**row, column: replacement}
            wanted["differing", str(row["id"]), (column,)] += 1
        changed.append(row)
    outcome = Comparison(tuple(source.column_names), ("id",)).run(
        Pieces(pa.Table.from_pylist(changed, source.schema), 3), Pieces(source, 4)
    )
    assert named(outcome.rows) == wanted
    assert outcome.differing == sum(wanted.values())
    assert (outcome.missing, outcome.extra, outcome.partly) == (0, 0, False)


ROWS = 30_000


def many() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "amount": pa.array([number * 7 % 1000 for number in range(ROWS)], pa.int32()),
            "text": pa.array([f"row {number}" for number in range(ROWS)]),
        }
    )


@pytest.mark.parametrize("ranges", [False, True])
def test_a_thousand_faults_in_many_rows_are_all_named(ranges: bool) -> None:
    source, chance = many(), random.Random(7)
    chosen = chance.sample(range(ROWS), 1200)
    missing, changed, doubled = set(chosen[:400]), set(chosen[400:800]), set(chosen[800:])
    rows = []
    for row in source.to_pylist():
        if row["id"] in missing:
            continue
        if row["id"] in changed:
            row = {**row, chance.choice(["amount", "text"]): None}
        rows += [row] * (2 if row["id"] in doubled else 1)
    lake = shuffled(pa.Table.from_pylist(rows, source.schema), 2)
    borders = borders_of([source.column("id")]) if ranges else None
    how = Comparison(tuple(source.column_names), ("id",), borders=borders, shown=2000)
    outcome = how.run(Pieces(lake, 5000), Pieces(source, 3000))
    by_kind = {kind: {int(row.key["id"] or 0) for row in outcome.rows if row.kind == kind}
               for kind in ("missing", "differing", "extra")}  # fmt: skip
    assert by_kind == {"missing": missing, "differing": changed, "extra": doubled}
    assert (outcome.missing, outcome.differing, outcome.extra) == (400, 400, 400)
    assert (outcome.lake, outcome.source) == (ROWS, ROWS)


def test_only_pieces_that_may_have_a_differing_row_are_read_again() -> None:
    source = many()
    lake = source.set_column(
        1, "amount", pa.array([1 if n == 777 else v for n, v in enumerate(source["amount"].to_pylist())], pa.int32())
    )
    sides = Pieces(lake, 1000), Pieces(source, 1000)
    outcome = Comparison(tuple(source.column_names), ("id",), borders=borders_of([source.column("id")])).run(*sides)
    assert named(outcome.rows) == {("differing", "777", ("amount",)): 1}
    assert [side.reads for side in sides] == [31, 31]


def test_rows_without_key_are_counted_as_often_as_they_stand_there() -> None:
    columns = {"a": [1, 1, 1, 2, None], "b": ["x", "x", "x", "y", None]}
    source = pa.table(columns)
    lake = pa.table({"a": [2, 1, None, None], "b": ["y", "x", None, None]}, schema=source.schema)
    outcome = Comparison(("a", "b"), ()).run(Pieces(lake), Pieces(source))
    assert {(row.kind, tuple(row.key.values()), row.count) for row in outcome.rows} == {
        ("missing", ("1", "x"), 2), ("extra", (None, None), 1),
    }  # fmt: skip
    assert (outcome.missing, outcome.extra) == (2, 1)


def test_values_that_change_places_are_other_rows() -> None:
    source, lake = pa.table({"a": [1, 2], "b": [2, 1]}), pa.table({"a": [1, 2], "b": [1, 2]})
    assert Comparison(("a", "b"), ()).run(Pieces(lake), Pieces(source)).missing == 2


@pytest.mark.parametrize("key", [("f",), ()])
def test_zeros_of_either_sign_are_equal_as_they_are_in_sql(key: tuple[str, ...]) -> None:
    types = {"f": pa.float32(), "d": pa.float64(), "v": pa.list_(pa.float32())}
    lake, source = (
        pa.table({name: pa.array([[zero] if name == "v" else zero], kind) for name, kind in types.items()})
        for zero in (0.0, -0.0)
    )
    outcome = Comparison(tuple(types), key).run(Pieces(lake), Pieces(source))
    assert (outcome.rows, outcome.lake, outcome.source) == ((), 1, 1)
    other = source.append_column("n", pa.array([1])), lake.append_column("n", pa.array([2]))
    rows = Comparison((*types, "n"), key).run(Pieces(other[0]), Pieces(other[1])).rows
    assert [value.column for row in rows for value in row.values] == (["n"] if key else [])


def test_an_empty_side_is_compared() -> None:
    source = pa.table({"id": [1]})
    outcome = Comparison(("id",), ("id",)).run(Pieces(source.slice(1)), Pieces(source))
    assert named(outcome.rows) == {("missing", "1", ()): 1}


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_value_that_a_loss_explains_is_counted_and_not_different(key: tuple[str, ...]) -> None:
    source = pa.table({"id": [1, 2, 2], "v": [1.5, 2.5, 3.5]})
    lake = pa.table({"id": [1, 2, 2], "v": [1.0, 2.5, 9.0]})
    how = Comparison(
        ("id", "v"), key, frozenset({"v"}), lambda column, value, theirs: "cut" if value == int(theirs) else ""
    )
    outcome = how.run(Pieces(lake), Pieces(source))
    assert outcome.losses == {"v: cut": 1}
    assert (outcome.missing, outcome.extra, outcome.differing) == ((0, 0, 1) if key else (1, 1, 0))


def test_a_source_that_gives_other_rows_the_second_time_is_noticed() -> None:
    source = many()
    with pytest.raises(SourceChanged):
        Comparison(tuple(source.column_names), ("id",)).run(
            Pieces(source.slice(1)), Pieces(source, later=source.set_column(1, "amount", pa.nulls(ROWS, pa.int32())))
        )


def test_where_very_many_rows_differ_some_are_named_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_ROWS_AT_ONCE", 500)
    source = many()
    lake = source.set_column(1, "amount", pa.nulls(ROWS, pa.int32()))
    outcome = Comparison(tuple(source.column_names), ("id",), shown=10).run(Pieces(lake), Pieces(source))
    assert outcome.partly
    assert 0 < outcome.differing <= 500
    assert len(outcome.rows) == 10


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", "a", None, "Ä"]),
        pa.array([3, 1, None, 2], pa.int32()),
        pa.array([True, None, False, True]),
        pa.array([b"\0", b"", None, b"x"]),
        pa.array([None, None, None, None], pa.int64()),
    ],
)
def test_any_first_column_of_a_key_can_be_cut(values: pa.Array) -> None:
    source = pa.table({"k": values, "n": [1, 2, 3, 4]})
    lake = source.slice(1)
    outcome = Comparison(("k", "n"), ("k", "n"), borders=borders_of([source.column("k")])).run(
        Pieces(lake), Pieces(source)
    )
    assert [(row.kind, row.key["n"]) for row in outcome.rows] == [("missing", "1")]


@dataclass
class ElsewhereGone(Pieces):
    """Files that executors do not have, and perhaps nobody."""

    threads: int = 2
    here: bool = True

    def reader(self, count: int) -> Pieces:
        return self if count == 1 and self.here else Gone(self.rows)


class Gone(Pieces):
    def read(self, piece: int) -> Iterator[tuple[pa.Table, BlockFacts]]:
        raise FileNotFoundError("part-1.parquet")


def test_a_file_that_executors_alone_do_not_have_is_not_taken_for_removed() -> None:
    rows = pa.table({"id": range(40)})
    how, whole = Comparison(("id",), ("id",)), Pieces(rows)
    with pytest.raises(StorageUnavailable, match=r"part-1\.parquet does not exist there, .*decode: driver"):
        how.run(ElsewhereGone(rows, 10), whole, executors=Tasks())
    with pytest.raises(FileNotFoundError):
        how.run(ElsewhereGone(rows, 10, here=False), whole, executors=Tasks())


def test_a_machine_that_hashes_otherwise_digests_nothing() -> None:
    pieces = Pieces(pa.table({"id": range(40)}))
    shares = PieceShares(Comparison(("id",), ("id",)), pieces, [list(enumerate(pieces.pieces()))], hash_probe() ^ 1)
    with pytest.raises(SetupError, match="decode: driver"):
        shares(0)
