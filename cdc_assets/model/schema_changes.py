"""Changes of one DDL: a union of frozen values, carried out in the lake and on rows that are older than the DDL."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Old rows read `default` (in the column's text form, None for NULL); `approximate` says how it was guessed."""

    column: Column
    default: object = None
    approximate: str = ""


@dataclass(frozen=True, slots=True)
class DropColumn:
    """The column and its values are removed; a later column of the same name is a new one."""

    name: str


@dataclass(frozen=True, slots=True)
class ContinueColumn:
    """The source has a column again that the lake kept: rows that are there have `default` in it from here on."""

    column: Column
    default: object = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """The column keeps its field, so old rows keep their values. A DDL's renames happen at once (names may swap)."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class RetypeColumn:
    """Values are converted by TiDB's rules; in place when the lake type only widens, else by rewriting the table.

    `timezone` stands for that of the session that ran the DDL; `approximate` says what of the values is a guess.
    """

    old: Column
    new: Column
    timezone: str = "UTC"
    approximate: str = ""


@dataclass(frozen=True, slots=True)
class MoveColumns:
    """The columns stand in this order afterwards (names after renames, lake columns only)."""

    order: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetDefault:
    """A fact for later rows and documentation; existing rows do not change."""

    name: str
    default: object


@dataclass(frozen=True, slots=True)
class Rekey:
    """Rows are matched by these columns from here on."""

    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A node of a condition on lake rows, which `ddl.spark_sql` and `ddl.polars_expr` render with the same meaning.

    `op` is `column` (`value` is its name) or `literal` (`value` its text), with `type` int, unsigned, date, datetime,
    instant, string or binary; or an operator or function over `args`. `nullable` says whether a value can be NULL, or
    an operand of a comparison. A condition is never NULL: comparisons with NULL are false. `nulls_confirmed` is set
    once a person has confirmed that NULLs of the lake are NULL in the source.
    """

    op: str
    args: tuple[Predicate, ...] = ()
    value: str = ""
    type: str = ""
    nullable: bool = False
    nulls_confirmed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Rows that satisfy `predicate` are removed without row events; None means all of them (TRUNCATE).

    `partitions` are the partitions that the DDL names.
    """

    predicate: Predicate | None
    partitions: tuple[str, ...] = field(default=(), compare=False)


SchemaChange = (
    AddColumn
    | ContinueColumn
    | DropColumn
    | RenameColumn
    | RetypeColumn
    | MoveColumns
    | SetDefault
    | Rekey
    | DeleteRows
)


@dataclass(frozen=True, slots=True)
class Evolution:
    """A DDL that the table has applied ahead of its rows: those with commit-ts < `at` go through `changes`."""

    at: Tso
    changes: tuple[SchemaChange, ...]
    before: TableSchema
    after: TableSchema
