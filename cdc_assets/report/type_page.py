"""Fidelity reports and the page `docs/types.md`.

`python -m cdc_assets.report.type_page > docs/types.md` writes the page anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import BITS, CONNECT_TYPES, DECIMAL, SERVER_TYPES
from cdc_assets.types.fidelity import ColumnFidelity
from cdc_assets.types.mysql_types import TYPES, fidelity, iceberg_type, spark_type, type_text
from cdc_assets.types.ydb_types import YDB_TYPES


def format_report(rows: Iterable[ColumnFidelity]) -> str:
    """Return the report as a Markdown table."""
    lines = [_line("column", "source", "lake", "kept", "rule", "seen"), _line(*["---"] * 6)]
    for row in rows:
        seen = "; ".join(f"{rule}: {count}" for rule, count in sorted(row.notes.items()))
        lines.append(_line(row.column, row.source, row.lake, row.grade.value, row.rule, seen))
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    """Escape what would end a cell: names can be any text."""
    shown = (" ".join(cell.replace("\\", "\\\\").replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(shown)} |"


_PAGE = """\
# Types

What a column of the source becomes in the lake, and what of its values is kept. This page is generated from the type
table (`python -m cdc_assets.report.type_page`); a test compares it with the code.

- **lossless**: the lake's values are the source's. **kept as text**: all of the value, but not in a type of its own.
  **changed**: some values cannot be kept as they are; each is counted in the table's fidelity report.
- In a column of the key no value becomes null or changes: such a row is rejected.
- *Rejected when* is what the checks refuse beyond the lake type. NOT NULL is checked as well, except for dates where
  zero dates became null.
- Virtual generated columns are absent: the lake does not have them, and TiCDC does not write their values.
- A column that changes its type (MODIFY, CHANGE) is converted as TiDB converts it; see below.
- A type that is not listed is refused by name. Types of MySQL, MariaDB, Debezium and YDB
  come behind TiDB's.

"""


def type_page() -> str:
    """Return the page of the type table as Markdown: a row for each type, and for each variant stored differently."""
    from cdc_assets.decoding.validate import rules

    head = ("source", "Iceberg", "Spark", "kept", "rule", "rejected when")
    lines = [_line(*head), _line(*["---"] * len(head))]
    for column in _variants():
        column_fidelity = fidelity(column)
        refused = " or ".join(rule.text for rule in rules(column))
        lake = iceberg_type(column), spark_type(column)
        lines.append(_line(type_text(column), *lake, column_fidelity.grade.value, column_fidelity.rule, refused))
    return _PAGE + "\n".join(lines) + "\n" + _CHANGES


_CHANGES = """
## When a column changes its type

Existing rows are converted by TiDB's rules in strict mode. What cannot be known is **approximate**, and then the
preview of the DDL, the journal and the column's fidelity report say so, or the table is **held** with the value in the
message. So it is where a connector's server, MySQL or MariaDB, converts otherwise: MariaDB cuts fractions of seconds,
and both print numbers with an exponent. MariaDB's JSON is LONGTEXT, so texts stay as they are. NULL in a column that
becomes NOT NULL is zero or an empty text, as both write it.

- Approximate: TIMESTAMP to any other type and back is converted in the time zone of the changefeed's settings
  (`timezone`). TiDB takes the zone of the session that ran the DDL, which no file records. A policy
  `modify column: hold` leaves each such change to a person.
- Approximate: a zero or partial date is NULL in the lake and stays NULL when its column becomes a text, a number or
  JSON. Where the column was NOT NULL, so that NULL can be nothing else, the table is held.
- Approximate: JSON from DECIMAL, FLOAT, DOUBLE and text has the same numbers as in TiDB, but not always the same
  digits: a whole float is printed as `1000`, where some versions print `1000.0`.
- Approximate: rows of TiDB that changed in the ten minutes before a column got a type for which its values are
  converted. TiDB rewrites the column while sessions write to it, and such a row may keep what its session wrote (`88.5`
  for `88.50`), which no changefeed sends.
- Held: a value that the new type refuses or shortens. A source in strict mode refuses such a DDL; in another sql_mode
  it cut or clamped the value. Columns that become narrower are checked for such values before their type changes.
- Held: TIME to DATE, DATETIME or TIMESTAMP (the day on which the DDL ran), NULL to TIMESTAMP NOT NULL (the time at
  which it ran), a local time that the zone's clock skipped, members of ENUM and SET that no file lists, texts that are
  a date in a form with a zone or in other rare forms, and changes of type that TiDB does not have.
- Held: DROP, TRUNCATE and EXCHANGE PARTITION by a DATE or DATETIME column while rows have no value in it. It may be a
  partial date, which is NULL in the lake and belongs to a partition that the lake cannot determine.
"""


_SIZES: Mapping[str, tuple[tuple[int | None, int | None], ...]] = {
    "DECIMAL": ((10, 2), (65, 30)),
    **dict.fromkeys((DECIMAL, "Decimal"), ((10, 2), (60, 30))),
    BITS: ((8, None), (64, None), (100, None)),
    "BIT": ((1, None), (20, None), (64, None)),
    **dict.fromkeys(("DATETIME", "TIMESTAMP", "TIME"), ((None, None), (None, 6))),
    **dict.fromkeys(("CHAR", "VARCHAR", "VAR_STRING", "BINARY", "VARBINARY"), ((20, None),)),
    **dict.fromkeys(("TINYTEXT", "TINYBLOB"), ((255, None),)),
    **dict.fromkeys(("TEXT", "BLOB"), ((65535, None),)),
    **dict.fromkeys(("MEDIUMTEXT", "MEDIUMBLOB"), (((1 << 24) - 1, None),)),
    **dict.fromkeys(("LONGTEXT", "LONGBLOB"), (((1 << 32) - 1, None),)),
}
_MEMBERS: Mapping[str, tuple[str, ...]] = {"ENUM": ("a", "b"), "SET": ("a", "b")}


def _variants() -> Iterator[Column]:
    """Yield a column for every row of the type table, so that none is forgotten; unsigned where the type can be."""
    for kind in (*TYPES, *SERVER_TYPES, *CONNECT_TYPES, *YDB_TYPES):
        for precision, scale in _SIZES.get(kind, ((None, None),)):
            for unsigned in (False, True):
                column = Column(
                    "c", kind, unsigned, precision, scale, elems=_MEMBERS.get(kind), collation="utf8mb4_bin"
                )
                if not unsigned or type_text(column).endswith("UNSIGNED"):
                    yield column


if __name__ == "__main__":
    sys.stdout.write(type_page())
