from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.types.collations import is_approximate, is_plain, normal_form, spark_normal_form

GENERAL = "utf8mb4_general_ci"
KNOWN = ["utf8mb4_bin", "latin1_bin", GENERAL, "gbk_chinese_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci"]


def form(text: str, collation: str) -> str:
    folded_text: str = normal_form(pa.array([text]), collation)[0].as_py()
    return folded_text


@pytest.mark.parametrize(
    ("text", "other", "collation", "equal"),
    [
        ("a", "a  ", "utf8mb4_bin", True),
        ("a", "a\t", "utf8mb4_bin", False),
        ("a", "A", "utf8mb4_bin", False),
        ("a", "a ", "utf8mb4_0900_bin", False),
        ("a", "a ", "binary", False),
        ("a", "A ", GENERAL, True),
        ("é", "E", GENERAL, True),
        ("ß", "s", GENERAL, True),
        ("ß", "ss", GENERAL, False),
        ("Æ", "æ", GENERAL, True),
        ("æ", "ae", GENERAL, False),
        ("Й", "И", GENERAL, False),
        ("й", "Й", GENERAL, True),
        ("ё", "Е", GENERAL, True),
        ("ς", "Σ", GENERAL, True),
        ("😀", "😁", GENERAL, True),
        ("ł", "L", GENERAL, False),
        ("ａ", "Ａ", GENERAL, True),
        ("は", "ば", GENERAL, False),
        ("a", "A ", "gbk_chinese_ci", True),
        ("é", "e", "gbk_chinese_ci", False),
        ("ß", "SS", "utf8mb4_unicode_ci", True),
        ("は", "パ", "utf8mb4_unicode_ci", True),
        ("a", "a ", "utf8mb4_unicode_ci", True),
        ("a", "a ", "utf8mb4_0900_ai_ci", False),
        ("é", "E", "utf8mb4_0900_ai_ci", True),
        ("😀", "😁", "utf8mb4_0900_ai_ci", False),
        ("कि", "कु", "utf8mb4_unicode_ci", False),
    ],
)
def test_texts_are_equal_as_in_tidb(text: str, other: str, collation: str, equal: bool) -> None:
    assert (form(text, collation) == form(other, collation)) is equal


@pytest.mark.parametrize("collation", KNOWN)
@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.one_of(st.none(), st.text())))
def test_the_form_of_a_form_is_itself_and_null_stays_null(collation: str, texts: list[str | None]) -> None:
    once = normal_form(pa.array(texts, pa.string()), collation)
    assert normal_form(once, collation).equals(once)
    assert once.is_null().to_pylist() == [text is None for text in texts]


@pytest.mark.parametrize("collation", KNOWN)
@settings(deadline=None, max_examples=50)
@given(text=st.text(alphabet=st.characters(codec="ascii")))
def test_ascii_and_other_texts_take_two_ways_to_one_form(collation: str, text: str) -> None:
    assert form(text + "é", collation)[:-1] == form(text + "|", collation)[:-1]


@pytest.mark.parametrize(
    ("collation", "plain"), [("", True), ("binary", True), ("utf8mb4_bin", False), (GENERAL, False)]
)
def test_plain_is_equality_of_bytes(collation: str, plain: bool) -> None:
    assert is_plain(collation) is plain
    assert (spark_normal_form("`k`", collation) == "`k`") is plain


def test_only_the_unicode_algorithm_is_approximate() -> None:
    assert [is_approximate(name) for name in KNOWN] == [False, False, False, False, True, True]
