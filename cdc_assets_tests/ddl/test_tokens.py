"""Plain texts are cut into the very tokens that the tokenizer gives, and any other text is left to it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot.dialects.mysql import MySQL

from cdc_assets.ddl.text import (
    Token,
    Unreadable,
    _Escaped,
    _plain_tokens,
    _Restored,
    _tokenized,
    as_restored,
    tokens,
)

KEYWORDS = sorted({word for text in MySQL.Tokenizer.KEYWORDS for word in re.findall(r"[A-Za-z]\w*", text)})

plain = st.one_of(
    st.sampled_from(KEYWORDS),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,4}", fullmatch=True),
    st.integers(0, 10**20).map(str),
    st.text(st.characters(exclude_characters="`\\"), min_size=1, max_size=5).map("`{}`".format),
    st.text(st.characters(exclude_characters="'\\"), max_size=5).map("'{}'".format),
    st.sampled_from("(),=."),
)
between = st.sampled_from(["", "", " ", "  ", "\n", "\t", "\r\n"])
odd = st.one_of(st.text("`'\"\\.;-+#/*=_$@!%:x01N ", max_size=4), st.text(max_size=3))


def by_tokenizer(sql: str) -> tuple[Token, ...] | None:
    try:
        return _tokenized(sql, _Restored, _Escaped)
    except Unreadable:
        return None


@given(st.lists(st.tuples(plain, between), max_size=12), st.lists(odd, max_size=2), st.randoms())
@example([("N", ""), ("'a'", "")], [], None)
@example([("x", " "), ("'41'", "")], [], None)
@example([("1", ""), (".", ""), ("`a`", "")], [], None)
@example([("`a`", " "), (".", ""), ("`b`", "")], [], None)
@example([("=", ""), ("=", "")], [], None)
@example([("`a`", ""), ("'b'", ""), ("'c'", "")], [], None)
def test_plain_tokens_are_those_of_the_tokenizer_or_none(
    drawn: list[tuple[str, str]], strange: list[str], rng: object
) -> None:
    pieces = [text for pair in drawn for text in pair]
    for text in strange:
        pieces.insert(rng.randint(0, len(pieces)), text)  # type: ignore[attr-defined]
    sql = "".join(pieces)
    plain_tokens = _plain_tokens(sql)
    assert not plain_tokens or plain_tokens == by_tokenizer(sql)


def test_every_keyword_is_a_plain_word() -> None:
    for keyword in KEYWORDS:
        sql = f"CREATE TABLE `t` (`a` {keyword} (10) {keyword} 'x', {keyword} {keyword.lower()})"
        assert _plain_tokens(sql) == by_tokenizer(sql), keyword


def test_the_text_of_a_common_table_is_plain() -> None:
    sql = (
        "CREATE TABLE `shop`.`t` (`id` BIGINT(20) UNSIGNED NOT NULL AUTO_INCREMENT,`v` VARCHAR(20) DEFAULT 'x', "
        "PRIMARY KEY (`id`)  CLUSTERED ) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
    )
    assert _plain_tokens(sql) == by_tokenizer(sql) == tokens(sql)


@pytest.mark.parametrize("text", ["'it''s'", r"'a\'b'", "`a``b`", "_utf8mb4'a'", "b'1'", "1.5", "/* a */", '"a"', ";"])
def test_other_texts_are_left_to_the_tokenizer(text: str) -> None:
    assert _plain_tokens(f"a {text}") == ()


def test_no_second_token_is_looked_for_in_a_long_text_that_is_not_plain() -> None:
    assert _plain_tokens("a " + "b" * 200_000 + ";") == ()  # for minutes, if behind each letter one was looked for


def test_a_name_without_quotes_may_begin_with_digits() -> None:
    kinds = [(part.kind, part.raw) for part in tokens("2fa_code+1e5x, 12 _a, 1.5e3 0x1F 3")]
    assert kinds == [
        ("word", "2fa_code"), ("sign", "+"), ("word", "1e5x"), ("sign", ","), ("number", "12"), ("word", "_a"),
        ("sign", ","), ("number", "1.5e3"), ("hex", "0x1F"), ("number", "3"),
    ]  # fmt: skip


def written(text: str) -> str:
    """Return a text as MySQL's clients write it, with escapes."""
    return "".join({"\0": r"\0", "\x1a": r"\Z", "\n": r"\n", "'": r"\'", "\\": r"\\"}.get(c, c) for c in text)


some_text = st.text("a'\"`\\\0\n\x1a%_;/*!-# ü", max_size=6)


@given(st.lists(some_text, min_size=1, max_size=4), st.sampled_from(["'", '"']), st.sampled_from(["mysql", "mariadb"]))
@example(["it's", "he's"], "'", "mysql")
@example(["\\", "\\b"], "'", "mysql")
@example(["'"], "'", "mariadb")
def test_texts_with_escapes_are_restored_without(texts: list[str], quoted: str, server: str) -> None:
    given_text = ", ".join(quoted + written(text).replace('"', r"\"") + quoted for text in texts)
    restored = as_restored(f"ALTER TABLE t ADD a VARCHAR(9) COMMENT {given_text}", server)
    assert [part.text for part in tokens(restored) if part.kind == "string"] == texts


@given(st.lists(st.tuples(some_text, st.sampled_from(["'{}'", "/* {} */", "-- {}\n", "# {}\n", "`{}`"])), max_size=4))
def test_a_comment_of_a_version_is_opened_whatever_stands_around_it(around: list[tuple[str, str]]) -> None:
    pieces = [form.format(re.sub(r"['`\\\n*/]", "", text)) for text, form in around] + ["/* it's */", "-- it's\n"]
    sql = " ".join([*pieces, "/*!80000 DEFAULT 5 */", *pieces])
    for text in (sql, as_restored(sql, "mysql")):
        assert [part.text for part in tokens(text) if part.kind in ("word", "number")] == ["DEFAULT", "5"]


@pytest.mark.parametrize(
    ("comment", "servers"),
    [
        ("/*! X */", {"mysql", "mariadb"}),
        ("/*!50100 X */", {"mysql", "mariadb"}),
        ("/*!50700 X */", {"mysql"}),
        ("/*!80023 X */", {"mysql"}),
        ("/*!100100 X */", {"mariadb"}),
        ("/*M! X */", {"mariadb"}),
        ("/*M!100301 X */", {"mariadb"}),
        ("/*M!999999\\- the sandbox mode */", set()),
        ("/*T![auto_rand] X */", set()),
        ("/* X */", set()),
        ("/*!80023 a /*!50100 X */ b */", {"mysql"}),
    ],
)
def test_each_server_runs_comments_of_its_own_versions(comment: str, servers: set[str]) -> None:
    for server in ("mysql", "mariadb"):
        words = {part.text for part in tokens(as_restored(f"A {comment} Z", server))}
        assert ("X" in words) == (server in servers)
        assert {"A", "Z"} <= words
