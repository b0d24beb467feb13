"""Keys as their collation compares them: values that are equal to TiDB get one form.

The same forms exist twice, in Arrow for reducing a window and in Spark SQL for merging it; they agree value by value.

    *_bin              trailing spaces do not count (PAD SPACE), but for `utf8mb4_0900_bin` and `binary`
    *_general_ci       the same, without case and accents: one weight for each character, all beyond U+FFFF equal
    gbk_chinese_ci     the same, without the case of ASCII letters
    unicode, 0900_ai   without case, accents, widths and kinds of kana: approximate, see `is_approximate`

The rules are TiDB's (`tidb:pkg/util/collate`), with new collations enabled, its default since 4.0.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = ("", "binary", "utf8mb4_0900_bin")
_ASCII_CASE = {ord(c): ord(c.upper()) for c in "abcdefghijklmnopqrstuvwxyz"}
_REPLACEMENT = 0xFFFD


def is_plain(collation: str) -> bool:
    """Return whether values are equal exactly when their bytes are."""
    return collation in _PLAIN or collation.endswith("_as_cs")


def is_approximate(collation: str) -> bool:
    """Return whether the normal form may differ from TiDB's weights for rare characters.

    Collations by the Unicode Collation Algorithm weigh characters by tables that are not carried here. Letters of the
    Latin, Greek and Cyrillic alphabets and kana compare as in TiDB; signs that the algorithm ignores do not.
    """
    return not is_plain(collation) and _rule(collation)[1] in (_unicode_4, _unicode_9)


def normal_form(array: pa.StringArray, collation: str) -> pa.Array:
    """Return the texts in their normal form, which is equal for texts that the collation treats as equal."""
    if is_plain(collation):
        return array
    pad, table = _rule(collation)
    trimmed = pc.utf8_rtrim(array, characters=" ") if pad else array
    if table is None:
        return trimmed
    ascii_only = pc.fill_null(pc.string_is_ascii(trimmed), True)
    if not pc.all(ascii_only).as_py():
        mapping = table()
        not_ascii = pc.invert(ascii_only)
        mapped = [text.translate(mapping) for text in trimmed.filter(not_ascii).to_pylist()]
        trimmed = pc.replace_with_mask(trimmed, not_ascii, pa.array(mapped, trimmed.type))
    # the other tables leave upper-case ASCII as it is
    return pc.ascii_upper(trimmed)


def spark_normal_form(column_sql: str, collation: str) -> str:
    """Return a Spark SQL expression over a string expression, with the same result as `normal_form`."""
    if is_plain(collation):
        return column_sql
    pad, table = _rule(collation)
    expression = f"rtrim({column_sql})" if pad else column_sql
    if table is None:
        return expression
    mapping = table()
    for code, text in sorted(mapping.items()):
        if isinstance(text, str) and len(text) > 1:
            expression = f"replace({expression}, {_literal(chr(code))}, {_literal(text)})"
    beyond = mapping.beyond
    if beyond is not None:
        expression = f"regexp_replace({expression}, '[\U00010000-\U0010ffff]', {_literal(chr(beyond))})"
    single = {code: chr(to) for code, to in sorted(mapping.items()) if isinstance(to, int)}
    gone = [code for code, text in sorted(mapping.items()) if text == ""]
    source = "".join(map(chr, [*single, *gone]))
    # characters without a counterpart are deleted
    return f"translate({expression}, {_literal(source)}, {_literal(''.join(single.values()))})"


def _literal(text: str) -> str:
    """Quotes and backslashes go as bytes: how they are escaped is a setting of the parser."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)" if "'" in text or "\\" in text else f"'{text}'"


class _Table(dict[int, "int | str"]):
    """A map for `str.translate`: character code -> code, or text. `beyond` stands for all characters over U+FFFF."""

    def __init__(self, codes: Mapping[int, int | str], beyond: int | None) -> None:
        super().__init__(codes)
        self.beyond = beyond

    def __missing__(self, code: int) -> int:
        return code if self.beyond is None or code <= 0xFFFF else self.beyond


def _rule(collation: str) -> tuple[bool, Callable[[], _Table] | None]:
    """Return (trailing spaces do not count, table of characters or None)."""
    if collation.endswith("_bin"):
        return True, None
    if collation.endswith("_general_ci"):
        return True, _general
    if collation == "gbk_chinese_ci":
        return True, _gbk
    return (False, _unicode_9) if "_0900_" in collation else (True, _unicode_4)


# --- tables -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _gbk() -> _Table:
    return _Table(_ASCII_CASE, ord("?"))


_GENERAL_PLANES = (0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x1E, 0x1F)
_GENERAL_CASE_ONLY = (range(0x2160, 0x2180), range(0x24B6, 0x24EA), range(0xFF21, 0xFF5B))
_GENERAL_EXCEPTIONS = {0x00DF: 0x0053, 0x03F2: 0x03A3, 0x0419: 0x0419, 0x0439: 0x0419}
_GENERAL_UNTOUCHED = frozenset(
    (0x019E, 0x0220, 0x0344, 0x0385, 0x03D9, 0x03F5, 0x048B, 0x04C6, 0x04CA, 0x04CE, *range(0x0500, 0x0510))
) | frozenset((0x1FC1, 0x1FCD, 0x1FCE, 0x1FCF, 0x1FDD, 0x1FDE, 0x1FDF, 0x1FED, 0x1FFE))
_OLD = unicodedata.ucd_3_2_0


@lru_cache(maxsize=1)
def _general() -> _Table:
    """The weights of `general_ci` are upper case without accents, by Unicode 3.0, for some planes only."""
    codes = [plane << 8 | low for plane in _GENERAL_PLANES for low in range(256)]
    weights = {code: _general_weight(code) for code in codes if code not in _GENERAL_UNTOUCHED}
    weights |= {code: ord(chr(code).upper()) for some in _GENERAL_CASE_ONLY for code in some}
    weights |= _GENERAL_EXCEPTIONS
    return _Table({code: weight for code, weight in weights.items() if code != weight}, _REPLACEMENT)


def _general_weight(code: int) -> int:
    if _OLD.category(chr(code)) == "Cn":
        return code
    base = _without_accents(chr(code))
    upper = base.upper()
    is_assigned = len(upper) == 1 and _OLD.category(upper) != "Cn"
    return ord(_without_accents(upper if is_assigned else base))


def _without_accents(char: str) -> str:
    """Follow canonical decompositions into two characters; those into one are another spelling of a whole letter."""
    while True:
        parts = _OLD.decomposition(char).split()
        if len(parts) != 2 or parts[0].startswith("<"):
            return char
        char = chr(int(parts[0], 16))


_LIGATURES = {
    "ß": "SS", "ẞ": "SS", "æ": "AE", "Æ": "AE", "œ": "OE", "Œ": "OE", "ĳ": "IJ", "Ĳ": "IJ",
    "ﬀ": "FF", "ﬁ": "FI", "ﬂ": "FL", "ﬃ": "FFI", "ﬄ": "FFL", "ﬅ": "ST", "ﬆ": "ST",
}  # fmt: skip
_ACCENTS = (
    range(0x0300, 0x0370),
    range(0x0483, 0x0488),
    range(0x1DC0, 0x1E00),
    range(0x20D0, 0x20F1),
    range(0x3099, 0x309B),
)
"""Marks without a primary weight of their own. Vowel signs of other scripts are letters, and stay."""
_SMALL_KANA = dict(zip("ぁぃぅぇぉっゃゅょゎゕゖ", "あいうえおつやゆよわかけ", strict=True))


@lru_cache(maxsize=1)
def _unicode_4() -> _Table:
    return _Table(_unicode_9(), _REPLACEMENT)


@lru_cache(maxsize=1)
def _unicode_9() -> _Table:
    """Primary weights of the Unicode Collation Algorithm, approximated: letters without case, accents, width."""
    table: dict[int, int | str] = {}
    for code in range(0x10000):
        if 0xD800 <= code < 0xE000 or 0xAC00 <= code < 0xD7A4:
            continue
        char = chr(code)
        form = _LIGATURES.get(char) or _primary(char)
        if form != char:
            table[code] = ord(form) if len(form) == 1 else form
    return _Table(table, None)


def _primary(char: str) -> str:
    if 0xFF01 <= ord(char) <= 0xFF5E:
        char = chr(ord(char) - 0xFEE0)
    bare = "".join(c for c in unicodedata.normalize("NFD", char) if not any(ord(c) in some for some in _ACCENTS))
    if not bare:
        return ""
    upper = bare.casefold().upper()
    form = upper if len(upper) == 1 else char
    if 0x30A1 <= ord(form) <= 0x30F6:
        form = chr(ord(form) - 0x60)
    return _SMALL_KANA.get(form, form)
