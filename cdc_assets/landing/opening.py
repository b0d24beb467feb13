"""Settings -> a feed, with its landing where it is one of topics: those modules are imported for such a feed only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdc_assets.errors import BadSettings
from cdc_assets.io.scratch import scratch
from cdc_assets.io.storage import Opener
from cdc_assets.io.storage_uri import display, location, storage
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.offsets import Ends
from cdc_assets.sources import Source

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Executors, Landing
    from cdc_assets.landing.partition_reader import Registered
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings
    from cdc_assets.sources.topics.registry import Registry
    from cdc_assets.sources.topics.source import TopicsSource


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed that is open. `landing` is None where the feed is files, which need none."""

    source: Source
    landing: Landing | None = None


@contextmanager
def open_feed(
    settings: ChangefeedSettings, lake: LakeSettings | None, executors: Callable[[], Executors | None] = lambda: None
) -> Iterator[Feed]:
    """Open a feed. Topics are landed in the lake, or where there is none in a directory that goes with the block.

    In that case all that the topics hold is landed at once, so that it can be looked at. A landing asks `executors` for
    those that read large ranges.
    """
    masks, source = settings.masks, settings.open_source()  # a key that is missing is told before anything is read
    topics = _topics(settings, source)
    if topics is None:
        yield Feed(source)
        return
    if lake is not None:
        if settings.privacy and settings.privacy_key is None and not settings.landing.plain:
            raise BadSettings(
                "columns of this changefeed are masked, and its topics are landed before they are applied: the landing "
                "would have their values. Let it be encrypted, with a key from the environment (privacy_key: {env: "
                "NAME}), or consent that it has them in clear text (landing: {plain: true})."
            )
        with _landed(settings, topics, lake, masks.encryption_key, executors) as landing:
            yield Feed(source, landing)
        return
    from cdc_assets.settings.lake import LakeSettings

    with scratch() as directory:
        encryption_key = (
            EncryptionKey(os.urandom(32)) if masks else None
        )  # the directory goes, and nobody needs its key
        with _landed(settings, topics, LakeSettings.from_warehouse(directory), encryption_key, executors) as landing:
            landing.advance()
            yield Feed(source, landing)


def log_ends(settings: ChangefeedSettings) -> Ends:
    """Return the ends of a feed's topics now, in one round; nothing for a feed that is files."""
    topics = _topics(settings, settings.open_source())
    return topics.log.ends(topics.routing.concerns) if topics is not None else {}


def _topics(settings: ChangefeedSettings, source: Source) -> TopicsSource | None:
    """Return the topics of a feed, without the dumps that are joined to them; None for a feed that is files."""
    if not settings.source_options.is_landed:
        return None
    from cdc_assets.sources.joined import JoinedSource
    from cdc_assets.sources.topics.source import TopicsSource

    topics = source.feed if isinstance(source, JoinedSource) else source
    assert isinstance(topics, TopicsSource)
    return topics


@contextmanager
def _landed(
    settings: ChangefeedSettings,
    source: TopicsSource,
    lake: LakeSettings,
    encryption_key: EncryptionKey | None,
    executors: Callable[[], Executors | None],
) -> Iterator[Landing]:
    from cdc_assets.landing.iceberg import LandingTable
    from cdc_assets.landing.landing import Landing

    table = LandingTable(lake, settings.name, encryption_key)
    landing = Landing(
        lambda: source.log,
        source.options.messages,
        table,
        source.routing.concerns,
        _claims(settings, source),
        registry=_registry(settings),
        executors=executors,
        names_behind=source.names_behind,
        mark_interval_seconds=settings.landing.mark_interval_seconds,
        accept_unordered=settings.accept_unordered,
    )
    source.read_from(landing.landed, table.fetch)
    try:
        yield landing
    finally:
        table.close()


@dataclass
class _Registry:
    """A registry's schemas, wherever a task runs: picklable. It is connected to when first asked."""

    options: Mapping[str, Any] = field(repr=False)
    _connected: Registry | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection behind."""
        return {"options": self.options, "_connected": None}

    def __call__(self, schema_id: str) -> str | None:
        from cdc_assets.sources.topics.registry import connect

        if self._connected is None:
            self._connected = connect(self.options)
        return self._connected.schema(schema_id)


def _registry(settings: ChangefeedSettings) -> Registered | None:
    """Return the reader of a registry's schemas, None if no registry is given. Raises BadSettings."""
    from cdc_assets.sources.topics.registry import connect

    options = settings.registry()
    return _Registry(options, connect(options)) if options else None


@dataclass(frozen=True, slots=True)
class _Claims:
    """Reads claim-check files wherever a task runs: by their names below the changefeed's claim-check-storage-uri.

    `access` are fsspec's options.
    """

    uri: str
    access: Mapping[str, Any] = field(repr=False)

    def __call__(self, place: str) -> bytes:
        if not self.uri:
            raise BadSettings(
                f"a message lies at {place}, and the changefeed TOML names no claim-check-storage-uri. Give the TOML "
                "that TiCDC has."
            )
        protocol, prefix = location(self.uri)
        access = {**storage(self.uri), **self.access}
        opener = Opener(protocol, prefix.rstrip("/"), display(self.uri).rstrip("/"), access)
        return opener.read(place.rsplit("/", 1)[-1])


def _claims(settings: ChangefeedSettings, source: TopicsSource) -> _Claims:
    uri = source.options.claim_check_uri
    return _Claims(uri, settings.storage() if uri else {})
