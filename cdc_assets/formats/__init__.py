"""Wire formats: bytes of one data file -> one Arrow table of changes. Runs on Spark executors: no JVM, no Dagster.

A decoder returns `Decoded`: a table of changes whose shape does not depend on the format (see `decoded`), and what
does not fit. Values of masked columns are masked right after they are decoded, here and nowhere else.

Plugs stand in the tables below and in `protocols`. What several of them have in common:

    decoded           the columns that every decoder returns
    protocols         protocols of topics, and the options that decide how their messages were written
    dialect           delimited text: where its records end, how they are cut into fields
    changes           row images and the values of their columns -> changes, with what does not fit
    members           members of ENUM and SET by their numbers
    redaction         texts about rows without their values
    records           what messages hold, as columns by path, whoever read them
    json_records      JSON messages -> records: those of one shape side by side, the rest by a parser
    avro_records      Avro messages -> records: those of one schema side by side, the rest by fastavro
    simple_records    messages of the Simple protocol in its own Avro -> what its JSON says
    servers           whose connectors are read, and what others are called
    words             bytes at many places of a buffer at once
    values            values of messages by their types, column by column
    messages          change messages of a topic: what each speaks of, and the functions of a protocol
    column_codes      MySQL's numbers for column types, and TiCDC's flags
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Protocol

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.features.masks.formats import mask_values
from cdc_assets.formats.decoded import Content, Decoded
from cdc_assets.formats.protocols import MessageOptions
from cdc_assets.formats.redaction import conceal_errors
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso

__all__ = [
    "FORMATS",
    "INNER_FORMATS",
    "ReadRange",
    "SinkWire",
    "SplitReader",
    "UniformReader",
    "Wire",
    "conceal_blocks",
    "decode",
    "decode_among",
    "extension",
    "file_expansion",
    "has_text",
    "raw_records",
    "record_beginning",
    "record_identity",
    "record_places",
    "tells_new_rows",
    "wire_class",
]


class Wire(Protocol):
    """How the bytes of a split were written: the options of one format. Frozen, small and picklable."""

    format: ClassVar[str]
    """Name of the format, a key of FORMATS."""

    @property
    def commit_ts_option(self) -> str:
        """What to set at the source so that rows carry their commit-ts, "" where nothing does."""

    @property
    def places(self) -> str:
        """What orders rows without commit-ts: files, or offsets."""

    @property
    def has_commit_ts(self) -> bool:
        """Return whether rows carry their commit-ts."""

    @property
    def has_positions(self) -> bool:
        """Return whether windows can be cut by where rows stand: by their commit-ts, or by the place that landing gave.

        Else order is known by split only.
        """

    @property
    def is_unordered(self) -> bool:
        """Return whether rows that come twice may be taken for new ones."""

    @property
    def timezone(self) -> str:
        """The zone in which TIMESTAMP texts were written."""

    @property
    def deletes_have_keys_only(self) -> bool:
        """Return whether rows of a table without key that leave cannot be found: their values are not written."""

    @property
    def tells_inserts(self) -> bool:
        """Return whether the image of a new row differs from that of a changed one."""

    @property
    def members_are_numbers(self) -> bool:
        """Return whether ENUM and SET are written as numbers, whose names must come from the schema."""

    @property
    def members_way(self) -> str:
        """What a person can do where those names are missing, beside a CREATE TABLE in the feed."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings on which values may depend, by the names that a person gives them."""

    def having(self, settings: Mapping[str, str]) -> Wire:
        """Return a copy with these values of `settings` (name -> text); unknown names are passed over."""

    def read_by(self, column: Column) -> Mapping[str, object]:
        """Return what settings make of a column's texts, by name: equal for settings that give equal values."""


def tells_new_rows(wire: Wire) -> bool:
    """Return whether a row image says whether its row is new: updates differ from inserts, and repeats are known."""
    return wire.tells_inserts and not wire.is_unordered


def way_to_commit_ts(wire: Wire) -> str:
    """Return how rows come to carry a commit-ts, as a sentence that another way may follow."""
    return (
        f"If the changefeed has {wire.commit_ts_option}, give the same here (its TOML by --config, setting "
        "changefeed_config); else start it again with that"
    )


class SinkWire(Wire, Protocol):
    """A Wire that a sink URI names: the fields are TiCDC's options, with `_` for `-`, and have its defaults."""

    toml_options: ClassVar[Mapping[str, tuple[str, ...]]]
    """TiCDC's name of an option -> the table below [sink] of the changefeed TOML that has it."""
    uri_options: ClassVar[frozenset[str]]
    """The options that TiCDC also takes from the sink URI, which wins."""

    @property
    def complaint(self) -> str:
        """What TiCDC refuses in these options, "" for nothing."""


ReadRange = Callable[[int, int], bytes]
"""(start, end) -> the bytes of a file from start to before end, fewer where the file ends."""


class SplitReader(Protocol):
    """Reads splits wherever a task runs: picklable. Paths are those of the listing."""

    def read(self, path: str) -> Content:
        """Return what is in a split; raises InputError when it is gone."""

    def wire(self, path: str) -> Wire:
        """Return how a split was written."""


@dataclass(frozen=True, slots=True)
class UniformReader:
    """A reader of splits that were all written in one way."""

    options: Wire
    fetch: Callable[[str], bytes]

    def read(self, path: str) -> bytes:
        """Return the bytes of a split."""
        return self.fetch(path)

    def wire(self, path: str) -> Wire:
        """Return how every split was written."""
        return self.options


FORMATS: dict[str, str] = {"csv": "cdc_assets.formats.csv", "canal-json": "cdc_assets.formats.canal_json"}
"""Name of a format, as in a sink URI -> its folder, which has the modules `options` and `decode`.

`options.OPTIONS` is its SinkWire. `decode` has `decode`, `raw_records`, `record_beginning`,
`record_identity`, EXTENSION and FILE_EXPANSION.
"""

INNER_FORMATS: Mapping[str, str] = {"landed": "cdc_assets.formats.landed"}
"""What no sink URI names, how splits are framed that a source makes itself -> module that has what `decode` has."""


def wire_class(name: str) -> type[SinkWire]:
    """Return the options of a format; raises BadSettings that lists the known ones."""
    if name not in FORMATS:
        raise BadSettings(
            f'protocol "{name}" cannot be read; known are {", ".join(sorted(FORMATS))}. '
            "Give the sink URI exactly as TiCDC has it, with its protocol parameter."
        )
    options_type: type[SinkWire] = import_module(f"{FORMATS[name]}.options").OPTIONS
    return options_type


# --- messages of topics -----------------------------------------------------------------------------------------------


# --- masks ------------------------------------------------------------------------------------------------------------


# --- questions to a format --------------------------------------------------------------------------------------------


def _plug(wire: Wire) -> Any:
    return import_module(INNER_FORMATS.get(wire.format) or f"{FORMATS[wire.format]}.decode")


def decode(wire: Wire, data: Content, path: str, table: TableId, schema: TableSchema) -> Decoded:
    """Return the changes in a split by the masks of `schema`, whose columns its rows must have, and the name `table`.

    Nobody else asks a format for rows, so no value of a masked column is seen by anything but its decoder. `path` is
    for messages. Raises MalformedData where nothing of the file can be trusted: another column count than the
    schema, another table's rows, options that its bytes contradict.
    """
    decode_file: Callable[..., Decoded] = _plug(wire).decode
    if not schema.confidential:
        return decode_file(data, path, table, schema, wire)
    with conceal_errors(path, [schema]):
        return mask_values(decode_file(data, path, table, schema, wire), schema)


def conceal_blocks(blocks: Iterable[Decoded], path: str, schema: TableSchema) -> Iterator[Decoded]:
    """Yield rows of a source that is no feed, block by block, as the schema's masks have them.

    Raises MalformedData, with nothing of what stands at `path`, where the source does.
    """
    with conceal_errors(path, [schema]):
        for block in blocks:
            yield mask_values(block, schema)


def decode_among(
    wire: Wire, data: Content, path: str, tables: Sequence[tuple[TableId, TableSchema]]
) -> tuple[TableId, Decoded]:
    """Return whose rows a split has among tables, and its changes.

    Raises MalformedData of the first table where the split is of none of them, or has rows of several.
    """
    first: MalformedData | None = None
    schemas = [schema for _, schema in tables]
    with conceal_errors(path, schemas) if any(schema.confidential for schema in schemas) else nullcontext():
        for table, schema in tables:
            try:
                return table, decode(wire, data, path, table, schema)
            except MalformedData as error:
                first = first or error
        assert first is not None
        raise first


def has_text(wire: Wire) -> bool:
    """Return whether values stand in records as texts, so that they can be looked for in their bytes."""
    return not isinstance(wire, MessageOptions) or not (wire.kind.binary or wire.encoding_format != "json")


def raw_records(wire: Wire, data: Content, lines: Collection[int] | None) -> dict[int, bytes]:
    """Cut records out of a split by their lines, as `decode` counts them; those not there are left out.

    All whole records for None.
    """
    records: dict[int, bytes] = _plug(wire).raw_records(data, lines, wire)
    return records


def record_places(wire: Wire, data: Content, lines: Collection[int]) -> dict[int, str]:
    """Return the messages in which records came, by their lines: topic, partition, offset. Those of files have none."""
    places: dict[int, str] = {}
    if wire.format in INNER_FORMATS:
        places = _plug(wire).record_places(data, lines)
    return places


def commit_stamps(wire: Wire, data: Content) -> list[Tso | None]:
    """Return the commit-ts of each record of a split, also where its columns are not known.

    None stands for one that cannot be read, and for what follows the last whole record.
    """
    stamps: list[Tso | None] = _plug(wire).commit_stamps(data, wire)
    return stamps


def record_beginning(wire: Wire, raw: bytes) -> bytes:
    """Return what a record, whole or cut off, has in common with its copies from the start."""
    beginning: bytes = _plug(wire).record_beginning(raw)
    return beginning


def record_identity(wire: Wire, raw: bytes) -> object:
    """Return what is equal for copies of one record, however often it is written."""
    identity: object = _plug(wire).record_identity(raw)
    return identity


def extension(wire: Wire) -> str:
    """Return how names of this format's files end, with the dot."""
    return str(_plug(wire).EXTENSION)


def file_expansion(wire: Wire) -> int:
    """Return how many bytes of a file become one in memory."""
    return int(_plug(wire).FILE_EXPANSION)
