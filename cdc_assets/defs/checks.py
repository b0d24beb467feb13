"""Checks on the changefeed as a whole: its conformance, tables on hold, records in quarantine.

They stand on the asset of the bucket, can be run by hand, and are reported by every run that catches tables up. None of
them blocks: what must not be written is stopped before, table by table.
"""

import warnings
from collections.abc import Sequence

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.conformance import Finding, Severity
from cdc_assets.defs.resources import Source
from cdc_assets.opening import TableStatus, conformance_report, lake_status

__all__ = ["CHECKS", "changefeed_checks", "conformance_result", "holds_result", "quarantine_result", "standing"]

CHECKS = ("conformance", "holds", "quarantine")


def changefeed_checks(source: Source) -> list[dg.AssetChecksDefinition]:
    """Return the three checks of a changefeed."""
    bucket = dg.AssetKey([source.changefeed.name, "bucket"])

    @dg.asset_check(asset=bucket, name="conformance", description="The changefeed writes what can be kept equal.")
    def conformance(s3: S3Resource) -> dg.AssetCheckResult:
        return conformance_result(conformance_report(source.with_credentials(s3)))

    @dg.asset_check(asset=bucket, name="holds", description="No table is on hold.")
    def holds() -> dg.AssetCheckResult:
        return holds_result(standing(source))

    @dg.asset_check(asset=bucket, name="quarantine", description="No record waits in quarantine.")
    def quarantine() -> dg.AssetCheckResult:
        return quarantine_result(standing(source))

    return [conformance, holds, quarantine]


def standing(source: Source) -> list[TableStatus]:
    """Return the state of the changefeed's tables after the last run; none before the first."""
    directory = source.lake.local_directory
    if directory is not None and not directory.is_dir():
        return []
    return [row for row in lake_status(source.lake) if row.changefeed == source.changefeed.name]


def conformance_result(findings: Sequence[Finding]) -> dg.AssetCheckResult:
    """Fail for what stops or holds tables, warn for the rest; each finding says what to do."""
    grave = [finding for finding in findings if finding.severity is not Severity.WARNING]
    metadata = {"findings": dg.MetadataValue.md("\n".join(f"- {finding.text}" for finding in findings) or "none")}
    return _result("conformance", not findings, metadata, error=bool(grave))


def holds_result(tables: Sequence[TableStatus]) -> dg.AssetCheckResult:
    """Fail while a table is held or failed, with its reason and the ways out."""
    stopped = [table for table in tables if table.state in ("held", "failed")]
    metadata = {
        table.table: dg.MetadataValue.md("\n".join([table.reason, "", *(f"- {way}" for way in table.ways)]))
        for table in stopped
    }
    return _result("holds", not stopped, metadata, error=True)


def quarantine_result(tables: Sequence[TableStatus]) -> dg.AssetCheckResult:
    """Fail while records wait in quarantine; `cdc-assets quarantine` lists and replays them."""
    waiting = {table.table: table.quarantined for table in tables if table.quarantined}
    metadata = {name: dg.MetadataValue.int(count) for name, count in waiting.items()}
    return _result("quarantine", not waiting, metadata, error=True)


def _result(
    name: str, passed: bool, metadata: dict[str, dg.MarkdownMetadataValue] | dict[str, dg.IntMetadataValue], error: bool
) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckResult(check_name=name, passed=passed, severity=severity, metadata={**metadata})
