"""Texts about rows without their values: what an error or a refused record may show of a masked or forgotten row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cdc_assets.errors import CdcError, MalformedData
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableSchema

NOT_SHOWN = "what was found is not shown, because values of its table are masked (setting privacy)"
OF_FORGOTTEN = "what was found is not shown, because it may be of a forgotten row"
"""Why the sentence on what does not fit says no value: of a masked table, and of one with keys that are kept out."""


def without_values(reject: Reject, schema: TableSchema, not_shown: str = NOT_SHOWN) -> Reject:
    """Return a refused record without its bytes, and without what is said of its values; `not_shown` says why."""
    name = reject.column if reject.column in column_names([schema]) else ""
    column = f' of column "{name}"' if name else ""
    return replace(reject, raw=b"", column=name, reason=f"a value{column} does not fit; {not_shown}")


def without_quotes(place: str, not_shown: str) -> str:
    """Return the message on a file that cannot be decoded, where nothing of it may be repeated."""
    return (
        f"{place} cannot be decoded; {not_shown}. Check that the settings are those with which it was written (the "
        "sink URI, the changefeed TOML, schemas), and that it is as it was written."
    )


@contextmanager
def conceal_errors(path: str, schemas: Sequence[TableSchema]) -> Iterator[None]:
    """Raise errors of confidential tables, which may repeat values, as MalformedData that says their place alone."""
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
    """Return the names that columns may have: another name in a record may be a value that damage has made one."""
    columns = (column for schema in schemas for column in schema.columns)
    return {name for column in columns for name in (column.name, column.source_name)}
