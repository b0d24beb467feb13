"""Checks on the changefeed as a whole and on each of its lake tables. Every failing one says what to do next.

    on the bucket       conformance, completeness (files missing, changed, vanished), holds, quarantine
    on a lake table     holds (it is neither held nor failed), row_arithmetic (before + inserted - deleted = after),
                        initial_rows (those from before the changefeed exist), freshness (against its own lag target),
                        equals_source (when it was last compared), keeps_up (it does not fall behind), states (of a
                        table of all states: they do not overlap, and those that are open are the mirror's rows)
    on a dml partition  column_types: the one that gates the write, see `assets`

All can be run by hand, and are reported by every run that applies something: by the catch-up run of the sensor and by a
partition's run alike. None of these blocks: wrong rows are stopped before they are written, table by table.

Dagster's own freshness policies look at the last materialization, so a table without new rows would be called late;
here a table is as fresh as the TSO through which everything is applied.
"""

import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.names import check_output, feed_key, lake_key, shown
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.features.kinds.planning import source_of
from cdc_assets.features.verification.report import comparison_lines
from cdc_assets.model.comparison import DIFFERENT, EQUAL, REPAIRED, TableComparison
from cdc_assets.model.findings import ABOUT_FILES, Finding, Severity
from cdc_assets.model.forecast import Forecast, Pace, forecast
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, seconds_behind, seconds_between, tso_time
from cdc_assets.model.window_metrics import WindowMetrics
from cdc_assets.model.wording import counted, reason_of, seconds_text
from cdc_assets.operations.inspect import conformance_report
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.planning.plan import Plan
from cdc_assets.report.findings import group_text, grouped
from cdc_assets.report.tables import TableStatus
from cdc_assets.report.text import options_lines

COLUMN_TYPES = "column_types"
"""Name of the check of a partition that gates the write."""

CHECKS = ("conformance", "completeness", "holds", "quarantine")
"""Names of the checks on the bucket's asset."""
_SHOWN_STOPS = 10
"""Number of stopped tables that the description of the bucket's check shows with their reasons."""

HOLDS, FRESHNESS, ARITHMETIC, INITIAL_ROWS = "holds", "freshness", "row_arithmetic", "initial_rows"
EQUALS_SOURCE, KEEPS_UP, STATES = "equals_source", "keeps_up", "states"

_LOOKED_AT = 1_000_000
"""Changes of a run whose states are looked at; those of more are left to maintenance."""


def changefeed_checks(source: ConfiguredFeed, specs: Sequence[dg.AssetCheckSpec]) -> list[dg.AssetChecksDefinition]:
    """Return the checks of a changefeed, and those of lake tables that `specs` names (see `table_specs`)."""
    bucket = feed_key(source.changefeed)

    @dg.asset_check(
        asset=bucket, name="conformance", description="Fails for what the changefeed writes and cannot be followed."
    )
    def conformance(s3: S3Resource) -> dg.AssetCheckResult:
        return conformance_result(source, conformance_report(source.with_credentials(s3), source.lake))

    @dg.asset_check(
        asset=bucket, name="completeness", description="Fails for files that are missing, changed or vanished unread."
    )
    def completeness(s3: S3Resource) -> dg.AssetCheckResult:
        with source.pipeline(s3) as pipeline:
            return completeness_result(source, pipeline.status().findings)

    @dg.asset_check(asset=bucket, name=HOLDS, description="Fails while a table is held or failed.")
    def holds() -> dg.AssetCheckResult:
        return holds_result(source, standing(source))

    @dg.asset_check(asset=bucket, name="quarantine", description="Fails while records are in quarantine.")
    def quarantine() -> dg.AssetCheckResult:
        return quarantine_result(source, standing(source))

    return [conformance, completeness, holds, quarantine, *_table_checks(source, specs)]


def _table_checks(source: ConfiguredFeed, specs: Sequence[dg.AssetCheckSpec]) -> list[dg.AssetChecksDefinition]:
    if not specs:
        return []
    # Dagster's own decorator would name them after the asset keys, which not every table's name allows.
    outputs = {check_output(spec.asset_key, spec.name): spec for spec in specs}
    inputs = {check_output(spec.asset_key): spec.asset_key for spec in specs}

    @dg.op(
        name=f"{source.group}_lake_tables",
        ins={name: dg.In(dg.Nothing) for name in inputs},
        out={name: dg.Out(None, is_required=False) for name in outputs},
    )
    def lake_tables(context: dg.AssetCheckExecutionContext, s3: S3Resource) -> Iterator[dg.AssetCheckResult]:
        selected_keys = context.selected_asset_check_keys
        with source.pipeline(s3) as pipeline:
            outcome = pipeline.status()
            results = list(table_results(source, pipeline, outcome.tables, outcome.plan, time.time()))
        for result in results:
            assert result.asset_key is not None
            assert result.check_name is not None
            if dg.AssetCheckKey(result.asset_key, result.check_name) in selected_keys:
                yield result

    return [
        dg.AssetChecksDefinition.create(
            keys_by_input_name=inputs, node_def=lake_tables, check_specs_by_output_name=outputs, can_subset=True
        )
    ]


def table_specs(source: ConfiguredFeed, table: TableId) -> Iterator[dg.AssetCheckSpec]:
    """Yield the checks of one lake table. Each description says when the check fails, as the UI shows it then, too."""
    yield dg.AssetCheckSpec(
        HOLDS,
        asset=lake_key(source.changefeed, table),
        description="Fails while the table is held or failed: it does not go on until that is decided or mended.",
    )
    yield dg.AssetCheckSpec(
        ARITHMETIC,
        asset=lake_key(source.changefeed, table),
        description="Fails for a window whose rows before plus inserted minus deleted are not its rows after.",
    )
    yield dg.AssetCheckSpec(
        INITIAL_ROWS,
        asset=lake_key(source.changefeed, table),
        description="Fails while the table is incomplete: it lacks rows from before its changefeed began, until they "
        "are imported or a person says that there were none.",
    )
    yield dg.AssetCheckSpec(
        KEEPS_UP,
        asset=lake_key(source.changefeed, table),
        description="Fails while the table falls behind: its runs apply less than comes.",
    )
    if source.changefeed.verify.source is not None:
        yield dg.AssetCheckSpec(
            EQUALS_SOURCE,
            asset=lake_key(source.changefeed, table),
            description="Fails if it differed from its source when it was last compared; warns if that is long ago.",
        )
    beside = source_of(source.changefeed.history_rules, table)
    if beside is not None and keeps_states(beside[1]):
        yield dg.AssetCheckSpec(
            STATES,
            asset=lake_key(source.changefeed, table),
            description="Fails where states of a row overlap, or those that are open are not the rows of the mirror: "
            "on the keys of a run's windows, and of all rows in maintenance.",
        )
    target = source.changefeed.lag_target_of(table)
    if target is not None:
        description = f"Fails while not everything is applied through {seconds_text(target)} ago."
        yield dg.AssetCheckSpec(FRESHNESS, asset=lake_key(source.changefeed, table), description=description)


def evaluations(
    source: ConfiguredFeed, pipeline: LakePipeline, outcome: Outcome, touched: Collection[Life] | None = None
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield a run's check results: all checks of the changefeed, and those of the lake tables that it touched.

    Without `touched` these are the tables of the outcome that had a step or stopped.
    """
    bucket = feed_key(source.changefeed)
    tables = standing(source)
    for result in (
        conformance_result(source, outcome.findings),
        completeness_result(source, outcome.findings),
        holds_result(source, tables),
        quarantine_result(source, tables),
    ):
        yield evaluation(bucket, result)
    if touched is None:
        touched = {table.life for table in outcome.tables if table.steps or table.error or table.state.stopped}
    moved = [table for table in outcome.tables if table.life in touched]
    for result in table_results(source, pipeline, moved, outcome.plan, time.time()):
        assert result.asset_key is not None
        yield evaluation(result.asset_key, result)
    fresh = {finding.table for finding in outcome.new_findings if finding.rule == "history-off"}
    for life in outcome.plan.idle:
        name = outcome.plan.applied[life].name
        if name is not None and str(name) in fresh:  # it may have been held when the settings left it out
            key = lake_key(source.changefeed, name)
            yield evaluation(key, _result(HOLDS, True, {}, True, f"Frozen: {NOT_ASKED_FOR}", key))


def evaluation(key: dg.AssetKey, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    """Return a check's result as the event that a run or a sensor logs."""
    assert result.check_name is not None
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=result.check_name,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
        description=result.description,
    )


# --- the changefeed ---------------------------------------------------------------------------------------------------


def standing(source: ConfiguredFeed) -> list[TableStatus]:
    """Return the state of the changefeed's tables after the last run; none before the first."""
    directory = source.lake.local_directory
    if directory is not None and not directory.is_dir():
        return []
    return lake_status(source.lake, source.changefeed.name)


def conformance_result(source: ConfiguredFeed, findings: Sequence[Finding]) -> dg.AssetCheckResult:
    """Fail for what stops or holds tables, warn for the rest; each finding says what to do."""
    feed_findings = [finding for finding in findings if finding.rule not in (*ABOUT_FILES, "missing-files")]
    grave = [finding for finding in feed_findings if finding.severity is not Severity.WARNING]
    return _result(
        "conformance",
        not feed_findings,
        {"findings": _points(map(group_text, grouped(feed_findings)))},
        error=bool(grave),
        description=_with_options(source, _first(feed_findings, "Everything the changefeed writes can be followed.")),
    )


def completeness_result(source: ConfiguredFeed, findings: Sequence[Finding]) -> dg.AssetCheckResult:
    """Fail for files that are missing or vanished, warn for those that changed; each finding says what to do."""
    file_findings = [finding for finding in findings if finding.rule in ABOUT_FILES]
    metadata: dict[str, Any] = {rule: sum(finding.rule == rule for finding in file_findings) for rule in ABOUT_FILES}
    return _result(
        "completeness",
        not file_findings,
        {**metadata, "findings": _points(map(group_text, grouped(file_findings)))},
        error=any(finding.rule != "files-changed" for finding in file_findings),
        description=_with_options(source, _first(file_findings, "Nothing is missing, changed or vanished unread.")),
    )


def holds_result(source: ConfiguredFeed, tables: Sequence[TableStatus]) -> dg.AssetCheckResult:
    """Fail while a table is held or failed, with its reason.

    The ways out are in the metadata, which a run's log has behind a link: it shows them in the table's own check.
    """
    stopped = [table for table in tables if table.state.stopped]
    texts: dict[str, list[str]] = {}
    for table in stopped:
        texts.setdefault(table.table, []).append(_stop_text(table.reason, table.ways))
    metadata = {
        name: dg.MetadataValue.md(_with_options(source, "\n\n".join(of_name))) for name, of_name in texts.items()
    }
    shown_texts = [reason_of([table.table], table.reason) for table in stopped[:_SHOWN_STOPS]]
    if len(stopped) > _SHOWN_STOPS:
        shown_texts.append(f"{counted(len(stopped) - _SHOWN_STOPS, 'more table')}.")
    go_on = "The metadata has the ways out. The other tables go on."
    description = "\n\n".join([*shown_texts, go_on]) if stopped else "No table is on hold."
    return _result("holds", not stopped, metadata, error=True, description=description)


def _with_options(source: ConfiguredFeed, description: str) -> str:
    """Return a description with the options for its commands below it, where it has some."""
    return "\n\n".join([description, *options_lines([description], source.command_options)])


def _stop_text(reason: str, ways: Iterable[str]) -> str:
    """Return the reason why a table stopped, and the ways out as a list, in Markdown, as Dagster wants it."""
    return "\n".join([reason, "", *(f"- {way}" for way in ways)]).rstrip()


def quarantine_result(source: ConfiguredFeed, tables: Sequence[TableStatus]) -> dg.AssetCheckResult:
    """Fail while records are in quarantine; `cdc-assets quarantine` lists and replays them."""
    waiting: Counter[str] = Counter()  # names with dots may read alike
    for table in tables:
        waiting.update({table.table: table.quarantined} if table.quarantined else {})
    metadata = {name: dg.MetadataValue.int(count) for name, count in waiting.items()}
    description = (
        f"in quarantine: {counted(sum(waiting.values()), 'record')} of {', '.join(waiting)}. `cdc-assets quarantine` "
        "lists them with their reasons, `cdc-assets quarantine --replay` applies them once the cause is fixed."
        if waiting
        else "No record is in quarantine."
    )
    return _result("quarantine", not waiting, metadata, error=True, description=_with_options(source, description))


# --- lake tables ------------------------------------------------------------------------------------------------------


def table_results(
    source: ConfiguredFeed, pipeline: LakePipeline, tables: Iterable[TableOutcome], planned: Plan, now: float
) -> Iterator[dg.AssetCheckResult]:
    """Yield the results for lake tables as of `now`, seconds since 1970. Dropped tables have none."""
    accounts = pipeline.ledger.accounts(source.changefeed.name)
    verify = source.changefeed.verify
    comparisons = pipeline.ledger.comparisons(source.changefeed.name) if verify.source is not None else {}
    points = {state.life: state.points for state in pipeline.ledger.states().get(source.changefeed.name, ())}
    for table in tables:
        if table.state is State.DROPPED:
            continue
        key = lake_key(source.changefeed, table.name)
        yield table_holds_result(source, key, table)
        yield arithmetic_result(key, accounts.get(str(table.life), ()))
        yield initial_rows_result(source, key, table)
        target = source.changefeed.lag_target_of(table.name)
        yield keeps_up_result(key, forecast(points.get(str(table.life), ()), planned.checkpoint, now, target))
        if verify.source is not None:
            yield equality_result(key, comparisons.get(table.name), table.through, verify.stale_days)
        if keeps_states(table.life.kind) and table.life in pipeline.lake.applied():
            yield _looked_at(key, pipeline, table, planned, accounts.get(str(table.life), ()))
        fresh = freshness_of(source, table, planned.checkpoint, now)
        if fresh is not None:
            yield fresh.result()


def table_holds_result(source: ConfiguredFeed, key: dg.AssetKey, table: TableOutcome) -> dg.AssetCheckResult:
    """Fail for a table that is held or failed, with its reason and the ways out."""
    stopped = table.state.stopped
    description = _stop_text(table.reason, table.ways) if stopped else "The table is neither held nor failed."
    description = _with_options(source, description)
    return _result(HOLDS, not stopped, {}, error=True, description=description, asset_key=key)


def arithmetic_result(key: dg.AssetKey, accounts: Sequence[WindowMetrics]) -> dg.AssetCheckResult:
    """Fail while the ledger has a window whose rows do not add up; it is removed when the table is rebuilt."""
    wrong = [account.mismatch for account in accounts if account.mismatch]
    metadata: dict[str, Any] = {}
    if accounts:
        last = accounts[-1]
        numbers = ("rows_before", "inserted", "updated", "deleted", "rows_after")
        last_numbers = {name: getattr(last, name) for name in numbers}
        metadata = {name: dg.MetadataValue.int(number) for name, number in last_numbers.items() if number is not None}
        metadata["window"] = f"{last.lo} < position <= {last.hi}"
    if wrong:
        metadata["windows that do not add up"] = _points(wrong)
    description = wrong[0] if wrong else "The rows of every window add up."
    return _result(ARITHMETIC, not wrong, metadata, error=True, description=description, asset_key=key)


def initial_rows_result(source: ConfiguredFeed, key: dg.AssetKey, table: TableOutcome) -> dg.AssetCheckResult:
    """Fail while rows are missing, unless a person said that there were none, or let the table go on without them."""
    metadata = {"incomplete_since": str(table.gap.since)} if table.gap is not None else {}
    description = _with_options(source, table.incomplete or "No rows from before the changefeed are missing.")
    passed = table.gap is None or table.gap.accepted
    return _result(INITIAL_ROWS, passed, metadata, error=True, description=description, asset_key=key)


def keeps_up_result(key: dg.AssetKey, expected: Forecast) -> dg.AssetCheckResult:
    """Fail for a table that falls behind; its metadata say when one that catches up will have done so."""
    numbers = {"rate": expected.rate, "slowest_rate": expected.slowest, "fastest_rate": expected.fastest,
               "lag_seconds": expected.lag_seconds, "caught_up_in_seconds": expected.seconds,
               "at_the_soonest_in_seconds": expected.soonest, "at_the_latest_in_seconds": expected.latest}  # fmt: skip
    metadata = {name: dg.MetadataValue.float(value) for name, value in numbers.items() if value is not None}
    passed = expected.pace != Pace.FALLING_BEHIND
    sentence = f"The table {expected.sentence}." if expected.sentence else f"The table's pace: {expected.pace}."
    if not passed:
        sentence += " Raise runs_at_once and run_tables, give the run more cores, or let it run on executors (decode)."
    return _result(KEEPS_UP, passed, {"pace": expected.pace, **metadata}, False, sentence, key)


def _looked_at(
    key: dg.AssetKey, pipeline: LakePipeline, table: TableOutcome, planned: Plan, accounts: Sequence[WindowMetrics]
) -> dg.AssetCheckResult:
    """Look at the states of a run's windows, or of the newest one."""
    windows = table.accounts or accounts[-1:]
    if sum(window.changes for window in windows) > _LOOKED_AT:
        return states_result(key, "", "Too many are new to look at them: maintenance does.")
    since = min((window.lo for window in windows), default=table.through)
    return states_result(key, pipeline.lake.look_at_states(table.life, since, planned.history.lives[table.life].schema))


def states_result(key: dg.AssetKey, fault: str, passed: str = "") -> dg.AssetCheckResult:
    """Fail for states that overlap, or do not lead to the mirror; `fault` names the first keys."""
    sentence = fault or passed or "The states that were looked at do not overlap, and lead to the rows of the mirror."
    return _result(STATES, not fault, {}, error=True, description=sentence, asset_key=key)


def equality_result(
    key: dg.AssetKey, comparison: TableComparison | None, through: Tso, stale_days: float
) -> dg.AssetCheckResult:
    """Fail for a table that differed from its source, or was not compared since it was applied `stale_days` before."""
    if comparison is None:
        return _result(EQUALS_SOURCE, False, {}, False, f"It was never compared with its source. {_COMPARE}", key)
    names = ("lake_rows", "source_rows", "missing", "extra", "differing")
    metadata: dict[str, Any] = {name: dg.MetadataValue.int(getattr(comparison, name)) for name in names}
    metadata |= {
        "compared_as_of": tso_time(comparison.at) if comparison.at else "the present",
        "seconds": comparison.seconds,
    }
    metadata |= {"losses": dict(comparison.losses), "left_out": dict(comparison.left_out)}
    behind = seconds_between(comparison.through, through)
    is_stale = behind > stale_days * 86400
    sentence = next(comparison_lines(replace(comparison, rows=())))
    if is_stale:
        sentence = f"It is applied {seconds_text(behind)} further than when it was compared. {_COMPARE} {sentence}"
    passed = comparison.state in (EQUAL, REPAIRED) and not is_stale
    return _result(EQUALS_SOURCE, passed, metadata, comparison.state == DIFFERENT, sentence, key)


_COMPARE = "Run the job that verifies the changefeed, or `cdc-assets verify`."


@dataclass(frozen=True, slots=True)
class Freshness:
    """Lag of a table in seconds: the present minus the TSO through which everything is applied."""

    key: dg.AssetKey
    table: TableId
    age_seconds: float
    target_seconds: int
    through: Tso
    checkpoint: Tso
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Return whether the table keeps its lag target."""
        return self.age_seconds <= self.target_seconds

    @property
    def sentence(self) -> str:
        """Describe how late the table is, why, and what to do."""
        behind = (
            f"{shown(self.table)} is applied through {tso_time(self.through) if self.through > 0 else 'nothing yet'}: "
            f"{seconds_text(self.age_seconds)} behind the present, its target is {seconds_text(self.target_seconds)}."
        )
        if self.passed:
            return behind
        if self.reason:
            return f"{behind} It is stopped: {self.reason}"
        if self.through >= self.checkpoint:
            return (
                f"{behind} All that the changefeed has published is applied, so its checkpoint does not advance: check "
                "the changefeed (`cdc cli changefeed query`) and its access to the bucket."
            )
        return (
            f"{behind} The changefeed has published more: check that the sensor is on, that runs neither wait in the "
            "queue nor fail, and that they suffice for the load (settings runs_at_once, run_tables)."
        )

    def result(self) -> dg.AssetCheckResult:
        """Return this as a check's result."""
        metadata: dict[str, Any] = {
            "age_seconds": dg.MetadataValue.float(self.age_seconds),
            "target_seconds": dg.MetadataValue.int(self.target_seconds),
            "applied_time": tso_time(self.through) if self.through > 0 else "",
        }
        return _result(FRESHNESS, self.passed, metadata, True, self.sentence, self.key)


def freshness_of(
    source: ConfiguredFeed, table: TableOutcome | TableState, checkpoint: Tso, now: float
) -> Freshness | None:
    """Return the freshness of a table as of `now`, seconds since 1970; None without a target, and for a dropped or
    frozen table.

    A table to which nothing is applied yet is as old as its DDL.
    """
    target = source.changefeed.lag_target_of(table.name)
    if target is None or table.state.ended:
        return None
    age = seconds_behind(table.through or table.version, now)
    key = lake_key(source.changefeed, table.name)
    return Freshness(key, table.name, round(age, 3), target, table.through, checkpoint, table.reason)


# --- results ----------------------------------------------------------------------------------------------------------


def _points(lines: Iterable[str]) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {line}" for line in lines) or "none")


def _first(findings: Sequence[Finding], otherwise: str) -> str:
    if not findings:
        return otherwise
    first, *more_findings = grouped(findings)
    return group_text(first) + (f" ({len(more_findings)} more)" if more_findings else "")


def _result(
    name: str,
    passed: bool,
    metadata: Mapping[str, Any],
    error: bool,
    description: str,
    asset_key: dg.AssetKey | None = None,
) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckResult(
            asset_key=asset_key,
            check_name=name,
            passed=passed,
            severity=severity,
            metadata={**metadata},
            description=description,
        )
