"""Policies of masks: what each leaves of a value, what is refused, and what holds a table until a person decides."""

from __future__ import annotations

import hashlib
import hmac
import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_assets.ddl import created, quote
from cdc_assets.decoding.window import decode_windows
from cdc_assets.errors import BadSettings, StepFailed
from cdc_assets.features.quarantine.operations import replay as replay_records
from cdc_assets.io.encryption import decrypt
from cdc_assets.landing.partition_reader import PartitionReader
from cdc_assets.ledger import Ledger
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.masks import Mask, MaskLine, MaskPolicy
from cdc_assets.model.progress import State
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets.report.tables import column_type
from cdc_assets.report.text import inspection_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.types.masks import masked_array, same_masked
from cdc_assets_tests.connector_writer import URI, Source
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.pipeline.test_value_settings import Site
from cdc_assets_tests.schema_documents import document, file_column, write_schema
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

T = TableId("shop", "t")
KEY = {"hash": {"key": {"env": "MASK_KEY"}}}
ENCRYPTED: dict[str, Any] = {"privacy_key": {"env": "PRIVACY_KEY"}}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "first key")
    monkeypatch.setenv("PRIVACY_KEY", "a key")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made_site = Site(tmp_path)
    made_site.feed.table("shop.t", [("a", "VARCHAR"), ("b", "VARCHAR")])
    made_site.feed.lines("shop.t", [("I", FIRST + 5, ["1", '"ann@example.org"', '"4000123412341234"'])])
    return made_site


def hashed(value: str, key: str = "first key", family: str = "text") -> str:
    return hmac.new(key.encode(), f"{family}\0{value}".encode(), hashlib.sha256).hexdigest()


def table_of(site: Site, through: int, **settings: Any) -> TableOutcome:
    return next(table for table in site.apply(through, **settings).tables if table.life.born_as == T)


def row(site: Site) -> dict[str, Any]:
    (only,) = site.lake.read(T).to_pylist()
    return {name: value for name, value in only.items() if not name.startswith("_cdc")}


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        (KEY, {"a": hashed("ann@example.org")}),
        (None, {"a": None}),
        ({"redact": "domain"}, {"a": "example.org"}),
        ({"redact": "last4"}, {"a": ".org"}),
        ({"redact": "length"}, {"a": 15}),
        ({"constant": "somebody"}, {"a": "somebody"}),
        ("drop", {}),
    ],
    ids=str,
)
def test_each_mask_leaves_what_it_says(site: Site, mask: Any, left: dict[str, Any]) -> None:
    assert table_of(site, FIRST + 9, privacy={"shop.t.a": mask}).state is State.APPLIED
    assert row(site) == {"id": 1, **left, "b": "4000123412341234"}


def test_the_last_signs_of_a_short_value_are_not_shown(site: Site) -> None:
    site.feed.lines("shop.t", [("U", FIRST + 6, ["1", '"1234567"', "\\N"])])
    site.apply(FIRST + 9, privacy={"shop.t.*": None, "shop.t.id": KEY, "shop.t.a": {"redact": "last4"}})
    assert row(site) == {"id": hashed("1", family="integer"), "a": "", "b": None}


def test_the_most_exact_pattern_counts_in_any_letter_case(site: Site) -> None:
    privacy = {"*.*.*": KEY, "SHOP.T.A": {"constant": "x"}, "shop.t*.b": "drop"}
    site.apply(FIRST + 9, privacy=privacy)
    assert row(site) == {"id": hashed("1", family="integer"), "a": "x"}


def test_a_line_means_a_column_with_brackets_as_it_is_written(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("a[1]", "VARCHAR"), ("a1", "VARCHAR")])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", '"secret"', '"another"'])])
    site.apply(FIRST + 9, privacy={"shop.t.a[1]": {"constant": "x"}})
    assert row(site) == {"id": 1, "a[1]": "x", "a1": "x"}


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        ({"shop.t": None}, "expected schema.table.column"),
        ({"shop.t.u.a": None}, "with ? for a dot in a name"),
        ({"shop.t.`a`": None}, 'quotes or white space around "`a`"'),
        ({'shop."t".a': None}, "write names as they are"),
        ({"shop.t. a": None}, 'white space around " a"'),
        ({"shop.t.a": "nothing"}, "expected null, drop"),
        ({"shop.t.a": {"redact": "first4"}}, "redact: last4"),
        ({"shop.t.a": {"hash": {"key": "in clear text"}}}, "the key of hash comes from the environment"),
        ({"shop.t.a": None, "Shop.T.a": "drop"}, "are the same columns"),
        ({"shop.t.*": None, "*.*.a": "drop"}, 'Say what is to be done there: "shop.t.a"'),
        ({"shop.t.a*b": None, "shop.t.ab*": "drop"}, "Write one of them with more letters"),
    ],
    ids=str,
)  # fmt: skip
def test_a_policy_that_cannot_be_followed_is_refused(site: Site, privacy: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSettings) as refused:
        site.feed.settings(privacy=privacy)
    assert words in str(refused.value)
    assert "in clear text" not in str(refused.value)


@pytest.mark.parametrize("key", [None, "", " \n", "telltale\udcff"], ids=repr)
@pytest.mark.parametrize(
    "given", [{"privacy": {"shop.t.a": KEY}}, {"privacy": {"shop.t.a": None}, **ENCRYPTED}], ids=str
)
def test_a_key_that_is_missing_or_blank_is_told_before_anything_is_read(
    site: Site, given: dict[str, Any], key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASK_KEY", "PRIVACY_KEY"):
        monkeypatch.delenv(name) if key is None else monkeypatch.setenv(name, key)
    (site.feed.bucket / "metadata").write_text("what is read would be an error")
    setting = "privacy_key" if "privacy_key" in given else 'privacy."shop.t.a".hash.key'
    for ask in (lambda: site.pipeline(**given), lambda: inspect_changefeed(site.feed.settings(**given))):
        with pytest.raises(BadSettings, match=rf"^{re.escape(setting)}(:| is) .*(MASK|PRIVACY)_KEY") as refused:
            ask()
        assert "telltale" not in str(refused.value)


def test_keys_that_can_be_found_by_trying_are_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "0123456789abcdef")
    for key, detail in (("x", ["privacy_key"]), ("0123456789abcdef", [])):
        monkeypatch.setenv("PRIVACY_KEY", key)
        findings = site.apply(FIRST + 9, privacy={"shop.t.a": KEY}, **ENCRYPTED).findings
        assert [finding.detail for finding in findings if finding.rule == "short-key"] == detail
    monkeypatch.setenv("MASK_KEY", "y")
    inspection = inspect_changefeed(site.feed.settings(privacy={"shop.t.a": KEY, "shop.t.b": None}))
    assert [finding.subjects[0].detail for finding in inspection.findings if finding.rule == "short-key"] == [
        'privacy."shop.t.a"'
    ]


_PARTS = st.text("ab*?", min_size=1, max_size=3)
_MASKS = st.sampled_from([Mask("null"), Mask("drop"), Mask("constant", "x")])


@given(
    st.lists(st.tuples(_PARTS, _PARTS, _PARTS, _MASKS), max_size=3),
    st.tuples(*[st.text("ab", min_size=1, max_size=3)] * 3),
)
@example([("*", "*", "a*b", Mask("null")), ("*", "*", "ab*", Mask("drop"))], ("a", "a", "abb"))
def test_of_a_policy_without_contradiction_the_order_of_its_lines_makes_no_other_mask(
    lines: list[tuple[str, str, str, Mask]], names: tuple[str, str, str]
) -> None:
    mask_lines = tuple(MaskLine(".".join(parts), mask) for *parts, mask in lines)
    policy, reverse = MaskPolicy(mask_lines), MaskPolicy(mask_lines[::-1])
    assert policy.contradiction() or policy.of(*names) == reverse.of(*names)


@pytest.mark.parametrize(
    "privacy",
    [
        {"shop.t.*": None, "*.*.a": "drop", "shop.t.a": KEY},
        {"shop.t.*": None, "*.*.a": None},
        {"shop.t.*": None, "*.u.a": "drop"},
    ],
    ids=str,
)
def test_patterns_that_meet_and_agree_or_are_decided_are_no_contradiction(site: Site, privacy: dict[str, Any]) -> None:
    assert site.feed.settings(privacy=privacy).masks


@pytest.mark.parametrize(
    "given",
    [
        {"privacy_key": "in clear text"},
        {"privacy_key": {"env": ["in clear text"]}},
        {"privacy": "in clear text"},
        {"privacy": {"shop.t.a": {"hash": "in clear text"}}},
        {"privacy": {"shop.t.a": {"hash": {"key": {"env": "MASK_KEY", "or": "in clear text"}}}}},
    ],
    ids=str,
)
def test_a_key_that_is_in_the_settings_is_refused_and_not_repeated(site: Site, given: dict[str, Any]) -> None:
    with pytest.raises(BadSettings) as refused:
        site.feed.settings(**given)
    assert "in clear text" not in str(refused.value)
    assert ".." not in str(refused.value)


def test_a_key_column_can_be_hashed_alone(site: Site) -> None:
    table = table_of(site, FIRST + 9, privacy={"*.*.*": None})
    assert table.state is State.HELD
    assert "columns of a key can be masked by hash alone" in table.reason
    assert not site.lake.tables


_NUMBER = {"ColumnName": "id", "ColumnNullable": "false", "ColumnIsPk": "true"}


def partitioned(site: Site, at: int, query: str, kind: int = 3, *, generated: str = "") -> None:
    columns = [
        {**_NUMBER, "ColumnType": "INT", "ColumnPrecision": "11"},
        file_column("a", "VARCHAR", "40"),
        *([file_column(generated, "VARCHAR", "40")] if generated else []),
    ]  # fmt: skip
    write_schema(site.feed.bucket, document("shop", "p", at, Query=query, Type=kind, TableColumns=columns))


@pytest.mark.parametrize(
    ("query", "generated", "privacy", "words"),
    [
        ("PARTITION BY HASH (`id`) PARTITIONS 2", "", {"shop.p.id": KEY}, "the partitions of the table are made by it"),
        (
            ", `g` VARCHAR(40) AS (concat(`a`, 'x')) STORED",
            "g",
            {"shop.p.a": None},
            'the stored column "g" is generated',
        ),
    ],
    ids=["partitions", "generated"],
)
def test_a_column_that_an_expression_reads_is_not_masked(
    tmp_path: Path, query: str, generated: str, privacy: dict[str, Any], words: str
) -> None:
    site, inside = Site(tmp_path), query.startswith(",")
    columns = "`id` INT PRIMARY KEY, `a` VARCHAR(40)"
    text = f"CREATE TABLE `p` ({columns}{query})" if inside else f"CREATE TABLE `p` ({columns}) {query}"
    partitioned(site, FIRST, text, generated=generated)
    (held,) = site.apply(FIRST + 9, privacy=privacy).tables
    assert (held.state, words in held.reason) == (State.HELD, True), held.reason
    (fine,) = site.apply(FIRST + 9, privacy={**privacy, "shop.p.g": None} if generated else {"shop.p.a": None}).tables
    assert fine.state is State.APPLIED, fine.reason


@pytest.mark.parametrize("name", ["first name", "a`b", "a.b", "a'b", "2nd"])
@pytest.mark.parametrize("by", ["KEY ({})", "LIST COLUMNS ({})", "HASH (abs(length(concat({}, 'x'))) + 1)"])
def test_a_column_of_any_name_by_which_partitions_are_made_is_not_masked(tmp_path: Path, name: str, by: str) -> None:
    site, quoted = Site(tmp_path), quote(name)
    parts = "(PARTITION p VALUES IN ('x'))" if by.startswith("LIST") else "PARTITIONS 2"
    text = f"CREATE TABLE `p` (`id` INT, {quoted} VARCHAR(40)) PARTITION BY {by.format(quoted)} {parts}"
    columns = [
        file_column("id", "INT", "11"),
        file_column(name, "VARCHAR", "40"),
    ]
    write_schema(site.feed.bucket, document("shop", "p", FIRST, Query=text, Type=3, TableColumns=columns))
    pattern = name.replace(".", "?")
    (held,) = site.apply(FIRST + 9, privacy={f"shop.p.{pattern}": KEY}).tables
    assert (held.state, "the partitions of the table are made by it" in held.reason) == (State.HELD, True), held.reason


COMPUTED = "`id` INT PRIMARY KEY, `a` VARCHAR(40), `g` VARCHAR(40) DEFAULT (lower(`a`))"


@pytest.mark.parametrize("made_by", ["CREATE TABLE", "MODIFY COLUMN", "SET DEFAULT", "RENAME COLUMN"])
def test_a_column_of_which_a_default_is_made_is_not_masked_alone(tmp_path: Path, made_by: str) -> None:
    site, name = Site(tmp_path), "mail" if made_by == "RENAME COLUMN" else "a"
    plain = COMPUTED.partition(" DEFAULT")[0]
    partitioned(site, FIRST, f"CREATE TABLE `p` ({plain if made_by in DEFAULTS else COMPUTED})", generated="g")
    if made_by in DEFAULTS:
        partitioned(site, FIRST + 10, f"ALTER TABLE `p` {DEFAULTS[made_by]}", kind=12, generated="g")
    if made_by == "RENAME COLUMN":
        site.feed.table("shop.p", [("mail", "VARCHAR"), ("g", "VARCHAR")], FIRST + 10,
                        "ALTER TABLE `p` CHANGE COLUMN `a` `mail` VARCHAR(40)", 5)  # fmt: skip
    (held,) = site.apply(FIRST + 19, privacy={"shop.p.a": None}).tables
    assert (held.state, 'the default of "g" is made of it' in held.reason) == (State.HELD, True), held.reason
    site.lake = MemoryLake()
    (fine,) = site.apply(FIRST + 19, privacy={f"shop.p.{name}": None, "shop.p.g": None}).tables
    assert fine.state is State.APPLIED, fine.reason


DEFAULTS = {
    "MODIFY COLUMN": "MODIFY COLUMN `g` VARCHAR(40) DEFAULT (lower(`a`))",
    "SET DEFAULT": "ALTER COLUMN `g` SET DEFAULT (lower(`a`))",
}


def test_a_ddl_that_makes_partitions_of_a_masked_column_holds_its_table(tmp_path: Path) -> None:
    site = Site(tmp_path)
    partitioned(site, FIRST, "CREATE TABLE `p` (`id` INT PRIMARY KEY, `a` VARCHAR(40))")
    site.apply(FIRST + 5, privacy={"shop.p.id": KEY})
    partitioned(site, FIRST + 10, "ALTER TABLE `p` PARTITION BY HASH (`id`) PARTITIONS 2", kind=71)
    (table,) = site.apply(FIRST + 20, privacy={"shop.p.id": KEY}).tables
    assert (table.state, table.steps) == (State.HELD, 0)


def test_a_mask_stays_with_its_column_and_its_table_under_their_new_names(site: Site) -> None:
    privacy = {"shop.t.a": KEY}
    site.apply(FIRST + 6, privacy=privacy)
    site.feed.table(
        "shop.t", [("b", "VARCHAR"), ("mail", "VARCHAR")], FIRST + 10,
        "ALTER TABLE `t` CHANGE COLUMN `a` `mail` VARCHAR(40) AFTER `b`", 5,
    )  # fmt: skip
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", '"x"', '"bob@example.org"'])], FIRST + 10)
    assert table_of(site, FIRST + 20, privacy=privacy).state is State.APPLIED
    mails = [lake_row["mail"] for lake_row in site.lake.read(T).to_pylist()]
    assert sorted(mails) == sorted([hashed("ann@example.org"), hashed("bob@example.org")])


@pytest.mark.parametrize(
    ("query", "kind", "table", "column"),
    [
        ("RENAME TABLE `t` TO `u`", 14, "u", "a"),
        ("ALTER TABLE `t` RENAME COLUMN `a` TO `mail`", 5, "t", "mail"),
    ],
    ids=["table", "column"],
)
def test_a_mask_stays_with_its_column_in_a_dump_from_after_the_ddl_that_gave_it_another_name(
    site: Site, tmp_path: Path, query: str, kind: int, table: str, column: str
) -> None:
    name = TableId("shop", table)
    text = f"CREATE TABLE `{table}` (`id` INT PRIMARY KEY,`{column}` VARCHAR(40),`b` VARCHAR(40))"
    site.feed.table(str(name), [(column, "VARCHAR"), ("b", "VARCHAR")], FIRST + 10, query, kind)
    site.feed.lines(str(name), [("I", FIRST + 25, ["2", '"bob@example.org"', '"x"'])], FIRST + 10)
    tables = {name: (created(text), [(b"1", b"ann@example.org", b"x")])}
    write_dump(tmp_path / "dump", tables, FIRST + 20, Writing(), "csv", texts={name: text})
    outcome = site.apply(FIRST + 30, privacy={"shop.t.a": KEY}, initial={"dump": str(tmp_path / "dump")})
    assert [table.state for table in outcome.tables] == [State.APPLIED]
    assert "unmatched" not in {finding.rule for finding in outcome.findings}
    mails = {row[column] for row in site.lake.read(name).to_pylist()}
    assert mails == {hashed("ann@example.org"), hashed("bob@example.org")}


@pytest.mark.parametrize(
    "query",
    [
        "ALTER TABLE `t` MODIFY COLUMN `a` VARCHAR(40) COLLATE utf8mb4_general_ci",
        "ALTER TABLE `t` CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    ],
    ids=["modify", "convert"],
)
def test_another_collation_holds_the_table_of_a_hashed_column_and_of_no_other(site: Site, query: str) -> None:
    site.feed.table("shop.t", [("a", "VARCHAR"), ("b", "VARCHAR")], FIRST + 10, query, 5)
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", '"ANN@example.org"', '"x"'])], FIRST + 10)
    table = table_of(site, FIRST + 20, privacy={"shop.t.a": KEY})
    assert (table.state, "has the collation utf8mb4_general_ci" in table.reason) == (State.HELD, True)
    assert row(site)["a"] == hashed("ann@example.org")
    site.lake = MemoryLake()
    assert table_of(site, FIRST + 20, privacy={"shop.t.a": {"redact": "domain"}}).state is State.APPLIED


@pytest.mark.parametrize("decided", ["line", "released"])
def test_a_column_that_comes_as_a_masked_one_goes_without_a_ddl_is_not_shown_before_a_person_decides(
    decided: str,
) -> None:
    log, source = MemoryLog(), Source(1)
    given: dict[str, Any] = {"sink_uri": URI, "landing": {"plain": True}}
    feed = TopicFeed.of(log, privacy={"public.t.mail": None}, **given)
    for name in ("mail", "post"):
        source.columns, source.rows = {name: "int32"}, {1: {name: 76543}}
        source.lsn += 1
        source._say("c" if name == "mail" else "u", 1, source.rows[1], read_again=(name,))
        source.send(log)
        outcome = feed.apply()
    (table,) = outcome.tables
    shown = repr([table.rows.to_pylist() for table in feed.lake.tables.values()])
    assert (table.state, "76543" in shown) == (State.HELD, False)
    assert '"mail" is gone, and "post" has come' in table.reason
    if decided == "line":
        feed = TopicFeed.of(log, privacy={"public.t.mail": None, "public.t.post": None}, **given)
    else:
        release(feed.pipeline(), "public.t", table.stopped_at or 0, "apply")
    assert [table.state for table in feed.apply().tables] == [State.APPLIED]
    (rows,) = (table.rows for table in feed.lake.tables.values())
    assert ("76543" in repr(rows.to_pylist())) == (decided == "released")


@pytest.mark.parametrize("applied_before", [False, True])
def test_the_default_of_a_new_masked_column_is_masked_wherever_it_is_shown(site: Site, applied_before: bool) -> None:
    privacy = {"shop.t.c": KEY}
    if applied_before:
        site.apply(FIRST + 6, privacy=privacy)
    names = [("a", "VARCHAR"), ("b", "VARCHAR"), ("c", "VARCHAR")]
    text = "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(40) DEFAULT 'hidden-value'"
    site.feed.table("shop.t", names, FIRST + 10, text, 5)
    file = next(site.feed.bucket.glob(f"shop/t/meta/schema_{FIRST + 10}_*"))
    shown = file.read_text().replace('"ColumnName": "c"', '"ColumnDefault": "hidden-value", "ColumnName": "c"')
    file.write_text(shown)
    ledger = site.ledger
    site.apply(FIRST + 20, privacy=privacy)
    assert row(site)["c"] == hashed("hidden-value")
    assert "hidden-value" not in repr(ledger.journal("little")) + repr(site.lake.tables)
    assert "DEFAULT '***'" in repr(ledger.journal("little"))


@pytest.mark.parametrize(
    ("query", "kind", "default"),
    [
        ("ALTER TABLE `t` ADD COLUMN `hid` VARCHAR(40) DEFAULT concat('x', 'telltale')", 5, None),
        ("ALTER TABLE `t` ADD COLUMN `hid` VARCHAR(40) DEFAULT 'telltale'", 5, None),  # which the file does not have
        ("ALTER TABLE `t` ADD COLUMN `hid` VARCHAR(40) DEFAULT 'telltale", 5, None),
        ("ALTER TABLE `t` ADD COLUMN `hid` DATE DEFAULT 'x'", 5, "telltale"),
        ("ALTER TIBLE `t` ADD COLUMN `hid` VARCHAR(40) DEFAULT 'telltale'", 5, None),
        ("ALTER TABLE `t` FROBNICATE `a` WITH 'x', 'telltale'", 999, None),
        ("ALTER TABLE `t` PARTITION BY LIST COLUMNS(a) "
         "(PARTITION p VALUES IN ('x'), PARTITION q VALUES IN ('telltale'))", 71, None),
        ("ALTER TABLE `t` PARTITION BY RANGE COLUMNS(a) INTERVAL (1) FIRST PARTITION LESS THAN ('telltale')", 71, None),
        ("CREATE VIEW `t` AS SELECT * FROM u WHERE `a` = 'telltale'", 21, None),
    ],
)  # fmt: skip
def test_a_ddl_shows_no_value_that_a_masked_column_may_have(
    site: Site, query: str, kind: int, default: str | None
) -> None:
    privacy, at = {"shop.t.a": KEY, "shop.*.hid*": None}, FIRST + 10
    names = [("a", "VARCHAR"), ("b", "VARCHAR"), *([("hid", "DATETIME")] if default else [])]
    site.feed.table("shop.t", names, at, query, kind)
    if default:
        (file,) = site.feed.bucket.glob(f"shop/t/meta/schema_{at}_*")
        file.write_text(file.read_text().replace('"DATETIME"', f'"DATE", "ColumnDefault": "{default}"'))
    outcome = site.apply(FIRST + 20, privacy=privacy)
    planned = site.pipeline(privacy=privacy).planner.plan()[1]
    events = [event for table in planned.history.lives.values() for event in table.events]
    shown = [getattr(event, "reason", "") for event in events] + [event.file.query for event in events]
    others = [file.query for file in planned.history.other_files]
    texts = repr((outcome.tables, outcome.findings, site.ledger.journal("little"), shown, planned.steps, others))
    assert ("telltale" in texts, "***" in texts) == (False, True)


@pytest.mark.parametrize("kinds", [("ENUM", "ENUM"), ("SET", "SET"), ("ENUM", "TEXT"), ("VARCHAR", "VARCHAR")], ids=str)
@pytest.mark.parametrize("known", ["utf8mb4_bin", None], ids=str)
def test_a_text_of_another_collation_is_masked_otherwise_whatever_its_type(
    kinds: tuple[str, str], known: str | None
) -> None:
    old, new, same = (
        Column("a", kind, elems=("Ant",) if kind in ("ENUM", "SET") else None, collation=collation)
        for kind, collation in ((kinds[0], known), (kinds[1], "utf8mb4_general_ci"), (kinds[1], known))
    )
    mask = Mask("hash", key=b"key")
    first, second, third = (masked_array(pa.array(["Ant"]), replace(column, mask=mask)) for column in (old, new, same))
    assert (first.equals(second), same_masked(old, new)) == (False, False)
    assert (first.equals(third), same_masked(old, same)) == (True, True)


def test_another_mask_holds_a_table_that_stands_until_it_is_rebuilt_or_said_for_new_rows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    privacy = {"shop.t.a": KEY}
    site.apply(FIRST + 6, privacy=privacy)
    monkeypatch.setenv("MASK_KEY", "second key")
    held = table_of(site, FIRST + 9, privacy=privacy)
    assert (held.state, row(site)["a"]) == (State.HELD, hashed("ann@example.org"))
    assert 'columns that are masked otherwise now: "a" (hash ' in held.reason
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", '"bob@example.org"', '"x"'])])
    release(site.pipeline(privacy=privacy), "shop.t", FIRST + 10, "new-settings")
    assert table_of(site, FIRST + 20, privacy=privacy).state is State.APPLIED
    assert {lake_row["a"] for lake_row in site.lake.read(T).to_pylist()} == {
        hashed("ann@example.org"), hashed("bob@example.org", "second key"),
    }  # fmt: skip
    (table,) = site.lake.tables.values()
    assert [at for at, _ in table.recipe.mask("privacy.a").before] == [FIRST + 10]
    site.rebuild("shop.t", privacy=privacy)
    assert {lake_row["a"] for lake_row in site.lake.read(T).to_pylist()} == {
        hashed(mail, "second key") for mail in ("ann@example.org", "bob@example.org")
    }
    site.feed.lines("shop.t", [("I", FIRST + 25, ["3", '"eve@example.org"', '"x"'])])
    assert table_of(site, FIRST + 30, privacy=privacy).state is State.APPLIED
    (table,) = site.lake.tables.values()
    assert [name for name in table.recipe.settings if name.startswith("privacy")] == ["privacy.a"]
    assert table.recipe.mask("privacy.a").before == ()


@pytest.mark.parametrize(
    ("then", "now", "can_be_said"),
    [(None, KEY, False), (KEY, None, False), ({"redact": "last4"}, KEY, True), ("drop", KEY, False)],
    ids=str,
)
def test_a_mask_that_changes_holds_and_is_said_for_new_rows_where_the_type_stays(
    site: Site, then: Any, now: Any, can_be_said: bool
) -> None:
    site.apply(FIRST + 6, privacy={"shop.t.a": then} if then is not None else {})
    table = table_of(site, FIRST + 9, privacy={} if now is None else {"shop.t.a": now})
    assert table.state is State.HELD
    assert any("--new-settings" in way for way in table.ways) is (can_be_said or then is None)


def retyped(site: Site, kind: str, at: int) -> None:
    query = f"ALTER TABLE `t` MODIFY COLUMN `a` {kind}{'(40)' if kind == 'VARCHAR' else ''}"
    site.feed.table("shop.t", [("a", kind), ("b", "VARCHAR")], at, query, 5)


@pytest.mark.parametrize("mask", [KEY, {"redact": "length"}], ids=str)
@pytest.mark.parametrize("stands", [False, True])
def test_a_column_of_another_family_is_masked_as_that_in_all_rows_once_its_table_is_built_anew(
    tmp_path: Path, mask: Any, stands: bool
) -> None:
    site, privacy = Site(tmp_path), {"shop.t.a": mask}
    site.feed.table("shop.t", [("a", "INT"), ("b", "VARCHAR")])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", "007", '"x"']), ("I", FIRST + 6, ["2", "8", '"x"'])])
    if stands:
        site.apply(FIRST + 8, privacy=privacy)
    retyped(site, "VARCHAR", FIRST + 10)
    site.feed.lines(
        "shop.t", [("I", FIRST + 15, ["3", '"7"', '"x"']), ("D", FIRST + 16, ["2", '"8"', '"x"'])], FIRST + 10
    )
    table = table_of(site, FIRST + 20, privacy=privacy)
    assert table.state is (State.HELD if stands else State.APPLIED)
    if stands:
        assert "as VARCHAR(40)" in table.reason
        site.rebuild("shop.t", privacy=privacy)
    left = hashed("7") if mask is KEY else 1
    assert {lake_row["id"]: lake_row["a"] for lake_row in site.lake.read(T).to_pylist()} == {1: left, 3: left}
    retyped(site, "BLOB", FIRST + 30)
    assert table_of(site, FIRST + 40, privacy=privacy).state is State.HELD
    site.rebuild("shop.t", privacy=privacy)
    left = hashed("7", family="bytes") if mask is KEY else 1
    assert {lake_row["id"]: lake_row["a"] for lake_row in site.lake.read(T).to_pylist()} == {1: left, 3: left}
    assert table_of(site, FIRST + 50, privacy=privacy).state is State.APPLIED


def test_a_masked_column_of_a_type_that_nobody_knows_stops_its_table_alone(tmp_path: Path) -> None:
    site, privacy = Site(tmp_path), {"*.*.a": KEY}
    for name in ("shop.t", "shop.u"):
        site.feed.table(name, [("a", "INT"), ("b", "VARCHAR")])
    query = "ALTER TABLE `t` MODIFY COLUMN `a` INT"
    site.feed.table("shop.t", [("a", "INT"), ("b", "VARCHAR")], FIRST + 10, query, 5)
    (file,) = site.feed.bucket.glob(f"shop/t/meta/schema_{FIRST + 10}_*")
    file.write_text(
        file.read_text().replace('"ColumnName": "a", "ColumnType": "INT"', '"ColumnName": "a", "ColumnType": "int{6"')
    )
    assert "int{6" in file.read_text()
    states = {str(table.name): table.state for table in site.apply(FIRST + 20, privacy=privacy).tables}
    assert states == {"shop.t": State.HELD, "shop.u": State.APPLIED}


def test_a_masked_value_that_another_type_does_not_take_holds_its_table_and_is_not_shown(tmp_path: Path) -> None:
    site, privacy = Site(tmp_path), {"shop.t.a": KEY}
    site.feed.table("shop.t", [("a", "VARCHAR"), ("b", "VARCHAR")])
    site.feed.lines("shop.t", [("I", FIRST + 5, ["1", '"no number"', '"x"'])])
    retyped(site, "INT", FIRST + 10)
    table = table_of(site, FIRST + 20, privacy=privacy)
    assert (table.state, "no number" in repr(table)) == (State.HELD, False)
    assert 'a value of the masked column "a" cannot become INT' in table.reason


@pytest.mark.parametrize("kinds", [("VARCHAR", "INT", "VARCHAR"), ("INT", "DATETIME", "TIMESTAMP")], ids=str)
def test_a_column_whose_type_comes_back_or_asks_a_zone_is_held_as_its_rows_cannot_be_turned(
    tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    site = Site(tmp_path)
    site.feed.table("shop.t", [("a", kinds[0]), ("b", "VARCHAR")])
    for number, kind in enumerate(kinds[1:]):
        retyped(site, kind, FIRST + 10 + number)
    table = table_of(site, FIRST + 20, privacy={"shop.t.a": KEY})
    assert table.state is State.HELD
    assert "the masked values of rows that are there would be others" in table.reason


def test_a_line_that_no_column_matches_is_told_and_a_mask_is_shown_with_its_line(site: Site) -> None:
    site.feed.publish(FIRST + 9)
    inspection = inspect_changefeed(site.feed.settings(privacy={"shop.t.a": KEY, "shop.t.nothing": None}))
    lines = list(inspection_lines(inspection))
    assert "    privacy: shop.t.nothing" in lines
    place = lines.index('  masked by hash, as privacy says of "shop.t.a":')
    assert lines[place + 1] == "    shop.t.a: VARCHAR(40) -> string, values of the sample: 1"


def test_every_masked_column_is_shown_also_one_of_which_the_sample_has_nothing(tmp_path: Path) -> None:
    feed, names = LittleFeed(tmp_path), [f"shop.t{number}" for number in range(12)]
    for number, name in enumerate(names):
        feed.create(name, FIRST + number)
    feed.rows(names[0], FIRST, [("I", FIRST + 20, 1, "x"), ("I", FIRST + 21, 2, "y")])
    feed.publish(FIRST + 30)
    lines = list(inspection_lines(inspect_changefeed(feed.settings(privacy={"*.*.v": "drop"}))))
    place = lines.index('  masked by drop, as privacy says of "*.*.v":')
    entries = sorted(line.strip() for line in lines[place + 1 : place + 13])
    counts = dict.fromkeys(names, 0) | {names[0]: 2}
    assert entries == sorted(f"{name}.v: VARCHAR(40) -> none, values of the sample: {counts[name]}" for name in names)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_record_that_does_not_fit_is_kept_encrypted_or_by_its_place(site: Site, encrypted: bool) -> None:
    line = ["2", '"' + "secret" * 20 + '"', '"x"']
    site.feed.lines("shop.t", [("I", FIRST + 6, ["no number", *line[1:]])])
    settings = {"privacy": {"shop.t.a": None}, "quarantine": True, **(ENCRYPTED if encrypted else {})}
    site.apply(FIRST + 9, **settings)
    (kept,) = site.lake.quarantined()
    assert ("secret" in kept.reason, b"secret" in kept.raw, bool(kept.raw)) == (False, False, encrypted)
    assert not encrypted or b"no number" in decrypt(kept.raw, EncryptionKey(b"a key"))


@pytest.mark.parametrize("pattern", ["shop.t.h[ij]d", "*.*.hid"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_a_record_with_a_masked_column_that_its_table_is_not_known_to_have_is_kept_encrypted_or_by_its_place(
    tmp_path: Path, pattern: str, encrypted: bool
) -> None:
    feed, lake = LittleFeed(tmp_path, "canal-json"), MemoryLake()
    feed.create("shop.t")
    file = feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 2, 2, "y")])
    file.write_bytes(file.read_bytes().replace(b'"v":"y"', b'"v":"y","hid":"telltale"'))
    feed.publish(FIRST + 5)
    outcome = feed.pipeline_into(
        lake, privacy={pattern: None}, quarantine=True, **ENCRYPTED if encrypted else {}
    ).apply()
    (kept,) = lake.quarantined()
    assert (kept.line, bool(kept.raw), "telltale" in repr((outcome.tables, kept))) == (2, encrypted, False)


@pytest.mark.parametrize("windows", [1, 2])
def test_a_record_that_is_replayed_is_masked_as_if_it_had_fitted_in_its_window(site: Site, windows: int) -> None:
    privacy: dict[str, Any] = {"shop.t.a": KEY, "shop.t.b": {"redact": "last4"}}
    if windows == 2:
        site.apply(FIRST + 5, privacy=privacy, quarantine=True, **ENCRYPTED)
    site.feed.lines("shop.t", [("I", FIRST + 6, ["no number", '"bob@example.org"', '"4000123412345678"'])])
    assert table_of(site, FIRST + 9, privacy=privacy, quarantine=True, **ENCRYPTED).quarantined == 1
    (path,) = site.feed.bucket.glob("shop/t/*/CDC00000000000000000002.csv")
    path.write_bytes(path.read_bytes().replace(b"no number", b"2"))
    (done,) = replay_records(site.pipeline(privacy=privacy, quarantine=True, **ENCRYPTED))
    assert (done.reason, done.rows) == ("", 1)
    rows_by_id = {row["id"]: (row["a"], row["b"]) for row in site.lake.read(T).to_pylist()}
    assert rows_by_id == {1: (hashed("ann@example.org"), "1234"), 2: (hashed("bob@example.org"), "5678")}


def test_a_record_that_does_not_fit_stops_its_table_without_a_word_of_what_it_holds(site: Site) -> None:
    site.feed.lines("shop.t", [("I", FIRST + 6, ["telltale", '"x"', '"x"'])])
    table = table_of(site, FIRST + 9, privacy={"shop.t.a": None})
    assert (table.state, "telltale" in table.reason) == (State.HELD, False)
    assert 'line 1, column "id"' in table.reason


@pytest.mark.parametrize("pattern", ["shop.t.a", "shop.t.not_known"])
def test_a_value_that_a_check_refuses_is_not_shown_where_a_column_of_its_table_is_masked(
    site: Site, pattern: str
) -> None:
    site.feed.lines("shop.t", [("I", FIRST + 6, ["2", '"x"', '"' + "telltale" * 6 + '"'])])
    table = table_of(site, FIRST + 9, privacy={pattern: None})
    assert (table.state, "telltale" in repr(table)) == (State.HELD, False)
    assert 'line 1, column "b": a value is not VARCHAR(40): it is longer than 40 characters' in table.reason


@pytest.mark.parametrize(("privacy", "is_shown"), [({}, True), ({"shop.t.a": None}, False)], ids=["plain", "masked"])
@pytest.mark.parametrize("stage", ["due", "validated"])
def test_an_error_that_nobody_foresaw_says_its_type_and_place_alone_where_values_are_masked(
    site: Site, monkeypatch: pytest.MonkeyPatch, stage: str, privacy: dict[str, Any], is_shown: bool
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("telltale")

    monkeypatch.setattr(f"cdc_assets.decoding.window.{stage}", fail)
    site.feed.publish(FIRST + 9)
    pipeline = site.pipeline(privacy=privacy)
    table = next(table for table in pipeline.apply().tables if table.life.born_as == T)
    assert (table.state in (State.HELD, State.FAILED), "telltale" in repr(table)) == (True, is_shown)
    assert ("ValueError: telltale" if is_shown else "ValueError in cdc_assets/decoding/") in table.reason
    (step,) = (step for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows))
    try:
        trace = repr(decode_windows([step], pipeline.source.reader))
    except StepFailed:
        trace = traceback.format_exc()  # what an executor's log and Dagster's events have
    assert ("telltale" in trace) is is_shown


@pytest.mark.parametrize("given", [{"landing": {"plain": True}}, ENCRYPTED], ids=["plain", "encrypted"])
def test_messages_whose_landing_fails_for_a_reason_that_nobody_foresaw_are_not_shown(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise KeyError("telltale")

    monkeypatch.setattr(PartitionReader, "classify", fail)
    log, source = MemoryLog(), Source(1)
    source.columns, source.rows = {"mail": "int32"}, {1: {"mail": 76543}}
    source._say("u", 1, source.rows[1], read_again=("mail",))
    source.send(log)
    with pytest.raises(StepFailed, match=r"messages cannot be landed \(KeyError in cdc_assets/") as failed:
        TopicFeed.of(log, sink_uri=URI, privacy={"public.t.mail": None}, **given).apply()
    assert "telltale" not in "".join(traceback.format_exception(failed.value))


def test_equal_values_of_one_family_have_one_hash_however_wide_their_column_is(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name, kind, precision in (("shop.i", "INT", "11"), ("shop.w", "BIGINT", "20")):
        column = file_column("id", kind, precision, is_key=True)
        query = f"CREATE TABLE `{name[5:]}` (`id` {kind} NOT NULL PRIMARY KEY)"
        write_schema(site.feed.bucket, document("shop", name[5:], FIRST, Query=query, Type=3, TableColumns=[column]))
        site.feed.lines(name, [("I", FIRST + 5, ["77"])])
    site.apply(FIRST + 9, privacy={"*.*.id": KEY})
    values = [site.lake.read(TableId("shop", name)).column("id").to_pylist() for name in ("i", "w")]
    assert values == [[hashed("77", family="integer")]] * 2


def test_schema_files_with_defaults_are_not_kept_in_clear_text(site: Site, tmp_path: Path) -> None:
    for number, settings in enumerate(({}, ENCRYPTED)):
        place = tmp_path / f"{number}.db"
        site.ledger, site.lake = Ledger(f"sqlite:///{place}"), MemoryLake()
        site.apply(FIRST + 9, privacy={"shop.t.a": None}, **settings)
        assert b"ColumnName" not in place.read_bytes()
        assert bool(site.ledger.schema_files("little")) is bool(settings)


@pytest.mark.parametrize("masked_by_it", [False, True])
def test_another_privacy_key_holds_the_tables_alone_that_are_masked_by_it_until_they_are_rebuilt(
    site: Site, monkeypatch: pytest.MonkeyPatch, masked_by_it: bool
) -> None:
    variable = "PRIVACY_KEY" if masked_by_it else "MASK_KEY"
    given: dict[str, Any] = {"privacy": {"shop.t.a": {"hash": {"key": {"env": variable}}}}, **ENCRYPTED}
    site.feed.table("shop.other", [("a", "VARCHAR")])
    site.apply(FIRST + 9, **given)
    monkeypatch.setenv("PRIVACY_KEY", "another key")
    site.feed.lines("shop.other", [("I", FIRST + 15, ["1", '"x"'])])
    site.feed.lines("shop.t", [("I", FIRST + 15, ["2", '"bob@example.org"', '"x"'])])
    states = {str(table.name): table.state for table in site.apply(FIRST + 20, **given).tables}
    assert states == {"shop.t": State.HELD if masked_by_it else State.APPLIED, "shop.other": State.APPLIED}
    if masked_by_it:
        held = table_of(site, FIRST + 21, **given)
        assert 'columns that are masked otherwise now: "a" (hash ' in held.reason
        assert any("cdc-assets rebuild shop.t" in way for way in held.ways)
        site.rebuild("shop.t", **given)
    key = "another key" if masked_by_it else "first key"
    assert {lake_row["a"] for lake_row in site.lake.read(T).to_pylist()} == {
        hashed(mail, key) for mail in ("ann@example.org", "bob@example.org")
    }
    encrypted = site.ledger.schema_files("little").values()
    assert all(b"ColumnName" in decrypt(text, EncryptionKey(b"another key")) for text in encrypted)


@pytest.mark.parametrize(("mask", "shown"), [(None, "ENUM('a','b')"), (Mask("null"), "ENUM")], ids=str)
def test_members_of_a_masked_column_are_not_shown_with_its_type(mask: Mask | None, shown: str) -> None:
    assert column_type(Column("c", "ENUM", elems=("a", "b"), mask=mask)) == shown


def topics_settings(**given: Any) -> ChangefeedSettings:
    own: dict[str, Any] = {"sink_uri": "kafka://127.0.0.1:1/t?protocol=simple", "privacy": {"shop.t.a": None}}
    return ChangefeedSettings(**own, **given)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from cdc_assets.landing import opening
    from cdc_assets.settings.lake import LakeSettings

    keys: list[Any] = []
    landed = opening._landed

    def seen(settings: Any, source: Any, lake: Any, encryption_key: Any, executors: Any) -> Any:
        keys.append(encryption_key)
        return landed(settings, source, lake, encryption_key, executors)

    monkeypatch.setattr(opening, "_landed", seen)
    return [keys, LakeSettings.from_warehouse(tmp_path)]


@pytest.mark.parametrize(
    ("given", "is_encrypted"),
    [({}, None), (ENCRYPTED, True), ({"landing": {"plain": True}}, False)],
    ids=["none", "key", "consent"],
)
def test_topics_with_masks_are_landed_encrypted_or_by_consent(
    opened: list[Any], given: dict[str, Any], is_encrypted: bool | None
) -> None:
    from cdc_assets.landing.opening import open_feed

    keys, lake = opened
    if is_encrypted is None:
        with (
            pytest.raises(BadSettings, match=r"privacy_key.*landing: .plain: true"),
            open_feed(topics_settings(), lake),
        ):
            pass
        return
    with open_feed(topics_settings(**given), lake):
        assert [key is not None for key in keys] == [is_encrypted]
