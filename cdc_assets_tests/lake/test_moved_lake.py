"""A lake whose files are not where its catalog says, or are others: one sentence with a way out, whoever reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.errors import SetupError
from cdc_assets.lake import quarantine
from cdc_assets.lake.growing import GrowingTable
from cdc_assets.lake.lake_table import IDENTITY
from cdc_assets.lake.state import TOMBSTONES, LakeState
from cdc_assets.settings.config import LakeSettings

COLUMNS = pa.schema([("changefeed", pa.string()), ("identity", pa.string()), ("state", pa.string())])


def _growing(state: LakeState) -> GrowingTable:
    place = f"{state.settings.root}/grown"
    return GrowingTable(state.settings, ("_cdc_landing", "shop"), COLUMNS, "state", "x.", place)


READERS: dict[str, tuple[tuple[str, str], Callable[[LakeState], object]]] = {
    "tables": (("shop", "t"), lambda state: state.tables()),
    "counts of records": (("_cdc", "quarantine"), lambda state: quarantine.counts(state)),
    "records": (("_cdc", "quarantine"), lambda state: quarantine.read(state)),
    "purged tables": (("_cdc", TOMBSTONES), lambda state: (list(state.entries()), state.tombstones())),
    "what is landed": (("_cdc_landing", "shop"), lambda state: _growing(state).look()),
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LakeState]:
    state = LakeState(LakeSettings.from_warehouse(tmp_path / "lake"), "default")
    yield state
    state.close()


def _made(state: LakeState, identifier: tuple[str, str]) -> Path:
    """Make a table of the lake, and return its metadata file."""
    state.ensure_namespace(identifier[0])
    table = state.catalog.create_table(identifier, COLUMNS, properties={IDENTITY: "shop.t@1"})
    return Path(table.metadata_location.removeprefix("file://"))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("how", ["moved", "gone", "broken"])
def test_who_reads_a_table_without_its_files_says_so_in_a_sentence(
    reader: str, how: str, lake: LakeState, tmp_path: Path
) -> None:
    identifier, read = READERS[reader]
    file = _made(lake, identifier)
    if how == "moved":
        (tmp_path / "lake").rename(tmp_path / "other")
        lake = LakeState(LakeSettings.from_warehouse(tmp_path / "other"), "default")
    elif how == "gone":
        file.unlink()
    else:
        file.write_text('{"format-version": 2}')
    with pytest.raises(SetupError) as raised:
        read(lake)
    assert ".".join(identifier) in raised.value.message or str(file) in raised.value.message
    assert ("moved" in raised.value.message) is (how != "broken")
    assert "\n" not in raised.value.message
    lake.close()
