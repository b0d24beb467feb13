"""Every decoder is behind the one place that masks, and what it raises there says nothing of values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from cdc_assets import formats
from cdc_assets.errors import MalformedData
from cdc_assets.formats import conceal_blocks, decode_among
from cdc_assets.formats.changes import shape_of
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.masks import Mask
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.settings.config import settings_of
from cdc_assets_tests.changefeed import written
from cdc_assets_tests.package_code import MODULES, PACKAGE, ROOT, nodes

T = TableId("shop", "t")
SCHEMA = TableSchema((Column("id", "INT"), Column("a", "VARCHAR", precision=40, mask=Mask("constant", "x"))))

DECODES = {"formats/__init__.py", "formats/landed.py"}
"""Who asks a format for rows: the one place that masks them, and the frame that it asks for landed ones."""
READS_DUMPS = {
    "features/dumps/formats.py": "masks them",
    "sources/joined.py": "hands them to who masks them",
    "sources/dumpling/splits.py": "the same",
    "sources/dumpling/initial.py": "counts them for a person who inspects a dump alone",
    "sources/mysql_protocol/initial.py": "the same",
    "features/verification/operations_ranges.py": "masks them by `conceal_blocks`",
}
"""Who reads rows of dumps and of the source itself."""


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the methods that a module calls, with how many arguments."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, len(node.args) + len(node.keywords)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, len(node.args) + len(node.keywords)


def users(*of: tuple[str, int]) -> set[str]:
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if path.is_relative_to(PACKAGE)
        if any(call in of for call in calls(path))
    }


def test_rows_of_feeds_are_decoded_at_one_place() -> None:
    assert users(("decode", 5)) == DECODES


def test_rows_of_dumps_and_sources_are_read_at_known_places() -> None:
    places = users(("rows", 3), ("read", 4), ("read", 6), ("read_split", 6))
    assert {place for place in places if not place.startswith("landing/")} == set(READS_DUMPS)  # its rows are messages


def test_only_what_masks_is_offered_to_those_who_decode() -> None:
    imported = {
        name.name
        for path in MODULES
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "formats")
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cdc_assets.formats.")
        for name in node.names
    }
    assert not {name for name in imported if name in {"decode", "changes_of", "read_rows"}}


@dataclass(frozen=True)
class Leaky:
    """A decoder that says what it reads, in every way there is."""

    error: Exception | None = None

    def decode(self, data: bytes, path: str, table: TableId, schema: TableSchema, wire: object) -> Decoded:
        if self.error is not None:
            raise self.error
        changes = pa.table(
            [pa.array([1], pa.int8()), pa.array([5]), pa.array([1]), pa.array([1], pa.int32()), pa.array(["secret"])],
            schema=shape_of(schema.columns),
        )
        bad = Reject(path, 2, '"secret" is no number', b"secret", "id")
        return Decoded(changes, (bad, replace(bad, line=3, column="secret")))


def test_a_decoder_that_nobody_has_written_yet_is_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_plug", lambda wire: Leaky())
    decoded_rows = decode_among(written().wire, b"", "f.csv", [(T, SCHEMA)])[1]
    assert decoded_rows.changes.column("a").to_pylist() == ["x"]
    assert "secret" not in repr(decoded_rows)
    assert [(reject.line, reject.column) for reject in decoded_rows.rejects] == [(2, "id"), (3, "")]


@pytest.mark.parametrize(
    "error",
    [
        MalformedData("of secret", line=3, column="id"), MalformedData("of a name", line=3, column="secret"),
        ValueError("secret"), KeyError("secret"),
    ],
)  # fmt: skip
def test_what_a_decoder_raises_says_where_and_nothing_of_values(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(formats, "_plug", lambda wire: Leaky(error))
    for tables in ([(T, SCHEMA)], [(T, replace(SCHEMA, columns=SCHEMA.columns[:1])), (T, SCHEMA)]):
        with pytest.raises(MalformedData) as raised:
            decode_among(written().wire, b"", "f.csv", tables)
        assert "secret" not in str(raised.value)
        assert raised.value.__suppress_context__
        assert "f.csv" in str(raised.value)


def test_what_a_dump_raises_behind_its_rows_says_nothing_of_values() -> None:
    def blocks() -> Iterator[Decoded]:
        yield Leaky().decode(b"", "d.csv", T, SCHEMA, None)
        raise MalformedData("secret", line=9)

    masked_rows = conceal_blocks(blocks(), "d.csv", SCHEMA)
    assert next(masked_rows).changes.column("a").to_pylist() == ["x"]
    with pytest.raises(MalformedData) as raised:
        next(masked_rows)
    assert ("secret" in str(raised.value), raised.value.where["line"]) == (False, 9)


def test_the_page_shows_settings_that_can_be_read_and_a_search_that_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/privacy.md").read_text(encoding="utf-8")
    monkeypatch.setenv("MASK_KEY", "key")
    monkeypatch.setenv("PRIVACY_KEY", "key")
    shown = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    masks = settings_of(shown, tmp_path).changefeeds[0].masks
    assert [str(line.mask) for line in masks.lines] == ["hash", "redact last4", "drop", "null"]
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/ledger.db").write_bytes(b"... a value that is nowhere else ...")
    monkeypatch.chdir(tmp_path)
    exec(page.split("```python\n")[1].split("```")[0])  # the page's own search
    assert capsys.readouterr().out.strip() == "lake/ledger.db"
