"""Tables, columns, keys and partitions, as schema files and DDL texts define them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cdc_assets.model.masks import Mask
from cdc_assets.model.names import fold_name, is_hidden_name
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True, order=True)
class TableId:
    """A source table's name as TiDB spells it. An empty `table` means the database itself.

    Names that differ in letter case only are the same table: compare their `folded` forms, as `ByName` does.
    """

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}" if self.table else self.schema

    @classmethod
    def of_path(cls, path: str, schema: str) -> TableId:
        """Return the table that a path of YDB names: its last part, in what stands before it, else in `schema`."""
        before, _, table = path.strip("/").rpartition("/")
        return cls(before or schema, table)

    @property
    def folded(self) -> TableId:
        """The name in the form that TiDB compares."""
        return TableId(fold_name(self.schema), fold_name(self.table))


@dataclass(frozen=True, slots=True)
class Default:
    """The DEFAULT of a DDL text: `kind` is null, string, number, bits, hex, now or expression."""

    kind: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One entry of `TableColumns`, with what only the DDL text has (`elems` in old files, `collation`, `virtual`).

    `type` is upper case without ` UNSIGNED`. `precision` is also the length of character and binary types; `scale` the
    fraction digits of DECIMAL and of time types. `default` is the JSON value of `ColumnDefault`, None when absent.
    `kept` is the version at which the source dropped a column that the lake keeps, 0 for one that the source has.
    `bytewise` says that its texts compare by their bytes whatever the collation, as without new collations.
    `origin` is its name in the source where the lake has another column of that name, else "".
    `comment` is for readers; a column with another one is the same column. `generated` is the SQL expression of a
    generated column, virtual or stored, "" for any other and where no text has it; `computed` is that of a default that
    the source computes row by row. `mask` is what becomes of its values before anything else sees them: the column
    stays that of the source, `in_lake` is what the lake has of it. A column that is not `selected` is left out of rows
    by the changefeed's column selectors.
    """

    name: str
    type: str
    unsigned: bool = False
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True
    is_pk: bool = False
    default: object = None
    id: int | None = None
    elems: tuple[str, ...] | None = None
    collation: str | None = None
    virtual: bool = False
    kept: Tso = 0
    bytewise: bool = False
    origin: str = ""
    comment: str = field(default="", compare=False)
    generated: str = field(default="", compare=False)
    computed: str = field(default="", compare=False)
    zerofill: bool = field(default=False, compare=False)
    mask: Mask | None = None
    selected: bool = field(default=True, compare=False)

    @property
    def source_name(self) -> str:
        """The name that the source knows it by."""
        return self.origin or self.name

    @property
    def hidden(self) -> bool:
        """Return whether it belongs to an expression index: schema files list it, rows and queries never have it."""
        return self.virtual and is_hidden_name(self.name)

    @property
    def compares_by(self) -> str | None:
        """The collation by which values are equal, None where it is not known."""
        return "binary" if self.bytewise and self.collation else self.collation

    @property
    def in_lake(self) -> Column | None:
        """The column as its masked values have it, None for one that is dropped; without a mask the column itself.

        Hashes and what is left of texts are texts, `length` is a BIGINT, `null` leaves the type as it is. What may have
        values of the source, its default and members, is left out.
        """
        if self.mask is None:
            return self
        bare = replace(self, default=None, elems=None, generated="", computed="", mask=None)
        if self.virtual:
            return bare
        text = replace(bare, type="VARCHAR", unsigned=False, precision=None, scale=None, zerofill=False)
        match self.mask.way:
            case "drop":
                return None
            case "null":
                return replace(bare, nullable=True)
            case "hash":
                return replace(text, precision=64, collation="binary")
            case "redact" if self.mask.detail == "length":
                return replace(text, type="BIGINT", collation=None)
            case "redact" | "constant":
                return replace(text, nullable=True, collation="binary")
        raise ValueError(f"no mask is called {self.mask.way!r}")

    def decodes_like(self, other: Column) -> bool:
        """Return whether values of both columns are written and read in the same way."""
        return _decoding(self) == _decoding(other)


ROW_END = "ROW END"
"""MariaDB's expression for the end of a row's validity, in a table with system versioning."""

ReadColumn = Callable[[str, str, Mapping[str, str]], Column]
"""(column, text of its type, the database's own types) -> the column, of type "" where the text is not known."""


def _decoding(column: Column) -> tuple[object, ...]:
    return (
        column.source_name,
        column.type,
        column.unsigned,
        column.precision if column.type in ("DECIMAL", "BIT", "TINYINT") else None,
        column.scale or 0,
        column.virtual,
    )


@dataclass(frozen=True, slots=True)
class Index:
    """An index of the table as its DDL text defines it.

    `partial` marks one whose columns do not identify rows even if it is unique: over a prefix of a column, over an
    expression, of some rows only (WHERE), or with an unknown option.
    """

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True)
class TablePartition:
    """One partition: `bound` is the SQL text of LESS THAN (None is MAXVALUE) or the texts of IN."""

    name: str
    less_than: tuple[str | None, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Partitioning of a table: RANGE, RANGE COLUMNS, LIST, LIST COLUMNS, HASH or KEY, from its DDL text."""

    kind: str
    expressions: tuple[str, ...]
    partitions: tuple[TablePartition, ...] = ()
    count: int = 0

    @property
    def lists_columns(self) -> bool:
        """Whether `expressions` are names of columns as they are, else they are SQL texts."""
        return self.kind in ("RANGE COLUMNS", "LIST COLUMNS", "KEY")


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns in table order, with the facts that only DDL texts have.

    `key` names the columns that identify a row; () means that none is known and the table is a multiset. `clustered`
    says whether TiDB stores rows by their primary key, None where no text has it. `private` says that columns of the
    table are to be masked, if it is known to have them or not: what cannot be decoded may have their values.
    `hides_past_rows` says that MariaDB keeps former versions of its rows, and shows by no column which rows these are.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    partitioning: Partitioning | None = None
    collation: str | None = None
    comment: str = field(default="", compare=False)
    clustered: bool | None = field(default=None, compare=False)
    private: bool = field(default=False, compare=False)
    hides_past_rows: bool = field(default=False, compare=False)

    def column(self, name: str) -> Column:
        """Return the column of that name; raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def confidential(self) -> bool:
        """Return whether values of a column are masked, or may be in what cannot be decoded."""
        return self.private or any(column.mask is not None for column in self.columns)

    @property
    def in_lake(self) -> TableSchema:
        """The columns as the lake has them."""
        if not self.confidential:
            return self
        columns = (column.in_lake for column in self.columns)
        return replace(self, columns=tuple(column for column in columns if column is not None), private=True)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that rows have: all but virtual generated ones, and those that column selectors leave out."""
        return tuple(column for column in self.columns if column.selected and not column.virtual)

    @property
    def live(self) -> tuple[Column, ...]:
        """The columns of the lake table that the source has, too."""
        return tuple(column for column in self.stored if not column.kept)

    @property
    def lake_names(self) -> dict[str, str]:
        """The names in the lake of the columns that the source has, by its names."""
        return {column.source_name: column.name for column in self.live}

    @property
    def exact(self) -> frozenset[str]:
        """The columns to which no lossy rule may be applied: key and primary key."""
        return frozenset((*self.key, *(column.name for column in self.columns if column.is_pk)))

    def decodes_like(self, other: TableSchema) -> bool:
        """Return whether a row of one can be decoded as a row of the other: same columns, in whatever order."""
        own_decodings, other_decodings = (
            [_decoding(c) for c in schema.columns if not c.kept and not c.hidden] for schema in (self, other)
        )
        return sorted(own_decodings, key=repr) == sorted(other_decodings, key=repr)

    def renumbers(self, later: TableSchema) -> bool:
        """Return whether a member number of an ENUM or SET means another member in `later`.

        Canal-JSON rows may have members as numbers.
        """
        members = {column.name: column.elems for column in self.columns if column.elems}
        return any(
            former_members is not None
            and column.elems is not None
            and column.elems[: len(former_members)] != former_members
            for column in later.columns
            for former_members in [members.get(column.name)]
        )


V = TypeVar("V")


class ByName(MutableMapping[TableId, V]):
    """A mapping with case-insensitive lookup; iterating gives the names as they were set last."""

    def __init__(self, items: Mapping[TableId, V] | None = None) -> None:
        self._items: dict[TableId, tuple[TableId, V]] = {}
        self.update(items or {})

    def __getitem__(self, name: TableId) -> V:
        return self._items[name.folded][1]

    def __setitem__(self, name: TableId, value: V) -> None:
        self._items[name.folded] = (name, value)

    def __delitem__(self, name: TableId) -> None:
        del self._items[name.folded]

    def __iter__(self) -> Iterator[TableId]:
        return iter([name for name, _ in self._items.values()])

    def __len__(self) -> int:
        return len(self._items)

    def spelled(self, name: TableId) -> TableId:
        """Return the name as it is spelled in this mapping, or as given if it is not in it."""
        item = self._items.get(name.folded)
        return name if item is None else item[0]


SOFT_DELETE_COLUMNS = frozenset(("_tidb_softdelete_time", "_tidb_origin_ts"))
"""Hidden columns of TiDB's soft-delete and active-active tables (`ticdc:pkg/common/event/active_active.go`).

The text of their CREATE TABLE has none of them.
"""


def soft_delete_reason(sign: str) -> str:
    """Return the sentence on such a table, which begins with what shows it to be one."""
    return (
        f"{sign}: a soft-delete or active-active table. TiCDC never writes its hard deletes, and whether a soft delete "
        "is written as a delete or as an update depends on settings that the feed does not record, so the lake table "
        "would keep rows that the source does not show. Exclude the table from the changefeed."
    )
