"""Texts about rows without their values: what an error or a refused record may show of a masked or forgotten row."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError, MalformedData
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableSchema

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    pass

NOT_SHOWN = "what was found is not shown, because values of its table are masked (setting privacy)"
OF_FORGOTTEN = "what was found is not shown, because it may be of a forgotten row"
"""Why the sentence on what does not fit says no value: of a masked table, and of one with keys that are kept out."""


def without_values(reject: Reject, schema: TableSchema, not_shown: str = NOT_SHOWN) -> Reject:
    """Return a refused record without its bytes, and without what is said of its values; `not_shown` says why."""
    name = reject.column if reject.column in column_names([schema]) else ""
    column = f' of column "{name}"' if name else ""
    return replace(reject, raw=b"", column=name, reason=f"a value{column} does not fit; {not_shown}")


def without_quotes(place: str, not_shown: str) -> str:
    """Return what is said of a file that cannot be decoded, where nothing of it may be repeated."""
    return (
        f"{place} cannot be decoded; {not_shown}. Check that the settings are those with which it was written (the "
        "sink URI, the changefeed TOML, schemas), and that it is as it was written."
    )


@contextmanager
def foreseen(meaning: Callable[[str], CdcError], quoted: bool = True) -> Iterator[None]:
    """Raise an error that nobody foresaw as the one that `meaning` makes of what can be said of it.

    That is its type and text; where the text may have a value that is to be shown nowhere (not `quoted`), its type,
    what the system says of it, and the place in this package, and no error that led to it is chained. An installation
    that lacks something is raised as it is.
    """
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        if quoted:
            raise meaning(f"{type(error).__name__}: {error}") from error
        system_message = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise meaning(f"{type(error).__name__}{system_message}{_place_of(error)}") from None


def _place_of(error: BaseException) -> str:
    """Return where in this package an error was raised, or what it called raised it."""
    package = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if package in file.parents:
            return f" in {file.relative_to(package.parent).as_posix()}, line {frame.lineno}"
    return ""


@contextmanager
def conceal_errors(path: str, schemas: Sequence[TableSchema]) -> Iterator[None]:
    """Raise errors that may repeat values of masked columns as MalformedData that says their place alone."""
    if not any(schema.confidential for schema in schemas):
        yield
        return
    try:
        yield
        return
    except (ImportError, MemoryError):
        raise
    except MalformedData as error:
        where = {name: error.where[name] for name in ("line", "column") if error.where.get(name)}
        if where.get("column") not in column_names(schemas):
            where.pop("column", None)
        shown = "".join(f" {name} {value}" for name, value in where.items())
    except CdcError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, its text may have a value
        where, shown = {}, f" ({type(error).__name__})"
    raise MalformedData(without_quotes(f"{path}{shown}", NOT_SHOWN), path=path, **where) from None


def column_names(schemas: Iterable[TableSchema]) -> set[str]:
    """Return what columns may be called: another name in a record may be a value that damage has made one."""
    columns = (column for schema in schemas for column in schema.columns)
    return {name for column in columns for name in (column.name, column.source_name)}
