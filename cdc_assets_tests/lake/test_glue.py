"""Renames in Glue, which has none: whatever is lost on the way, a table has one name and its newest rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from cdc_assets.lake.catalogs.glue import entries, entry, rename

OLD, NEW = ("shop", "orders"), ("sales", "orders")


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog with one table, of the oldest name."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKGLUE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nobody's")
    with mock_aws():
        client = boto3.client("glue", region_name="us-east-1")
        for database in (OLD[0], NEW[0]):
            client.create_database(DatabaseInput={"Name": database})
        put(client, OLD, "s3://lakes/orders/1.json")
        yield GlueCatalog("lake", client)


def put(client: Any, name: tuple[str, str], place: str) -> None:
    parameters = {"table_type": "ICEBERG", "metadata_location": place}
    table = {"Name": name[1], "TableType": "EXTERNAL_TABLE", "Parameters": parameters}
    client.create_table(DatabaseName=name[0], TableInput=table)


class Killed(Exception):
    """The process ends here."""


def killed(method: Callable[..., Any]) -> Callable[..., Any]:
    def ends(**_: Any) -> None:
        raise Killed

    return ends


def unanswered(method: Callable[..., Any]) -> Callable[..., Any]:
    """Amazon's client asks again when an answer is lost."""

    def twice(**arguments: Any) -> Any:
        method(**arguments)
        return method(**arguments)

    return twice


def there(catalog: Catalog) -> dict[tuple[str, str], str]:
    return dict(entries(catalog))


def test_a_table_is_renamed_with_what_it_is(catalog: Catalog) -> None:
    rename(catalog, OLD, NEW)
    assert there(catalog) == {NEW: "s3://lakes/orders/1.json"}
    rename(catalog, NEW, OLD)
    assert there(catalog) == {OLD: "s3://lakes/orders/1.json"}
    assert entry(catalog, NEW) is None


@pytest.mark.parametrize("what", ["create_table", "delete_table"])
def test_a_rename_whose_answers_are_lost_is_made_once(
    catalog: Catalog, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = catalog.glue  # type: ignore[attr-defined]
    monkeypatch.setattr(client, what, unanswered(getattr(client, what)))
    rename(catalog, OLD, NEW)
    assert there(catalog) == {NEW: "s3://lakes/orders/1.json"}


@pytest.mark.parametrize("what", ["create_table", "delete_table"])
def test_a_rename_that_was_cut_short_is_listed_as_not_made_and_finished_by_the_next(
    catalog: Catalog, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = catalog.glue  # type: ignore[attr-defined]
    with monkeypatch.context() as cut:
        cut.setattr(client, what, killed(getattr(client, what)))
        with pytest.raises(Killed):
            rename(catalog, OLD, NEW)
    assert there(catalog) == {OLD: "s3://lakes/orders/1.json"}
    rename(catalog, OLD, NEW)
    assert there(catalog) == {NEW: "s3://lakes/orders/1.json"}


def test_a_name_that_another_table_has_is_not_taken(catalog: Catalog) -> None:
    put(catalog.glue, NEW, "s3://lakes/other/1.json")  # type: ignore[attr-defined]
    with pytest.raises(TableAlreadyExistsError):
        rename(catalog, OLD, NEW)
    assert there(catalog) == {OLD: "s3://lakes/orders/1.json", NEW: "s3://lakes/other/1.json"}


def test_a_table_that_is_not_there_is_said_to_be_missing(catalog: Catalog) -> None:
    with pytest.raises(NoSuchTableError):
        rename(catalog, NEW, OLD)
