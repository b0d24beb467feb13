"""Reading ahead gives what reading gives: all of it in order, its errors, and no more once nobody asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_assets.landing.partition_reader import read_ahead


def numbers(stop: int, seen: list[int]) -> Iterator[int]:
    for number in range(stop):
        seen.append(number)
        yield number
    seen.append(-1)


@pytest.mark.parametrize("stop", [0, 1, 7])
def test_everything_comes_in_order(stop: int) -> None:
    assert list(read_ahead(numbers(stop, []), 3)) == list(range(stop))


def test_an_error_comes_behind_what_came_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("offset 2 is gone")

    numbers_ahead = read_ahead(source())
    assert next(numbers_ahead) == 1
    with pytest.raises(ValueError, match="offset 2"):
        next(numbers_ahead)


def test_no_more_than_a_few_are_read_before_they_are_asked_for() -> None:
    seen: list[int] = []
    numbers_ahead = read_ahead(numbers(100, seen), 2)
    assert next(numbers_ahead) == 0
    numbers_ahead.close()
    assert len(seen) <= 3
