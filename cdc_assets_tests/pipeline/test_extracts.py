"""Extracts: what a table's changes of a range lead to is what the source held at its end."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from cdc_assets.decoding.position_sort import PositionSort
from cdc_assets.errors import BadSettings, ExtractRefused, MalformedData
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.operations import net_changes
from cdc_assets.operations.change_files import FORMATS, write_extract
from cdc_assets.operations.extract import extract
from cdc_assets.pipeline import replay as replaying
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import Feed, Generated, each_history, how_many
from cdc_assets_tests.lake_contents import rows_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.masked import KEY
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.pipeline.test_cuts import Shop
from cdc_assets_tests.schema_documents import document, write_schema
from cdc_assets_tests.source import Source, Table, normal

LEAVES = ("DELETE", "UPDATE_BEFORE")


def applied(changes: pa.Table, columns: Sequence[str], identity: Any) -> Counter[tuple[Any, ...]]:
    """Apply changes to an empty table: by the identity of its rows, or as equal ones."""
    rows_by_place: dict[Any, Counter[tuple[Any, ...]]] = {}
    words = changes.column("_change_type").to_pylist()
    for word, row in zip(words, rows_of(changes.select(columns)), strict=True):
        if word == "TRUNCATE":
            rows_by_place.clear()
            continue
        place = None if identity is None else identity(dict(zip(columns, row, strict=True)))
        there = rows_by_place.setdefault(place, Counter())
        if place is not None:
            there.clear()
        there[row] += -1 if word in LEAVES and place is None else word not in LEAVES
    return +sum(rows_by_place.values(), Counter())


def identity_of(table: Table) -> Any:
    """How the source tells rows apart: by the key's normal form, None for a table without."""
    if not table.keyed:
        return None
    keys = [
        table.primary,
        *(unique for unique in table.uniques.values() if all(not table.column(c).nullable for c in unique)),
    ]
    key = next(key for key in keys if key)
    return lambda row: tuple(normal(row[name], table.column(name)) for name in key)


def check_extracts(generated: Generated, tomls: Mapping[str, Path]) -> int:
    source, style, picks, checked = generated.source, generated.style, Picks(generated.raw), 0
    feed, logged = Feed(style, tomls[style.rendering]), Feed(style, tomls[style.rendering], history={"*.*": "log"})
    with closing(feed), closing(logged):
        for publication in generated.publications():
            feed.publish(publication)
            logged.publish(publication)
            logged.pipeline.apply("test")
        end = publication.shown
        events = [event.ts for event in source.log if event.ts < end]
        for name, table in source.tables.items():
            middle = events[picks(len(events))] if events else 0
            checked += check_table(feed, source, str(name), table, middle, end)
            check_log(logged, feed, str(name), middle, end)
    return checked


@contextmanager
def piecemeal() -> Iterator[None]:
    """Read extracts in the smallest pieces."""
    rows = patch.object(PositionSort, "ROWS", 3)
    files, nets = patch.object(replaying, "_SHARE_FILES", 1), patch.object(net_changes, "_ROWS", 1)
    with rows, files, nets:
        yield


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells which files a process maps")
def test_changes_that_lie_on_disk_are_no_memory_of_the_process(tmp_path: Path) -> None:
    waiting = PositionSort(tmp_path, "position")
    with piecemeal():
        for position in (3, 1, 2, 0):
            waiting.add(pa.table({"position": [position] * 3}))
        ranges = [(rows, str(tmp_path) in Path("/proc/self/maps").read_text()) for rows in waiting.ranges()]
    assert [set(rows.column("position").to_pylist()) for rows, _ in ranges] == [{0}, {1}, {2}, {3}]
    assert not any(is_mapped for _, is_mapped in ranges)


def check_log(logged: Feed, feed: Feed, name: str, since: int, until: int) -> None:
    """An extract from a log has the changes that one from the feed has, but for those that a DDL made."""
    name = str(extract(feed.pipeline, name, 0, until).life)  # another table may have had the name
    with piecemeal():
        log_extract = extract(logged.pipeline, name, since, until)
        changes = log_extract.changes
    if log_extract.source == "feed":
        return
    expected = extract(feed.pipeline, name, since, until).changes
    changes, expected = (
        side.filter(pc.invert(pc.starts_with(side["_cdc_place"], "DDL"))) for side in (changes, expected)
    )
    assert changes.column("_cdc_position").to_pylist() == expected.column("_cdc_position").to_pylist()
    assert sorted(map(repr, changes.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def check_table(feed: Feed, source: Source, name: str, table: Table, middle: int, end: int) -> int:
    """An extract of the whole history leads to the source's rows, and one of a part is that part of it."""
    whole = extract(feed.pipeline, name, 0, end)
    words = list(zip(*(whole.changes.column(n).to_pylist() for n in ("_change_type", "_cdc_partitions")), strict=True))
    columns, rows = source.contents(end)[table.name]
    assert set(whole.changes.column_names) == {*columns, *(column.name for column in own_columns("log"))}
    if not any(word == "TRUNCATE" and partitions for word, partitions in words):  # which says not which rows went
        assert applied(whole.changes, columns, identity_of(table)) == rows
    with piecemeal():
        part = extract(feed.pipeline, str(whole.life), middle, end)
        parts = part.changes
    assert parts.column("_cdc_position").to_pylist() == sorted(parts.column("_cdc_position").to_pylist())
    later = whole.changes.filter(pc.greater(whole.changes.column("_cdc_position"), part.since))
    assert sorted(map(repr, parts.to_pylist())) == sorted(map(repr, later.to_pylist()))
    if table.keyed and not words.count(("TRUNCATE", None)):
        try:
            with piecemeal():
                net = extract(feed.pipeline, name, 0, end, net=True).changes
        except ExtractRefused as error:
            assert "and by another key before that" in str(error)  # noqa: PT017  # all others are faults
            return 1
        assert applied(net, columns, identity_of(table)) == rows
        keys = [identity_of(table)(dict(zip(columns, row, strict=True))) for row in rows_of(net.select(columns))]
        assert len(set(keys)) == len(keys)
    return 1


@how_many(3, 2000)
def test_the_changes_of_a_generated_history_lead_to_its_rows(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_extracts(generated, tomls))


# --- one table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.rows(
        "shop.orders", FIRST, [("U", FIRST + 12, 1, "two"), ("I", FIRST + 14, 2, "new"), ("D", FIRST + 16, 2, "new")]
    )
    shop.rows("shop.orders", FIRST, [("U", FIRST + 12, 1, "two"), ("I", FIRST + 18, 3, "last")])
    shop.publish(FIRST + 20)
    return shop


def words(changes: pa.Table) -> list[tuple[Any, ...]]:
    rows = changes.to_pylist()
    return [(row["_cdc_position"] - FIRST, row["_change_type"], row["id"], row["v"]) for row in rows]


def test_changes_of_a_range_come_once_in_order_whether_they_are_applied_or_not(shop: Shop) -> None:
    expected = [
        (12, "UPDATE_AFTER", 1, "two"),
        (14, "INSERT", 2, "new"),
        (16, "DELETE", 2, "new"),
        (18, "INSERT", 3, "last"),
    ]
    assert words(extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20).changes) == expected
    shop.pipeline.apply()
    assert words(extract(shop.pipeline, "shop.orders", FIRST + 12, FIRST + 18).changes) == expected[1:]
    net = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20, net=True)
    assert words(net.changes) == [expected[0], expected[2], expected[3]]
    assert extract(shop.pipeline, "shop.orders", FIRST + 19, FIRST + 20).changes.num_rows == 0


@pytest.mark.parametrize("more", [{}, {"history": {"*": "log"}}])
def test_what_leaves_at_a_position_comes_before_what_enters_though_it_is_in_a_later_file(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    shop, text = Shop(tmp_path, **more), {"ColumnType": "VARCHAR", "ColumnPrecision": "9"}
    query = "CREATE TABLE `tags` (`id` VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY,`v` VARCHAR(40))"
    shop.ddl("shop.tags", FIRST + 20, query, 3, key=text)
    shop.rows("shop.tags", FIRST + 20, [("I", FIRST + 21, "a", "one"), ("I", FIRST + 22, "A", "two")])
    shop.rows("shop.tags", FIRST + 20, [("D", FIRST + 22, "a", "one")])
    shop.publish(FIRST + 30)
    shop.pipeline.apply()
    change_words = words(extract(shop.pipeline, "shop.tags", FIRST, FIRST + 30).changes)
    assert change_words == [(21, "INSERT", "a", "one"), (22, "DELETE", "a", "one"), (22, "INSERT", "A", "two")]


def test_the_name_of_a_history_table_means_the_changes_of_its_source_table(shop: Shop) -> None:
    shop.more = {"history": {"shop.orders": ["log", "scd2"]}}
    wanted = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20).changes
    for name in ("shop.orders__log", "shop.orders__scd2", f"shop.orders@{FIRST}.log"):
        table_extract = extract(shop.pipeline, name, FIRST + 10, FIRST + 20)
        assert (str(table_extract.table), table_extract.changes) == ("shop.orders", wanted)


def test_a_log_that_covers_the_range_has_the_same_changes_and_still_has_them_once_the_files_are_gone(
    shop: Shop,
) -> None:
    from_feed = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)
    shop.more = {"history": {"shop.orders": "log"}}
    assert extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20).source == "feed"  # it is not there yet
    shop.pipeline.apply()
    from_log = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)
    assert (from_feed.source, from_log.source) == ("feed", "log")
    assert from_log.changes.to_pylist() == from_feed.changes.to_pylist()
    for file in (shop.bucket / "shop" / "orders").rglob("CDC*.csv"):
        file.unlink()
    assert len(words(extract(shop.pipeline, "shop.orders", FIRST + 12, FIRST + 18).changes)) == 3
    shop.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    shop.publish(FIRST + 40)
    shop.pipeline.apply()
    assert extract(shop.pipeline, "shop.orders", FIRST + 12, FIRST + 40).source == "log"
    with pytest.raises(ExtractRefused):  # the log has another column by now
        extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)


@pytest.mark.parametrize("mask", ["drop", {"redact": "length"}, {"hash": {"key": {"env": "MASK_KEY"}}}], ids=repr)
def test_a_log_with_masked_columns_has_the_types_and_values_of_an_extract_from_the_feed(
    shop: Shop, mask: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)
    column = "id" if isinstance(mask, dict) and "hash" in mask else "v"
    shop.more = {"privacy": {f"shop.orders.{column}": mask}, "history": {"shop.orders": "log"}}
    for net in (False, True):
        shop.lake.tables.clear()
        from_feed = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20, net=net)
        shop.pipeline.apply()
        from_log = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20, net=net)
        assert (from_feed.source, from_log.source) == ("feed", "log")
        assert from_log.changes == from_feed.changes


def test_a_log_from_before_a_mask_is_not_read_for_an_extract(shop: Shop) -> None:
    shop.more = {"history": {"shop.orders": "log"}}
    shop.pipeline.apply()
    shop.more |= {"privacy": {"shop.orders.v": {"constant": "hidden"}}}
    table_extract = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)
    assert (table_extract.source, set(table_extract.changes.column("v").to_pylist())) == ("feed", {"hidden"})


def test_a_log_that_lacks_a_record_in_quarantine_is_not_read_for_an_extract(shop: Shop) -> None:
    shop.more = {"history": {"shop.orders": "log"}, "quarantine": True}
    shop.rows("shop.orders", FIRST, [("I", FIRST + 22, "no number", "x"), ("I", FIRST + 24, 4, "y")])
    shop.publish(FIRST + 30)
    shop.pipeline.apply()
    with pytest.raises(MalformedData, match=r"CDC00000000000000000004\.csv line 1"):
        _ = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 30).changes


def test_a_table_that_takes_the_name_of_another_begins_by_a_truncate(shop: Shop) -> None:
    shop.ddl("shop.orders", FIRST + 30, "DROP TABLE `orders`", 4, columns=False)
    shop.create("shop.orders", FIRST + 40)
    shop.rows("shop.orders", FIRST + 40, [("I", FIRST + 41, 9, "new")])
    shop.publish(FIRST + 50)
    expected = [(40, "TRUNCATE", None, None), (41, "INSERT", 9, "new")]
    for net in (False, True):
        assert words(extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 50, net=net).changes) == expected
    assert words(extract(shop.pipeline, f"shop.orders@{FIRST + 40}", FIRST, FIRST + 50).changes) == expected[1:]
    assert words(extract(shop.pipeline, "shop.orders", FIRST + 35, FIRST + 50).changes) == expected[1:]
    shop.ddl("shop.old", FIRST + 60, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", 14)
    shop.ddl("shop.orders", FIRST + 70, "RENAME TABLE `shop`.`items` TO `shop`.`orders`", 14)
    shop.publish(FIRST + 80)
    with pytest.raises(ExtractRefused, match=rf"shop\.orders was another table at {FIRST + 50}: shop\.orders@"):
        extract(shop.pipeline, "shop.orders", FIRST + 50, FIRST + 80)
    assert extract(shop.pipeline, "shop.old", FIRST + 50, FIRST + 80).changes.num_rows == 0


@pytest.mark.parametrize("more", [{}, {"history": {"*": "log"}}])
def test_a_range_that_ends_before_a_table_took_the_name_of_another_is_not_told_by_its_changes(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    shop = Shop(tmp_path, **more)
    shop.create("shop.fresh", FIRST + 20)
    shop.rows("shop.fresh", FIRST + 20, [("I", FIRST + 21, 7, "fresh")])
    shop.ddl("shop.old", FIRST + 50, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", 14)
    shop.ddl("shop.orders", FIRST + 60, "RENAME TABLE `shop`.`fresh` TO `shop`.`orders`", 14)
    shop.ddl("shop.items", FIRST + 70, "DROP TABLE `items`", 4, columns=False)
    shop.create("shop.items", FIRST + 80)
    shop.publish(FIRST + 90)
    shop.pipeline.apply()
    refused = [("orders", 15), ("orders", 40), ("orders", 55), ("items", 65), ("items", 75)]
    for table, until in refused:
        reason = rf"shop\.{table} was another table at {FIRST + until}: |no table was called|{table} does not exist at"
        with pytest.raises(ExtractRefused, match=reason):
            extract(shop.pipeline, f"shop.{table}", FIRST + 10, FIRST + until)
    expected = [(20, "TRUNCATE", None, None), (21, "INSERT", 7, "fresh")]
    assert words(extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 60).changes) == expected
    assert words(extract(shop.pipeline, f"shop.fresh@{FIRST + 20}", FIRST + 10, FIRST + 40).changes) == expected[1:]


def test_a_ddl_in_the_range_gives_earlier_changes_the_columns_of_its_end(shop: Shop) -> None:
    shop.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    shop.ddl("shop.orders", FIRST + 40, "TRUNCATE TABLE `orders`", 11, wide=True)
    shop.publish(FIRST + 50)
    changes = extract(shop.pipeline, "shop.orders", FIRST + 17, FIRST + 50).changes
    assert [(row["_change_type"], row["id"], row["w"]) for row in changes.to_pylist()] == [
        ("INSERT", 3, None),
        ("TRUNCATE", None, None),
    ]
    before = extract(shop.pipeline, "shop.orders", FIRST + 17, FIRST + 29).changes
    assert "w" not in before.column_names


@pytest.mark.parametrize("more", [{}, {"history": {"*": "log"}}])
def test_a_range_within_which_rows_get_another_key_has_no_net(shop: Shop, more: dict[str, Any]) -> None:
    shop.more = more
    shop.rows("shop.orders", FIRST, [("I", FIRST + 22, 5, "last"), ("D", FIRST + 24, 3, "last")])
    keys = ("ColumnName", "ColumnType", "ColumnPrecision", "ColumnNullable", "ColumnIsPk")
    made = [("id", "INT", "11", "false", "false"), ("v", "VARCHAR", "40", "false", "true")]
    columns = [dict(zip(keys, column, strict=True)) for column in made]
    query = "ALTER TABLE `orders` DROP PRIMARY KEY, ADD PRIMARY KEY (`v`)"
    write_schema(shop.bucket, document("shop", "orders", FIRST + 30, Query=query, Type=13, TableColumns=columns))
    shop.rows("shop.orders", FIRST + 30, [("U", FIRST + 31, 6, "last")])
    shop.publish(FIRST + 40)
    shop.pipeline.apply()
    refused = rf"told apart by v since {FIRST + 30}, .* Extract the net through {FIRST + 29}, and from there on"
    with pytest.raises(ExtractRefused, match=refused):
        _ = extract(shop.pipeline, "shop.orders", FIRST + 20, FIRST + 40, net=True).changes
    before = extract(shop.pipeline, "shop.orders", FIRST + 20, FIRST + 29, net=True).changes
    assert words(before) == [(22, "INSERT", 5, "last"), (24, "DELETE", 3, "last")]
    after = extract(shop.pipeline, "shop.orders", FIRST + 29, FIRST + 40, net=True).changes
    assert words(after) == [(31, "UPDATE_AFTER", 6, "last")]


def test_what_is_not_covered_is_refused_with_what_is(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(ExtractRefused, match=f"the feed is complete through {FIRST + 20}"):
        extract(shop.pipeline, "shop.orders", FIRST, FIRST + 21)
    with pytest.raises(BadSettings, match="give an end behind the beginning"):
        extract(shop.pipeline, "shop.orders", FIRST + 5, FIRST + 5)
    with pytest.raises(BadSettings, match=r"no table is called shop\.nothing; known are shop\.items, shop\.orders"):
        extract(shop.pipeline, "shop.nothing", FIRST, FIRST + 20)
    shop.pipeline.apply()
    min((shop.bucket / "shop" / "orders").rglob("CDC*.csv")).unlink()
    with pytest.raises(ExtractRefused, match=f"changes through {FIRST + 1} .*left the feed"):
        extract(shop.pipeline, "shop.orders", FIRST, FIRST + 20)
    assert len(words(extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20).changes)) == 4
    shop.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` FROBNICATE", 99)
    shop.publish(FIRST + 40)
    with pytest.raises(ExtractRefused, match=f"held at {FIRST + 30}, within the range"):
        extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 40)
    assert extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 29).changes.num_rows == 4


def test_a_column_of_a_name_that_extracts_have_is_refused(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    fields = ("ColumnName", "ColumnType", "ColumnPrecision", "ColumnIsPk")
    columns = [("id", "INT", "11", "true"), ("_Change_Type", "VARCHAR", "10", "false")]
    made = [dict(zip(fields, column, strict=True)) for column in columns]
    query = "CREATE TABLE `odd` (`id` INT PRIMARY KEY,`_Change_Type` VARCHAR(10))"
    write_schema(feed.bucket, document("shop", "odd", FIRST, Query=query, Type=3, TableColumns=made))
    feed.publish(FIRST + 10)
    pipeline = feed.pipeline_into(MemoryLake())
    with pytest.raises(ExtractRefused, match=r'shop\.odd has a column "_Change_Type", as an extract has one'):
        extract(pipeline, "shop.odd", FIRST, FIRST + 10)


def test_a_record_that_does_not_fit_is_named_and_nothing_is_returned(shop: Shop) -> None:
    shop.rows("shop.orders", FIRST, [("I", FIRST + 22, "no number", "x")])
    shop.publish(FIRST + 30)
    with pytest.raises(MalformedData, match=r"CDC00000000000000000004\.csv line 1.*none are told") as caught:
        _ = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 30).changes
    assert "the table stays" not in str(caught.value)
    before, after = ((FIRST + 10, FIRST + 21), (FIRST + 22, FIRST + 30))
    for since, until in (before, after):
        assert extract(shop.pipeline, "shop.orders", since, until).until == until


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_each_format_is_read_back_with_its_rows(shop: Shop, tmp_path: Path, kind: str, place: str) -> None:
    import fsspec

    table_extract = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)
    uri = str(tmp_path / "out") if place == "directory" else f"memory://extracts-{kind}/out"
    assert write_extract(lambda: table_extract, uri, kind, {})[1] == 4
    if place == "bucket":
        fsspec.filesystem("memory").get(f"/extracts-{kind}/out/", str(tmp_path / "out"), recursive=True)
    about = json.loads((tmp_path / "out" / "extract.json").read_text())
    assert (about["rows"], about["from"], about["to"], about["key"]) == (4, FIRST + 10, FIRST + 20, ["id"])
    file = tmp_path / "out" / f"changes.{kind}"
    if kind == "parquet":
        rows = pq.read_table(file).to_pylist()
    elif kind == "jsonl":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        rows = csv.read_csv(file).to_pylist()
    assert [(row["_change_type"], row["id"]) for row in rows] == [
        (word, key) for _, word, key, _ in words(table_extract.changes)
    ]
    with pytest.raises(BadSettings, match="has files already, such as "):
        write_extract(lambda: table_extract, uri, kind, {})
    again = extract(shop.pipeline, "shop.orders", FIRST + 14, FIRST + 20)
    assert write_extract(lambda: again, uri, kind, {}, again=True)[1] == 2


def test_an_extract_that_is_stopped_half_way_does_not_look_like_a_whole_one(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_extract = extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20)

    def cut_short(source: Path, target: str) -> None:
        Path(target).write_bytes(source.read_bytes()[:10])
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.copyfile", cut_short)
    with pytest.raises(KeyboardInterrupt):
        write_extract(lambda: table_extract, str(tmp_path / "out"), "jsonl", {})
    (left,) = (path.name for path in (tmp_path / "out").iterdir())
    assert (left[:15], left[-5:]) == (".changes.jsonl.", ".part")
    monkeypatch.undo()
    with pytest.raises(BadSettings, match="has files already"):
        write_extract(lambda: table_extract, str(tmp_path / "out"), "jsonl", {})
    assert write_extract(lambda: table_extract, str(tmp_path / "out"), "jsonl", {}, again=True)[1] == 4


def test_two_that_write_an_extract_to_one_place_at_once_leave_a_whole_one(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_extract, copy, others = (
        extract(shop.pipeline, "shop.orders", FIRST + 10, FIRST + 20),
        shutil.copyfile,
        list[int](),
    )

    def overtaken(source: Path, target: str) -> None:
        copy(source, target)
        if not others:
            others.append(0)
            others.append(write_extract(lambda: table_extract, str(tmp_path / "out"), "jsonl", {}, again=True)[1])

    monkeypatch.setattr("shutil.copyfile", overtaken)
    assert write_extract(lambda: table_extract, str(tmp_path / "out"), "jsonl", {}, again=True)[1] == 4
    assert others == [0, 4]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["changes.jsonl", "extract.json"]


def test_json_lines_have_dates_of_the_year_0_which_python_has_not(tmp_path: Path) -> None:
    changes = pa.table({"d": pa.array([-719528, 0], pa.int32()).cast(pa.date32())})
    with FORMATS["jsonl"](tmp_path / "changes.jsonl", changes.schema) as write:
        write(changes)
    lines = (tmp_path / "changes.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"d": "0000-01-01"}, {"d": "1970-01-01"}]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_decimals_are_written_without_exponents(tmp_path: Path, kind: str) -> None:
    texts = ["0.00000000", "0.00000001", "-12.50000000", None]
    decimals = pa.array([text and Decimal(text) for text in texts], pa.decimal128(20, 8))
    changes = pa.table({"id": [1, 2, 3, 4], "amount": decimals})
    with FORMATS[kind](tmp_path / "changes", changes.schema) as write:
        write(changes)
    lines = (tmp_path / "changes").read_text().splitlines()
    amounts = [json.loads(line)["amount"] for line in lines] if kind == "jsonl" else [line[2:] for line in lines[1:]]
    assert amounts == (texts if kind == "jsonl" else ['"0.00000000"', '"0.00000001"', '"-12.50000000"', ""])
