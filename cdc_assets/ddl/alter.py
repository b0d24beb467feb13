"""ALTER TABLE (and CREATE/DROP INDEX) as a list of specs, in the order of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.ddl.clauses import (
    ColumnText,
    column,
    default,
    default_collation,
    index,
    index_body,
    is_index,
    options,
    partitioning,
)
from cdc_assets.ddl.statement import alter_head
from cdc_assets.ddl.text import Cursor, Token, Unreadable, render, split, tokens
from cdc_assets.model.schema import Default, Index, Partitioning


@dataclass(frozen=True, slots=True)
class AddColumnSpec:
    """ADD COLUMN."""

    text: ColumnText
    if_missing: bool = False


@dataclass(frozen=True, slots=True)
class DropColumnSpec:
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumnSpec:
    """CHANGE and MODIFY; RENAME COLUMN when `text` is None."""

    old: str
    new: str
    text: ColumnText | None = None


@dataclass(frozen=True, slots=True)
class AlterDefaultSpec:
    """ALTER COLUMN … SET DEFAULT; DROP DEFAULT when `default` is None."""

    name: str
    default: Default | None


@dataclass(frozen=True, slots=True)
class AddIndexSpec:
    """ADD INDEX, KEY, UNIQUE or PRIMARY KEY."""

    index: Index


@dataclass(frozen=True, slots=True)
class DropIndexSpec:
    """`name` is PRIMARY for the primary key."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameIndexSpec:
    """RENAME INDEX."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class CharsetSpec:
    """The table's default collation; `convert` changes its text columns too."""

    collation: str
    convert: bool


@dataclass(frozen=True, slots=True)
class AddPartitionsSpec:
    """`inside` are definitions to be read with the table's kind, or `count` more HASH or KEY partitions."""

    inside: tuple[Token, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class PartitionRowsSpec:
    """DROP or TRUNCATE PARTITION; no names stand for ALL."""

    names: tuple[str, ...]
    drop: bool


@dataclass(frozen=True, slots=True)
class ReorganizeSpec:
    """REORGANIZE PARTITION names INTO definitions."""

    names: tuple[str, ...]
    inside: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class CoalesceSpec:
    """COALESCE PARTITION: `count` HASH or KEY partitions less."""

    count: int


@dataclass(frozen=True, slots=True)
class BoundsSpec:
    """Partitions are added or redefined by an interval that is not evaluated here; rows stay."""

    text: str


@dataclass(frozen=True, slots=True)
class PartitionBySpec:
    """PARTITION BY; REMOVE PARTITIONING when None."""

    partitioning: Partitioning | None


@dataclass(frozen=True, slots=True)
class ExchangeSpec:
    """EXCHANGE PARTITION."""

    validated: bool


@dataclass(frozen=True, slots=True)
class TableCommentSpec:
    """The table's comment from here on."""

    comment: str


@dataclass(frozen=True, slots=True)
class VersioningSpec:
    """ADD or DROP SYSTEM VERSIONING: whether MariaDB keeps former versions of the rows from here on."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class NeutralSpec:
    """Touches neither rows nor what is known of the columns."""


@dataclass(frozen=True, slots=True)
class StrangeSpec:
    """A clause that is not known."""

    text: str


Spec = (
    AddColumnSpec
    | DropColumnSpec
    | ChangeColumnSpec
    | AlterDefaultSpec
    | AddIndexSpec
    | DropIndexSpec
    | RenameIndexSpec
    | CharsetSpec
    | TableCommentSpec
    | AddPartitionsSpec
    | PartitionRowsSpec
    | ReorganizeSpec
    | CoalesceSpec
    | BoundsSpec
    | PartitionBySpec
    | ExchangeSpec
    | VersioningSpec
    | NeutralSpec
    | StrangeSpec
)

_PARTITION_VERBS = (
    "ADD|DROP|TRUNCATE|REORGANIZE|COALESCE|EXCHANGE|REMOVE|REBUILD|CHECK|ANALYZE|OPTIMIZE|REPAIR|DISCARD|IMPORT"
)
_NEUTRAL = frozenset(
    """ALGORITHM LOCK COMMENT ENGINE AUTO_INCREMENT AUTO_RANDOM_BASE AUTO_ID_CACHE SHARD_ROW_ID_BITS PRE_SPLIT_REGIONS
    ROW_FORMAT KEY_BLOCK_SIZE COMPRESSION CONNECTION CHECKSUM DELAY_KEY_WRITE MAX_ROWS MIN_ROWS AVG_ROW_LENGTH PACK_KEYS
    STATS_PERSISTENT STATS_AUTO_RECALC STATS_SAMPLE_PAGES STATS_BUCKETS STATS_TOPN STATS_COL_CHOICE STATS_COL_LIST
    STATS_SAMPLE_RATE INSERT_METHOD SECONDARY_ENGINE SECONDARY_LOAD SECONDARY_UNLOAD ENCRYPTION TTL TTL_ENABLE
    TTL_JOB_INTERVAL PLACEMENT ATTRIBUTES CACHE NOCACHE FORCE WITH WITHOUT VALIDATION DISABLE ENABLE SPLIT SET AFFINITY
    STATS_OPTIONS REMOVE_TTL AUTOEXTEND_SIZE NODEGROUP UNION DATA INDEX_DIRECTORY TABLESPACE STORAGE ENGINE_ATTRIBUTE
    SECONDARY_ENGINE_ATTRIBUTE COMPACT READ REBUILD CHECK ANALYZE OPTIMIZE REPAIR""".split()
)


def specs(sql: str) -> tuple[Spec, ...]:
    """Return the clauses of the statement; unknown ones are `StrangeSpec`. Raises Unreadable for no ALTER."""
    at = Cursor(tokens(sql))
    if at.sees("CREATE"):
        return (_create_index(at),)
    if at.accept("DROP", "INDEX"):
        at.accept("IF", "EXISTS")
        return (DropIndexSpec(at.name()),)
    if not at.sees("ALTER"):
        return ()
    alter_head(at)
    return tuple(spec for piece in _pieces(at.rest()) for spec in _specs(piece))


def stray_words(sql: str) -> tuple[str, ...]:
    """Return the words in the columns of an ALTER with which no option begins: `DEFUALT`. Raises Unreadable."""
    texts = (spec.text for spec in specs(sql) if isinstance(spec, AddColumnSpec | ChangeColumnSpec))
    return tuple(word for text in texts if text is not None for word in text.strays)


def _create_index(at: Cursor) -> Spec:
    at.expect("CREATE")
    at.accept("OR", "REPLACE")
    unique = at.accept("UNIQUE")
    while not at.accept("INDEX"):
        at.word()
    at.accept("IF", "NOT", "EXISTS")
    name = at.name()
    while not at.accept("ON"):
        at.take()
    at.qualified()
    columns, partial = index_body(at)
    return AddIndexSpec(Index(name, columns, unique, False, partial))


def _pieces(parts: Sequence[Token]) -> list[tuple[Token, ...]]:
    """Split at commas, but lists of partition names belong to their verb."""
    pieces: list[tuple[Token, ...]] = []
    split_parts = split(parts)
    for place, piece in enumerate(split_parts):
        if Cursor(piece).sees(_PARTITION_VERBS, "PARTITION"):
            rest = split_parts[place:]
            joined: list[Token] = []
            for part in rest:
                joined += [Token("sign", ",", ","), *part] if joined else part
            pieces.append(tuple(joined))
            break
        pieces.append(piece)
    return pieces


def _specs(piece: tuple[Token, ...]) -> list[Spec]:
    at = Cursor(piece)
    try:
        clause_specs = _partition_spec(at) or _column_spec(at) or _index_spec(at)
        if clause_specs is not None:
            return clause_specs
        return _option_spec(Cursor(piece))
    except Unreadable:
        return [StrangeSpec(render(piece))]


# --- columns ----------------------------------------------------------------------------------------------------------


def _column_spec(at: Cursor) -> list[Spec] | None:
    start = at.at
    if at.accept("ADD"):
        explicit = at.accept("COLUMN")
        if not explicit and at.accept("SYSTEM", "VERSIONING"):
            return [VersioningSpec(True)]
        if not explicit and at.accept("PERIOD", "FOR"):
            return [NeutralSpec()]
        if not explicit and is_index(at):
            at.at = start
            return None
        missing = at.accept("IF", "NOT", "EXISTS")
        if at.sees("("):
            return [_added(piece, missing) for piece in split(at.group())]
        return [AddColumnSpec(column(at.rest()), missing)]
    if at.accept("MODIFY"):
        at.accept("COLUMN")
        at.accept("IF", "EXISTS")
        text = column(at.rest())
        return [ChangeColumnSpec(text.name, text.name, text)]
    if at.accept("CHANGE"):
        at.accept("COLUMN")
        at.accept("IF", "EXISTS")
        old = at.column()
        text = column(at.rest())
        return [ChangeColumnSpec(old, text.name, text)]
    if at.accept("RENAME", "COLUMN"):
        at.accept("IF", "EXISTS")
        old = at.column()
        at.expect("TO")
        return [ChangeColumnSpec(old, at.column())]
    if at.accept("ALTER") and not at.sees("INDEX|CHECK|CONSTRAINT"):
        at.accept("COLUMN")
        name = at.column()
        return [AlterDefaultSpec(name, default(at) if at.accept("SET", "DEFAULT") else None)]
    at.at = start
    return _dropped_column(at)


def _added(piece: tuple[Token, ...], missing: bool) -> Spec:
    if is_index(Cursor(piece)):
        table_index = index(piece)
        return AddIndexSpec(table_index) if table_index is not None else NeutralSpec()
    return AddColumnSpec(column(piece), missing)


def _dropped_column(at: Cursor) -> list[Spec] | None:
    start = at.at
    if not at.accept("DROP"):
        return None
    explicit = at.accept("COLUMN")
    if not explicit and at.sees("PRIMARY|INDEX|KEY|FOREIGN|CHECK|CONSTRAINT"):
        at.at = start
        return None
    exists = at.accept("IF", "EXISTS")
    if not explicit and at.accept("SYSTEM", "VERSIONING"):
        return [VersioningSpec(False)]
    if not explicit and at.accept("PERIOD", "FOR"):
        return [NeutralSpec()]
    return [DropColumnSpec(at.column(), exists)]


# --- indexes ----------------------------------------------------------------------------------------------------------


def _index_spec(at: Cursor) -> list[Spec] | None:
    if at.accept("ADD"):
        table_index = index(at.rest())
        return [AddIndexSpec(table_index) if table_index is not None else NeutralSpec()]
    if at.accept("DROP", "PRIMARY", "KEY"):
        return [DropIndexSpec("PRIMARY")]
    if at.accept("DROP", "FOREIGN|CHECK|CONSTRAINT"):
        return [NeutralSpec()]
    if at.accept("DROP", "INDEX|KEY"):
        at.accept("IF", "EXISTS")
        return [DropIndexSpec(at.name())]
    if at.accept("RENAME", "INDEX|KEY"):
        old = at.name()
        at.expect("TO")
        return [RenameIndexSpec(old, at.name())]
    if at.accept("RENAME") or at.accept("ALTER"):
        return [NeutralSpec()]
    return None


# --- partitions -------------------------------------------------------------------------------------------------------


def _partition_spec(at: Cursor) -> list[Spec] | None:
    if at.sees("PARTITION", "BY"):
        return [PartitionBySpec(partitioning(at.rest()))]
    if at.accept("REMOVE", "PARTITIONING"):
        return [PartitionBySpec(None)]
    if at.sees("PARTITION"):
        return [NeutralSpec()]
    if at.sees("SPLIT", "MAXVALUE|PARTITION") or at.sees("MERGE|LAST", "FIRST|PARTITION"):
        return [BoundsSpec(render(at.rest()))]
    if at.accept("ADD", "PARTITION"):
        at.accept("IF", "NOT", "EXISTS")
        at.accept("NO_WRITE_TO_BINLOG|LOCAL")
        if at.accept("PARTITIONS"):
            return [AddPartitionsSpec(count=at.partition_count())]
        return [AddPartitionsSpec(at.group())]
    if at.sees("DROP|TRUNCATE", "PARTITION"):
        drop = at.take().text == "DROP"
        at.take()
        at.accept("IF", "EXISTS")
        return [PartitionRowsSpec(_names(at), drop)]
    if at.accept("REORGANIZE", "PARTITION"):
        at.accept("NO_WRITE_TO_BINLOG|LOCAL")
        if not at:
            return [NeutralSpec()]
        names = _names(at)
        at.expect("INTO")
        return [ReorganizeSpec(names, at.group())]
    if at.accept("COALESCE", "PARTITION"):
        at.accept("NO_WRITE_TO_BINLOG|LOCAL")
        return [CoalesceSpec(at.partition_count())]
    if at.accept("EXCHANGE", "PARTITION"):
        return [ExchangeSpec(not any(part.is_word("WITHOUT") for part in at.rest()))]
    return None


def _names(at: Cursor) -> tuple[str, ...]:
    if at.accept("ALL"):
        return ()
    names = [at.name()]
    while at.accept(","):
        names.append(at.name())
    return tuple(names)


# --- options ----------------------------------------------------------------------------------------------------------


def _option_spec(at: Cursor) -> list[Spec]:
    whole = render(at.parts)
    convert = at.accept("CONVERT", "TO")
    if convert or at.accept("DEFAULT") or at.sees("CHARACTER|CHAR|CHARSET|COLLATE"):
        return _table_options(at, convert)
    if at.accept("REMOVE", "TTL") or at.accept("SET", "TIFLASH|HYPO") or at.next.text in _NEUTRAL:
        return [NeutralSpec(), *_table_options(at, False)]
    if at.accept("ORDER", "BY"):
        return [NeutralSpec()]
    return [StrangeSpec(whole)]


def _table_options(at: Cursor, convert: bool) -> list[Spec]:
    """Table options may stand in a row without commas: `COMMENT = 'x' COLLATE = y`."""
    commented = at.sees("COMMENT")
    settings = options(at)
    option_specs: list[Spec] = []
    if settings.charset or settings.collation:
        option_specs.append(CharsetSpec(settings.collation or default_collation(settings.charset), convert))
    if settings.comment or commented:
        option_specs.append(TableCommentSpec(settings.comment))
    return option_specs + ([PartitionBySpec(partitioning(at.rest()))] if at else [])
