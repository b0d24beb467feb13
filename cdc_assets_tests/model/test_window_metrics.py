"""What a window did, counted; how long its newest change was under way; what the ledger keeps of both."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from cdc_assets.decoding.window import decode_window
from cdc_assets.errors import BadSettings
from cdc_assets.io.storage import modified_of
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life, State
from cdc_assets.model.reports import FileStats, Report, StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets.model.tso import seconds_between
from cdc_assets.model.window_metrics import (
    WindowMetrics,
    format_metrics,
    lag_between,
    lag_cells,
    measure_window,
    parse_metrics,
)
from cdc_assets.model.wording import seconds_text
from cdc_assets.planning.plan import plan
from cdc_assets.report.tables import TableStatus
from cdc_assets.report.text import status_lines
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.cases import Case
from cdc_assets_tests.default_rules import TABLE_RULES

LIFE = Life(TableId("shop", "orders"), 5)
SECOND = 1000 << 18  # a TSO's second

moments = st.one_of(st.just(0.0), st.floats(min_value=1, max_value=4e9, allow_nan=False))


def account(**given: object) -> WindowMetrics:
    plain = WindowMetrics(str(LIFE), 1, 9, 1, 10, 4, 2, 1, 1, 10, 11, 3, 77, 0.5)
    return dataclasses.replace(plain, **given)  # type: ignore[arg-type]


# --- lag --------------------------------------------------------------------------------------------------------------


def test_stages_are_shown_with_their_shares() -> None:
    lag = lag_between(100 * SECOND, 104.0, 105.0, 110.0)
    assert (lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds) == (4.0, 1.0, 5.0)
    assert (lag.total_seconds, lag.shares) == (10.0, (0.4, 0.1, 0.5))


def test_a_moment_that_the_storage_does_not_have_is_part_of_the_next_stage() -> None:
    lag = lag_between(100 * SECOND, 0.0, 105.0, 110.0)
    assert (lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds) == (None, 5.0, 5.0)
    assert lag_cells(lag)[1] == "not known"


def test_a_clock_that_is_behind_makes_no_stage_negative() -> None:
    lag = lag_between(100 * SECOND, 99.0, 98.0, 110.0)
    assert (lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds) == (0.0, 0.0, 10.0)


@given(st.integers(min_value=0, max_value=2**62), moments, moments, st.floats(min_value=1, max_value=4e9))
def test_stages_add_up_to_the_total(tso: int, written: float, published: float, applied: float) -> None:
    lag = lag_between(tso, written, published, applied)
    parts = [lag.written_seconds or 0.0, lag.checkpoint_seconds or 0.0, lag.applied_seconds]
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(lag.total_seconds, abs=0.01)
    assert sum(lag.shares) == pytest.approx(1.0 if lag.total_seconds else 0.0, abs=0.001)


def status(changefeed: str) -> TableStatus:
    orders = TableId("shop", "orders")
    return TableStatus(orders, 5, 9, State.APPLIED, life="shop.orders@5", changefeed=changefeed, checkpoint=9, rows=3)


def test_status_shows_every_stage_with_its_share_and_what_does_not_add_up() -> None:
    row = status("feed")
    row = dataclasses.replace(row, stages=lag_between(100 * SECOND, 104, 105, 110))
    assert "10.0 s" not in "\n".join(status_lines([row]))
    text = "\n".join(status_lines([row], landed=()))
    assert "10.0 s" in text
    assert "4.0 s (40%)" in text
    assert "1.0 s (10%)" in text
    assert "5.0 s (50%)" in text
    wrong = status_lines([dataclasses.replace(row, miscounted=account(rows_after=12).mismatch)])
    assert any("rows do not add up: shop.orders" in line for line in wrong)


def test_status_names_the_changefeed_of_several_and_what_is_left_out_on_purpose() -> None:
    row = status("near")
    other = dataclasses.replace(
        row, changefeed="far", name=TableId("shop", "users"), excluded_keys=("2 keys for ever (gdpr)",)
    )
    accepted = dataclasses.replace(
        other, name=TableId("shop", "old"), incomplete="incomplete: no rows", accepted=True, excluded_keys=()
    )
    assert "near" not in "\n".join(status_lines([row]))
    lines = list(status_lines([row, other, accepted]))
    assert [line.split()[0] for line in lines[1:4]] == ["near", "far", "far"]
    left_out = [line for line in lines if "on purpose" in line]
    assert [line.split(":")[0].split()[3] for line in left_out] == ["shop.users", "shop.old"]
    assert "2 keys for ever (gdpr)" in left_out[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.44, "0.4 s"), (119, "119.0 s"), (720, "12.0 min"), (12600, "3.5 h"), (864000, "10.0 days")]
)
def test_a_duration_is_shown_as_people_say_it(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("since", "until", "seconds"),
    [(SECOND, 3 * SECOND, 2.0), (SECOND, SECOND + SECOND // 2 + 7, 0.5), (3 * SECOND, SECOND, 0.0), (0, SECOND, 0.0)],
)
def test_the_time_between_two_tso_is_never_negative_and_none_before_the_first(
    since: int, until: int, seconds: float
) -> None:
    assert seconds_between(since, until) == seconds


def test_the_newest_change_is_timed_by_the_file_that_holds_it() -> None:
    files = tuple(DataFile(f"f{n}", "shop/orders", 5, "d", n, 1, modified=100.0 + n) for n in (1, 2))
    step = ApplyRows(LIFE, 0, 200 * SECOND, files, RowReading(), TableSchema(()), 5)
    report = Report(newest=(100 * SECOND, "f2"))
    lag = measure_window(step, 1, report, StepResult(), 103.0, 104.0).lag
    assert lag is not None
    assert (lag.written_seconds, lag.checkpoint_seconds, lag.applied_seconds) == (2.0, 1.0, 1.0)


def test_rows_without_commit_ts_have_no_lag() -> None:
    step = ApplyRows(LIFE, 0, 9, (), RowReading(), TableSchema(()), 5)
    assert measure_window(step, 0, Report(), StepResult(), 1.0, 2.0).lag is None


@pytest.mark.parametrize(
    "info",
    [
        {"mtime": 1_700_000_000.5},
        {"LastModified": dt.datetime(2023, 11, 14, 22, 13, 20, 500_000, dt.timezone.utc)},
        {"last_modified": dt.datetime(2023, 11, 14, 22, 13, 20, 500_000)},
        {"updated": "2023-11-14T22:13:20.500Z"},
    ],
)
def test_every_storage_says_when_an_object_was_written(info: dict[str, object]) -> None:
    assert modified_of(info) == 1_700_000_000.5


@pytest.mark.parametrize("info", [{}, {"updated": "some time ago"}])
def test_a_storage_without_modification_times_is_believed(info: dict[str, object]) -> None:
    assert modified_of(info) == 0.0


def test_a_listing_has_when_files_and_checkpoint_were_written() -> None:
    config = Case("N_filtered_ddl").config("csv-ts")
    listing = config.settings().open_source().listing()
    written = {file.path: (config.bucket() / file.path).stat().st_mtime for file in listing.data_files}
    assert {file.path: file.modified for file in listing.data_files} == written
    assert listing.published == (config.bucket() / "metadata").stat().st_mtime


def test_a_file_is_the_same_file_whenever_the_storage_got_it() -> None:
    first, second = (DataFile("f", "shop/orders", 5, "d", 1, 1, modified=moment) for moment in (1.0, 2.0))
    assert len({first, second}) == 1


def test_the_newest_change_of_a_window_is_not_above_it() -> None:
    config = Case("N_filtered_ddl").config("csv-ts")
    source = config.settings().open_source()
    planned = plan(source.listing(), {}, TABLE_RULES)
    step = next(step for step in planned.steps if isinstance(step, ApplyRows) and step.files)
    every = decode_window(step, source.reader).report.newest
    assert every is not None
    half = dataclasses.replace(step, hi=every[0] - 1)
    newest = decode_window(half, source.reader).report.newest
    assert newest is None or newest[0] < every[0] <= step.hi


# --- lag targets and owners -------------------------------------------------------------------------------------------


def test_the_first_pattern_that_fits_gives_a_tables_lag_target() -> None:
    targets = {"shop.orders": 60, "shop.*": 600}
    settings = ChangefeedSettings(
        sink_uri=SecretStr("/feed?protocol=csv"), lag_targets=targets, lag_target_seconds=6000
    )
    names = ("shop.orders", "shop.items", "bank.t")
    lag_targets = [settings.lag_target_of(TableId(*name.split("."))) for name in names]
    assert lag_targets == [60, 600, 6000]


@pytest.mark.parametrize("owner", ["ann", "team:", "@x.org", "ann@host"])
def test_an_owner_that_nobody_can_reach_is_refused(owner: str) -> None:
    with pytest.raises(BadSettings, match="not an owner"):
        ChangefeedSettings(sink_uri=SecretStr("/feed?protocol=csv"), owners=(owner,))


# --- row arithmetic ---------------------------------------------------------------------------------------------------


def test_rows_that_add_up_are_no_mismatch() -> None:
    assert account().mismatch == ""


@pytest.mark.parametrize("wrong", [{"rows_after": 12}, {"rows_before": 9}, {"deleted": 0}, {"entering": 4}])
def test_rows_that_do_not_add_up_are_reported_with_what_to_do(wrong: dict[str, int]) -> None:
    sentence = account(**wrong).mismatch
    assert "shop.orders@5" in sentence
    assert "rebuild the table" in sentence


@pytest.mark.parametrize("unknown", [{"rows_after": None}, {"rows_before": None}, {"entering": None}])
def test_what_is_not_known_is_no_mismatch(unknown: dict[str, None]) -> None:
    assert account(**unknown).mismatch == ""


# --- in the ledger ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger("sqlite://")
    yield opened
    opened.close()


def record(ledger: Ledger, metrics: WindowMetrics) -> None:
    ledger.record_files("feed", LIFE, [FileStats(f"f{metrics.hi}", 1, "", 1, 1, metrics.hi)], "run", 1, metrics)


def test_an_account_is_read_back_as_it_was_written() -> None:
    metrics = account(lag=lag_between(100 * SECOND, 0.0, 105.0, 110.0))
    assert parse_metrics(format_metrics(metrics)) == metrics


def test_the_newest_account_is_kept_and_every_one_that_does_not_add_up(ledger: Ledger) -> None:
    for hi, after in ((9, 11), (19, 12), (29, 11), (39, 11)):
        record(ledger, account(hi=hi, rows_after=after))
    assert [metrics.hi for metrics in ledger.accounts("feed")[str(LIFE)]] == [19, 39]


def test_a_window_that_is_committed_again_is_kept_once(ledger: Ledger) -> None:
    record(ledger, account(rows_after=12))
    record(ledger, account())
    assert ledger.accounts("feed") == {str(LIFE): (account(),)}


def test_a_rebuilt_table_has_a_clean_slate(ledger: Ledger) -> None:
    record(ledger, account(rows_after=12))
    ledger.remove_accounts("feed", LIFE)
    assert ledger.accounts("feed") == {}
