"""CSV that is not as TiCDC writes it is refused record by record; what is sound is read wherever blocks end.

The encoder writes what TiCDC's rules say; blocks are a few bytes long here, so that they end everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import decode
from cdc_assets.formats.csv import decode as csv_decode
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.decoded import LINE
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.formats.test_csv import EXOTIC, PLAIN, ROW, TWO, read, record, rows

HELD_PAIRS = st.lists(st.tuples(*[st.none() | st.lists(EXOTIC, max_size=5).map("".join)] * 2), min_size=1, max_size=8)
QUOTES = ('"', "'", "")
DIALECTS = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "|", "\t", "||", "[*]", "¦", "::", "aba"]),
    quote=st.sampled_from(QUOTES),
    null=st.sampled_from(["\\N", "", "NULL", "a,b", "|", "::"]),
    terminator=st.sampled_from(["\r\n", "\n", "<E>\n", "\r"]),
    include_commit_ts=st.just(True),
)


def images(pairs: Sequence[tuple[str | None, str | None]], options: CsvOptions) -> bytes:
    return b"".join(record(("I", "orders", "shop", 7, n, a, b), options) for n, (a, b) in enumerate(pairs))


# --- blocks -----------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(DIALECTS, HELD_PAIRS, st.integers(1, 60))
@example(PLAIN, [("a\r\n", "\r\n"), ("\r", "\n\r\n")], 33)
@example(replace(PLAIN, terminator="\n"), [("a\r\n", "\r\n"), ("\r", "\n\r\n")], 34)
@example(replace(PLAIN, quote="", delimiter="||"), [("a|", "b"), ("a", "|b")], 30)
@example(replace(PLAIN, quote="", null="::", delimiter="::"), [("a", None), (None, "")], 30)
def test_every_text_comes_back_or_is_refused_wherever_blocks_end(
    options: CsvOptions, pairs: list[tuple[str | None, str | None]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_decode, "_BLOCK_BYTES", size)
        try:
            decoded_rows = read(images(pairs, options), options, TWO)
        except MalformedData:
            assert not options.quote  # without quotes some texts look like the structure
            return
    null_text = csv_decode.dialect(options).null_text
    alike = null_text.decode() if null_text is not None else None
    stated = {n: tuple(None if text == alike else text for text in pair) for n, pair in enumerate(pairs)}
    got = {
        n: tuple(None if text == alike else text for text in pair) for n, *pair in rows(decoded_rows, "id", "a", "b")
    }
    bad = {reject.line - 1 for reject in decoded_rows.rejects}
    assert not (bad and options.quote)
    assert {**got, **{n: stated[n] for n in bad}} == stated
    assert decoded_rows.tail is None
    assert rows(decoded_rows, LINE) == [n + 1 for n in range(len(pairs)) if n not in bad]


def test_a_border_between_cr_and_lf_of_a_text_loses_nothing() -> None:
    whole = read(images([("x" * 40 + "\r\n" * 30, "b")], PLAIN) * 3, PLAIN, TWO)
    for size in range(20, 120):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_decode, "_BLOCK_BYTES", size)
            assert read(images([("x" * 40 + "\r\n" * 30, "b")], PLAIN) * 3, PLAIN, TWO).changes == whole.changes


def test_texts_that_meet_the_delimiter_are_refused() -> None:
    bare = replace(PLAIN, quote="", delimiter="||")
    fine = b"I||orders||shop||7||1||a||b\r\n"
    decoded_rows = read(fine + rb"I||orders||shop||7||2||a\|\||||b" + b"\r\n", bare, TWO)
    assert (rows(decoded_rows, "id"), [reject.line for reject in decoded_rows.rejects]) == ([1], [2])
    assert "can be read in several ways" in decoded_rows.rejects[0].reason


def test_a_stray_backslash_without_quotes_is_refused() -> None:
    bare = replace(PLAIN, quote="")
    decoded_rows = read(
        b"I,orders,shop,7,1,a,b\r\nI,orders,shop,7,2,a\\x,\\N\r\nI,orders,shop,7,3,\\N,\\N\r\n", bare, TWO
    )
    assert (rows(decoded_rows, "id", "a"), [reject.line for reject in decoded_rows.rejects]) == (
        [(1, "a"), (3, None)],
        [2],
    )


@pytest.mark.parametrize(
    "changed",
    [{"quote": "", "delimiter": "n"}, {"quote": "", "delimiter": "rn"}, {"null": '""'}, {"null": "a\r\n"}],
    ids=str,
)
def test_options_that_cannot_be_read_back_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        read(ROW, replace(PLAIN, **changed))


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_stray_line_feed_outside_quotes_costs_its_record() -> None:
    decoded_rows = read(ROW + ROW.replace(b"100,1", b"10\n0,1") + ROW, PLAIN)
    assert (rows(decoded_rows, LINE), [reject.line for reject in decoded_rows.rejects]) == ([1, 3], [2])


@pytest.mark.parametrize("broken", [b'"a"x', b'x"a"', b'"a" ', b'5"a"'])
def test_text_beside_quotes_is_no_text(broken: bytes) -> None:
    decoded_rows = read(ROW + ROW.replace(b'"a"', broken), PLAIN)
    assert (rows(decoded_rows, LINE), [reject.line for reject in decoded_rows.rejects]) == ([1], [2])


def test_an_uneven_row_that_is_no_utf8_costs_its_record(capfd: pytest.CaptureFixture[str]) -> None:
    decoded_rows = read(ROW + ROW.replace(b'"a"', b'"\xff\xfe","b"') + ROW, PLAIN)
    assert (rows(decoded_rows, LINE), [reject.line for reject in decoded_rows.rejects]) == ([1, 3], [2])
    assert "9 fields where 8 are expected" in decoded_rows.rejects[0].reason
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("stamp", [b"-100", b"+100", b"1e2", b"18446744073709551615", b"\\N"])
def test_what_is_no_commit_ts_is_never_before_all_windows(stamp: bytes) -> None:
    decoded_rows = read(ROW + ROW.replace(b"100", stamp), PLAIN)
    assert (rows(decoded_rows, LINE), [reject.line for reject in decoded_rows.rejects]) == ([1], [2])
    assert "is not a commit-ts" in decoded_rows.rejects[0].reason
    assert decoded_rows.rejects[0].commit_ts is None or decoded_rows.rejects[0].commit_ts > 1 << 62


UNQUOTED = TableSchema((Column("id", "INT", nullable=False, is_pk=True), Column("v", "VARCHAR", precision=40)), ("id",))


@pytest.mark.parametrize(
    ("texts", "end"),
    [
        (["a;b", "c"], ";"),
        (["a;", "c"], ";"),
        (["c", "a;"], ";"),
        ([";", "c"], ";"),
        (["a|", "c"], "||"),
        (["c", "a|"], "||"),
        (["a||", "c"], "||"),
        (["c", "<E>"], "<E>"),
    ],
)
def test_a_text_that_an_unescaped_terminator_cuts_makes_the_file_untrustworthy(texts: list[str], end: str) -> None:
    data = "".join(f"I,t,s,5,{n},{text}{end}" for n, text in enumerate(texts)).encode()
    options = CsvOptions(include_commit_ts=True, quote="", terminator=end)
    with pytest.raises(MalformedData, match="not escaped"):
        decode(options, data, "f", TableId("s", "t"), UNQUOTED)


def test_texts_without_their_terminator_are_read_without_quotes() -> None:
    options = CsvOptions(include_commit_ts=True, quote="", terminator="||")
    decoded_rows = decode(options, b"I,t,s,5,1,a;b||I,t,s,5,2,|c||", "f", TableId("s", "t"), UNQUOTED)
    assert decoded_rows.changes.column("v").to_pylist() == ["a;b", "|c"]
    assert decoded_rows.rejects == ()
