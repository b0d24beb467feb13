"""The lake's table of records that did not fit: `_cdc.quarantine`, one row for each (changefeed, file, line).

Reading it takes no JVM. It is written before the window of its records; writing it again changes only the reason. Two
runs may write at once: the later one reads the table again.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import And, EqualTo

from cdc_assets.decoding.replay import Found, Replay, find_keys, read_replay, replay_tasks
from cdc_assets.errors import CdcError, TableMoved
from cdc_assets.formats import SplitReader
from cdc_assets.lake import namespaces
from cdc_assets.lake.names import Identifier, format_identity, own_location, parse_identity
from cdc_assets.lake.staging.installation import alike
from cdc_assets.model.progress import Life
from cdc_assets.model.quarantine import OPEN, REPLAYED, QuarantinedRow
from cdc_assets.model.reports import Report, Staged
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_assets.lake.spark.session import StepSession
    from cdc_assets.lake.state import LakeState

__all__ = ["begun", "close", "counts", "find", "keep", "read", "replaying", "stage_replay"]

_ATTEMPTS = 6
_FOUND = (
    "file string, line bigint, column string, reason string, schema string, table string, schema_version bigint, "
    "commit_ts bigint, raw binary"
)
_COLUMNS = (
    "changefeed string, identity string, schema string, table string, file string, line bigint, column string, "
    "reason string, schema_version bigint, commit_ts bigint, lo bigint, run string, raw binary, quarantined_at "
    "timestamp, state string, replay string"
)

Session = Callable[[], "StepSession"]


def _equal(name: str, value: str) -> Any:
    return EqualTo(name, value)  # type: ignore[call-arg,arg-type]  # its types describe only pydantic's constructor


# --- reading ----------------------------------------------------------------------------------------------------------


def _table(state: LakeState) -> Any:
    identifier = _identifier(state)
    return None if state.place_of(identifier) is None else state.catalog.load_table(identifier)


def _identifier(state: LakeState) -> Identifier:
    return state.places.own.main, "quarantine"


def read(state: LakeState, *, raw: bool = False, replayed: bool = False) -> tuple[QuarantinedRow, ...]:
    """Return the changefeed's quarantined records by table, file and line: the open ones, or all of them."""
    table = _table(state)
    if table is None:
        return ()
    chosen: Any = _equal("changefeed", state.changefeed)
    chosen = chosen if replayed else And(chosen, _equal("state", OPEN))
    names = [name for name in (column.split()[0] for column in _COLUMNS.split(", ")) if raw or name != "raw"]
    rows = table.scan(row_filter=chosen, selected_fields=tuple(names)).to_arrow().to_pylist()
    found = (
        QuarantinedRow(
            parse_identity(row["identity"]),
            TableId(row["schema"], row["table"]),
            row["file"],
            row["line"],
            row["column"],
            row["reason"],
            row["schema_version"],
            row["commit_ts"],
            row["lo"],
            row["run"],
            row["quarantined_at"],
            row["state"],
            row.get("raw") or b"",
        )
        for row in rows
    )
    return tuple(sorted(found, key=lambda row: (row.life, row.file, row.line)))


_counted: dict[str, Mapping[tuple[str, Life], int]] = {}


def counts(state: LakeState) -> Mapping[Life, int]:
    """Return how many records of each table are open. A state of the table is read once per process."""
    place = state.place_of(_identifier(state))
    if place is None:
        return {}
    if place not in _counted:
        table = state.catalog.load_table(_identifier(state))
        rows = table.scan(row_filter=_equal("state", OPEN), selected_fields=("changefeed", "identity")).to_arrow()
        pairs = Counter(zip(*(rows.column(name).to_pylist() for name in ("changefeed", "identity")), strict=True))
        _counted.clear()
        _counted[place] = {(feed, parse_identity(identity)): n for (feed, identity), n in pairs.items()}
    return {life: n for (feed, life), n in _counted[place].items() if feed == state.changefeed}


# --- writing ----------------------------------------------------------------------------------------------------------


def keep(session: Session, state: LakeState, io: Mapping[str, str], step: ApplyRows, staged: Staged, run: str) -> None:
    """Write a staged window's records into the table; existing ones stay as they are."""
    from cdc_assets.lake.staging.stage import read_manifest, read_parts

    rejects = read_manifest(io, staged.path).rejects
    if not rejects:
        return
    namespaces.ensure_namespace(state.catalog, state.places.own.main)
    constants = {
        "changefeed": state.changefeed,
        "identity": format_identity(step.life),
        "lo": step.lo,
        "run": run,
        "quarantined_at": datetime.now(timezone.utc),
        "state": OPEN,
    }

    def merge(work: StepSession) -> None:
        name = work.name(_identifier(state))
        work.sql(
            f"CREATE TABLE IF NOT EXISTS {name} ({_COLUMNS}) USING iceberg "
            f"{own_location(state.settings.root, _identifier(state))}TBLPROPERTIES ('format-version'='3', "
            "'write.merge.mode'='merge-on-read', 'write.metadata.delete-after-commit.enabled'='true')"
        )
        rows = read_parts(work.spark, io, [f"{staged.path}/{part}" for part in rejects], _FOUND)
        _merge(work, name, rows, constants)

    _repeated(session, state, merge)


def _merge(work: StepSession, name: str, rows: DataFrame, constants: Mapping[str, Any]) -> None:
    """Add records with these values besides; of one that is there and open, reason and run are replaced."""
    from pyspark.sql import functions as sql

    for column, value in constants.items():
        rows = rows.withColumn(column, sql.lit(value))
    rows.withColumn("replay", sql.lit(None).cast("string")).createOrReplaceTempView("rejects")
    names = ", ".join(column.split()[0] for column in _COLUMNS.split(", "))
    values = ", ".join(f"s.{column.split()[0]}" for column in _COLUMNS.split(", "))
    work.sql(
        f"MERGE INTO {name} t USING rejects s "
        "ON t.changefeed = s.changefeed AND t.file = s.file AND t.line = s.line "
        "WHEN MATCHED AND t.state = 'open' THEN UPDATE SET t.reason = s.reason, t.run = s.run "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    )


def close(session: Session, state: LakeState, life: Life, lines: Iterable[tuple[str, int]]) -> None:
    """Mark records as replayed."""
    _set(session, state, life, lines, f"t.state = '{REPLAYED}', t.replay = NULL")


def replaying(session: Session, state: LakeState, life: Life, lines: Iterable[tuple[str, int]]) -> str:
    """Record which rows a commit is about to replay, under a token that the commit carries; return the token."""
    token = uuid.uuid4().hex
    _set(session, state, life, lines, f"t.replay = '{token}'")
    return token


def begun(state: LakeState, life: Life) -> dict[str, list[tuple[str, int]]]:
    """Return the records that a replay began to commit, by token."""
    table = _table(state)
    if table is None:
        return {}
    chosen = And(
        _equal("changefeed", state.changefeed), _equal("identity", format_identity(life)), _equal("state", OPEN)
    )
    found: dict[str, list[tuple[str, int]]] = {}
    for row in table.scan(row_filter=chosen, selected_fields=("file", "line", "replay")).to_arrow().to_pylist():
        if row["replay"]:
            found.setdefault(row["replay"], []).append((row["file"], row["line"]))
    return found


def _set(session: Session, state: LakeState, life: Life, lines: Iterable[tuple[str, int]], what: str) -> None:
    rows = pa.Table.from_pylist(
        [{"file": file, "line": line} for file, line in lines], pa.schema([("file", pa.string()), ("line", pa.int64())])
    )
    if not rows.num_rows:
        return

    def merge(work: StepSession) -> None:
        from pyspark.sql import functions as sql

        marked = work.spark.createDataFrame(rows)
        marked = marked.withColumn("changefeed", sql.lit(state.changefeed))
        marked.withColumn("identity", sql.lit(format_identity(life))).createOrReplaceTempView("marked")
        work.sql(
            f"MERGE INTO {work.name(_identifier(state))} t USING marked s ON t.changefeed = s.changefeed "
            "AND t.identity = s.identity AND t.file = s.file AND t.line = s.line "
            f"WHEN MATCHED AND t.state = '{OPEN}' THEN UPDATE SET {what}"
        )

    _repeated(session, state, merge)


def _repeated(session: Session, state: LakeState, action: Callable[[StepSession], None]) -> None:
    """Run an action in a session of its own, retrying after concurrent commits."""
    from cdc_assets.lake.spark.failures import races

    for attempt in range(_ATTEMPTS):
        try:
            with races(".".join(_identifier(state))):
                action(session())
        except TableMoved:
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.1 * 2**attempt)
        else:
            return


# --- replay -----------------------------------------------------------------------------------------------------------


def find(spark: SparkSession, replay: Replay, reader: SplitReader) -> Found:
    """Find the keys of quarantined records on an executor."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                found: Found | CdcError
                try:
                    found = find_keys(replay, reader)
                except CdcError as error:  # Spark would turn it into text
                    found = error
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], names=["found"])

    rows = spark.range(0, 1, 1, 1).mapInArrow(alike(run), "found binary").collect()
    found: Found | CdcError = pickle.loads(bytes(rows[0][0]))  # noqa: S301  # our own executor wrote it
    if isinstance(found, CdcError):
        raise found
    return found


def stage_replay(
    spark: SparkSession,
    warehouse: str,
    io: Mapping[str, str],
    replay: Replay,
    reader: SplitReader,
) -> Staged:
    """Stage the changes of a replay's keys, with the columns of the table's present schema."""
    from cdc_assets.lake.staging.stage import stage_tasks

    tasks = replay_tasks(replay)
    if not tasks:
        return Staged("", 0, Report())
    return stage_tasks(spark, warehouse, io, replay.frame, partial(read_replay, replay, reader), tasks)
