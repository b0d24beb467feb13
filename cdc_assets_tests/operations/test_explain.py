"""Where a row comes from: exactly the changes of its key, with their places, windows and runs, and what is gone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.formats import UniformReader
from cdc_assets.ledger import Ledger
from cdc_assets.model.explanation import RowExplanation
from cdc_assets.operations.explain import explain
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.report.explanation import explanation_json, explanation_lines
from cdc_assets_tests import little_feed
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake


class Shop:
    """A little feed that is applied to a lake in memory."""

    def __init__(
        self,
        directory: Path,
        protocol: str = "csv",
        key: Mapping[str, str] | None = None,
        text: str = "`id` INT PRIMARY KEY",
        **more: Any,
    ) -> None:
        self.feed = LittleFeed(directory, protocol)
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")
        self.feed.ddl("shop.t", FIRST, f"CREATE TABLE `t` ({text},`v` VARCHAR(40))", 3, key=key)
        self.more = more

    def pipeline(self) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **self.more)

    def apply(self, through: int, run: str = "run") -> None:
        self.feed.publish(through)
        self.pipeline().apply(run)

    def explain(self, *key: str, **bounds: int) -> RowExplanation:
        return explain(self.pipeline(), self.lake, "shop.t", key, **bounds)


@pytest.mark.parametrize(("protocol", "history"), [("csv", ""), ("canal-json", ""), ("csv", "log")])
def test_the_changes_of_random_keys_are_those_of_the_history(protocol: str, history: str, tmp_path: Path) -> None:
    """Those that a log has are told when their files are gone."""
    shop, chance = Shop(tmp_path, protocol, history={"*": history} if history else {}), random.Random(5)
    rows: dict[int, str] = {}
    model: dict[int, list[tuple[int, str, str | None, str | None]]] = {}
    at = FIRST
    for number in range(12):
        written = []
        for _ in range(60):
            at += 1 << 18
            key = chance.randrange(20)
            before, text = rows.get(key), f"v{at - FIRST}"
            if before is None:
                written.append(("I", at, key, text))
            elif chance.random() < 0.3:
                written.append(("D", at, key, before))
            else:
                written.append(("U", at, key, text))
            op = written[-1][0]
            after = None if op == "D" else text
            kind = {"I": "insert", "U": "update", "D": "delete"}[op]
            model.setdefault(key, []).append((at, kind, before, after))
            rows.pop(key, None)
            if after is not None:
                rows[key] = after
        shop.feed.rows("shop.t", FIRST, written)
        if number % 3 == 1:
            shop.feed.rows("shop.t", FIRST, written)  # delivered again
        if number % 4 == 3:
            shop.apply(at, f"run {number}")
    for file in tmp_path.rglob("CDC*.csv") if history else ():
        file.unlink()
    for key in range(20):
        explanation = shop.explain(str(key))
        seen = [(change.position, change.kind, *change.changed["v"]) for change in explanation.changes]
        assert seen == model.get(key, [])
        assert explanation.row == ({"id": str(key), "v": rows[key]} if key in rows else None)
        assert explanation.gone == ()


@pytest.mark.parametrize("history", ["", "log"])
def test_a_row_with_a_date_of_the_year_0_is_explained(history: str, tmp_path: Path) -> None:
    with patch.dict(little_feed._V, ColumnType="DATE", ColumnPrecision=""):
        shop = Shop(tmp_path, history={"*": history} if history else {})
        shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "0000-01-01"), ("I", FIRST + 1, 2, "2020-02-29")])
        shop.apply(FIRST + 2)
        shop.feed.ddl("shop.t", FIRST + 3, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
        shop.apply(FIRST + 4)
        for key, day in (("1", "0000-01-01"), ("2", "2020-02-29")):
            explanation = shop.explain(key)
            assert explanation.row == {"id": key, "v": day, "w": None}
            assert [change.changed["v"] for change in explanation.changes] == [(None, day)]


def test_a_change_names_its_place_window_run_and_snapshot(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b")])
    shop.apply(FIRST + 5, "first")
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 7, 2, "c")])
    shop.apply(FIRST + 9, "second")
    explanation = shop.explain("2")
    assert [(change.place.rsplit("/", 1)[1], change.run, change.changed) for change in explanation.changes] == [
        ("CDC00000000000000000001.csv line 2", "first", {"id": (None, "2"), "v": (None, "b")}),
        ("CDC00000000000000000002.csv line 1", "second", {"v": ("b", "c")}),
    ]
    assert [(change.lo, change.hi) for change in explanation.changes] == [(FIRST, FIRST + 5), (FIRST + 5, FIRST + 9)]
    assert (explanation.row, explanation.position) == ({"id": "2", "v": "c"}, FIRST + 7)
    assert [event.action for event in explanation.events] == ["create"]


def test_an_update_whose_former_row_was_not_read_does_not_call_its_values_null(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a"), ("U", FIRST + 3, 1, "b"), ("U", FIRST + 5, 1, "c")])
    shop.apply(FIRST + 9)
    lines = "\n".join(explanation_lines(shop.explain("1", since=FIRST + 1)))
    assert "update  of a row that is not known, to id=1, v=b\n" in lines
    assert "update  v: b → c\n" in lines


def test_ddl_in_between_is_told_and_changes_keep_the_columns_of_their_time(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    shop.feed.ddl("shop.t", FIRST + 5, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
    shop.apply(FIRST + 9)
    explanation = shop.explain("1")
    assert [(event.action, event.query) for event in explanation.events][1:] == [
        ("change", "ALTER TABLE `t` ADD COLUMN `w` INT")
    ]
    assert [list(change.changed) for change in explanation.changes] == [["id", "v"]]
    assert explanation.row == {"id": "1", "v": "a", "w": None}


def test_a_row_that_a_truncate_removes_is_told_as_that_and_the_next_one_is_another(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    shop.feed.ddl("shop.t", FIRST + 5, "TRUNCATE TABLE `t`", 11)
    shop.feed.rows("shop.t", FIRST + 5, [("I", FIRST + 7, 1, "b")])
    shop.apply(FIRST + 9)
    changes = [(change.position - FIRST, change.kind, change.changed["v"]) for change in shop.explain("1").changes]
    assert changes == [(1, "insert", (None, "a")), (5, "delete", ("a", None)), (7, "insert", (None, "b"))]
    assert shop.explain("1").changes[1].place == f"DDL of version {FIRST + 5}"


def test_what_is_not_applied_is_not_told_and_bounds_are_kept(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a"), ("U", FIRST + 3, 1, "b"), ("U", FIRST + 8, 1, "c")])
    shop.apply(FIRST + 5)
    assert [change.position for change in shop.explain("1").changes] == [FIRST + 1, FIRST + 3]
    assert [change.position for change in shop.explain("1", since=FIRST + 1).changes] == [FIRST + 3]
    assert [change.position for change in shop.explain("1", until=FIRST + 2).changes] == [FIRST + 1]


def key_of(kind: str, precision: int, scale: int) -> dict[str, str]:
    return {"ColumnType": kind, "ColumnPrecision": str(precision), "ColumnScale": str(scale)}


@pytest.mark.parametrize(
    ("types", "values", "others"),
    [
        (
            [key_of("DECIMAL", 10, 4), key_of("DECIMAL", 10, 2), key_of("DECIMAL", 10, 1)],
            ["1.2345", "1.23", "1.2"],
            ["1.2321", "1.21"],
        ),
        (
            [key_of("DATETIME", 0, 6), key_of("DATETIME", 0, 0), key_of("DATETIME", 0, 3)],
            ["2024-01-31 10:00:00.700000", "2024-01-31 10:00:01", "2024-01-31 10:00:01.000"],
            ["2024-01-31 10:00:00.900000", "2024-01-31 10:00:02"],
        ),
        ([key_of("VARCHAR", 20, 0), key_of("VARCHAR", 5, 0), key_of("CHAR", 5, 0)], ["ab"] * 3, ["abcdefg", "ac"]),
        ([key_of("INT", 11, 0), key_of("BIGINT", 20, 0), key_of("VARCHAR", 9, 0)], ["7"] * 3, ["8", "9"]),
    ],
)
def test_changes_of_a_key_that_ddl_made_another_value_are_told(
    types: list[dict[str, str]], values: list[str], others: list[str], tmp_path: Path
) -> None:
    """Other keys that would have become the same were gone by then."""
    shop, at = Shop(tmp_path, key=types[0]), FIRST
    for number, (value, other) in enumerate(zip(values, [*others, ""], strict=True)):
        rows = [("U" if number else "I", at + 3, f'"{value}"', f"v{number}")]
        if other:
            rows = [("I", at + 1, f'"{other}"', "x"), *rows, ("D", at + 4, f'"{other}"', "x")]
        shop.feed.rows("shop.t", at, rows)
        if number < 2:
            at += 10
            query = f"ALTER TABLE `t` MODIFY COLUMN `id` {types[number + 1]['ColumnType']}"
            shop.feed.ddl("shop.t", at, query, 12, key=types[number + 1])
    shop.apply(at + 9)
    expected = [(3, (None, "v0")), (13, ("v0", "v1")), (23, ("v1", "v2"))]
    for until, count in ((at, 2), (FIRST + 5, 1), (at + 9, 3)):
        explanation = shop.explain(values[-1], until=until)
        assert [(change.position - FIRST, change.changed["v"]) for change in explanation.changes] == expected[:count]
        assert explanation.gone == ()


def test_a_key_that_was_deleted_in_another_case_before_a_ddl_made_another_value_of_it_was_gone(tmp_path: Path) -> None:
    shop = Shop(tmp_path, key=key_of("VARCHAR", 20, 0), text="`id` VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY")
    rows = [("I", 1, "AB", "x"), ("D", 2, "ab", "x"), ("I", 3, "Ab", "y")]
    shop.feed.rows("shop.t", FIRST, [(op, FIRST + at, f'"{key}"', v) for op, at, key, v in rows])
    shop.feed.ddl("shop.t", FIRST + 10, "ALTER TABLE `t` MODIFY COLUMN `id` CHAR(5) COLLATE utf8mb4_general_ci", 12,
                  key=key_of("CHAR", 5, 0))  # fmt: skip
    shop.apply(FIRST + 19)
    changes = shop.explain("aB").changes
    assert [(change.position - FIRST, change.kind) for change in changes] == [
        (1, "insert"),
        (2, "delete"),
        (3, "insert"),
    ]


class CountedReads:
    """Counts the files of changes that are opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        read = UniformReader.read

        def counted(reader: UniformReader, path: str) -> Any:
            self.paths.append(path.rsplit("/", 1)[1])
            return read(reader, path)

        monkeypatch.setattr(UniformReader, "read", counted)


def numbered(*numbers: int) -> list[str]:
    return [f"CDC{number:020d}.csv" for number in numbers]


def test_only_files_whose_key_bounds_may_hold_the_key_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    for number in range(60):
        at = FIRST + 10 * number
        shop.feed.rows("shop.t", FIRST, [("I", at + 1, 10 * number, "a"), ("I", at + 2, 10 * number + 5, "b")])
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 901, 40, "c"), ("D", FIRST + 902, 405, "b")])
    shop.apply(FIRST + 1000)
    reads = CountedReads(monkeypatch)
    explanations = shop.explain("402"), shop.explain("405"), shop.explain("7")
    assert sorted(reads.paths) == numbered(41, 41, 61, 61)
    assert [[change.kind for change in row.changes] for row in explanations] == [[], ["insert", "delete"], []]


def test_a_file_that_was_written_anew_or_never_read_is_opened_whatever_its_bounds_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    again = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 2, 2, "b")])
    shop.apply(FIRST + 5)
    again.write_text(f'"I","t","shop",{FIRST + 2},1000,"b"\r\n', newline="")
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 4, 3, "c")])
    reads = CountedReads(monkeypatch)
    shop.explain("1000")
    assert sorted(reads.paths) == numbered(2, 3)


def test_a_file_that_is_gone_is_named_with_its_positions(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    lost = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    shop.apply(FIRST + 2)
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 3, 1, "b")])
    shop.apply(FIRST + 5)
    lost.unlink()
    explanation = shop.explain("1")
    assert [(change.kind, change.changed["v"]) for change in explanation.changes] == [("update", (None, "b"))]
    (sentence,) = explanation.gone
    assert "of what was read for shop.t" in sentence
    assert f"positions from {FIRST + 1} to {FIRST + 1}" in sentence


def test_a_record_in_quarantine_is_told_of_the_key_that_it_has(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 17, "a"), ("U", FIRST + 2, 17, "18" * 21)])
    shop.apply(FIRST + 5)
    (aside,) = shop.explain("17").set_aside
    assert aside.place.endswith("line 2")
    assert [shop.explain(key).set_aside for key in ("18", "1", "7")] == [(), (), ()]


def test_a_record_that_was_replayed_came_with_no_window(tmp_path: Path) -> None:
    shop = Shop(tmp_path, quarantine=True)
    path = shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 17, "a"), ("U", FIRST + 2, 17, "18" * 21)])
    shop.apply(FIRST + 5)
    path.write_bytes(path.read_bytes().replace(b"18" * 21, b"18"))
    (done,) = replay(shop.pipeline())
    assert done.waiting == 0
    changes = shop.explain("17").changes
    assert [(change.hi, change.snapshot is None) for change in changes] == [(FIRST + 5, False), (0, True)]


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_record_in_quarantine_is_told_of_a_key_that_is_hashed_where_its_bytes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    monkeypatch.setenv("MASK_KEY", "key")
    masks = {"shop.t.id": {"hash": {"key": {"env": "MASK_KEY"}}}}
    key: dict[str, Any] = {"privacy_key": {"env": "MASK_KEY"}} if encrypted else {}
    shop = Shop(tmp_path, quarantine=True, privacy=masks, **key)
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 17, "a"), ("U", FIRST + 2, 17, "b" * 41)])
    shop.apply(FIRST + 5)
    explanations = [shop.explain(key) for key in ("17", "18")]
    assert [len(explanation.set_aside) for explanation in explanations] == [int(encrypted), 0]
    assert [
        any("1 record of the table in quarantine" in text for text in explanation.gone) for explanation in explanations
    ] == [not encrypted, not encrypted]


@pytest.mark.parametrize(
    ("key", "sentence"), [((), "0 values came"), (("1", "2"), "2 values came"), (("x",), "no value of")]
)
def test_a_key_that_does_not_fit_is_refused(key: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.apply(FIRST + 1)
    with pytest.raises(BadSettings, match=sentence):
        shop.explain(*key)


@pytest.mark.parametrize(
    ("mirror", "table", "sentence"),
    [
        (True, "shop.t__log", r"shop.t__log is a history table; expected .* Give shop.t\.$"),
        (False, "shop.t__log", r"shop.t__log is a history table; expected .* Give shop.t\.$"),
        (False, "shop.t", "shop.t has no mirror, only history tables.* Set mirror: true"),
        (True, "shop.x", "no table is called shop.x; known are shop.t. Give a name or an identity"),
    ],
)
def test_a_table_without_rows_as_the_source_has_them_is_refused_by_what_it_is(
    mirror: bool, table: str, sentence: str, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, history={"*.*": {"kinds": ["log"], "mirror": mirror}})
    shop.apply(FIRST + 1)
    with pytest.raises(BadSettings, match=sentence):
        explain(shop.pipeline(), shop.lake, table, ("1",))


def test_a_row_of_a_masked_key_is_found_by_what_a_person_knows_and_shown_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", "key")
    shop = Shop(
        tmp_path, privacy={"shop.t.id": {"hash": {"key": {"env": "MASK_KEY"}}}, "shop.t.v": {"redact": "last4"}}
    )
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 7, "4000123412341234"), ("I", FIRST + 2, 8, "another value")])
    shop.apply(FIRST + 5)
    explanation = shop.explain("7")
    assert [change.changed["v"] for change in explanation.changes] == [(None, "1234")]
    assert explanation.row == {**explanation.key, "v": "1234"}
    assert len(explanation.key["id"] or "") == 64


def test_a_change_of_a_log_names_its_place_and_run_and_columns_of_its_time(tmp_path: Path) -> None:
    shop = Shop(tmp_path, history={"*": "log"})
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    shop.apply(FIRST + 3, "first")
    shop.feed.ddl("shop.t", FIRST + 5, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
    shop.apply(FIRST + 9, "second")
    (change,) = shop.explain("1").changes
    assert (change.place.rsplit("/", 1)[1], change.run) == ("CDC00000000000000000001.csv line 1", "first")
    assert (change.kind, list(change.changed), change.hi) == ("insert", ["id", "v"], FIRST + 3)


def test_runs_of_dagster_have_the_path_of_their_page(tmp_path: Path) -> None:
    shop, run = Shop(tmp_path), "5d2e8d34-0f52-4b62-9a0e-3b1c3b1f0a11"
    shop.feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    shop.apply(FIRST + 2, run)
    shop.feed.rows("shop.t", FIRST, [("U", FIRST + 3, 1, "b")])
    shop.apply(FIRST + 4, "cli-0123456789ab")
    explanation = shop.explain("1")
    assert [change["page"] for change in explanation_json("shop", explanation)["changes"]] == [f"/runs/{run}", ""]
    assert any(f"run {run} (/runs/{run})" in line for line in explanation_lines(explanation))
