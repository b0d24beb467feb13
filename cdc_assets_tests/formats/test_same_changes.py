"""Whatever the format and its options, a recorded history decodes to the same changes: one corpus, many formats."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_assets.decoding.window import decode_window
from cdc_assets.formats.decoded import COMMIT_TS, OP
from cdc_assets.model.steps import ApplyRows
from cdc_assets.planning.plan import plan
from cdc_assets_tests.cases import Case, Config, cases
from cdc_assets_tests.default_rules import TABLE_RULES

Change = tuple[str, int, tuple[tuple[str, Any], ...]]


def entering(config: Config) -> set[Change]:
    """Return the rows that enter tables: (life, commit-ts, values by name); rows that come twice count once."""
    settings = config.settings()
    feed = settings.open_source()
    changes: set[Change] = set()
    for step in plan(feed.listing(), {}, TABLE_RULES).steps:
        if not isinstance(step, ApplyRows):
            continue
        window = decode_window(step, feed.reader)
        assert window.report.reject_count == 0, window.report.rejects
        names = sorted(column.name for column in step.schema.stored)
        for row in window.changes.to_pylist():
            if row[OP] > 0:
                values = tuple((name, str(row[name])) for name in names)
                changes.add((str(step.life.born_as), row[COMMIT_TS], values))
    return changes


def comparable(case: Case) -> list[Config]:
    """The configurations whose rows carry commit-ts and all columns, and none of which lost files."""
    return [
        config
        for config in case.configs
        if config.options.wire.has_commit_ts and config.options.enable_partition_separator and not config.hidden_columns
    ]


SOAKED = ("B_ddl_columns", "C_ddl_tables", "G_redelivery", "H_bank", "K_big_txn", "L_crash")
"""Cases of no type, name or key that the others lack; the end of each configuration is in pipeline/test_recorded."""

CASES = [
    pytest.param(case, id=str(case), marks=pytest.mark.soak if case.name in SOAKED else ())
    for case in cases()
    if len(comparable(case)) > 1
]


@pytest.mark.parametrize("case", CASES)
def test_every_configuration_of_a_case_decodes_to_the_same_changes(case: Case) -> None:
    reference, *others = comparable(case)
    wanted = entering(reference)
    for other in others:
        changes = entering(other)
        assert (changes - wanted, wanted - changes) == (set(), set()), f"{other} beside {reference}"
