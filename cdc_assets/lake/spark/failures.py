"""Exceptions of Spark, Iceberg and Java at a step, as errors of this project: lost races, known and unknown causes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from cdc_assets import errors
from cdc_assets.errors import CdcError, LakeUnavailable, SetupError, StepFailed, TableMoved
from cdc_assets.lake.failures import explained, first_line, redacted

_LOST = ("org.apache.iceberg.exceptions.CommitFailedException",)
"""Exceptions of a lost race."""

_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
_CONFLICT = re.compile(
    r"conflict|[Mm]issing required files|[Ff]ound new|[Cc]annot determine history|[Cc]annot commit|not an ancestor|"
    r"[Cc]annot find snapshot|already been updated|concurrent|requirement failed|[Ss]tale|in the latest snapshot"
)
"""Messages of Iceberg's validation about a race; it validates other things too."""

_TAGGED = re.compile(r"Cannot expire \d+\. Still referenced by refs")
"""Iceberg's message about a snapshot that has got a tag since it was chosen to expire."""

_AWAY = (
    "org.apache.iceberg.exceptions.NoSuchTableException",
    "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
    "org.apache.spark.sql.catalyst.analysis.CannotReplaceMissingTableException",
)
"""Exceptions of a table that no longer has its name."""

_UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
"""Exceptions of a commit that may still take effect."""

_OTHER_TABLE = "Table UUID does not match"
"""Iceberg's message, without a class of its own, when another table took the name of a loaded one."""

_LOCKED = re.compile(r"waiting for lock on (?P<database>\w+)\.(?P<name>\w+)")
"""Iceberg's message about a Hive metastore's lock, in whose names there is nothing but letters, digits and `_`."""

_UNANSWERED = (
    "java.io.", "java.net.", "java.nio.file.", "java.sql.", "org.sqlite.", "org.postgresql.",
    "org.apache.thrift.transport.", "org.apache.iceberg.shaded.org.apache.hc.", "software.amazon.awssdk.core.",
)  # fmt: skip
"""Packages of exceptions about a catalog or a warehouse that did not answer."""

_IN_TEXT = re.compile(r"\bjava\.(?:io|net|nio\.file)\.\w+Exception: [^\n]*")
"""Exceptions of executors as they reach the driver: as text."""

_OURS_IN_TEXT = re.compile(
    r"^cdc_assets\.errors\.(?P<kind>\w+): (?P<message>.*?)(?=\n\s*\n|\n\s+at |\Z)", re.MULTILINE | re.DOTALL
)
"""Errors of this project that were raised in Python workers, as text."""


@contextmanager
def races(table: str) -> Iterator[None]:
    """Turn exceptions about lost races into TableMoved, about a failing catalog or storage into LakeUnavailable.

    The table is then at the old state or at the new one: its progress says which. An error of this project that was
    raised on an executor is raised here as itself; any other exception of Spark, Iceberg or Java is the table's
    StepFailed.
    """
    try:
        yield
    except CdcError:
        raise
    except OSError as error:
        raise explained(table, f"{type(error).__name__}: {error}", table=table) or _failed(table, str(error)) from error
    except (Py4JError, PySparkException) as error:
        raise _translated(table, error) from error


def _translated(table: str, error: BaseException) -> CdcError:
    """Return the error of this project that an exception of Spark, Iceberg or Java means."""
    classes = list(_java_causes(error))
    message = first_line(redacted(classes[-1][1] if classes else str(error)))
    lost = _locked(table, message) or _lost_race(table, message, classes)
    if lost is not None:
        return lost
    raised = _other_executor("\n".join([str(error), *(text for _, text in classes)])) or _from_executor(table, error)
    if raised is not None:
        return raised
    in_text = _IN_TEXT.search(str(error))
    causes = [*(f"{name}: {text}" for name, text in classes), *([in_text[0]] if in_text is not None else [])]
    meant = explained(table, "\n".join(causes), table=table)
    if meant is not None:
        return meant
    if in_text is not None or any(name.startswith(_UNANSWERED) for name, _ in classes):
        return _failed(table, in_text[0] if in_text is not None else message)
    lines = dict.fromkeys(f"{name}: {first_line(redacted(message))}" for name, message in classes)
    reason = "; caused by ".join(lines) or first_line(redacted(str(error)))
    return StepFailed(
        f"{table}: Spark or Iceberg failed at this step ({reason}). The table is as it was before the step, or after "
        "it; nothing is half done, and other tables go on. Try again; if it fails again, report it with this text.",
        table=table,
    )


def _locked(table: str, message: str) -> StepFailed | None:
    """Return the error for a metastore's lock that is not released; Iceberg takes it for a lost race."""
    match = _LOCKED.search(message)
    if match is None:
        return None
    return StepFailed(
        f"{table}: the Hive metastore has a lock on {match['database']}.{match['name']} that nobody releases "
        f"({message}). Of a process that was killed it removes it metastore.txn.timeout (300 seconds) later, if its "
        "housekeeping runs; then try again. Else, while nobody writes the table, run in the metastore's database: "
        f"DELETE FROM HIVE_LOCKS WHERE HL_DB = '{match['database']}' AND HL_TABLE = '{match['name']}'.",
        table=table,
    )


def _lost_race(table: str, message: str, classes: Sequence[tuple[str, str]]) -> TableMoved | None:
    """Return the error for a commit that another writer made impossible, or whose end is not known."""
    names = {name for name, _ in classes}
    if _UNKNOWN in names:
        return TableMoved(
            f"{table}: whether the commit was made is not known ({message}). Read the progress again and plan again.",
            table=table,
            unsettled=True,
        )
    if any(
        name in _LOST or (name == _VALIDATION and _CONFLICT.search(text)) or _TAGGED.search(text)
        for name, text in classes
    ):
        return TableMoved(
            f"{table}: another writer committed first ({message}). Read the progress again and plan again.",
            table=table,
        )
    if any(name in _AWAY for name in names) or _OTHER_TABLE in message:
        return TableMoved(
            f"{table} no longer has its name in the catalog ({message}): it was renamed, dropped or created again. "
            "Read the progress again and plan again.",
            table=table,
        )
    return None


def _from_executor(table: str, error: BaseException) -> CdcError | None:
    """Return the error of this project that an executor raised: Spark has it in the text of a Python traceback."""
    raised = _OURS_IN_TEXT.search(str(error))
    kind = getattr(errors, raised["kind"], None) if raised is not None else None
    return kind(raised["message"].strip(), table=table) if raised is not None and kind is not None else None


_ON_EXECUTOR = re.compile(r"\((?P<host>[^\s()]+) executor (?P<number>\w+)\)")
"""Spark's message about a lost task."""

_IN_WORKER = "thrown from the Python worker"
"""Spark's message when the Python code of a task raised an exception."""

_LACKING = (
    (re.compile(r"ModuleNotFoundError: No module named '(?P<what>[^']+)'"), "has no Python package {what}"),
    (re.compile(r"Cannot run program \"(?P<what>[^\"]+)\""), "has no Python at {what}"),
    (re.compile(r"different version: (?P<what>[\d.]+) than that in driver: (?P<driver>[\d.]+)"),
     "runs Python {what}, and the driver {driver}"),
)  # fmt: skip
"""Message of an executor whose installation differs from the driver's, before any task of this project begins."""


def _other_executor(message: str) -> SetupError | None:
    """Return the error for an executor that lacks what the driver has, None where it is something else."""
    place = _ON_EXECUTOR.search(message)
    if place is None and _IN_WORKER not in message or place is not None and place["number"] == "driver":
        return None
    executor_name = "an executor" if place is None else f"the executor on {place['host']}"
    for pattern, lacks in _LACKING:
        if (match := pattern.search(message)) is not None:
            return SetupError(
                f"{executor_name} {lacks.format(**match.groupdict())}. Give executors the very "
                "installation of the driver: spark.archives or an image, and CDC_ASSETS_EXECUTOR_PYTHON for the Python "
                "in it (docs/clusters.md)."
            )
    return None


def _failed(table: str, reason: str) -> LakeUnavailable:
    return LakeUnavailable(
        f"{table}: the lake's catalog or storage failed ({first_line(redacted(reason))}). The table is as it was "
        "before this step, or after it; nothing is half done. Correct that and try again.",
        table=table,
    )


def _java_causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield (class, message) of the Java exception and of its causes, outermost first."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while cause is not None and not isinstance(cause, BaseException):
        yield cause.getClass().getName(), str(cause.getMessage())
        cause = cause.getCause()
