"""A storage that fails: passing faults are waited out, lasting ones leave every table at a complete window."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BucketMissing, CdcError, LakeUnavailable, MetadataMissing, Retryable, StorageUnavailable
from cdc_assets.io import storage
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import StepResult
from cdc_assets.model.steps import ApplyRows
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import REPLANS, Pipeline
from cdc_assets.report.as_json import outcome_json
from cdc_assets.settings.config import from_flags
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.changefeed import open_changefeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.mutations import Mutant
from cdc_assets_tests.replay import compare
from cdc_assets_tests.trial_storage import SECRET, TrialStorage

CONFIGS = {str(config): config for case in cases() for config in case.configs}
FEED = CONFIGS["L_crash/csv-ts"]
CHANGES = CONFIGS["B_ddl_columns/csv-ts"]


class SlowDown(Exception):
    """What an object store answers to too many requests."""


SlowDown.__module__ = "botocore.exceptions"


def open_pipeline(
    config: Config, lake: MemoryLake, bucket: Path | None = None, ledger: Ledger | None = None
) -> Pipeline:
    settings = config.settings(bucket)
    return Pipeline(settings, TrialStorage.changefeed(settings), lake, ledger or Ledger("sqlite://"))


def wrong(config: Config, lake: MemoryLake, outcome: Outcome) -> list[str]:
    expected = config.checkpoints[-1].expected
    assert expected is not None
    return compare(config, expected, lake, outcome)


@pytest.fixture(autouse=True)
def _begin() -> None:
    TrialStorage.begin()


# --- faults that pass -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("connection reset"), TimeoutError(), SlowDown("Please reduce your rate")])
@pytest.mark.parametrize("times", [1, 3])
def test_every_call_may_fail_a_few_times(error: Exception, times: int) -> None:
    met: Counter[tuple[str, str]] = Counter()

    def fault(verb: str, path: str) -> Exception | None:
        met[verb, path] += 1
        return error if met[verb, path] <= times else None

    TrialStorage.fault = fault
    lake = MemoryLake()
    outcome = open_pipeline(FEED, lake).apply()
    assert outcome.complete
    assert wrong(FEED, lake, outcome) == []
    assert min(met.values()) > times


def _opener(pipeline: Pipeline) -> storage.Opener:
    assert isinstance(pipeline.source, StorageSink)
    return pipeline.source.opener


def test_attempts_have_pauses_between_them_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    pipeline = open_pipeline(FEED, MemoryLake())
    TrialStorage.fault = lambda verb, path: OSError("down")
    opener = _opener(pipeline)
    patient = type(opener)(opener.protocol, opener.prefix, opener.uri, opener.options)
    with pytest.raises(StorageUnavailable):
        patient.read("x")
    assert slept == sorted(slept) == list(storage.PAUSES_SECONDS)
    assert len(TrialStorage.calls) == len(slept) + 1


# --- faults that last -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "attempts"), [(OSError("disk on fire"), 4), (SlowDown("rate"), 4), (PermissionError("denied"), 1)]
)
def test_a_file_that_cannot_be_read_fails_its_table_and_no_other(error: Exception, attempts: int) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    TrialStorage.fault = lambda verb, path: error if verb == "read" and path.startswith("crash/a/4") else None
    outcome = open_pipeline(FEED, lake, ledger=ledger).apply()
    (failed,) = [table for table in outcome.tables if table.state != "applied"]
    assert str(failed.name) == "crash.a"
    assert failed.state == "failed"
    assert "s3://bucket/feed/crash/a/4" in failed.reason
    assert failed.through < outcome.checkpoint
    tries = Counter(path for path in TrialStorage.reads() if path.startswith("crash/a/4"))
    assert set(tries.values()) == {attempts}
    TrialStorage.begin()
    outcome = open_pipeline(FEED, lake, ledger=ledger).apply()
    assert wrong(FEED, lake, outcome) == []


class TroubledLake(MemoryLake):
    """A lake that does not take the first windows, before or after they are written."""

    def __init__(self, faults: int, table: str, after: bool = False) -> None:
        super().__init__()
        self.faults, self.table, self.after = faults, table, after

    def commit(self, step: ApplyRows, staged: Any) -> StepResult:
        troubled = self.faults > 0 and str(step.life.born_as) == self.table
        self.faults -= troubled
        result = super().commit(step, staged) if self.after or not troubled else None
        if troubled:
            raise LakeUnavailable(f"{step.life}: the catalog did not answer")
        assert result is not None
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_lake_that_fails_a_few_times_is_waited_for_within_the_run(after: bool, no_pauses: list[float]) -> None:
    lake = TroubledLake(REPLANS, "crash.a", after)
    outcome = open_pipeline(FEED, lake).apply()
    assert outcome.complete
    assert wrong(FEED, lake, outcome) == []
    assert no_pauses
    assert no_pauses == sorted(set(no_pauses))


def test_a_lake_that_keeps_failing_fails_its_table_and_no_other(no_pauses: list[float]) -> None:
    lake = TroubledLake(1000, "crash.a")
    outcome = open_pipeline(FEED, lake).apply()
    (failed,) = [table for table in outcome.tables if table.state != "applied"]
    assert (str(failed.name), failed.state) == ("crash.a", "failed")
    assert "the catalog did not answer" in failed.reason
    lake.faults = 0
    assert wrong(FEED, lake, open_pipeline(FEED, lake).apply()) == []


@pytest.mark.parametrize("verb", ["list", "read"])
def test_a_storage_that_is_away_changes_nothing_and_says_so(verb: str) -> None:
    lake = MemoryLake()
    TrialStorage.fault = lambda v, path: OSError("no route to host") if v == verb else None
    with pytest.raises(Retryable, match="s3://bucket/feed"):
        open_pipeline(FEED, lake).apply()
    assert lake.tables == {}


def test_a_storage_that_goes_away_at_any_call_leaves_complete_windows(tmp_path: Path) -> None:
    """Cut the line at each call in turn; what stands then is what a run that never reads further would show."""
    for state in Mutant(CHANGES, (), 0, tmp_path).states():
        bucket = state.bucket
        break
    open_pipeline(CHANGES, MemoryLake(), bucket).apply()
    calls = len(TrialStorage.calls)
    for limit in range(2, calls, max(1, calls // 12)):
        TrialStorage.begin()
        lake, ledger = MemoryLake(), Ledger("sqlite://")
        TrialStorage.fault = lambda verb, path, limit=limit: OSError("cut") if len(TrialStorage.calls) > limit else None
        try:
            outcome = open_pipeline(CHANGES, lake, bucket, ledger).apply()
            stopped = [table for table in outcome.tables if table.state == "failed"]
            assert all(table.through <= outcome.checkpoint for table in stopped)
        except StorageUnavailable:
            assert lake.tables == {}
        TrialStorage.begin()
        outcome = open_pipeline(CHANGES, lake, bucket, ledger).apply()
        assert state.checkpoint.expected is not None
        assert compare(CHANGES, state.checkpoint.expected, lake, outcome) == []


def test_metadata_that_may_not_be_read_is_a_matter_of_setup() -> None:
    TrialStorage.fault = lambda verb, path: PermissionError("denied")
    with pytest.raises(BucketMissing, match="credentials"):
        open_pipeline(FEED, MemoryLake()).apply()


def test_metadata_that_is_half_written_is_read_again(tmp_path: Path) -> None:
    for state in Mutant(FEED, (), 0, tmp_path).states():
        bucket = state.bucket
    whole = (bucket / "metadata").read_bytes()

    def heal(verb: str, path: str) -> None:
        if path == "metadata" and TrialStorage.reads().count("metadata") == 2:
            (bucket / "metadata").write_bytes(whole)

    (bucket / "metadata").write_bytes(whole[:9])
    TrialStorage.fault = heal
    assert open_pipeline(FEED, MemoryLake(), bucket).apply().complete
    (bucket / "metadata").write_bytes(whole[:9])
    with pytest.raises(MetadataMissing, match="checkpoint-ts"):
        open_pipeline(FEED, MemoryLake(), bucket).apply()


# --- what must not be shown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["metadata", "list", "data", "schema"])
@pytest.mark.parametrize("kind", [OSError, PermissionError, SlowDown])
def test_credentials_never_appear(
    place: str,
    kind: type[Exception],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    error = kind(f"GET https://host/?X-Amz-Credential={SECRET} failed")

    def fault(verb: str, path: str) -> Exception | None:
        at = {
            "metadata": path == "metadata",
            "list": verb == "list",
            "data": path.endswith(".csv"),
            "schema": "/meta/schema_" in path,
        }
        return error if at[place] else None

    TrialStorage.fault = fault
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    pipeline = open_pipeline(FEED, MemoryLake(), ledger=ledger)
    outputs = [repr(_opener(pipeline)), repr(pipeline.settings)]
    try:
        outcome = pipeline.apply()
        outputs += [json.dumps(outcome_json("default", outcome), default=str), repr(outcome)]
    except CdcError as caught:
        outputs += [str(caught), repr(caught), repr(caught.where), repr(caught.__cause__), repr(caught.args)]
    ledger.close()
    outputs += [caplog.text, *capfd.readouterr()]
    assert not [text for text in outputs if SECRET in text]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


def test_parameters_of_the_sink_uri_never_appear() -> None:
    uri = f"s3://bucket/feed?protocol=csv&access-key=AKIA{SECRET}&secret-access-key={SECRET}&session-token={SECRET}"
    (given,) = from_flags(sink_uri=uri, accept_unordered=True).changefeeds
    feed = open_changefeed(given)
    outputs = [repr(given), str(given), given.model_dump_json(), given.uri, repr(feed.opener), str(feed.opener)]
    outputs.append(feed.opener.redacted(OSError(f"signed with {SECRET}")))
    assert not [text for text in outputs if SECRET in text]
