"""Observe a feed for the sensor: how far it is complete, and which messages of topics wait in it.

    files    one small read
    topics   one round to the log, compared with what is landed; marks alone are landed here, now and then

A feed stays open between looks, with what was learned of it, so that each costs only what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock

from dagster_aws.s3 import S3Resource

from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import InputError, MetadataMissing
from cdc_assets.landing.landing import Landing, News
from cdc_assets.landing.opening import Feed, open_feed
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.sources import Source


@dataclass(frozen=True, slots=True)
class FeedNow:
    """A feed as it is now: its fence, 0 where `missing` says why there is none, and what of topics is not landed.

    `lost` says why a landing will fail.
    """

    checkpoint: Tso
    news: News | None = None
    missing: str = ""
    lost: str = ""

    @property
    def has_news(self) -> bool:
        """Return whether a run is to land something."""
        return bool(self.lost) or (self.news is not None and self.news.more_than_marks)

    @property
    def sentence(self) -> str:
        """Describe the messages that wait to be landed; "" if none does."""
        if self.lost:
            return self.lost
        return f"{counted(self.news.behind, 'message')} not landed" if self.news is not None and self.has_news else ""


class Watch:
    """Looks at one feed again and again."""

    def __init__(self, source: ConfiguredFeed) -> None:
        self._source = source
        self._lock = Lock()
        self._open = ExitStack()
        self._is_landed = source.changefeed.source_options.is_landed
        self._files: Source | None = None
        self._feed: Feed | None = None
        self._fence: tuple[object, Tso, str] | None = None

    def look(self, s3: Callable[[], S3Resource]) -> FeedNow:
        """Return the feed as it is now; `s3` is asked for credentials when the feed is opened.

        Raises MetadataMissing for files without a checkpoint, and Retryable.
        """
        with self._lock:
            try:
                return self._look_at_topics(s3) if self._is_landed else self._look_at_files(s3)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close what is open; the next look opens it again."""
        self._open.close()
        self._files = self._feed = self._fence = None

    def _look_at_files(self, s3: Callable[[], S3Resource]) -> FeedNow:
        if self._files is None:
            self._files = self._source.with_credentials(s3()).open_source()
        return FeedNow(self._files.fence())

    def _look_at_topics(self, s3: Callable[[], S3Resource]) -> FeedNow:
        if self._feed is None:
            feed = open_feed(self._source.with_credentials(s3()), self._source.lake)
            self._feed = self._open.enter_context(feed)
        landing = self._feed.landing
        assert landing is not None
        try:
            news, lost = landing.news(), ""
            if news.due and not news.more_than_marks:
                landing.advance()
        except InputError as error:
            news, lost = None, error.message
        # The fence is determined again only when something was landed.
        stored = landing.store.stored()
        if self._fence is None or self._fence[0] != stored:
            try:
                self._fence = (stored, self._feed.source.fence(), "")
            except MetadataMissing as problem:
                self._fence = (stored, 0, str(problem))
        checkpoint, missing = self._fence[1:]
        return FeedNow(checkpoint, news, missing, lost)


def has_more(feed_landing: Landing | None) -> bool:
    """Return whether topics have something to land by now."""
    if feed_landing is None:
        return False
    news = feed_landing.news()
    return news.more_than_marks or news.due
