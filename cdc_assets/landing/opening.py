"""Settings -> a feed, with its landing where it is one of topics."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.landing.landing import Landing
from cdc_assets.model.offsets import Ends
from cdc_assets.sources import Source
from cdc_assets.sources.joined import Joined
from cdc_assets.sources.topics.source import TopicsSource

if TYPE_CHECKING:
    from cdc_assets.settings.config import ChangefeedSettings, LakeSettings

__all__ = ["Feed", "log_ends", "open_feed"]


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed that is open. `landing` is None where the feed is files, which need none."""

    source: Source
    landing: Landing | None = None


@contextmanager
def open_feed(settings: ChangefeedSettings, lake: LakeSettings | None) -> Iterator[Feed]:
    """Open a feed. Topics are landed in the lake, or where there is none in a directory that goes with the block.

    In that case all that the topics hold is landed at once, so that it can be looked at.
    """
    source = settings.open_source()
    topics = source.feed if isinstance(source, Joined) else source
    if not isinstance(topics, TopicsSource):
        yield Feed(source)
        return
    if lake is not None:
        with _landed(settings, topics, lake) as landing:
            yield Feed(source, landing)
        return
    from cdc_assets.settings.config import LakeSettings

    directory = tempfile.mkdtemp(prefix="cdc-assets-landing-")
    try:
        with _landed(settings, topics, LakeSettings.from_warehouse(directory)) as landing:
            landing.advance()
            yield Feed(source, landing)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def log_ends(settings: ChangefeedSettings) -> Ends:
    """Return the ends of a feed's topics now, in one round; nothing for a feed that is files."""
    source = settings.open_source()
    topics = source.feed if isinstance(source, Joined) else source
    return topics.log.ends(topics.routing.concerns) if isinstance(topics, TopicsSource) else {}


@contextmanager
def _landed(settings: ChangefeedSettings, source: TopicsSource, lake: LakeSettings) -> Iterator[Landing]:
    from cdc_assets.landing.iceberg import LandingTable

    table = LandingTable(lake, settings.name)
    landing = Landing(
        lambda: source.log,
        source.options.messages,
        table,
        source.routing.concerns,
        _claims(settings, source),
        registry=_registry(settings),
        mark_interval_seconds=settings.mark_interval_seconds,
    )
    source.passes_bad = settings.quarantine
    source.read_from(landing.landed, table.fetch)
    landing.names_behind = source.names_behind
    try:
        yield landing
    finally:
        table.close()


def _registry(settings: ChangefeedSettings) -> Callable[[str], str | None] | None:
    """Return the reader of a registry's schemas, None if no registry is given."""
    from cdc_assets.sources.topics.registry import connect

    options = settings.registry()
    return connect(options).schema if options else None


def _claims(settings: ChangefeedSettings, source: TopicsSource) -> Callable[[str], bytes]:
    """Read claim-check files: by their names below the changefeed's claim-check-storage-uri."""
    from cdc_assets.errors import BadSettings
    from cdc_assets.io.storage import Opener
    from cdc_assets.io.storage_uri import display, location, storage

    uri = source.options.claim_check_uri

    def read(place: str) -> bytes:
        if not uri:
            raise BadSettings(
                f"a message lies at {place}, and the changefeed TOML names no claim-check-storage-uri. Give the TOML "
                "that TiCDC has."
            )
        protocol, prefix = location(uri)
        access = {**storage(uri), **settings.storage()}
        opener = Opener(protocol, prefix.rstrip("/"), display(uri).rstrip("/"), access)
        return opener.read(place.rsplit("/", 1)[-1])

    return read
