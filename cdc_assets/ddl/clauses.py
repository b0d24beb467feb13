"""Clauses of CREATE and ALTER TABLE: column and index definitions, table options, partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cdc_assets.ddl.text import Cursor, Token, Unreadable, render, split
from cdc_assets.model.schema import ROW_END, Default, Index, Partitioning, TablePartition

_COLLATIONS = {
    "utf8mb4": "utf8mb4_bin",
    "utf8mb3": "utf8_bin",
    "utf8": "utf8_bin",
    "latin1": "latin1_bin",
    "ascii": "ascii_bin",
    "binary": "binary",
    "gbk": "gbk_chinese_ci",
    "gb18030": "gb18030_chinese_ci",
}
"""TiDB's default collation of each of its charsets, which is not MySQL's."""

UNKNOWN_PARTITIONS = "UNKNOWN"
"""`Partitioning.kind` of partitions that cannot be read; `expressions` holds the reason."""


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column's definition. `generated` is "", VIRTUAL or STORED. `strays` are words that no option begins with.

    `type` are the words of the type (`DOUBLE PRECISION`), `arguments` the numbers in parentheses after it. `place` is
    the column that AFTER names, "" for FIRST, None where the definition does not say.
    """

    name: str
    type: str
    arguments: tuple[int, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    elems: tuple[str, ...] | None = None
    charset: str = ""
    collation: str = ""
    binary: bool = False
    default: Default | None = None
    generated: str = ""
    expression: str = ""
    nullable: bool = True
    numbered: bool = False
    primary: bool = False
    unique: bool = False
    comment: str = ""
    place: str | None = None
    strays: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class TableBody:
    """The body of a CREATE TABLE."""

    columns: tuple[ColumnText, ...]
    indexes: tuple[Index, ...]
    charset: str = ""
    collation: str = ""
    partitioning: Partitioning | None = None
    comment: str = ""
    clustered: bool | None = None
    versioned: bool = False
    """Whether MariaDB keeps former versions of its rows."""


class Options(NamedTuple):
    """Options of a table or a database, "" where not given."""

    charset: str
    collation: str
    comment: str
    versioned: bool = False


_TYPE_WORDS = {"PRECISION", "VARYING", "VARCHAR", "VARBINARY", "VARCHARACTER", "CHAR", "CHARACTER"}
_NOW = {"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_DATE", "CURDATE", "CURRENT_TIME"}
_INDEX_WORDS = ("PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR", "HYBRID")


def default_collation(charset: str) -> str:
    """Return the default collation of a charset as TiDB has it; of one that it does not have, that by code points."""
    return _COLLATIONS.get(charset) or f"{charset}_bin"


def charset_of(collation: str) -> str:
    """Return the charset that a collation belongs to."""
    charset = collation.split("_", 1)[0]
    return "utf8" if charset == "utf8mb3" else charset


# --- columns ----------------------------------------------------------------------------------------------------------


def column(parts: Sequence[Token]) -> ColumnText:
    """Read `name type option…`; options without meaning here are stepped over."""
    at = Cursor(parts)
    name = at.name()
    words = [at.word()]
    # after CHAR the words CHARACTER SET are an option
    while at.next.kind == "word" and at.next.text in _TYPE_WORDS and not at.sees("CHARACTER|CHAR", "SET"):
        words.append(at.take().text)
    kind, inside = " ".join(words), at.group() if at.sees("(") else ()
    # MySQL keeps members without trailing spaces
    members = tuple(part.text.rstrip(" ") for part in inside if part.kind == "string")
    elems = members if kind in ("ENUM", "SET") else None
    numbers = tuple(int(part.text) for part in inside if part.kind == "number" and part.text.isdecimal())
    definition = ColumnText(name, kind, numbers, elems=elems)
    if kind == "SERIAL":
        definition = replace(definition, nullable=False, numbered=True, unique=True)
    while at:
        if at.sees("PARTITION", "BY") or at.sees("REMOVE", "PARTITIONING"):
            raise Unreadable("a partition clause after a column is not known")
        definition = _option(at, definition)
    return definition


_FLAGS: Mapping[str, Callable[[ColumnText], ColumnText]] = {
    "AUTO_INCREMENT": lambda definition: replace(definition, numbered=True),
    "AUTO_RANDOM": lambda definition: replace(definition, numbered=True),
    "BINARY": lambda definition: replace(definition, binary=True),
    "BYTE": lambda definition: replace(definition, charset="binary"),
    "UNSIGNED": lambda definition: replace(definition, unsigned=True),
    "ZEROFILL": lambda definition: replace(definition, unsigned=True, zerofill=True),
}


def _option(at: Cursor, definition: ColumnText) -> ColumnText:
    if at.accept("CHARACTER|CHAR", "SET") or at.accept("CHARSET"):
        return replace(definition, charset=at.string().lower())
    if at.accept("COLLATE"):
        return replace(definition, collation=at.string().lower())
    if at.accept("NOT", "NULL"):
        return replace(definition, nullable=False)
    if at.accept("SERIAL", "DEFAULT", "VALUE"):
        return replace(definition, nullable=False, numbered=True, unique=True)
    if at.accept("DEFAULT"):
        return replace(definition, default=default(at))
    for words in (("GENERATED", "ALWAYS", "AS", "ROW"), ("AS", "ROW")):  # of a table WITH SYSTEM VERSIONING, stored
        if at.accept(*words, "END"):
            return replace(definition, nullable=False, expression=ROW_END)
        if at.accept(*words, "START"):
            return replace(definition, nullable=False)
    if at.accept("AS") or at.accept("GENERATED", "ALWAYS", "AS"):
        text = render(at.group())
        stored = at.accept("STORED|PERSISTENT")
        return replace(definition, generated="STORED" if stored else "VIRTUAL", expression=text)
    if at.accept("PRIMARY", "KEY") or at.accept("PRIMARY") or at.accept("KEY"):
        return replace(definition, primary=True, nullable=False)
    if at.accept("UNIQUE"):
        at.accept("KEY|INDEX")
        return replace(definition, unique=True)
    if at.next.kind == "word" and at.next.text in _FLAGS:
        return _FLAGS[at.take().text](definition)
    if at.accept("COMMENT"):
        return replace(definition, comment=at.string())
    if at.accept("FIRST"):
        return replace(definition, place="")
    if at.accept("AFTER"):
        return replace(definition, place=at.column())
    strays = () if at.sees(_NEUTRAL) or at.sees("(") else (at.next.raw,)
    _pass_option(at)
    return replace(definition, strays=(*definition.strays, *strays))


_NEUTRAL = (
    "NULL|CHECK|CONSTRAINT|REFERENCES|ON|COLUMN_FORMAT|STORAGE|VISIBLE|INVISIBLE|VIRTUAL|STORED|NOT|ENFORCED|SRID"
)
"""First words of the options that say nothing of the values of old rows."""


def _pass_option(at: Cursor) -> None:
    """Step over an option without meaning here, with the words in it that would mean something by themselves."""
    if at.accept("ON", "UPDATE|DELETE"):
        if not at.accept("SET", "NULL|DEFAULT"):
            at.take()
        if at.sees("("):
            at.group()
    elif at.accept("COLUMN_FORMAT|STORAGE"):
        at.take()
    elif at.sees("("):
        at.group()
    else:
        at.take()


def default(at: Cursor) -> Default:
    """Take what follows DEFAULT."""
    if at.sees("("):
        inside = at.group()
        try:
            inner = Cursor(inside)
            inner_default = default(inner)
            return inner_default if not inner and inner_default.kind != "now" else Default("expression", render(inside))
        except Unreadable:
            return Default("expression", render(inside))
    sign = "-" if at.accept("-") else ""
    if not sign:
        at.accept("+")
    if at.sees("DATE|TIME|TIMESTAMP") and at.at + 1 < len(at.parts) and at.parts[at.at + 1].kind == "string":
        at.take()
    token = at.take()
    if token.kind in ("string", "bits", "hex", "number"):
        text = token.text
        while token.kind == "string" and at.next.kind == "string":
            text += at.take().text
        if token.kind == "number" and at.accept("."):
            text += "." + at.take().text
        return Default(token.kind, sign + text)
    if token.is_word(".") and at.next.kind == "number":
        return Default("number", f"{sign}0.{at.take().text}")
    if token.kind != "word":
        raise Unreadable(f'expected a default, found "{token.raw}"')
    if token.text in ("NULL", "TRUE", "FALSE"):
        return Default("null") if token.text == "NULL" else Default("number", "1" if token.text == "TRUE" else "0")
    inside = at.group() if at.sees("(") else ()
    if token.text in _NOW:
        return Default("now", render(inside))
    return Default("expression", f"{token.raw}({render(inside)})")


# --- indexes ----------------------------------------------------------------------------------------------------------


def is_index(at: Cursor) -> bool:
    """Return whether an index or a constraint comes next, not a column."""
    return at.next.kind == "word" and at.next.text in (*_INDEX_WORDS, "CONSTRAINT", "FOREIGN", "CHECK")


def index(parts: Sequence[Token], number: int = 0) -> Index | None:
    """Read an index definition; None for foreign keys and checks."""
    at = Cursor(parts)
    name = ""
    if at.accept("CONSTRAINT") and not at.sees("PRIMARY|UNIQUE|FOREIGN|CHECK"):
        name = at.name()
    if at.sees("FOREIGN|CHECK"):
        return None
    primary = at.accept("PRIMARY")
    unique = primary or at.accept("UNIQUE")
    while at.next.kind == "word" and at.next.text in _INDEX_WORDS:
        at.take()
    at.accept("IF", "NOT", "EXISTS")
    if not at.sees("(") and not at.sees("USING|TYPE"):
        name = at.name()
    if at.accept("USING|TYPE"):
        at.take()
    columns, partial = index_body(at)
    return Index("PRIMARY" if primary else name, columns, unique, primary, partial)


def index_body(at: Cursor) -> tuple[tuple[str, ...], bool]:
    """Take the parts of an index and its options; return its columns, and whether it is `Index.partial`."""
    columns: list[str] = []
    partial = False
    for piece in split(at.group()):
        part = Cursor(piece)
        if part.sees("("):
            partial = True
            continue
        columns.append(part.column())
        if not part.accept("WITHOUT", "OVERLAPS"):
            part.accept("ASC|DESC")
        partial |= bool(part)
    while at and not partial:
        partial = not _index_option(at)
    at.rest()
    return tuple(columns), partial


def _index_option(at: Cursor) -> bool:
    """Take an option that leaves an index over all rows; False if the next one is no such option."""
    if at.accept("VISIBLE|INVISIBLE|CLUSTERED|NONCLUSTERED|GLOBAL|LOCAL|ADD_COLUMNAR_REPLICA_ON_DEMAND"):
        return True
    if at.accept("WITH", "PARSER") or at.accept("USING|TYPE|COMMENT"):
        at.take()
        return True
    if not at.accept("KEY_BLOCK_SIZE|PRE_SPLIT_REGIONS|SECONDARY_ENGINE_ATTRIBUTE|ENGINE_ATTRIBUTE|ALGORITHM|LOCK"):
        return False
    at.accept("=")
    if at.sees("("):
        at.group()
    else:
        at.take()
    return True


# --- table options ----------------------------------------------------------------------------------------------------


def options(at: Cursor) -> Options:
    """Take table or database options up to PARTITION BY."""
    charset = collation = comment = ""
    versioned = False
    while at and not at.sees("PARTITION", "BY"):
        if at.accept("CHARACTER|CHAR", "SET") or at.accept("CHARSET"):
            at.accept("=")
            charset = at.string().lower()
        elif at.accept("COLLATE"):
            at.accept("=")
            collation = at.string().lower()
        elif at.accept("COMMENT"):
            at.accept("=")
            comment = at.string()
        elif at.accept("WITH", "SYSTEM", "VERSIONING"):
            versioned = True
        elif at.sees("("):
            at.group()
        else:
            at.take()
    return Options(charset, collation, comment, versioned)


def table(at: Cursor) -> TableBody:
    """Read a CREATE TABLE from its opening parenthesis on."""
    columns: list[ColumnText] = []
    indexes: list[Index] = []
    periods: dict[str, tuple[str, ...]] = {}
    versioned = False  # as one of its columns is
    clustered: bool | None = None
    for piece in split(at.group()):
        words = {part.text for part in piece if part.kind == "word"}
        if not words.isdisjoint(("CLUSTERED", "NONCLUSTERED")):
            clustered = "CLUSTERED" in words
        if (period := Cursor(piece)).accept("PERIOD", "FOR"):
            name = period.name().lower()
            periods[name], _ = index_body(period)
            continue
        if is_index(Cursor(piece)):
            table_index = index(piece)
            if table_index is not None:
                indexes.append(table_index)
        else:
            columns.append(column(piece))
            versioned |= any(Cursor(piece[place:]).sees("WITH", "SYSTEM", "VERSIONING") for place in range(len(piece)))
    # Of CREATE TABLE … SELECT some or all columns have no definition.
    depth = 0
    for place in range(at.at, len(at.parts)):
        token = at.parts[place]
        opened = token.is_word("(") and place + 1 < len(at.parts) and at.parts[place + 1].is_word("SELECT")
        if depth == 0 and (opened or token.is_word("SELECT") or token.is_word("AS")):
            raise Unreadable("the columns that the query adds are not known")
        depth += token.is_word("(") - token.is_word(")")
    settings = options(at)
    parts = partitioning(at.rest()) if at else None
    inline = [own for text in columns for own in inline_indexes(text)]
    all_indexes = named([*inline, *(_over_periods(made, periods) for made in indexes)])
    versioned |= settings.versioned
    return TableBody(
        tuple(columns), all_indexes, settings.charset, settings.collation, parts, settings.comment, clustered, versioned
    )


def _over_periods(index: Index, periods: Mapping[str, tuple[str, ...]]) -> Index:
    """Return an index of MariaDB with the columns that begin and end a period in place of the period's name."""
    return replace(index, columns=tuple(part for name in index.columns for part in periods.get(name.lower(), (name,))))


def inline_indexes(text: ColumnText) -> list[Index]:
    """The indexes that a column definition makes."""
    indexes = [Index("PRIMARY", (text.name,), True, True)] if text.primary else []
    return indexes + ([Index("", (text.name,), True)] if text.unique else [])


def named(indexes: Sequence[Index]) -> tuple[Index, ...]:
    """Give nameless indexes the name MySQL gives them: that of their first column, then with _2, _3."""
    taken = {index.name.lower() for index in indexes if index.name}
    done = []
    for index in indexes:
        base = index.columns[0] if index.columns else "expression_index"
        name, number = index.name or base, 2
        while not index.name and name.lower() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        done.append(replace(index, name=name))
    return tuple(done)


# --- partitions -------------------------------------------------------------------------------------------------------


def partitioning(parts: Sequence[Token]) -> Partitioning:
    """Read PARTITION BY …; what cannot be read is of kind UNKNOWN, which holds the table only when it matters."""
    try:
        return _partitioning(Cursor(parts))
    except Unreadable as problem:
        return Partitioning(UNKNOWN_PARTITIONS, (f"{render(parts)}: {problem}",))


def _partitioning(at: Cursor) -> Partitioning:
    at.expect("PARTITION", "BY")
    linear = at.accept("LINEAR")
    kind = at.word()
    if kind not in ("RANGE", "LIST", "HASH", "KEY"):
        raise Unreadable(f"partitions by {kind} are not known")
    if kind in ("RANGE", "LIST") and at.accept("COLUMNS"):
        kind += " COLUMNS"
    if kind == "KEY" and at.accept("ALGORITHM"):
        at.accept("=")
        at.take()
    inside = at.group()
    listed = kind in ("RANGE COLUMNS", "LIST COLUMNS", "KEY")
    expressions = tuple(Cursor(piece).column() for piece in split(inside)) if listed else (render(inside),)
    count = at.partition_count() if at.accept("PARTITIONS") else 0
    if at.sees("SUBPARTITION") or at.sees("INTERVAL") or (linear and kind == "HASH"):
        raise Unreadable(f"{at.next.raw or 'LINEAR HASH'} is not supported")
    definitions = partition_definitions(at.group(), kind) if at.sees("(") else ()
    if at.accept("UPDATE", "INDEXES"):
        at.group()
    if at.sees("TTL"):  # SHOW CREATE TABLE prints it behind the partitions
        at.rest()
    if at:
        raise Unreadable(f'"{at.next.raw}" is not known')
    count = len(definitions) or count or 1
    if kind in ("HASH", "KEY") and not definitions:
        definitions = tuple(TablePartition(f"p{number}") for number in range(count))
    return Partitioning(kind, expressions, definitions, count)


def partition_definitions(inside: Sequence[Token], kind: str) -> tuple[TablePartition, ...]:
    """Read `PARTITION p VALUES …, …`; bounds and values stay text."""
    return tuple(_partition(Cursor(piece), kind) for piece in split(inside))


def _partition(at: Cursor, kind: str) -> TablePartition:
    at.expect("PARTITION")
    partition = TablePartition(at.name())
    if at.accept("VALUES", "LESS", "THAN"):
        bounds: tuple[str | None, ...]
        if at.accept("MAXVALUE"):
            bounds = (None,)
        else:
            pieces = split(at.group())
            bounds = tuple(None if len(p) == 1 and p[0].is_word("MAXVALUE") else render(p) for p in pieces)
        partition = replace(partition, less_than=bounds)
    elif at.accept("VALUES", "IN"):
        partition = replace(partition, values=tuple(_list_value(piece) for piece in split(at.group())))
    elif at.accept("DEFAULT"):
        partition = replace(partition, values=(("DEFAULT",),))
    while at:
        if at.sees("SUBPARTITION") or at.sees("("):
            raise Unreadable("subpartitions are not supported")
        at.take()
    if kind.startswith("RANGE") and not partition.less_than or kind.startswith("LIST") and not partition.values:
        raise Unreadable(f"partition {partition.name} has no values")
    return partition


def _list_value(piece: Sequence[Token]) -> tuple[str, ...]:
    at = Cursor(piece)
    if at.sees("(") and len(piece) > 2:
        inside = at.group()
        if not at:
            return tuple(render(part) for part in split(inside))
    return ("DEFAULT",) if at.accept("DEFAULT") and not at else (render(piece),)
