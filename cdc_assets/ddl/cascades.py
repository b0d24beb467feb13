"""Foreign keys by which a database changes or deletes rows of a table together with those that they refer to.

InnoDB does so by itself: of MariaDB, and of MySQL before 9.6, no log has these changes ("InnoDB and MySQL Replication"
in MySQL's manual: cascading actions are carried out on each replica anew). TiDB's have row events as all others have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_assets.ddl.clauses import is_index
from cdc_assets.ddl.statement import alter_head, create_head
from cdc_assets.ddl.text import Cursor, Token, Unreadable, split, tokens


def cascades(sql: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of such foreign keys that a CREATE or ALTER TABLE makes, and what each key does.

    ("order_id", "ON DELETE CASCADE"); a key of several columns is there for each of them.
    """
    try:
        return tuple(cascade for piece in _definitions(Cursor(tokens(sql))) for cascade in _of(Cursor(piece)))
    except Unreadable:
        return ()


def _definitions(at: Cursor) -> Iterator[Sequence[Token]]:
    """Yield the parts of a statement between its commas: columns, indexes and constraints."""
    if at.sees("CREATE"):
        create_head(at)
        if at.sees("("):
            yield from split(at.group())
        return
    if not at.sees("ALTER"):
        return
    alter_head(at)
    for piece in split(at.rest()):
        clause = Cursor(piece)
        if clause.accept("ADD"):
            clause.accept("COLUMN")
            clause.accept("IF", "NOT", "EXISTS")
            yield from split(clause.group()) if clause.sees("(") else (clause.rest(),)


def _of(at: Cursor) -> Iterator[tuple[str, str]]:
    if at.accept("CONSTRAINT") and not at.sees("PRIMARY|UNIQUE|FOREIGN|CHECK"):
        at.name()
    if at.accept("FOREIGN", "KEY"):
        at.accept("IF", "NOT", "EXISTS")
        if not at.sees("("):
            at.name()
        columns = tuple(Cursor(piece).column() for piece in split(at.group()))
    elif is_index(at):
        return
    else:
        columns = (at.name(),)
    while at and not at.accept("REFERENCES"):
        at.take()
    actions = []
    while at:
        if not at.sees("ON", "DELETE|UPDATE", "CASCADE|SET"):
            at.take()
            continue
        words = [at.take().text for _ in range(3)]
        actions.append(" ".join((*words, at.take().text) if words[-1] == "SET" else words))
    if actions:
        yield from ((column, " ".join(actions)) for column in columns)
