"""What is odd about a changefeed is reported before its first row is applied, and what cannot be followed is held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.ledger import Ledger
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.setting_patterns import of_all_names
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.preflight.conformance import (
    RULES,
    SAMPLE_BYTES,
    SAMPLE_FILES,
    conformance,
    take_sample,
)
from cdc_assets.sources.changefeed_toml import EventFilter
from cdc_assets.sources.storage_sink.options import SinkOptions, sink_options
from cdc_assets.types.fidelity import column_fidelity
from cdc_assets_tests.changefeed import written
from cdc_assets_tests.operations.test_quarantine import COLUMNS, CREATE, Bucket, row
from cdc_assets_tests.schema_documents import file_column

T = TableId("shop", "orders")
ID = Column("id", "BIGINT", nullable=False, is_pk=True)
TSO = 465283339439308972
"""2026-03-30 23:58:00 UTC"""


def schema_file(
    *columns: Column, query: str = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY)", at: int = 100
) -> SchemaFile:
    kind = 3 if query.startswith("CREATE") else 5
    return SchemaFile(f"shop/orders/meta/schema_{at}_0.json", "shop/orders", T, at, query, kind, columns, 0)


def data_file(number: int = 1, date: str = "") -> DataFile:
    directory = f"shop/orders/100/{date}" if date else "shop/orders/100"
    return DataFile(f"{directory}/CDC{number:06d}.csv", "shop/orders", 100, directory, number, 10, date=date)


def findings(
    *columns: Column,
    options: SinkOptions | None = None,
    query: str = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY)",
    files: tuple[DataFile, ...] = (),
    sample: dict[str, bytes] | None = None,
    accept_unordered: bool = False,
    ignored: dict[str, int] | None = None,
    keys: tuple[str, ...] = (),
    sets_aside: bool = False,
) -> dict[str, list[Finding]]:
    """Return the findings about one table by rule; options with commit-ts and without date level unless given."""
    listing = Listing(TSO + 1, (schema_file(*(columns or (ID,)), query=query),), files, ignored=ignored or {})
    options = options or written(include_commit_ts=True, date_separator="none")
    history = read_history(listing.schema_files)
    findings_by_rule: dict[str, list[Finding]] = {}
    rules, patterns = Rules(keys=dict.fromkeys(keys, ("id",)), sets_aside=sets_aside), tuple(of_all_names("keys", keys))
    for finding in conformance(
        listing, history, options, rules, sample, patterns=patterns, accept_unordered=accept_unordered
    ):
        findings_by_rule.setdefault(finding.rule, []).append(finding)
    return findings_by_rule


def test_a_changefeed_as_it_should_be_has_no_finding() -> None:
    assert findings(files=(data_file(1), data_file(2))) == {}


def test_keys_of_no_table_are_told_and_those_of_one_are_not() -> None:
    findings_by_rule = findings(keys=("shop.order", "SHOP.Orders"))
    assert [finding.detail for finding in findings_by_rule["unmatched"]] == ["keys: shop.order (is shop.orders meant?)"]


@pytest.mark.parametrize(("accepted", "severity"), [(False, Severity.STOP), (True, Severity.WARNING)])
def test_rows_without_commit_ts_stop_unless_accepted(accepted: bool, severity: Severity) -> None:
    rule_findings = findings(options=SinkOptions(date_separator="none"), accept_unordered=accepted)["commit-ts"]
    assert [finding.severity for finding in rule_findings] == [severity]


NAMES = Column("e", "ENUM")
STAMP = Column("id", "TIMESTAMP", nullable=False, is_pk=True)
CSV: dict[str, Any] = {"include_commit_ts": True, "date_separator": "none"}
UNPARTED = {**CSV, "enable_partition_separator": False}
CANAL = {"protocol": "canal-json", "enable_tidb_extension": True, "date_separator": "none"}
NO_KEY = "CREATE TABLE `orders` (`n` INT)"
PARTITIONED = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY) PARTITION BY HASH (`id`) PARTITIONS 4"
NONCLUSTERED = "CREATE TABLE `orders` (`id` BIGINT,PRIMARY KEY (`id`) /*T![clustered_index] NONCLUSTERED */)"


@pytest.mark.parametrize(
    ("rule", "severity", "tables", "options", "columns", "query"),
    [
        ("keys", "hold", ["shop.orders"], CSV, [Column("n", "INT")], NO_KEY),
        ("keys", "warning", ["shop.orders"], {**CSV, "output_old_value": True}, [Column("n", "INT")], NO_KEY),
        ("keys", "warning", ["shop.orders"], CANAL, [Column("n", "INT")], NO_KEY),
        ("members", "hold", ["shop.orders"], CANAL, [ID, NAMES], ""),
        ("soft-delete", "hold", ["shop.orders"], CSV, [ID, Column("_tidb_softdelete_time", "TIMESTAMP")], CREATE),
        ("soft-delete", "hold", ["shop.orders"], CSV, [ID, Column("_tidb_origin_ts", "BIGINT")], CREATE),
        ("expiry", "warning", [""], {**CSV, "file_expiration_days": 3}, [ID], CREATE),
        ("table-id-paths", "warning", [""], {**CSV, "use_table_id_as_path": True}, [ID], CREATE),
        ("timestamp-key", "warning", ["shop.orders"], {**CSV, "timezone": "Europe/Berlin"}, [STAMP], ""),
        ("partition-separator", "warning", ["", "shop.orders"], UNPARTED, [ID], PARTITIONED),
        ("raw-updates", "warning", ["", "shop.orders"], {**CSV, "output_raw_change_event": True}, [ID], NONCLUSTERED),
        ("raw-updates", "warning", [""], {**CANAL, "output_raw_change_event": True}, [ID], NONCLUSTERED),
    ],
)  # fmt: skip
def test_a_risk_is_reported_with_its_table_and_what_it_does(
    rule: str, severity: str, tables: list[str], options: dict[str, Any], columns: list[Column], query: str
) -> None:
    rule_findings = findings(*columns, options=written(**options), query=query)[rule]
    assert [(finding.severity.value, finding.table) for finding in rule_findings] == [
        (severity, table) for table in tables
    ]


@pytest.mark.parametrize(
    ("rule", "options", "columns", "query"),
    [
        ("members", {**CANAL, "content_compatible": True}, [ID, NAMES], ""),
        ("members", CSV, [ID, NAMES], ""),
        ("members", CANAL, [ID, Column("e", "ENUM", elems=("a",))], ""),
        ("timestamp-key", {**CSV, "timezone": "UTC"}, [STAMP], ""),
        ("timestamp-key", {**CSV, "timezone": "Europe/Berlin"}, [ID, Column("t", "TIMESTAMP")], CREATE),
        ("raw-updates", CSV, [ID], NONCLUSTERED),
        ("partition-separator", CSV, [ID], PARTITIONED),
    ],
)
def test_no_risk_is_reported_where_there_is_none(
    rule: str, options: dict[str, Any], columns: list[Column], query: str
) -> None:
    assert rule not in findings(*columns, options=written(**options), query=query)


def test_a_number_missing_between_files_is_reported() -> None:
    (finding,) = findings(files=(data_file(1), data_file(4)))["missing-files"]
    assert "shop/orders/100 lacks 2 to 3" in finding.text


def test_a_directory_that_begins_above_1_is_reported() -> None:
    (finding,) = findings(files=(data_file(3),))["removed-files"]
    assert "shop/orders/100 begins with 3" in finding.text


def test_a_date_level_that_the_settings_do_not_have_is_reported() -> None:
    assert "date-level" in findings(files=(data_file(date="2026-03-30"),))


def test_empty_files_are_reported() -> None:
    assert findings(ignored={"empty object": 2})["empty-files"][0].detail == "2 files"


def test_bytes_that_contradict_the_settings_are_reported_before_anything_is_applied() -> None:
    file = data_file()
    rule_findings = findings(files=(file,), sample={file.path: f'"I";"orders";"shop";{TSO};1\r\n'.encode()})["decoding"]
    assert [(finding.severity, finding.table) for finding in rule_findings] == [(Severity.HOLD, "shop.orders")]
    assert 'delimiter ","' in rule_findings[0].detail


def test_a_head_that_ends_within_a_record_is_no_contradiction() -> None:
    file, whole = data_file(), f'"I","orders","shop",{TSO},1\r\n'.encode()
    assert all(
        "decoding" not in findings(files=(file,), sample={file.path: (whole * 2)[:n]}) for n in range(len(whole) * 2)
    )


@pytest.mark.parametrize(("zone", "reported"), [("UTC", False), ("America/New_York", False), ("Asia/Shanghai", True)])
def test_a_zone_in_which_a_row_is_younger_than_its_file_is_reported(zone: str, reported: bool) -> None:
    file = data_file(date="2026-03-30")
    options = written(include_commit_ts=True, timezone=zone)
    findings_by_rule = findings(
        options=options, files=(file,), sample={file.path: f'"I","orders","shop",{TSO},1\r\n'.encode()}
    )
    assert ("zone" in findings_by_rule) is reported


def test_only_heads_of_a_few_files_are_read(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    for table in range(15):
        for number in (1, 2, 3):
            bucket.data(100, number, "x" * 2 * SAMPLE_BYTES, table=f"t{table}")
    files = [
        [
            DataFile(f"shop/t{table}/100/CDC{number:020d}.csv", f"shop/t{table}", 100, f"shop/t{table}/100", number, 9)
            for number in (1, 2, 3)
        ]
        for table in range(15)
    ]
    heads = take_sample(bucket.settings().open_source(), files)
    assert len(heads) == SAMPLE_FILES
    assert {len(head) for head in heads.values()} == {SAMPLE_BYTES}
    assert sum("3.csv" in path for path in heads) == 15


@pytest.mark.parametrize(("sets_aside", "severity"), [(False, Severity.HOLD), (True, Severity.WARNING)])
def test_a_record_of_the_sample_that_does_not_fit_is_named(sets_aside: bool, severity: Severity) -> None:
    file, lines = data_file(), [f'"I","orders","shop",{TSO},{value}\r\n' for value in ("1", '"two"', '"three"')]
    (finding,) = findings(files=(file,), sample={file.path: "".join(lines).encode()}, sets_aside=sets_aside)["decoding"]
    assert (finding.severity, finding.table) == (severity, "shop.orders")
    assert f'{file.place} line 2, column "id": "two"' in finding.detail


def test_a_file_that_is_gone_is_left_out_of_the_sample(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    assert take_sample(bucket.settings().open_source(), [[data_file()]]) == {}


def test_a_soft_delete_table_is_held_with_the_reason_and_others_are_applied(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    bucket.schema(100, CREATE, 3, COLUMNS)
    soft = [*COLUMNS, file_column("_tidb_softdelete_time", "TIMESTAMP")]
    bucket.schema(100, CREATE, 3, soft, table="soft")
    bucket.data(100, 1, row("I", 110, 1, 5))
    bucket.data(100, 1, row("I", 110, 1, "5,\\N", "soft"), table="soft")
    outcome = bucket.apply(200)
    assert {str(t.name): t.state for t in outcome.tables} == {"shop.orders": "applied", "shop.soft": "held"}
    assert "soft-delete" in next(t.reason for t in outcome.tables if t.state == "held")
    assert bucket.rows() == [(1, 5)]
    assert TableId("shop", "soft") not in bucket.lake.names()


def test_rows_from_before_a_table_became_soft_deleting_are_applied(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    bucket.schema(100, CREATE, 3, COLUMNS)
    soft = [*COLUMNS, file_column("_tidb_softdelete_time", "TIMESTAMP")]
    bucket.schema(150, "ALTER TABLE `orders` ADD COLUMN `_tidb_softdelete_time` TIMESTAMP(6) NULL", 5, soft)
    bucket.data(100, 1, row("I", 110, 1, 5))
    (table,) = bucket.apply(200).tables
    assert (table.state, table.through, bucket.rows()) == ("held", 149, [(1, 5)])


TICDC = (
    "access-key,content-compatible,date-separator,enable-partition-separator,enable-tidb-extension,encoding-worker-num,"
    "endpoint,file-cleanup-cron-spec,file-expiration-days,file-index-width,file-size,flush-concurrency,flush-interval,"
    "force-path-style,max-batch-size,max-message-bytes,only-output-updated-columns,output-raw-change-event,"
    "output-row-key,protocol,provider,region,role-arn,secret-access-key,session-token,spool-base-dir,spool-disk-quota,"
    "transaction-atomicity,use-accelerate-endpoint,use-table-id-as-path,worker-count"
)


def test_parameters_of_ticdc_are_passed_over_and_those_that_resemble_them_are_told() -> None:
    query = "&".join(f"{name}=" for name in TICDC.split(",") if name != "protocol")
    for protocol in ("csv", "canal-json"):
        assert sink_options(f"file:///feed?protocol={protocol}&{query}", None).misspelt == ()
    options = sink_options(
        "file:///feed?protocol=canal-json&date-seperator=none&Enable-Tidb_Extention=true&colour=1", None
    )
    (first, second) = findings(options=options)["sink-parameters"]
    assert [first.detail, second.detail] == [
        "date-seperator (like date-separator)",
        "enable-tidb-extention (like enable-tidb-extension)",
    ]


def test_findings_are_warnings_of_a_run(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed", extra="\n[sink.cloud-storage-config]\nfile-expiration-days = 3\n")
    bucket.toml = bucket.toml.replace("[sink.cloud-storage-config]\n", "")
    bucket.schema(100, CREATE, 3, COLUMNS)
    bucket.data(100, 1, row("I", 110, 1, 5))
    assert any("file-expiration-days = 3" in warning.text for warning in bucket.apply(200).warnings)


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.__name__ for rule in RULES}) == len(RULES)


# --- what values became ----------------------------------------------------------------------------------------------


def test_changed_values_are_counted_per_file_so_that_reading_again_counts_nothing_twice() -> None:
    ledger, life, other = Ledger("sqlite://"), Life(T, 100), Life(T, 101)
    schema = TableSchema((Column("d", "DATE"),))
    ledger.record_columns("f", dict.fromkeys((life, other), column_fidelity(schema)))

    def counted(whose: Life) -> dict[str, int]:
        (column,) = ledger.fidelity("f", whose)
        return dict(column.notes)

    def read(path: str, count: int) -> None:
        notes = {("d", "zero date became null"): count} if count else {}
        ledger.record_files("f", life, [FileStats(path, 1, "", 9, 1, 2, notes)], "run", None)

    read("a", 3)
    read("b", 4)
    read("a", 3)
    assert counted(life) == {"zero date became null": 7}
    read("a", 0)
    assert counted(life) == {"zero date became null": 4}
    assert counted(other) == {}


def test_the_fidelity_of_each_column_is_kept_with_its_counts(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path / "feed")
    create = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY,`d` DATE)"
    bucket.schema(100, create, 3, [COLUMNS[0], file_column("d", "DATE")])
    bucket.data(
        100, 1, row("I", 110, 1, '"0000-00-00"'), row("I", 111, 2, '"2024-02-29"'), row("I", 112, 3, '"0000-00-00"')
    )
    bucket.apply(200)
    bucket.apply(300)
    report = {kept_fidelity.column: kept_fidelity for kept_fidelity in bucket.ledger.fidelity("default", Life(T, 100))}
    assert {name: kept_fidelity.grade.value for name, kept_fidelity in report.items()} == {
        "id": "lossless",
        "d": "changed",
    }
    assert sum(report["d"].notes.values()) == 2
    assert json.dumps({name: dict(kept_fidelity.notes) for name, kept_fidelity in report.items()})


@pytest.mark.parametrize(
    ("hides", "named", "untold"),
    [
        ({"events": ("truncate table", "drop table")}, ["TRUNCATE TABLE", "DROP TABLE"], ["RENAME"]),
        ({"events": ("drop database",)}, ["DROP DATABASE"], ["TRUNCATE"]),
        ({"events": ("alter table",)}, ["ENUM", "EXCHANGE PARTITION", "another order of columns"], ["RENAME TABLE"]),
        ({"events": ("all ddl",)}, ["RENAME TABLE", "RECOVER", "SET DEFAULT"], ["leaves out rows"]),
        ({"statements": ("^drop",)}, ["by their text", "DROP TABLE"], ["leaves out rows"]),
        ({"events": ("delete",)}, ["leaves out rows"], ["TRUNCATE"]),
        ({"rows": ("ignore-update-only-columns",)}, ["leaves out rows", "ignore-update-only-columns"], ["TRUNCATE"]),
        ({"unknown": ("ignore-moonlight",)}, ["not known", "ignore-moonlight"], ["TRUNCATE", "leaves out rows"]),
        ({"events": ("rename moon",)}, ["not known", "rename moon"], ["TRUNCATE", "leaves out rows"]),
    ],
)
def test_an_event_filter_names_the_ddl_that_leave_no_trace(
    hides: dict[str, tuple[str, ...]], named: list[str], untold: list[str]
) -> None:
    options = written(**CSV, event_filters=(EventFilter(("shop.*",), **hides),))
    (finding,) = findings(options=options)["event-filters"]
    assert finding.severity is Severity.WARNING
    assert "shop.*" in finding.sentence
    assert [text for text in named if text not in finding.sentence] == []
    assert [text for text in untold if text in finding.sentence] == []


@pytest.mark.parametrize("event", ["add column", "drop column", "create table", "add table partition"])
def test_an_event_filter_of_ddl_that_leave_a_trace_is_no_finding(event: str) -> None:
    options = written(**CSV, event_filters=(EventFilter(("shop.*",), (event,)),))
    assert "event-filters" not in findings(options=options)
