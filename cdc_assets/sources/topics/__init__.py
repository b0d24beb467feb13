"""Change messages in topics: what reads a log, whether a broker holds it or an archive.

    source          the feed, as far as it is landed; topics of one table each; messages that were missed
    fence           through which TSO everything is landed, and which names live then
    schemas         landed events, DDL texts, older tables and columns in messages -> schema files
    fillings        how tables that are older than their topics get the rows that they had
    columns_text    the columns in messages <-> the text of an event
    table_names     names of tables that messages write otherwise, or that differ in the case of letters only
    paths           names of what was landed
    routing         which topic a table goes to
    options         sink URI, changefeed TOML or a connector's configuration -> how messages were written, and where
    topic_options   the same, as values
    archive         topics in files
    kafka           the log of a broker
    registry        the schemas that messages name by an id

A log's plug is a folder here with the module `reader`, which has `connect(options, access) -> LogReader`: `options` is
a TopicOptions, `access` says how the log is reached, in clear text (librdkafka's options, or fsspec's).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from cdc_assets.errors import BadSettings
from cdc_assets.model.offsets import Ends, OffsetRange
from cdc_assets.sources.topics.topic_options import TopicOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BATCH_BYTES", "LOGS", "PUT_BACK", "LogReader", "connect_log", "message_schema"]

BATCH_BYTES = 16 << 20
"""About how many bytes of messages a batch holds."""
PUT_BACK = "put back"
"""The `timestamp_type` of a tombstone that an archive lacks."""

LOGS: Mapping[str, str] = {"archive": "cdc_assets.sources.topics.archive", "kafka": "cdc_assets.sources.topics.kafka"}
"""Kind of log that holds topics -> its folder."""


class LogReader(Protocol):
    """Reads topics in ranges of offsets, wherever a task runs: picklable. Nothing is ever written or committed.

    Errors name topic, partition and offset. Raises StorageUnavailable where the log does not answer (retry later),
    BucketMissing where it may not be read or is not there, InputError for what it should hold and does not.
    """

    @property
    def proves_ends(self) -> bool:
        """Return whether ends that are asked after a mark was read cover all that was written before that mark.

        A broker's do; an archive is written later, partition by partition, at its own pace.
        """

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        """Return the ends of all partitions of the topics that `concerns` accepts, asked in one round.

        A topic that does not exist is not in it. Partitions of an archive end where its files do.
        """

    def read(self, offset_range: OffsetRange, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, in order of their offsets, in batches of `message_schema()`.

        Ends by position: when nothing below `wanted.stop` is left, whether or not the last offset holds a message.
        Batches hold about `batch_bytes`, or one message that is larger. Raises InputError(gone=True) where the log
        starts above `wanted.start`.
        """

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return ids that distinguish topics from later ones of the same name, where such ids are known.

        Raises what `ends` raises.
        """

    def missing_because(self, topic: str) -> str:
        """Return the reason for offsets missing in a topic's range: "compacted", "transactional", or "" for a loss.

        Asked only when some are.
        """

    def keeps_deletes_ms(self, topic: str) -> int:
        """Return for how many milliseconds a compacted topic keeps the last message of a row that was deleted."""


def message_schema() -> pa.Schema:
    """Return the columns of messages.

    `timestamp` is milliseconds since 1970, `timestamp_type` "create" or "append", both null if the log has none; of a
    tombstone that an archive lacks, and that its reader put back, the latter is PUT_BACK.
    `key` and `value` are null where the message has none, which is not the same as no bytes.
    """
    import pyarrow as pa

    header = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.int64()),
            pa.field("timestamp_type", pa.string()),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(header)),
        ]
    )


def connect_log(options: TopicOptions, access: Mapping[str, Any]) -> LogReader:
    """Open the log that holds a feed's topics: its archive where one is given, else its broker."""
    kind = "kafka" if options.archive is None else "archive"
    try:
        plug = import_module(f"{LOGS[kind]}.reader")
    except ModuleNotFoundError as error:
        raise BadSettings(
            f"topics cannot be read from {kind}: {error.name} is not installed. Install it: pip install "
            "'cdc-assets[kafka]'. For an archive of the topics give --archive (setting archive)."
        ) from None
    reader: LogReader = plug.connect(options, access)
    return reader
