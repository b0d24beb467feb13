"""The result of comparing a lake table with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

EQUAL, DIFFERENT, REPAIRED, NOT_COMPARED = "equal", "different", "repaired", "not compared"


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A column in which a row of the lake and that of the source have other values, as texts; None is NULL."""

    column: str
    lake: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A row that is not the same on both sides: `missing` in the lake, `extra` there, or `differing`.

    `key` are the values that identify it, of a table without key all of them. Of a table without key, or of a key that
    stands several times on one side, `count` rows are alike.
    """

    kind: str
    key: Mapping[str, str | None]
    values: tuple[ValueDifference, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """The result of comparing a table with its source. `state` is EQUAL, DIFFERENT or NOT_COMPARED, then with the
    `reason`.

    REPAIRED is one that was different, and has the source's rows since; `repair` says what was done, or why nothing.

    `definitions` are sentences on columns of which source and feed say other lengths or defaults, which changes no row.

    `source` tells the source from others, and `basis` says what of its rows was compared: what was found by another one
    says nothing of these. `at` is the TSO as of which it was read, 0 for the present, `through` the fence of the lake
    then. Rows are
    counted on both sides; `missing`, `extra` and `differing` count rows, `rows` are the first of them. `columns` are
    sentences on columns that differ, `left_out` says by column why its values are not compared, `losses` counts values
    that are equal but for a loss that the fidelity report names. `chosen` says which rows alone were compared, "" for
    all, and `cut` in which cut, "" for the table as it is now. `earlier` counts the rows of ranges that were compared
    as of another TSO, by an earlier run or before garbage collection passed it. With `partly` more rows differ than
    were read again, so that counts are the least that there are. `excluded` counts rows of the source that are not
    compared, as their keys are forgotten. The connection to the source broke, and was opened again, `reconnects` times.
    """

    table: TableId
    state: str
    reason: str = ""
    source: str = ""
    basis: str = ""
    at: Tso = 0
    through: Tso = 0
    snapshot: int | None = None
    lake_rows: int = 0
    source_rows: int = 0
    missing: int = 0
    extra: int = 0
    differing: int = 0
    rows: tuple[RowDifference, ...] = ()
    columns: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, int] = field(default_factory=dict)
    partly: bool = False
    excluded: int = 0
    chosen: str = ""
    cut: str = ""
    earlier: Mapping[Tso, int] = field(default_factory=dict)
    repair: str = ""
    reconnects: int = 0
    seconds: float = 0.0


def format_comparison(comparison: TableComparison) -> str:
    """Return a comparison as JSON, without the rows that differ: values belong into no record."""
    earlier = list(comparison.earlier.items())
    return json.dumps({**asdict(comparison), "rows": (), "earlier": earlier}, ensure_ascii=False)


def parse_comparison(text: str) -> TableComparison:
    """Return the comparison of a JSON; the inverse of `format_comparison`."""
    fields = json.loads(text)
    for name in ("rows", "columns", "definitions"):
        fields[name] = tuple(fields[name])
    fields["earlier"] = dict(fields["earlier"])
    return TableComparison(**{**fields, "table": TableId(**fields["table"])})
