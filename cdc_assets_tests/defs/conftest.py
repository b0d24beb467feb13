"""What each test of the definitions begins with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage


@pytest.fixture(autouse=True)
def _no_storage_of_a_former_instance() -> Iterator[None]:
    """Dagster goes on with the storage of an instance that was entered twice, and fails once that is gone."""
    with set_defs_state_storage(None):
        yield
