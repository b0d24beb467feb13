"""Errors, by what the operator does about them.

    CdcError
    ├── Retryable            try again later, input and setup are right
    │   ├── StorageUnavailable   the bucket or the ledger did not answer
    │   │   └── LakeUnavailable      the catalog or the warehouse did not
    │   ├── TableMoved           another writer committed first: read progress and plan again
    │   └── StepFailed           a step of one table failed for an unknown reason
    ├── InputError           the files are not what the changefeed should have written
    │   ├── MetadataMissing      no checkpoint yet
    │   ├── MalformedSchemaFile  a schema file that cannot be read
    │   ├── MalformedDump        a dump that is not finished or has no TSO
    │   ├── MalformedData        rows that cannot be decoded or that fail a check
    │   ├── TableHeld            a change that cannot be carried out faithfully
    │   ├── ExtractRefused       a range of which changes are missing
    │   ├── ForgetRefused        rows that would come back by themselves
    │   └── RebuildRefused       a table whose whole history is not available, or cannot be applied
    └── SetupError           a setting, a URI or an installation to be corrected
        ├── BadSettings          settings that contradict each other or the data
        ├── BucketMissing        the sink URI names nothing that can be read
        └── JavaMissing          Spark needs Java 17 or 21

A message says what came, what was expected and what to do. Errors carry where they happened as attributes and
survive pickling, because most of them are raised on a Spark executor.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class CdcError(Exception):
    """Root of every error that a user can cause or fix; `where` holds file, line, table, column as known."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(message)
        self.message = message
        self.where = {name: value for name, value in where.items() if value is not None}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.where)

    def __str__(self) -> str:
        return self.message


def _rebuild(kind: type[CdcError], message: str, where: dict[str, Any]) -> CdcError:
    return kind(message, **where)


class Retryable(CdcError):
    """Input and setup are right: the same call may succeed later."""


class StorageUnavailable(Retryable):
    """The bucket, the lake or the ledger did not answer."""


class LakeUnavailable(StorageUnavailable):
    """The lake's catalog or warehouse did not answer: a table is at the state before its step or after it."""


class TableMoved(Retryable):
    """Another writer committed to the table after its progress was read."""


class StepFailed(Retryable):
    """A step failed for a reason that is not known to be in the input: the table is where it was."""


class InputError(CdcError):
    """The files under the changefeed's prefix are not what was expected."""


class MetadataMissing(InputError):
    """The changefeed has not published its first checkpoint."""


class MalformedSchemaFile(InputError):
    """A schema file that is not JSON, lacks a member, or contradicts its own name."""


class MalformedDump(InputError):
    """A dump that is not finished, has no TSO, or cannot be read."""


class MalformedData(InputError):
    """A data file that cannot be decoded, or rows that do not fit the types of their schema file."""


class TableHeld(InputError):
    """A change that cannot be carried out faithfully keeps its table where it is."""


class ExtractRefused(InputError):
    """Changes of a range are not there, or not to be told from others."""


class ForgetRefused(InputError):
    """Rows cannot be forgotten now: input that is not applied yet has them, or something still needs old snapshots."""


class RebuildRefused(InputError):
    """A table cannot be built from its whole history, so it stays as it is."""


class SetupError(CdcError):
    """A setting, a URI or an installation has to be corrected."""


class BadSettings(SetupError):
    """Settings that are unknown, contradict each other, or contradict the data."""


class BucketMissing(SetupError):
    """The sink URI names nothing that exists or that may be read."""


class JavaMissing(SetupError):
    """No Java that Spark 4.1 runs on was found."""


@contextmanager
def as_cdc_error(build: Callable[[str], CdcError], show_text: bool = True) -> Iterator[None]:
    """Convert an unexpected exception into the CdcError that `build` makes of a description: its type and text.

    With `show_text=False` its text is left out, because it may quote a value that is shown nowhere: the description is
    its type, what the system says of it, and the place in this package; the exception is not chained. A CdcError and
    what an installation lacks (ImportError, MemoryError) pass as they are.
    """
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        if show_text:
            raise build(f"{type(error).__name__}: {error}") from error
        system_message = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise build(f"{type(error).__name__}{system_message}{_place_of(error)}") from None


def _place_of(error: BaseException) -> str:
    """Return the place in this package that raised an exception, or called what raised it; "" for none."""
    package = Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if package in file.parents:
            return f" in {file.relative_to(package.parent).as_posix()}, line {frame.lineno}"
    return ""
