"""Transactions of a table without key that may have been sent again: one run of rows behind the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.features.kinds.multiset.decoding import first_run


@pytest.mark.parametrize(
    ("rows", "run"),
    [
        ("", 0),
        ("a", 0),
        ("ab", 0),
        ("aa", 1),
        ("abab", 2),
        ("ababc", 2),
        ("abaab", 0),
        ("abcabd", 0),
        ("aba", 0),
        ("abca", 0),
    ],
)
def test_a_run_stands_twice_where_all_of_it_comes_again_behind_it(rows: str, run: int) -> None:
    assert first_run(np.array([ord(row) for row in rows], np.uint64)) == run


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9), st.integers(1, 9))
def test_what_was_cut_and_sent_again_is_always_seen(transaction: list[int], sent: int) -> None:
    rows = [*transaction[:sent], *transaction]
    run = first_run(np.array(rows, np.uint64))
    assert 0 < run <= len(transaction)
    assert rows[:run] == rows[run : 2 * run]
