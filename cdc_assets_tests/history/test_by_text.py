"""Histories by DDL texts alone, against those of the schema files that TiCDC wrote for the same DDL."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.ddl import SchemaSnapshot, statement
from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import Changed, Created, Held, History
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file
from cdc_assets_tests.cases import Case, cases
from cdc_assets_tests.generated import CHECKS, STEPS
from cdc_assets_tests.histories import Picks, history
from cdc_assets_tests.source import Ddl
from cdc_assets_tests.writer import Style, Writer

REFUSED = ("cols.conv", "b2i")
"""A MODIFY that the recorder's SQL engine refused: the files go on with the old type, the text has the new one."""
HIDDEN = "N_filtered_ddl"
"""DDL that an event filter hides is in no text."""


def without_columns(files: Iterable[SchemaFile]) -> tuple[SchemaFile, ...]:
    """The same DDL as a topic states it; a table that was there before the feed is stated whole."""
    known, schema_files = set[TableId](), []
    for file in sorted(files, key=lambda schema_file: schema_file.version):
        if not isinstance(statement(file), SchemaSnapshot):
            schema_files.append(replace(file, columns=(), by_text=True, checksum=None))
        elif file.table not in known:
            schema_files.append(replace(file, whole=TableSchema(file.columns)))
        known.add(file.table)
    return tuple(schema_files)


def without_ids(name: str, schema: TableSchema) -> TableSchema:
    """The schema without what texts do not state: ids, and columns that expression indexes hide."""
    kept = [column for column in schema.columns if not column.hidden and (name, column.name) != REFUSED]
    return replace(schema, columns=tuple(replace(column, id=None) for column in kept))


def states(history: History) -> dict[tuple[Life, int], tuple[object, ...]]:
    """What each DDL leads to: its event's kind, the schema, which other facts of it are for readers, and the name."""
    states_by_event: dict[tuple[Life, int], tuple[object, ...]] = {}
    for life, table in history.lives.items():
        for event in table.events:
            after = without_ids(str(life.born_as), event.after)
            facts = [(column.comment, column.generated, column.zerofill) for column in after.columns]
            state = (type(event), after, facts, after.comment, after.clustered, event.name)
            if event.file.query or isinstance(event, Created):
                states_by_event[life, event.at] = state
    return states_by_event


@pytest.mark.parametrize("case", [case for case in cases() if case.name != HIDDEN], ids=str)
def test_texts_lead_to_the_schemas_that_ticdc_wrote(case: Case) -> None:
    for config in case.configs:
        files = config.settings().open_source().listing().schema_files
        assert states(read_history(without_columns(files))) == states(read_history(files)), str(config)


@settings(CHECKS, max_examples=60, derandomize=True, database=None)
@given(steps=STEPS, style=st.builds(Style, new=st.booleans()))
def test_the_texts_of_generated_histories_lead_to_their_schemas(steps: list[tuple[str, bytes]], style: Style) -> None:
    source = history(steps, old_values=False)
    note(source.script)
    writer = Writer(style, Picks(b""))
    for event in source.log:
        if isinstance(event, Ddl):
            writer.write(event)
    files = [parse_schema_file(path, data) for path, data in writer.files.items() if "/schema_" in path]
    assert states(read_history(without_columns(files))) == states(read_history(files))


def without_defaults(files: Iterable[SchemaFile]) -> tuple[SchemaFile, ...]:
    """The same files as TiCDC 6.5.0 to 6.5.2, 6.6.0, 7.0.0 and 7.1.0 write them."""
    return tuple(
        replace(file, columns=tuple(replace(column, default=None) for column in file.columns), checksum=None)
        for file in files
    )


def defaults_of_old_rows(history: History) -> dict[tuple[Life, int], list[tuple[str, object]]]:
    return {
        (life, event.at): [
            (change.column.name, change.default) for change in event.changes if isinstance(change, AddColumn)
        ]
        for life, table in history.lives.items()
        for event in table.events
        if isinstance(event, Changed)
    }


@pytest.mark.parametrize("case", [case for case in cases() if case.name != HIDDEN], ids=str)
def test_files_without_defaults_lead_to_the_same_schemas_and_values_of_old_rows(case: Case) -> None:
    for config in case.configs:
        files = config.settings().open_source().listing().schema_files
        full, bare = read_history(files), read_history(without_defaults(files))
        assert states(bare) == states(full), str(config)
        assert defaults_of_old_rows(bare) == defaults_of_old_rows(full), str(config)


# --- what is not known ------------------------------------------------------------------------------------------------

T = TableId("s", "t")


def ddl(version: int, query: str, table: TableId = T, shown: tuple[Column, ...] = ()) -> SchemaFile:
    return SchemaFile(f"at {version}", str(table), table, version, query, 0, shown, by_text=True)


def whole(version: int, *columns: Column, table: TableId = T) -> SchemaFile:
    schema = TableSchema(columns)
    return SchemaFile(f"at {version}", str(table), table, version, "", 0, columns, whole=schema)


A, B = Column("a", "INT", precision=11), Column("b", "INT", precision=11)


def test_the_ddl_of_an_unknown_table_means_nothing() -> None:
    history = read_history([ddl(1, "ALTER TABLE t ADD COLUMN x INT"), ddl(2, "TRUNCATE TABLE t")])
    assert dict(history.lives) == {}
    assert [file.version for file in history.other_files] == [1, 2]


def test_a_table_that_comes_back_without_its_rows_is_held_for_that_and_not_for_its_text() -> None:
    back = ddl(3, "FLASHBACK TABLE `t` TO `u`", TableId("s", "u"))
    lives = read_history([ddl(1, "CREATE TABLE t (a INT)"), ddl(2, "TRUNCATE TABLE t"), back]).lives
    (event,) = lives[Life(back.table, 3)].events
    assert isinstance(event, Held)
    assert "are the rows before the TRUNCATE of version 2" in event.reason
    assert any("SHOW CREATE TABLE" in way for way in event.ways), "nothing else says which columns it has"


def test_a_table_begins_with_what_its_first_rows_show() -> None:
    files = [ddl(1, "ALTER TABLE t ADD COLUMN b INT"), whole(2, A, B), ddl(3, "ALTER TABLE t DROP COLUMN a")]
    (table,) = read_history(files).lives.values()
    assert (table.life.version, table.schema.columns) == (2, (B,))


def test_what_rows_show_later_is_nothing_new() -> None:
    files = [ddl(1, "CREATE TABLE t (a INT)"), whole(2, replace(A, type="BIGINT", precision=None))]
    (table,) = read_history(files).lives.values()
    assert [type(event) for event in table.events] == [Created]
    assert table.schema.columns == (A,)


def test_an_integer_that_rows_show_as_it_was_did_not_change() -> None:
    create = ddl(1, "CREATE TABLE t (a INT, b INT)")
    modify = "ALTER TABLE t MODIFY a TINYINT, MODIFY b BIGINT"
    (table,) = read_history([create, ddl(2, modify, shown=(A, replace(B, type="BIGINT")))]).lives.values()
    assert [column.type for column in table.schema.columns] == ["INT", "BIGINT"]


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t ADD COLUMN a INT",
        "ALTER TABLE t ADD COLUMN x INT AFTER gone",
        "ALTER TABLE t ADD COLUMN x TESSERACT",
        "ALTER TABLE t DO SOMETHING NEW",
        "ALTER TABLE t ADD INDEX (gone)",
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t CONVERT TO CHARACTER SET binary",
    ],
)
def test_what_cannot_be_followed_holds_its_table_and_a_person_can_say_what_it_did(query: str) -> None:
    files = [ddl(1, "CREATE TABLE t (a INT)"), ddl(2, query), ddl(3, "ALTER TABLE t ADD COLUMN c INT")]
    (table,) = read_history(files).lives.values()
    held = table.events[1]
    assert isinstance(held, Held)
    assert query in held.reason
    assert "effect on the columns is unknown" in held.reason
    release = Release(table.life, 2, "apply", "ALTER TABLE t ADD COLUMN z INT")
    (table,) = read_history(files, rules=Rules(releases={(table.life, 2): release})).lives.values()
    assert [column.name for column in table.schema.columns] == ["a", "z", "c"]


def test_a_create_that_gives_no_columns_holds_its_table_until_a_person_gives_one_that_does() -> None:
    files = [ddl(1, "CREATE TABLE t AS SELECT 1 AS a"), ddl(2, "ALTER TABLE t ADD COLUMN c INT")]
    (table,) = read_history(files).lives.values()
    assert isinstance(table.events[0], Held)
    skipped = Release(table.life, 1, "skip")
    (table,) = read_history(files, rules=Rules(releases={(table.life, 1): skipped})).lives.values()
    assert isinstance(table.events[0], Held)
    given = Release(table.life, 1, "apply", "CREATE TABLE t (a INT)")
    (table,) = read_history(files, rules=Rules(releases={(table.life, 1): given})).lives.values()
    assert [column.name for column in table.schema.columns] == ["a", "c"]


def test_tables_swap_names_whether_or_not_both_are_known() -> None:
    """The unknown one begins with what rows show of it."""
    u = TableId("s", "u")
    tmp = TableId("s", "tmp")
    swap = [
        ddl(3, "RENAME TABLE s.t TO s.tmp", tmp),
        ddl(3, "RENAME TABLE s.u TO s.t", T),
        ddl(3, "RENAME TABLE s.t TO s.u", u),
    ]
    create = [ddl(1, "CREATE TABLE t (a INT)"), ddl(2, "CREATE TABLE u (b INT)", u)]
    names = {str(life): table.name for life, table in read_history([*create, *swap]).lives.items()}
    assert names == {"s.t@1": u, "s.u@2": T}
    known = read_history([create[1], *swap, whole(4, A, table=u)]).lives
    assert {str(life): table.name for life, table in known.items()} == {"s.u@2": T, "s.u@4": u}


def test_a_table_that_takes_the_name_of_an_unknown_one_does_not_follow_it() -> None:
    new, old = TableId("s", "t_new"), TableId("s", "t_old")
    create = ddl(1, "CREATE TABLE t_new (a INT)", new)
    moves = [ddl(2, "RENAME TABLE s.t TO s.t_old", old), ddl(2, "RENAME TABLE s.t_new TO s.t", T)]
    (table,) = read_history([create, *moves]).lives.values()
    assert table.name == T
    files = [replace(file, by_text=False, columns=(A,)) for file in (create, *moves)]
    table = read_history(files).lives[Life(new, 1)]
    assert isinstance(table.events[-1], Held)


def test_tables_that_move_up_by_a_name_of_which_one_is_unknown_each_get_the_next_name() -> None:
    a, b, c, d = (TableId("s", name) for name in "abcd")
    create = [ddl(1, "CREATE TABLE a (i INT)", a), ddl(2, "CREATE TABLE b (i INT)", b)]
    moves = [
        ddl(3, "RENAME TABLE s.a TO s.d", d),
        ddl(3, "RENAME TABLE s.c TO s.a", a),  # older than the feed, and nothing has spoken of it
        ddl(3, "RENAME TABLE s.b TO s.c", c),
    ]
    names = {str(life): table.name for life, table in read_history([*create, *moves]).lives.items()}
    assert names == {"s.a@1": d, "s.b@2": c}
