"""Actions repeated after errors that pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def retrying(
    action: Callable[[], T],
    times: int,
    on: type[Exception],
    *,
    is_meant: Callable[[Any], object] = lambda _: True,
    pause_seconds: float = 0.0,
) -> T:
    """Return the result of an action, which is repeated after errors.

    Args:
        action: Has no effect where it raises, or can go on.
        times: How often it is tried, at most; the last error is raised.
        on: The class of the errors after which it is repeated.
        is_meant: Which errors of the class these are.
        pause_seconds: The first pause; each is twice as long as the one before it.
    """
    for attempt in range(times - 1):
        try:
            return action()
        except on as error:
            if not is_meant(error):
                raise
        time.sleep(pause_seconds * 2**attempt)
    return action()
