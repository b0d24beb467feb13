"""A changefeed's bucket: its listing, and storage that fails."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import assume, given

import cdc_assets.sources.storage_sink.source as changefeed_module
from cdc_assets.errors import (
    BadSettings,
    BucketMissing,
    InputError,
    MetadataMissing,
    StorageUnavailable,
)
from cdc_assets.io import storage
from cdc_assets.io.storage import Opener
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.paths import (
    SchemaPath,
    format_schema_path,
    parse_schema_path,
)
from cdc_assets.sources.storage_sink.schema_file import parse_schema_file, schema_checksum
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.changefeed import open_changefeed
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import V, document, file_column, write_schema
from cdc_assets_tests.sources.test_storage_paths import NAMES


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


def open_feed(place: Path | str, parameters: str = "protocol=csv", **given: Any) -> StorageSink:
    return open_changefeed(ChangefeedSettings(**{"sink_uri": f"{place}?{parameters}", **given}))


def test_a_listing_holds_what_ticdc_wrote_and_counts_the_rest(bucket: Path) -> None:
    schema_path = write_schema(bucket, document())
    write_schema(bucket, document("db", "", TableColumns=None))
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
    assert [schema_file.table for schema_file in listing.schema_files] == [TableId("db", ""), TableId("db", "t")]
    assert schema_path in {schema_file.path for schema_file in listing.schema_files}
    assert listing.ignored == {
        "unfinished upload (.tmp)": 1,
        "empty object": 1,
        "foreign name": 2,
    }
    assert listing.problems.keys() == {f"{directory}/CDC000004.json"}
    assert listing.warnings == ()
    assert feed.read(file) == b"12345"
    assert [feed.opener.read(index.path).strip() for index in listing.index_files] == [b"CDC000001.csv"]


def test_names_that_are_not_those_below_the_prefix_are_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    files.pipe_file("/folded/metadata", b'{"checkpoint-ts":7}')
    files.pipe_file(f"/folded/db/t/meta/schema_{V}_1.json", b"{}")
    feed, find = open_feed("memory://folded"), MemoryFileSystem.find
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "find", lambda self, path, **how: find(self, "/elsewhere", **how))
        with pytest.raises(BucketMissing, match=r"memory://folded/metadata can be read, and is not among the names"):
            feed.listing()
    assert feed.listing().checkpoint == 7
    MemoryFileSystem.store.clear()


def test_several_generations_live_in_one_bucket(bucket: Path) -> None:
    put(bucket, f"db/t/{V}/schema.json", document())
    write_schema(bucket, document(version=V + 5))
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
    write_schema(bucket, document())
    put(bucket, f"db/t/{V}/CDC000001.csv")
    put(bucket, f"db/u/{V}/CDC000001.csv")
    listing = open_feed(bucket).listing()
    assert [file.root for file in listing.data_files] == ["db/t"]
    assert list(listing.problems) == [f"db/u/{V}/CDC000001.csv"]
    assert f"db/u/meta/schema_{V}_" in listing.problems[f"db/u/{V}/CDC000001.csv"]


def test_a_malformed_schema_file_takes_its_rows_with_it_and_no_others(bucket: Path) -> None:
    write_schema(bucket, document())
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
        write_schema(bucket, document()),
        write_schema(bucket, document(TableColumns=[file_column("other", "INT")])),
    ]
    (warning,) = open_feed(bucket).listing().warnings
    assert all(path in warning for path in paths)


def test_names_that_a_rename_gives_one_table_id_in_one_version_are_no_conflict(bucket: Path) -> None:
    for table in ("tmp", "b"):
        write_schema(bucket, document(table=table), root="112")
    listing = open_feed(bucket, "protocol=csv&use-table-id-as-path=true").listing()
    assert (len(listing.schema_files), listing.warnings) == (2, ())


def test_data_files_of_another_protocol_alone_are_bad_settings(bucket: Path) -> None:
    write_schema(bucket, document())
    put(bucket, f"db/t/{V}/CDC000001.json")
    with pytest.raises(BadSettings, match=r"1 \.json; expected \.csv"):
        open_feed(bucket).listing()


def test_a_second_listing_opens_new_schema_files_only(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_schema(bucket, document())
    feed = open_feed(bucket)
    opened: list[str] = []

    def spy(path: str, data: bytes) -> SchemaFile:
        opened.append(path)
        return parse_schema_file(path, data)

    monkeypatch.setattr(changefeed_module, "parse_schema_file", spy)
    feed.listing()
    feed.listing()
    new = write_schema(bucket, document(version=V + 1))
    assert len(feed.listing().schema_files) == 2
    assert opened == [f"db/t/meta/{Path(opened[0]).name}", new]


def test_a_schema_file_that_vanishes_is_a_problem_and_no_crash(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_schema(bucket, document())
    feed = open_feed(bucket)
    entries = list(feed.opener.entries())
    (bucket / path).unlink()
    monkeypatch.setattr(Opener, "entries", lambda *_: iter(entries))
    assert "is gone" in feed.listing().problems[path]


def test_metadata_is_read_before_listing(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = open_feed(bucket)
    checkpoint = feed.fence

    def then_the_writer_goes_on() -> int:
        before = checkpoint()
        write_schema(bucket, document())
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
    write_schema(bucket, document(table=name))
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


def test_of_an_index_that_is_written_all_the_time_only_the_newest_contents_are_kept(tmp_path: Path) -> None:
    little = LittleFeed(tmp_path)
    little.create("s.t")
    settings = little.settings()
    pipeline = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"))
    kept = []
    for number in range(4):
        name = little.rows("s.t", FIRST, [("I", FIRST + number + 1, number, "a")]).name
        put(little.bucket, f"s/t/{FIRST}/meta/CDC.index", f"{name}\n" + "\n" * number)
        little.publish(FIRST + number + 2)
        pipeline.apply("run")
        kept.append((len(pipeline.planner._known), len(pipeline.source._recalled)))  # type: ignore[attr-defined]
    assert kept[-1] == (2, 2), "the schema file and the index"


def test_schema_files_with_other_checksums_are_told_in_one_sentence(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("s.a", "s.b", "s.c", "s.d"):
        feed.create(name)
        (written,) = (feed.bucket / name.replace(".", "/") / "meta").iterdir()
        written.rename(written.with_name(f"schema_{FIRST}_0000000001.json"))
    feed.publish(FIRST + 1)
    (warning,) = open_changefeed(feed.settings()).listing().warnings
    assert ("and 1 more schema file: the checksums in their names" in warning, warning.count("schema_")) == (True, 3)
