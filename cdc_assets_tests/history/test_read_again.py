"""A process reads the same schema files once, however often it plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc_assets.history import history as history_module
from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.model.masks import MaskPolicy
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import FOREVER
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file
from cdc_assets_tests.cases import cases
from cdc_assets_tests.planning.test_plan import ID, A, B, V, W, create, schema_file

FILES = (create(A, 10), create(B, 20), schema_file(A, 30, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, (ID, V, W)))


def test_the_same_files_are_read_once_while_the_checkpoint_moves() -> None:
    first = read_history(FILES, 40)
    assert read_history(list(FILES), 50) is first
    assert read_history(FILES) is first


@pytest.mark.parametrize(
    "other",
    [
        {"until": 25},
        {"keys": {"s.a": ("v",)}},
        {"policies": {"add column": "hold"}},
        {"releases": {(Life(A, 10), 30): Release(Life(A, 10), 30, "skip")}},
        {"new_collations": False},
        {"zone": lambda life, at: "Asia/Shanghai"},
        {"complete": ["s.*"]},
        {"features": {"masks": MaskPolicy()}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_other_input_is_read_anew(other: Mapping[str, Any]) -> None:
    first = read_history(FILES)
    second = _read(**other)
    history_module._RECENT.clear()
    assert second == _read(**other)
    assert second is not first


def _read(until: int = FOREVER, **rules: Any) -> History:
    return read_history(FILES, until, Rules(**rules))


def test_a_feed_played_by_checkpoints_has_the_histories_that_a_process_has_which_begins_at_each() -> None:
    played = 0
    for case in cases():
        for config in case.configs[:1]:
            files = config.settings().open_source().listing().schema_files
            for until in sorted({file.version for file in files}):
                again, fresh = read_history(files, until), read_history([replace(file) for file in files], until)
                assert again == fresh, f"{config} at {until}"
                played += 1
    assert played > 50


def test_the_same_contents_of_a_schema_file_are_the_same_object_in_all_of_a_process() -> None:
    path = "s/t/meta/schema_10_0000000001.json"
    data = b'{"Table":"t","Schema":"s","Version":1,"TableVersion":10,"Query":"","Type":0,"TableColumns":null}'
    assert parse_schema_file(path, data) is parse_schema_file(path, bytes(bytearray(data)))
    assert parse_schema_file(path, data.replace(b'"Type":0', b'"Type":3')).type == 3
