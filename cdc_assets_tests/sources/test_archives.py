"""Archives of every layout hold the same messages; those that lose what a protocol needs are refused."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, BucketMissing, InputError, MalformedData
from cdc_assets.model.offsets import LogEnds, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.sources import FeedInputs
from cdc_assets.sources.topics import connect_log, message_schema
from cdc_assets.sources.topics.archive import records as record_lines
from cdc_assets.sources.topics.archive.reader import ArchiveReader
from cdc_assets.sources.topics.options import topic_options
from cdc_assets_tests.canaries import found_in
from cdc_assets_tests.snappy_frames import framed_snappy
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

Message = tuple[bytes | None, bytes | None]
MESSAGES: list[Message] = [
    (b"k0", b"\n\x00a"),
    (None, b"\xff" * 40),
    (b"", b"{}"),
    (b"k3", b"line\nline"),
    (b"k4", b""),
]
CUT = 3  # messages in the first file


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in pieces that end anywhere, and keep pages on the disk."""
    monkeypatch.setattr("cdc_assets.sources.topics.archive.reader._PIECE_BYTES", 60)
    monkeypatch.setattr("cdc_assets.sources.topics.archive.reader._MEMORY_BYTES", 100)


def archive(directory: Path, layout: str, protocol: str = "craft", more: str = "") -> ArchiveReader:
    given = FeedInputs(archive=(str(directory), layout))
    options = topic_options(f"kafka://broker:9092/cdc?protocol={protocol}{more}", None, "UTC", given)
    reader = connect_log(options, {})
    assert isinstance(reader, ArchiveReader)
    return reader


def read(reader: ArchiveReader, start: int = 0, stop: int = 5) -> list[tuple[int, bytes | None, bytes | None]]:
    reader.ends(lambda topic: topic == "cdc")
    batches = list(reader.read(OffsetRange(Partition("cdc", 2), start, stop), batch_bytes=45))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["offset"], row["key"], row["value"]) for row in rows]


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def in_avro(values: Sequence[bytes | None], codec: str = "deflate", union: bool = True) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, ["null", "bytes"] if union else "bytes", values, codec=codec)
    return sink.getvalue()


def in_lines(values: Sequence[bytes | None]) -> bytes:
    return "".join(json.dumps(text(value)) + "\n" for value in values).encode()


def in_parquet(values: Sequence[bytes | None]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), sink)
    return sink.getvalue()


Encode = Callable[[Sequence[bytes | None]], bytes]
CONFLUENT: dict[str, tuple[str, Encode]] = {
    "avro": (".avro", in_avro),
    "avro, not compressed": (".avro", lambda values: in_avro(values, "null")),
    "avro, not a union": (".avro", lambda values: in_avro([value or b"" for value in values], union=False)),
    "json": (".json", in_lines),
    "json, compressed": (".json.gz", lambda values: gzip.compress(in_lines(values))),
    "parquet": (".parquet", in_parquet),
}


def confluent(
    directory: Path, ending: str, encode: Encode, *, keys: bool = True, starts: tuple[int, int] = (0, CUT)
) -> Path:
    place = directory / "topics" / "cdc" / "year=2026" / "month=11"
    place.mkdir(parents=True)
    for start, some in zip(starts, (MESSAGES[:CUT], MESSAGES[CUT:]), strict=True):
        (place / f"cdc+2+{start:010d}{ending}").write_bytes(encode([value for _, value in some]))
        if keys:
            (place / f"cdc+2+{start:010d}.keys{ending}").write_bytes(encode([key for key, _ in some]))
            (place / f"cdc+2+{start:010d}.headers{ending}").write_bytes(encode([b"[]" for _ in some]))
    (place / "other+2+0000000000.avro").write_bytes(b"of another feed")
    return directory


@pytest.mark.parametrize("kind", CONFLUENT)
def test_confluent_keeps_every_byte(tmp_path: Path, kind: str) -> None:
    reader = archive(confluent(tmp_path, *CONFLUENT[kind]), "confluent")
    assert reader.ends(lambda topic: topic == "cdc") == {Partition("cdc", 2): LogEnds(0, 5)}
    wanted = [(offset, key or b"" if "union" in kind else key, value) for offset, (key, value) in enumerate(MESSAGES)]
    assert read(reader) == wanted
    assert [offset for offset, *_ in read(reader, 1, 4)] == [1, 2, 3]


def test_confluent_without_keys_is_refused_for_open_protocol_alone(tmp_path: Path) -> None:
    directory = confluent(tmp_path, ".avro", in_avro, keys=False)
    assert [value for _, _, value in read(archive(directory, "confluent"))] == [value for _, value in MESSAGES]
    with pytest.raises(BadSettings, match=r"no file of keys .* store\.kafka\.keys=true"):
        read(archive(directory, "confluent", "open-protocol"))


@pytest.mark.parametrize("more", ["", "&encoding-format=avro"])
def test_lines_of_raw_bytes_are_refused_for_what_holds_line_breaks(tmp_path: Path, more: str) -> None:
    protocol = "simple" if more else "craft"
    directory = confluent(
        tmp_path, ".bin", lambda values: b"".join((value or b"") + b"\n" for value in values), keys=False
    )
    with pytest.raises(BadSettings, match="ends each message with a line break"):
        read(archive(directory, "confluent", protocol, more))


def test_lines_of_raw_bytes_are_read_for_json(tmp_path: Path) -> None:
    (tmp_path / "cdc+2+0000000000.bin").write_bytes(b'{"id":0}\n{"id":1}\n')
    assert read(archive(tmp_path, "confluent", "canal-json")) == [(0, None, b'{"id":0}'), (1, None, b'{"id":1}')]


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (7, r"3 messages for the offsets 0\.\.6 of cdc\[2\]: the file that has 3 is missing: bring it back\. Or some"),
        (2, r"3 messages for the offsets 0\.\.1 of cdc\[2\]: another file begins at 2, with messages that this one"),
    ],
)
def test_offsets_are_not_known_where_messages_are_missing_or_in_two_files(
    second: int, sentence: str, tmp_path: Path
) -> None:
    directory = confluent(tmp_path, ".avro", in_avro, starts=(0, second))
    with pytest.raises(InputError, match=sentence):
        read(archive(directory, "confluent"), 0, 9)


def test_an_archive_that_does_not_exist_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(BucketMissing, match=r"/topix does not exist; expected the directory of the archived topics"):
        read(archive(tmp_path / "topix", "records"))
    (tmp_path / "topix").mkdir()
    assert read(archive(tmp_path / "topix", "records")) == []


def test_messages_without_value_that_were_set_aside_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "cdc" / "tombstone"
    place.mkdir(parents=True)
    (place / "cdc+2+0000000000.keys.avro").write_bytes(in_avro([b"k"]))
    with pytest.raises(BadSettings, match="set aside"):
        read(archive(tmp_path, "confluent"))


def test_messages_that_were_decoded_before_are_refused(tmp_path: Path) -> None:
    sink = io.BytesIO()
    schema = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "int"}]}
    fastavro.writer(sink, schema, [{"id": 1}])
    (tmp_path / "cdc+2+0000000000.avro").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match="the messages were decoded before"):
        read(archive(tmp_path, "confluent"))


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_an_avro_file_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "cdc+2+0000000000.avro").write_bytes(in_avro([b"a" * 50, b"b"], "null")[:-cut])
    with pytest.raises(InputError, match="not an Avro file of raw messages"):
        read(archive(tmp_path, "confluent"))


# --- Aiven ------------------------------------------------------------------------------------------------------------


def jsonl(start: int, some: Sequence[Message]) -> bytes:
    lines: list[dict[str, Any]] = [
        {
            "key": text(key),
            "value": text(value),
            "offset": start + at,
            "timestamp": "2026-01-01T00:00:00Z",
            "headers": [],
        }
        for at, (key, value) in enumerate(some)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_csv(start: int, some: Sequence[Message]) -> bytes:
    sink = io.StringIO()
    rows: list[tuple[Any, ...]] = [(text(key) or "", text(value), start + at) for at, (key, value) in enumerate(some)]
    csv.writer(sink, lineterminator="\n").writerows(rows)
    return sink.getvalue().encode()


def xerial(data: bytes) -> bytes:
    block = bytes(pa.Codec("snappy").compress(data, asbytes=True))
    return b"\x82SNAPPY\x00" + bytes(8) + len(block).to_bytes(4, "big") + block


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


AIVEN: dict[str, tuple[str, Callable[[int, Sequence[Message]], bytes], str, Callable[[bytes], bytes]]] = {
    "jsonl": ("aiven", jsonl, "", bytes),
    "jsonl.gz": ("aiven", jsonl, ".gz", gzip.compress),
    "jsonl, zstd": ("aiven", jsonl, ".zst", zstd),
    "jsonl, snappy of Java": ("aiven", jsonl, ".snappy", xerial),
    "jsonl, framed snappy": ("aiven", jsonl, ".snappy", framed_snappy),
    "csv": ("aiven:key,value,offset", as_csv, ".gz", gzip.compress),
}


@pytest.mark.parametrize("kind", AIVEN)
def test_aiven_keeps_every_byte(tmp_path: Path, kind: str) -> None:
    layout, encode, ending, compress = AIVEN[kind]
    for start, some in ((0, MESSAGES[:CUT]), (CUT, MESSAGES[CUT:])):
        (tmp_path / f"cdc-2-{start}{ending}").write_bytes(compress(encode(start, some)))
    messages = read(archive(tmp_path, layout))
    wanted = [(offset, key or None if kind == "csv" else key, value) for offset, (key, value) in enumerate(MESSAGES)]
    if kind == "csv":  # an empty field is null
        wanted = [(offset, key, value or None) for offset, key, value in wanted]
    assert messages == wanted


def test_offsets_in_the_records_count_where_a_connector_skipped_some(tmp_path: Path) -> None:
    (tmp_path / "cdc-2-0").write_bytes(jsonl(0, MESSAGES[:2]))
    (tmp_path / "cdc-2-5").write_bytes(jsonl(5, MESSAGES[2:3]))
    assert [offset for offset, *_ in read(archive(tmp_path, "aiven"), 0, 9)] == [0, 1, 5]


def test_json_without_envelope_is_the_message(tmp_path: Path) -> None:
    (tmp_path / "cdc-2-0").write_bytes(b'{"id":0,"database":"a"}\n{"id":1,"database":"b"}\n')
    messages = read(archive(tmp_path, "aiven", "canal-json"))
    assert [value for _, _, value in messages] == [b'{"id":0,"database":"a"}', b'{"id":1,"database":"b"}']


def test_fields_that_were_not_given_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "cdc-2-0").write_bytes(as_csv(0, MESSAGES[:1]))
    with pytest.raises(BadSettings, match="has 3 fields, and the layout names value"):
        read(archive(tmp_path, "aiven"))


def test_a_message_of_any_length_is_read_from_csv(tmp_path: Path) -> None:
    long = [(b"k", b"{" + b" " * (200 << 10) + b"}")]
    (tmp_path / "cdc-2-0").write_bytes(as_csv(0, long))
    assert read(archive(tmp_path, "aiven:key,value,offset")) == [(0, *long[0])]


SECRET = "ann-7431@hidden.example"
IN_BASE64 = base64.b64encode(SECRET.encode()).decode()


@pytest.mark.parametrize(
    ("layout", "name", "line"),
    [
        ("aiven", "cdc-2-0", json.dumps({"value": SECRET})),
        ("aiven", "cdc-2-0", json.dumps({"value": "{}", "offset": SECRET})),
        ("aiven", "cdc-2-0", json.dumps({"value": "{}", "offset": True})),
        ("aiven:value,key", "cdc-2-0", f"{IN_BASE64},{SECRET}"),
        ("aiven:value,key", "cdc-2-0", f"{IN_BASE64[:-2]}!,{IN_BASE64}"),
        ("aiven:value,offset", "cdc-2-0", f"{IN_BASE64},{IN_BASE64}"),
        ("aiven:value", "cdc-2-0", f"{IN_BASE64}\xff"),
        ("records", "a.jsonl", json.dumps({"topic": "cdc", "partition": SECRET})),
        ("records", "a.jsonl", json.dumps({"topic": "cdc", "partition": 2, "offset": {"a": SECRET}})),
        ("confluent", "topics/cdc/partition=2/cdc+2+0000000000.json", json.dumps(SECRET)),
    ],
)
def test_what_is_said_of_a_record_that_cannot_be_read_has_nothing_of_it(
    tmp_path: Path, layout: str, name: str, line: str
) -> None:
    """Whether columns of its table are masked is not known before it is read."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(f"{line}\n".encode("latin-1"))
    with pytest.raises(MalformedData) as raised:
        read(archive(tmp_path, layout, "canal-json"))
    assert found_in(str(raised.value).encode(), [SECRET.encode(), SECRET[:12].encode()]) == []


def in_container(schema: str, codec: bytes) -> bytes:
    """Return an Avro file without blocks, whose codec may be all that stood behind it before a length was damaged."""
    texts = (b"avro.schema", schema.encode(), b"avro.codec", codec)
    return b"Obj\x01\x04" + b"".join(bytes([2 * len(content)]) + content for content in texts) + b"\0" + b"S" * 16


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cdc+2+0000000000.parquet", in_parquet([SECRET.encode()] * 3)[:-9]),
        ("cdc+2+0000000000.parquet", in_parquet([SECRET.encode()] * 3).replace(SECRET.encode(), bytes(30), 1)),
        ("cdc+2+0000000000.avro", in_container('"bytes"', b"null\0" + b"S" * 16 + SECRET.encode())),
        ("cdc+2+0000000000.avro", in_container(f'["null","{SECRET}"]', b"null")),
        ("cdc+2+0000000000.avro", in_container('[{"type":["null","bytes"]}]', b"null")),
    ],
    ids=["cut off", "a page", "a length", "a schema", "a schema in another"],
)
def test_what_is_said_of_a_container_that_is_damaged_names_its_file_and_has_nothing_of_it(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MalformedData, match=f"{re.escape(name)} is not a") as raised:
        read(archive(tmp_path, "confluent", "canal-json"))
    assert found_in(str(raised.value).encode(), [SECRET.encode(), SECRET[:12].encode()]) == []


def test_an_archive_of_another_layout_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cdc-2-0").write_bytes(jsonl(0, MESSAGES[:1]))
    with pytest.raises(BadSettings, match="none is called"):
        read(archive(tmp_path, "confluent"))


def test_an_unknown_layout_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="known are aiven, confluent, records"):
        archive(tmp_path, "parquet")


# --- records ----------------------------------------------------------------------------------------------------------


def record(offset: int, message: Message) -> dict[str, Any]:
    place = {"topic": "cdc", "partition": 2, "offset": offset, "timestamp_ms": 7}
    return {**place, "key_b64": text(message[0]), "value_b64": text(message[1]), "headers": []}


def records(directory: Path, name: str, some: Sequence[dict[str, Any]]) -> None:
    data = "".join(json.dumps(message) + "\n" for message in some).encode()
    (directory / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def test_records_of_any_order_in_any_files_are_one_log(tmp_path: Path) -> None:
    all_lines = [record(offset, message) for offset, message in enumerate(MESSAGES)]
    records(tmp_path, "b.jsonl.gz", all_lines[2:4])
    records(tmp_path, "a.jsonl", [all_lines[4], all_lines[1], all_lines[0], all_lines[1]])
    (tmp_path / "README.md").write_text("no messages")
    assert read(archive(tmp_path, "records")) == [(offset, *message) for offset, message in enumerate(MESSAGES)]


def test_two_messages_of_one_offset_are_refused(tmp_path: Path) -> None:
    records(tmp_path, "a.jsonl", [record(0, MESSAGES[0]), record(0, MESSAGES[1])])
    with pytest.raises(InputError, match=r"two messages of cdc\[2\] at offset 0"):
        read(archive(tmp_path, "records"))


ODD_LINES = ("", " ", '{"topic":"cdc","partition":1,"offset":2.5}', '{"topic":"cdc","partition":true,"offset":1}')


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.fixed_dictionaries(
            {"topic": st.sampled_from(("cdc", "ä")), "partition": st.integers(0, 3), "offset": st.integers(0, 2**62)},
            optional={
                "timestamp_ms": st.none() | st.integers(0, 2**41),
                "timestamp_type": st.none() | st.sampled_from(("", "create", "append")),
                "key_b64": st.none() | st.binary(max_size=9).map(text),
                "value_b64": st.none() | st.binary(max_size=40).map(text) | st.just("no base64") | st.just(17),
                "headers": st.none() | st.just([]) | st.just([["h", "AQI="]]) | st.just([{"name": "h"}]),
                "more": st.just({"offset": "x"}),
            },
        ).map(json.dumps)
        | st.sampled_from(ODD_LINES),
        max_size=4,
    ),
    st.integers(1, 80),
)
def test_lines_that_are_read_together_are_as_each_alone(lines: list[str], size: int) -> None:
    data = "\n".join(lines).encode()

    def read_file(_: str) -> Iterator[bytes]:
        return (data[start : start + size] for start in range(0, len(data), size))

    def outcome(tables: Callable[[], Iterable[pa.Table]]) -> object:
        try:
            return [row for table in tables() for row in table.to_pylist()]
        except MalformedData as error:
            return str(error)

    def alone() -> Iterator[pa.Table]:
        rows = [record_lines._message("f", at, line.encode()) for at, line in enumerate(filter(str.strip, lines), 1)]
        yield pa.Table.from_pylist(rows, schema=message_schema())

    assert outcome(lambda: record_lines._tables("f", read_file, message_schema().names)) == outcome(alone)


@pytest.mark.parametrize("line", ["{", '{"topic":"cdc"}', '{"topic":"cdc","partition":0,"offset":"1"}', "[]", "7"])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl line 1 is not a record of a message"):
        read(archive(tmp_path, "records"))


# --- tombstones that a sink connector left out ------------------------------------------------------------------------


def of_postgres(op: str, ident: int, lsn: int) -> Message:
    place = {"lsn": lsn, "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false", "ts_ms": lsn}
    source = {"connector": "postgresql", "name": "cdc", "db": "d", "schema": "public", "table": "t", **place}
    field = {"type": "int32", "optional": False, "field": "id"}
    structs = [{"type": "struct", "fields": [field], "optional": True, "field": name} for name in ("before", "after")]
    images = {"before": {"id": ident} if op == "d" else None, "after": None if op == "d" else {"id": ident}}
    value = {"schema": {"type": "struct", "fields": structs}, "payload": {**images, "source": source, "op": op}}
    return json.dumps({"id": ident}).encode(), json.dumps(value).encode()


STREAM: list[Message] = []
for _lsn, (_op, _ident) in enumerate([("c", 1), ("c", 2), ("d", 1), ("c", 3), ("d", 2), ("d", 3), ("c", 3), ("c", 4)]):
    STREAM.append(of_postgres(_op, _ident, 10 + _lsn))
    STREAM += [(STREAM[-1][0], None)] * (_op == "d")


def lines_of(kind: str, messages: Sequence[tuple[int, Message]]) -> dict[str, str]:
    """Return the files of a layout, by how their names end, with messages at these offsets."""
    start = messages[0][0]
    if kind == "confluent":
        sides = {".keys": [message[0] for _, message in messages], "": [message[1] for _, message in messages]}
        return {
            f"cdc+2+{start:010d}{side}.json": "".join(f"{(side_text or b'null').decode()}\n" for side_text in some)
            for side, some in sides.items()
        }
    rows: list[dict[str, Any]] = [
        {"key": text(key), "value": text(value), "offset": offset} for offset, (key, value) in messages
    ]
    if kind == "aiven without offsets":
        rows = [{name: row[name] for name in ("key", "value")} for row in rows]
    if kind == "records":
        more: dict[str, Any] = {"topic": "cdc", "partition": 2, "timestamp_ms": 0, "headers": []}
        rows = [{**more, "offset": row["offset"], "key_b64": row["key"], "value_b64": row["value"]} for row in rows]
    name = f"{start:010d}.jsonl" if kind == "records" else f"cdc-2-{start:010d}"
    return {name: "".join(json.dumps(row) + "\n" for row in rows)}


@pytest.mark.parametrize("kind", ["confluent", "aiven", "aiven without offsets", "records"])
@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize("cut", range(2, 7))
def test_tombstones_that_a_sink_connector_left_out_are_known_by_their_deletes(
    kind: str, in_one_go: bool, cut: int, tmp_path: Path
) -> None:
    """behavior.on.null.values = ignore, the default of Confluent's; files are cut at any message."""
    kept = [(offset, message) for offset, message in enumerate(STREAM) if message[1] is not None]
    reader = archive(tmp_path, kind.partition(" ")[0], "debezium-json")
    feed = TopicFeed.of(cast("MemoryLog", reader), sink_uri="kafka://h/cdc?protocol=debezium-json", name="c")
    for part in (kept[:cut], kept[cut:-1], kept[-1:]):
        for name, held in lines_of(kind, part).items():
            (tmp_path / name).write_text(held)
        if not in_one_go:
            assert [table.reason for table in feed.apply().tables if table.reason] == []
    outcome = feed.apply()
    assert (outcome.problems, [table.reason for table in outcome.tables if table.reason]) == ({}, [])
    assert sorted(row["id"] for row in feed.lake.read(TableId("public", "t")).to_pylist()) == [3, 4]
    assert [warning for warning in feed.listing().warnings if "messages without value are missing" in warning] == [
        "messages without value are missing in the archive of the topic cdc: they are taken for the tombstones behind "
        "its deletes, which sink connectors skip by default (behavior.on.null.values = ignore) (3 messages)."
    ]


@pytest.mark.parametrize(("lost", "has_tombstones"), [(1, False), (5, True), (4, True)])
def test_other_messages_that_are_missing_are_a_loss_though_there_are_deletes(
    lost: int, has_tombstones: bool, tmp_path: Path
) -> None:
    kept = [
        (offset, message)
        for offset, message in enumerate(STREAM)
        if offset != lost and (has_tombstones or message[1] is not None)
    ]
    for part in (kept[:4], kept[4:]) if lost != 5 else (kept[:5], kept[5:]):
        for name, held in lines_of("confluent", part).items():
            (tmp_path / name).write_text(held)
    with pytest.raises(InputError, match=r"behavior\.on\.null\.values = ignore"):
        read(archive(tmp_path, "confluent", "debezium-json"), 0, 9)
