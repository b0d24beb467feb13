"""The path grammar of a storage sink: what is formatted is parsed back, in the layouts of all generations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.model.splits import IndexFile
from cdc_assets.sources.storage_sink.options import SinkOptions
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
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.schema_documents import V

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
    parsed_path = parse_data_path(format_data_path(path), options, {(path.root, path.version)})
    assert parsed_path is not None
    assert (parsed_path.root, parsed_path.version, parsed_path.number, parsed_path.directory) == (
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
    assert parse_data_path(path, schema_places={("12/5", 2024)}) == DataPath("12/5", 2024, 1, ".csv")
    assert parse_data_path(path, SinkOptions(date_separator="year"), {("12", 5)}) == DataPath(
        "12", 5, 1, ".csv", date="2024"
    )
    assert parse_data_path(path, SinkOptions(date_separator="none"), {("12", 5)}) == DataPath(
        "12", 5, 1, ".csv", partition="2024"
    )
    assert parse_data_path(path, schema_places={("other", 1)}) is None


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
    place = StorageSink(SinkOptions(), {}).place(path)
    assert place is not None
    assert (place.root, place.version) == ("db/t", V)
