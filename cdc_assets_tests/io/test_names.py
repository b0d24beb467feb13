"""Names below a prefix: all of them, but for those in directories that are passed over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.io import storage as names
from cdc_assets.io.storage import NotPassedOver, directory_entries, objects
from cdc_assets_tests.generated import CHECKS

TABLES = ("db/a", "db/a-b", "db/a.b", "db/a b", "db/ab", "z/t")
DATES = ("2024-05-01", "2024-05-02", "2024-05-03", "2024-05", "2024", "106", "meta", "2024-05-02x")
FILES = ("CDC1.csv", "CDC2.csv", "CDC_7_1.csv", "meta/CDC.index", "x y/z", "~odd")
PATHS = st.builds(lambda table, date, file: f"{table}/1/{date}/{file}", *map(st.sampled_from, (TABLES, DATES, FILES)))


class Server:
    """What lists the names of a bucket: by the bytes of the names, or directory by directory as file systems do."""

    req_kw: Mapping[str, Any] = {}

    def __init__(self, paths: Iterator[str] | set[str], by_directory: bool, page: int, ignoring: bool = False) -> None:
        self.by_directory, self.page, self.ignoring = by_directory, page, ignoring
        self.keys = sorted((f"feed/{path}" for path in paths), key=self.place)
        self.asked: list[dict[str, Any]] = []

    def place(self, key: str) -> Any:
        return key.split("/") if self.by_directory else key

    def split_path(self, path: str) -> tuple[str, str, None]:
        return path.partition("/")[0], path.partition("/")[2], None

    def call_s3(self, method: str, **parameters: Any) -> dict[str, Any]:
        assert method == "list_objects_v2"
        self.asked.append(parameters)
        behind = parameters.get("ContinuationToken") or ("" if self.ignoring else parameters.get("StartAfter", ""))
        keys = [
            key
            for key in self.keys
            if key.startswith(parameters["Prefix"]) and (not behind or self.is_after(key, behind))
        ]
        if "Delimiter" in parameters:
            return self.level(keys, len(parameters["Prefix"]))
        page = keys[: self.page]
        answer = {
            "Contents": [{"Key": key, "Size": 1, "ETag": "e"} for key in page],
            "IsTruncated": len(keys) > len(page),
        }
        return {**answer, "NextContinuationToken": page[-1]} if page else answer

    def is_after(self, key: str, other: str) -> bool:
        return bool(self.place(key) > self.place(other))

    @staticmethod
    def level(keys: list[str], start: int) -> dict[str, Any]:
        directories = dict.fromkeys(key[: key.index("/", start) + 1] for key in keys if "/" in key[start:])
        contents = [{"Key": key, "Size": 1} for key in keys if "/" not in key[start:]]
        return {
            "CommonPrefixes": [{"Prefix": directory} for directory in directories],
            "Contents": contents,
            "IsTruncated": False,
        }

    def listed(self, without: Mapping[str, int] = {}) -> list[str]:
        return [path for path, *_ in objects(self, "bucket/feed", lambda action: action(), "", without)]


@settings(CHECKS, max_examples=150, derandomize=True, database=None)
@given(
    paths=st.sets(PATHS, max_size=40),
    chosen=st.sets(st.sampled_from([f"{table}/1/{date}" for table in TABLES for date in DATES[:5]]), max_size=12),
    by_directory=st.booleans(),
    page=st.integers(1, 7),
)
def test_no_name_is_left_out_that_is_not_passed_over(
    paths: set[str], chosen: set[str], by_directory: bool, page: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "WORTH_NAMES", 1)
        server = Server(paths, by_directory, page)
        listed_paths = server.listed(dict.fromkeys(chosen, 5))
    assert len(listed_paths) == len(set(listed_paths))
    inside = tuple(f"{directory}/" for directory in chosen)
    assert {path for path in paths if not path.startswith(inside)} <= set(listed_paths) <= paths


def many(tables: int, days: int, files: int) -> set[str]:
    days_of = [f"{2020 + day // 360}-{day // 30 % 12 + 1:02d}-{day % 30 + 1:02d}" for day in range(days)]
    return {f"db/t{t}/1/{day}/CDC{n:05d}.csv" for t in range(tables) for day in days_of for n in range(files)}


def test_years_of_closed_directories_cost_two_requests_a_table() -> None:
    paths = many(3, 40, 100)
    newest = max(path.split("/")[3] for path in paths)
    server = Server(paths, False, 1000)
    old = {path.rpartition("/")[0] for path in paths if newest not in path}
    listed_paths = server.listed(dict.fromkeys(old, 100))
    assert set(listed_paths) == {path for path in paths if newest in path}
    assert len(server.asked) == 1 + 2 * 3


def test_few_names_are_listed_rather_than_passed_over() -> None:
    paths = many(2, 10, 100)
    server = Server(paths, False, 1000)
    old = {path.rpartition("/")[0] for path in paths}
    assert set(server.listed(dict.fromkeys(old, 100))) == paths
    assert len(server.asked) == 2


def test_a_server_that_begins_anew_is_noticed() -> None:
    paths = many(1, 40, 100)
    server = Server(paths, False, 1000, ignoring=True)
    with pytest.raises(NotPassedOver):
        server.listed({path.rpartition("/")[0]: 100 for path in sorted(paths)[:-100]})


def test_a_bucket_that_lists_in_no_order_is_listed_whole() -> None:
    paths = many(1, 40, 100)
    server = Server(paths, False, 1000)
    without = {path.rpartition("/")[0]: 100 for path in paths}
    entries = objects(server, "bucket--use1-az4--x-s3/feed", lambda action: action(), "", without)
    assert {path for path, *_ in entries} == paths


def test_local_directories_are_not_entered(tmp_path: Path) -> None:
    for path in ("a/1/x", "a/1/meta/y", "a/2/x", "b"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    assert {path for path, *_ in directory_entries(str(tmp_path), "", {"a/1"})} == {"a/2/x", "b"}
    assert {path for path, *_ in directory_entries(str(tmp_path), "a/1")} == {"a/1/x", "a/1/meta/y"}
