"""The changefeed's files: path grammar, schema files, listing."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import assume, given
from hypothesis import strategies as st

import cdc_assets.sources.storage_sink.source as changefeed_module
from cdc_assets.errors import (
    BadSettings,
    BucketMissing,
    InputError,
    MalformedSchemaFile,
    MetadataMissing,
    StorageUnavailable,
)
from cdc_assets.io import storage
from cdc_assets.io.storage import Opener
from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.splits import DataFile, IndexFile, Listing, SchemaFile
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.paths import (
    DataPath,
    SchemaPath,
    format_data_path,
    format_index_path,
    format_schema_path,
    parse_data_path,
    parse_index_path,
    parse_schema_path,
)
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file, schema_checksum
from cdc_assets.sources.storage_sink.sink_options import SinkOptions
from cdc_assets.sources.storage_sink.source import Changefeed
from cdc_assets_tests.cases import Case, canonical, cases, differences
from cdc_assets_tests.changefeed import open_changefeed

V = 465283339124736025
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1).filter(
    lambda name: name not in (".", "..")
)
AWKWARD = st.sampled_from(
    ["meta", "CDC000001", "CDC1.csv", "schema_1_0000000001.json", "123", "2024", "2024-05-06", "a/b", "."]
)
ROOTS = st.lists(NAMES | AWKWARD.filter(lambda name: name != "."), min_size=1, max_size=3).map("/".join)
DATES = {
    "none": st.just(""),
    "year": st.integers(2022, 2099).map(str),
    "month": st.dates().map(lambda day: f"{day.year:04d}-{day:%m}"),
    "day": st.dates().map(lambda day: f"{day.year:04d}-{day:%m-%d}"),
}
DIGITS = st.integers(1, 2**63).map(str)


@st.composite
def data_paths(draw: st.DrawFn) -> tuple[DataPath, SinkOptions]:
    separator = draw(st.sampled_from(sorted(DATES)))
    path = DataPath(
        root=draw(ROOTS),
        version=draw(st.integers(1, 2**64 - 1)),
        number=draw(st.integers(1, 2**64 - 1)),
        extension=draw(st.sampled_from([".csv", ".json"])),
        partition=draw(st.just("") | DIGITS),
        date=draw(DATES[separator]),
        dispatcher=draw(st.just("") | DIGITS),
    )
    return path, SinkOptions(date_separator=separator, use_table_id_as_path=path.root.isdecimal())


# --- paths ------------------------------------------------------------------------------------------------------------


@given(data_paths(), st.integers(1, 20))
def test_a_formatted_data_path_is_parsed_back(given_path: tuple[DataPath, SinkOptions], width: int) -> None:
    path, options = given_path
    assert parse_data_path(format_data_path(path, width), options, {(path.root, path.version)}) == path


@given(data_paths(), st.sampled_from(sorted(DATES)), st.booleans(), st.booleans())
def test_root_and_version_are_found_whatever_the_options_say(
    given_path: tuple[DataPath, SinkOptions], separator: str, partitions: bool, by_id: bool
) -> None:
    path, _ = given_path
    options = SinkOptions(date_separator=separator, enable_partition_separator=partitions, use_table_id_as_path=by_id)
    found = parse_data_path(format_data_path(path), options, {(path.root, path.version)})
    assert found is not None
    assert (found.root, found.version, found.number, found.directory) == (
        path.root, path.version, path.number, path.directory,
    )  # fmt: skip


@given(ROOTS, st.integers(0, 2**64 - 1), st.none() | st.integers(0, 2**32 - 1))
def test_a_formatted_schema_path_is_parsed_back(root: str, version: int, checksum: int | None) -> None:
    path = SchemaPath(root, version, checksum)
    assert parse_schema_path(format_schema_path(path)) == path


@given(data_paths())
def test_a_formatted_index_path_is_parsed_back(given_path: tuple[DataPath, SinkOptions]) -> None:
    path, _ = given_path
    text = format_index_path(IndexFile("", path.directory, path.dispatcher))
    assert parse_index_path(text) == IndexFile(text, path.directory, path.dispatcher)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"db/t/{V}/CDC000007.csv", DataPath("db/t", V, 7, ".csv")),
        (f"db/t/{V}/2024-05-06/CDC7.json", DataPath("db/t", V, 7, ".json", date="2024-05-06")),
        (f"db/t/{V}/118/2024-05/CDC000001.csv", DataPath("db/t", V, 1, ".csv", partition="118", date="2024-05")),
        (f"112/{V}/2024-05-06/CDC000001.csv", DataPath("112", V, 1, ".csv", date="2024-05-06")),
        (f"db/t/{V}/CDC_831670_00012.csv", DataPath("db/t", V, 12, ".csv", dispatcher="831670")),
        (f"db/meta/{V}/CDC000001.csv", DataPath("db/meta", V, 1, ".csv")),
        (f"sl/x/meta/y/{V}/CDC000001.csv", DataPath("sl/x/meta/y", V, 1, ".csv")),
        (f"db/CDC000001/{V}/CDC000001.csv", DataPath("db/CDC000001", V, 1, ".csv")),
        (f"123/2024/{V}/2024-05-06/CDC000001.csv", DataPath("123/2024", V, 1, ".csv", date="2024-05-06")),
    ],
)
def test_layouts_of_all_generations_are_read(path: str, expected: DataPath) -> None:
    assert parse_data_path(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "CDC000001.csv", f"{V}/CDC000001.csv", "db/t/CDC000001.csv", f"db/t/{V}/CDC.csv", f"db/t/{V}/CDC000001",
        f"db/t/{V}/cdc000001.csv", f"db/t/{V}/CDC000001.csv.tmp.1b2c", f"db/t/{V}/XCDC000001.csv", f"//{V}/CDC1.csv",
        f"db/t/{V}/part/CDC000001.csv", f"db/t/{V}/1/2024/x/CDC000001.csv", f"db/t/{V}/CDC_a_b_1.csv",
    ],
)  # fmt: skip
def test_other_names_are_no_data_files(path: str) -> None:
    assert parse_data_path(path) is None


def test_an_ambiguous_path_is_what_its_schema_file_says() -> None:
    path = "12/5/2024/CDC000001.csv"
    assert parse_data_path(path, known={("12/5", 2024)}) == DataPath("12/5", 2024, 1, ".csv")
    assert parse_data_path(path, SinkOptions(date_separator="year"), {("12", 5)}) == DataPath(
        "12", 5, 1, ".csv", date="2024"
    )
    assert parse_data_path(path, SinkOptions(date_separator="none"), {("12", 5)}) == DataPath(
        "12", 5, 1, ".csv", partition="2024"
    )
    assert parse_data_path(path, known={("other", 1)}) is None


def test_options_decide_between_two_readings_that_both_have_a_schema_file() -> None:
    known = {("12/5", 2024), ("12", 5)}
    by_id = SinkOptions(date_separator="year", use_table_id_as_path=True)
    assert parse_data_path("12/5/2024/CDC1.csv", by_id, known) == DataPath("12", 5, 1, ".csv", date="2024")
    plain = SinkOptions(date_separator="none")
    assert parse_data_path("12/5/2024/CDC1.csv", plain, known) == DataPath("12/5", 2024, 1, ".csv")


def test_schema_and_index_files_of_old_versions_lie_in_the_data_directory() -> None:
    assert parse_schema_path(f"db/t/{V}/schema.json") == SchemaPath("db/t", V, None)
    index = parse_index_path(f"db/t/{V}/2024-05-06/CDC.index")
    assert index == IndexFile(f"db/t/{V}/2024-05-06/CDC.index", f"db/t/{V}/2024-05-06")


@pytest.mark.parametrize(
    "path",
    ["meta/schema_1_0000000001.json", "db/t/meta/schema_1_1.json", "db/schema_1_0000000001.json", "db/t/schema.json"],
)
def test_other_names_are_no_schema_files(path: str) -> None:
    assert parse_schema_path(path) is None


@pytest.mark.parametrize("path", [f"db/t/{V}/CDC1.csv", f"db/t/meta/schema_{V}_0000000001.json"])
def test_a_path_names_its_table(path: str) -> None:
    place = Changefeed(SinkOptions(), {}).place(path)
    assert place is not None
    assert (place.root, place.version) == ("db/t", V)


# --- schema files -----------------------------------------------------------------------------------------------------


def document(schema: str = "db", table: str = "t", version: int = V, **more: Any) -> dict[str, Any]:
    columns = more.pop("TableColumns", [{"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11"}])
    return {
        "Table": table,
        "Schema": schema,
        "Version": 1,
        "TableVersion": version,
        "Query": "",
        "Type": 0,
        "TableColumns": columns,
        "TableColumnsTotal": len(columns or []),
        **more,
    }


def parsed(content: Any, path: str = f"db/t/meta/schema_{V}_0000000001.json") -> SchemaFile:
    return parse_schema_file(path, content if isinstance(content, bytes) else json.dumps(content).encode())


def test_every_member_of_a_column_is_read() -> None:
    columns = [
        {"ColumnId": "3", "ColumnName": "Id", "ColumnType": "BIGINT UNSIGNED", "ColumnPrecision": "20",
         "ColumnNullable": "false", "ColumnIsPk": "true", "Unheard": {}},
        {"ColumnName": "d", "ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "2", "ColumnDefault": "1"},
        {"ColumnName": "e", "ColumnType": "ENUM", "ColumnElems": ["a", "b,c"], "ColumnDefault": 12345678901234567890},
        {"ColumnName": "j", "ColumnType": "JSON"},
    ]  # fmt: skip
    assert parsed(document(TableColumns=columns)).columns == (
        Column("Id", "BIGINT", unsigned=True, precision=20, nullable=False, is_pk=True, id=3),
        Column("d", "DECIMAL", precision=10, scale=2, default="1"),
        Column("e", "ENUM", default=12345678901234567890, elems=("a", "b,c")),
        Column("j", "JSON"),
    )


def test_a_database_file_has_no_columns() -> None:
    content = document("db", "", TableColumns=None, Query="DROP DATABASE `db`", Type=2)
    path = f"db/meta/schema_{V}_0012345678.json"
    assert parsed(content, path) == SchemaFile(path, "db", TableId("db", ""), V, "DROP DATABASE `db`", 2, (), 12345678)


@pytest.mark.parametrize(
    ("root", "table"),
    [
        ("sl/x/meta/y", TableId("sl", "x/meta/y")),
        ("sl/x/y", TableId("sl/x", "y")),
        ("112", TableId("db", "a")),
        ("my db/schema_1_0000000001.json", TableId("my db", "schema_1_0000000001.json")),
        ("db/b", TableId("db", "a/..//b")),
        ("db/b", TableId("db", "/b")),
    ],
)
def test_true_names_come_from_the_contents(root: str, table: TableId) -> None:
    file = parsed(document(table.schema, table.table), f"{root}/meta/schema_{V}_0000000001.json")
    assert (file.root, file.table) == (root, table)


def test_schema_json_of_old_versions_has_no_checksum() -> None:
    assert parsed(document(), f"db/t/{V}/schema.json").checksum is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b'{"Table": "t"', "not JSON"),
        (b"\xff\xfe\xff", "not JSON"),
        ([], "expected one JSON object"),
        ({}, "Schema is missing"),
        (document(version=V + 1), "as in its name"),
        (document(table="other"), "expected the table of its directory"),
        (document(TableColumns=["a"]), "list of objects"),
        (document(TableColumnsTotal=5), "length of TableColumns"),
        (document(TableColumns=[{"ColumnName": "a"}]), 'column "a": ColumnType is missing'),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "INT", "ColumnPrecision": "x"}]), "digits in quotes"),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "ENUM", "ColumnElems": [1]}]), "list of texts"),
        (document(TableColumns=[{"ColumnName": "a", "ColumnType": "INT", "ColumnIsPk": "maybe"}]), '"true" or "false"'),
    ],
)
def test_a_malformed_schema_file_says_what_is_wrong(content: Any, message: str) -> None:
    with pytest.raises(MalformedSchemaFile, match=message) as raised:
        parsed(content)
    assert raised.value.where["file"] == f"db/t/meta/schema_{V}_0000000001.json"


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        ({"Table": "", "Schema": "schema1", "TableColumns": None}, 3233644819),
        (
            {"Table": "table1", "Schema": "schema1", "TableColumns": [
                {"ColumnName": "Id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnDefault": 10,
                 "ColumnNullable": "false", "ColumnIsPk": "true"},
                {"ColumnName": "LastName", "ColumnType": "VARCHAR", "ColumnPrecision": "128",
                 "ColumnDefault": "Default LastName", "ColumnNullable": "false"},
                {"ColumnName": "FirstName", "ColumnType": "VARCHAR", "ColumnPrecision": "64",
                 "ColumnDefault": "Default FirstName"},
                {"ColumnName": "Birthday", "ColumnType": "DATETIME", "ColumnDefault": 12345678},
            ]},
            3752767265,
        ),
        (
            {"Table": "table1", "Schema": "test", "TableColumns": [
                {"ColumnName": "col1", "ColumnType": "INT", "ColumnPrecision": "11"},
                {"ColumnName": "col2", "ColumnType": "VARCHAR", "ColumnPrecision": "5"},
            ]},
            4192708364,
        ),
    ],
)  # fmt: skip
def test_checksums_are_those_of_ticdcs_own_tests(content: dict[str, Any], checksum: int) -> None:
    assert schema_checksum(content) == checksum


# --- listing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    place = tmp_path / "feed"
    place.mkdir()
    put(place, "metadata", f'{{"checkpoint-ts":{V + 1}}}')
    return place


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PAUSES_SECONDS", (0.0, 0.0, 0.0))


def put(place: Path, path: str, content: str | dict[str, Any] = "x") -> None:
    file = place / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def put_schema(place: Path, content: dict[str, Any], root: str | None = None) -> str:
    own = "/".join(name for name in (content["Schema"], content["Table"]) if name)
    path = format_schema_path(SchemaPath(root or own, content["TableVersion"], schema_checksum(content)))
    put(place, path, content)
    return path


def open_feed(place: Path | str, parameters: str = "protocol=csv", **given: Any) -> Changefeed:
    return open_changefeed(ChangefeedSettings(**{"sink_uri": f"{place}?{parameters}", **given}))


def test_a_listing_holds_what_ticdc_wrote_and_counts_the_rest(bucket: Path) -> None:
    schema_path = put_schema(bucket, document())
    put_schema(bucket, document("db", "", TableColumns=None))
    put(bucket, f"db/t/{V}/2026-03-30/CDC000001.csv", "12345")
    put(bucket, f"db/t/{V}/2026-03-30/meta/CDC.index", "CDC000001.csv\n")
    put(bucket, f"db/t/{V}/2026-03-30/CDC000002.csv.tmp.d2be1b54")
    put(bucket, f"db/t/{V}/2026-03-30/CDC000003.csv", "")
    put(bucket, f"db/t/{V}/2026-03-30/CDC000004.json")
    put(bucket, "notes.txt")
    put(bucket, f"db/t/{V}/2026-03-30/CDC000001.bak")
    feed = open_feed(bucket)
    listing = feed.listing()
    directory = f"db/t/{V}/2026-03-30"
    (file,) = listing.data_files
    assert file == DataFile(f"{directory}/CDC000001.csv", "db/t", V, directory, 1, 5, file.etag, date="2026-03-30")
    assert listing.checkpoint == V + 1
    assert [one.table for one in listing.schema_files] == [TableId("db", ""), TableId("db", "t")]
    assert schema_path in {one.path for one in listing.schema_files}
    assert listing.ignored == {
        "unfinished upload (.tmp)": 1,
        "empty object": 1,
        "data file of another protocol (.json)": 1,
        "foreign name": 2,
    }
    assert listing.problems == {}
    assert len(listing.warnings) == 1
    assert feed.read(file) == b"12345"
    assert [feed.opener.read(index.path).strip() for index in listing.index_files] == [b"CDC000001.csv"]


def test_several_generations_live_in_one_bucket(bucket: Path) -> None:
    put(bucket, f"db/t/{V}/schema.json", document())
    put_schema(bucket, document(version=V + 5))
    for path in (
        f"db/t/{V}/CDC000001.csv",
        f"db/t/{V + 5}/2026-03-30/CDC{1:020d}.csv",
        f"db/t/{V + 5}/7/CDC_12_{3:020d}.csv",
    ):
        put(bucket, path)
    files = open_feed(bucket).listing().data_files
    assert [(file.version, file.number, file.partition, file.date, file.dispatcher) for file in files] == [
        (V, 1, "", "", ""),
        (V + 5, 1, "", "2026-03-30", ""),
        (V + 5, 3, "7", "", "12"),
    ]


def test_rows_without_a_schema_file_are_a_problem_of_theirs_alone(bucket: Path) -> None:
    put_schema(bucket, document())
    put(bucket, f"db/t/{V}/CDC000001.csv")
    put(bucket, f"db/u/{V}/CDC000001.csv")
    listing = open_feed(bucket).listing()
    assert [file.root for file in listing.data_files] == ["db/t"]
    assert list(listing.problems) == [f"db/u/{V}/CDC000001.csv"]
    assert f"db/u/meta/schema_{V}_" in listing.problems[f"db/u/{V}/CDC000001.csv"]


def test_a_malformed_schema_file_takes_its_rows_with_it_and_no_others(bucket: Path) -> None:
    put_schema(bucket, document())
    put(bucket, f"db/t/{V}/CDC000001.csv")
    broken = f"db/u/meta/schema_{V}_0000000001.json"
    put(bucket, broken, "{")
    put(bucket, f"db/u/{V}/CDC000001.csv")
    listing = open_feed(bucket).listing()
    assert [file.root for file in listing.data_files] == ["db/t"]
    assert set(listing.problems) == {broken, f"db/u/{V}/CDC000001.csv"}
    assert broken in listing.problems[f"db/u/{V}/CDC000001.csv"]


def test_a_wrong_checksum_is_a_warning_only(bucket: Path) -> None:
    put(bucket, f"db/t/meta/schema_{V}_0000000001.json", document())
    listing = open_feed(bucket).listing()
    assert len(listing.schema_files) == 1
    assert "checksum" in listing.warnings[0]


def test_two_descriptions_of_one_version_are_named(bucket: Path) -> None:
    paths = [
        put_schema(bucket, document()),
        put_schema(bucket, document(TableColumns=[{"ColumnName": "other", "ColumnType": "INT"}])),
    ]
    (warning,) = open_feed(bucket).listing().warnings
    assert all(path in warning for path in paths)


def test_names_that_a_rename_gives_one_table_id_in_one_version_are_no_conflict(bucket: Path) -> None:
    for table in ("tmp", "b"):
        put_schema(bucket, document(table=table), root="112")
    listing = open_feed(bucket, "protocol=csv&use-table-id-as-path=true").listing()
    assert (len(listing.schema_files), listing.warnings) == (2, ())


def test_data_files_of_another_protocol_alone_are_bad_settings(bucket: Path) -> None:
    put_schema(bucket, document())
    put(bucket, f"db/t/{V}/CDC000001.json")
    with pytest.raises(BadSettings, match=r"1 \.json; expected \.csv"):
        open_feed(bucket).listing()


def test_a_second_listing_opens_new_schema_files_only(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_schema(bucket, document())
    feed = open_feed(bucket)
    opened: list[str] = []

    def spy(path: str, data: bytes) -> SchemaFile:
        opened.append(path)
        return parse_schema_file(path, data)

    monkeypatch.setattr(changefeed_module, "parse_schema_file", spy)
    feed.listing()
    feed.listing()
    new = put_schema(bucket, document(version=V + 1))
    assert len(feed.listing().schema_files) == 2
    assert opened == [f"db/t/meta/{Path(opened[0]).name}", new]


def test_a_schema_file_that_vanishes_is_a_problem_and_no_crash(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_schema(bucket, document())
    feed = open_feed(bucket)
    entries = list(feed.opener.entries())
    (bucket / path).unlink()
    monkeypatch.setattr(Opener, "entries", lambda _: iter(entries))
    assert "is gone" in feed.listing().problems[path]


def test_metadata_is_read_before_listing(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = open_feed(bucket)
    checkpoint = feed.fence

    def then_the_writer_goes_on() -> int:
        before = checkpoint()
        put_schema(bucket, document())
        put(bucket, "metadata", f'{{"checkpoint-ts":{V + 99}}}')
        return before

    monkeypatch.setattr(feed, "fence", then_the_writer_goes_on)
    listing = feed.listing()
    assert (listing.checkpoint, len(listing.schema_files)) == (V + 1, 1)


@pytest.mark.parametrize(
    "name",
    [
        "star*q",
        "back\\slash",
        "per%cent",
        "quote'dq\"",
        "a{b}c",
        "plus+eq=amp&hash#",
        "数据",
        " x ",
        "[ab]",
        "~",
        "a?b",
    ],
)
def test_any_name_can_be_read_on_disk_and_in_memory(bucket: Path, name: str) -> None:
    put_schema(bucket, document(table=name))
    put(bucket, f"db/{name}/{V}/CDC000001.csv", "data")
    feed = open_feed(bucket)
    (file,) = feed.listing().data_files
    assert feed.read(file) == b"data"
    memory = fsspec.filesystem("memory")
    for source in (path for path in bucket.rglob("*") if path.is_file()):
        memory.pipe_file(f"/names/{name}/{source.relative_to(bucket)}", source.read_bytes())
    other = Opener("memory", f"/names/{name}", "memory://names")
    assert other.read(file.path) == b"data"
    memory.store.clear()


def test_a_feed_in_an_object_store_is_read_like_one_on_disk() -> None:
    memory = fsspec.filesystem("memory")
    schema = document()
    path = format_schema_path(SchemaPath("db/t", V, schema_checksum(schema)))
    memory.pipe_file("/feed/metadata", b'{"checkpoint-ts": 9007199254740993}')
    memory.pipe_file(f"/feed/{path}", json.dumps(schema).encode())
    memory.pipe_file(f"/feed/db/t/{V}/CDC000001.csv", b"rows")
    memory.pipe_file(f"/feed2/db/t/{V}/CDC000002.csv", b"rows of a neighbour")
    listing = open_feed("memory://feed").listing()
    assert (listing.checkpoint, [file.number for file in listing.data_files]) == (9007199254740993, [1])
    memory.store.clear()


def test_a_missing_middle_number_is_reported_and_a_missing_end_is_not() -> None:
    files = tuple(
        DataFile(f"{directory}/CDC{number}.csv", "db/t", V, directory, number, 1, dispatcher=dispatcher)
        for directory, dispatcher, numbers in (("a", "", (3, 4, 7, 10**18)), ("b", "1", (1, 2)), ("b", "2", (1, 3)))
        for number in numbers
    )
    assert missing_numbers(Listing(V, (), files)) == {
        ("a", ""): (range(5, 7), range(8, 10**18)),
        ("b", "2"): (range(2, 3),),
    }


# --- storage ----------------------------------------------------------------------------------------------------------


def test_a_missing_bucket_is_distinguished_from_one_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BucketMissing, match="does not exist"):
        open_feed(tmp_path / "none").fence()
    with pytest.raises(MetadataMissing, match="first checkpoint"):
        open_feed(tmp_path).fence()


NO_CHECKPOINTS = ("1.5", '"7"', "true", "-1", "9223372036854775808", "18446744073709551615", "1" + "0" * 5000)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"other": 1}', *(f'{{"checkpoint-ts": {value}}}' for value in NO_CHECKPOINTS)]
)
def test_metadata_that_is_none_says_what_it_holds(bucket: Path, content: str) -> None:
    put(bucket, "metadata", content)
    with pytest.raises(MetadataMissing, match="expected"):
        open_feed(bucket).fence()


def test_a_data_file_that_is_gone_is_an_error_of_the_input(bucket: Path) -> None:
    opener = open_feed(bucket).opener
    with pytest.raises(InputError, match="no longer exists"):
        opener.read(f"db/t/{V}/CDC000001.csv")


class _Flaky(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    protocol = "flaky"
    errors: Iterator[Exception] = iter(())

    def cat_file(self, *_: Any, **__: Any) -> bytes:
        for error in type(self).errors:
            raise error
        return b"at last"


@pytest.fixture
def flaky() -> Opener:
    fsspec.register_implementation("flaky", _Flaky, clobber=True)
    return Opener("flaky", "/p", "flaky://p", {"secret": "v3rys3cr3t"})


def test_transient_errors_are_tried_again(flaky: Opener) -> None:
    _Flaky.errors = iter([TimeoutError(), ConnectionResetError("reset")])
    assert flaky.read("x") == b"at last"


def test_a_storage_that_stays_away_is_unavailable_and_keeps_secrets(flaky: Opener) -> None:
    _Flaky.errors = iter([OSError(f"no answer for v3rys3cr3t, {n}") for n in range(9)])
    with pytest.raises(StorageUnavailable, match=r"4 attempts.*no answer for \*\*\*"):
        flaky.read("x")


def test_refused_access_is_not_tried_again(flaky: Opener) -> None:
    _Flaky.errors = iter([PermissionError("denied")])
    with pytest.raises(BucketMissing, match="credentials"):
        flaky.read("x")


def test_an_opener_travels_by_pickle_and_shows_no_options(bucket: Path) -> None:
    put(bucket, "a", "b")
    opener = pickle.loads(pickle.dumps(open_feed(bucket).opener))
    assert opener.read("a") == b"b"
    assert "v3rys3cr3t" not in repr(Opener("s3", "b/p", "s3://b/p", {"secret": "v3rys3cr3t"}))


def test_unknown_storage_options_are_bad_settings() -> None:
    with pytest.raises(BadSettings):
        Opener("no-such-storage", "/p", "x://p").read("a")


@given(NAMES)
def test_names_of_hypothesis_are_names_of_files(name: str) -> None:
    assume(name.strip("."))
    assert parse_schema_path(f"{name}/t/meta/schema_{V}_0000000001.json") == SchemaPath(f"{name}/t", V, 1)


# --- recorded buckets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(), ids=str)
def test_recorded_buckets_are_read_to_the_last_file(case: Case) -> None:
    for config in case.configs:
        for bucket in sorted(config.path.glob("bucket*")):
            listing = config.settings(bucket).open_source().listing()
            assert (listing.problems, listing.warnings) == ({}, ()), bucket
            assert set(listing.ignored) <= {"unfinished upload (.tmp)"}, bucket
            assert sum(map(len, (listing.data_files, listing.schema_files, listing.index_files))) == (
                sum(path.is_file() for path in bucket.rglob("*")) - 1 - sum(listing.ignored.values())
            )
            separators = {_separator(file.date) for file in listing.data_files}
            assert separators <= {config.options.date_separator}, bucket


def _separator(date: str) -> str:
    return ("none", "year", "month", "day")[date.count("-") + bool(date)]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_recorded_contents_equal_themselves_in_any_order_and_nothing_less(case: Case) -> None:
    for table in case.expected().values():
        names = [column["name"] for column in table.stored]
        rows = pa.table({name: pa.array([row[name] for row in table.rows[::-1]], pa.string()) for name in names})
        assert differences(table, rows) == []
        assert differences(table, rows.append_column("_cdc_commit_ts", rows.column(0))) == []
        if table.rows:
            assert differences(table, rows.slice(1)) != []
            assert differences(table, pa.concat_tables([rows, rows.slice(0, 1)])) != []
        if len(names) > 1:
            assert differences(table, rows.select(names[::-1])) != []


@pytest.mark.parametrize(
    ("kind", "recorded", "lake"),
    [
        ("tinyint(1)", "1", 1),
        ("int(8) unsigned zerofill", "00000042", 42),
        ("bigint(20) unsigned", "18446744073709551615", Decimal(2**64 - 1)),
        ("year(4)", "0000", 0),
        ("decimal(10,2)", "-0.10", Decimal("-0.10")),
        ("decimal(38,30)", "0.000000000000000000000000000001", Decimal("1E-30")),
        ("decimal(65,30)", "9.000000000000000000000000000001", "9.000000000000000000000000000001"),
        ("float", "123456.7", 123456.703125),
        ("double", "-0.00000000025", -2.5e-10),
        ("bit(1)", "1", True),
        ("bit(17)", "1FFFF", 131071),
        ("bit(64)", "FFFFFFFFFFFFFFFF", Decimal(2**64 - 1)),
        ("binary(4)", "41000000", b"A\0\0\0"),
        ("varchar(5)", " a ", " a "),
        ("time(2)", "-838:59:59.00", "-838:59:59.00"),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("date", "2020-00-00", None),
        ("datetime(2)", "2020-01-00 10:00:00.50", None),
        ("datetime(2)", "2020-01-02 10:00:00.50", dt.datetime(2020, 1, 2, 10, 0, 0, 500000)),
        ("timestamp", "2020-01-02 10:00:00", dt.datetime(2020, 1, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        ("vector(3)", "[1,0.1,-2]", [1.0, 0.10000000149011612, -2.0]),
        ("json", '{"k": [1, 2]}', '{"k": [1, 2]}'),
        ("set('x','y')", "x,y", "x,y"),
    ],
)
def test_a_recorded_text_and_the_lakes_value_are_the_same(kind: str, recorded: str, lake: Any) -> None:
    column = {"name": "c", "type": kind}
    assert canonical(recorded, column) == canonical(lake, column)


@pytest.mark.parametrize(
    ("kind", "recorded", "lake"),
    [
        ("decimal(10,2)", "1.50", Decimal("1.5")),
        ("date", "2020-01-02", None),
        ("varchar(5)", "", None),
        ("json", "null", None),
        ("datetime", "2020-01-02 10:00:00", dt.datetime(2020, 1, 2, 10, tzinfo=dt.timezone.utc)),
        ("json", '{"k":1}', '{"k": 1}'),
    ],
)
def test_what_is_only_close_is_not_the_same(kind: str, recorded: str, lake: Any) -> None:
    column = {"name": "c", "type": kind}
    assert canonical(recorded, column) != canonical(lake, column)
