"""Feeds and lakes in an object store with a REST catalog: what is asked there, and how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.servers.counted import Counted, counted
from cdc_assets_tests.servers.lakes import Stores
from cdc_assets_tests.servers.object_store import BUCKET, OWNER, object_store
from cdc_assets_tests.servers.poured import pour

__all__ = ["Asked", "Away", "away"]

FEED = "bench-feed"


@dataclass
class Asked:
    """What was asked between two looks: of the store for the feed and for the lake, and of the catalog."""

    feed: Counter[str]
    lake: Counter[str]
    catalog: int

    @property
    def stored(self) -> int:
        """How many requests the store got."""
        return sum(self.feed.values()) + sum(self.lake.values())

    def notes(self) -> dict[str, Any]:
        """Return the counts, for a figure's notes."""
        return {"feed": dict(self.feed), "lake": dict(self.lake), "catalog": self.catalog}


class Away:
    """An object store behind a counter, and a REST catalog over it."""

    def __init__(self, home: Path, running: ExitStack) -> None:
        self._home = home
        self._store = running.enter_context(object_store(home / "store", small_bytes=1024))
        self._stores = Stores(self._store, home / "catalogs", running)
        self._way: Counted = running.enter_context(counted(self._store.endpoint))
        self._at = (0, 0)

    def upload(self, bucket: Path, name: str) -> None:
        """Copy a feed's files into the store, `metadata` last."""
        files = self._store.files
        paths = [path for path in bucket.rglob("*") if path.is_file()]
        for path in sorted(paths, key=lambda path: path.name == "metadata"):
            files.pipe_file(f"{BUCKET}/{FEED}/{name}/{path.relative_to(bucket)}", path.read_bytes())

    def put(self, name: str, files: Iterable[tuple[str, bytes]]) -> int:
        """Write files of a feed, each a path and its bytes; return how many."""
        return pour(self._store, ((f"{FEED}/{name}/{path}", data) for path, data in files))

    def uri(self, name: str, query: str) -> str:
        """Return the sink URI of a feed."""
        return f"s3://{BUCKET}/{FEED}/{name}?{query}&endpoint={self._way.endpoint}"

    def settings(self, name: str, query: str, config: Path, decode: str = "auto") -> Path:
        """Write the settings of that feed into a lake of its own; return their file."""
        lake = self._stores.settings("rest", **{"s3.endpoint": self._way.endpoint})
        uri = self.uri(name, query)
        login = {"key": OWNER[0], "secret": OWNER[1], "client_kwargs": {"region_name": "us-east-1"}}
        feed = {"name": "away", "sink_uri": uri, "storage_options": login, "decode": decode}
        if config.exists():
            feed["changefeed_config"] = str(config)
        file = self._home / f"{name}.yaml"
        place = {"warehouse": lake.warehouse, "catalog": lake.catalog, "name": lake.name}
        ledger = f"sqlite:///{file.with_suffix('.db')}"
        file.write_text(yaml.safe_dump({"lake": {**place, "ledger": ledger}, "changefeeds": [feed]}))
        return file

    def feed(self, feed: Feed, name: str) -> Path:
        """Upload a generated feed and return its settings."""
        self.upload(feed.bucket, name)
        return self.settings(name, urlsplit(feed.uri).query, feed.directory / "changefeed.toml")

    def asked(self) -> Asked:
        """Return what was asked since this was called before."""
        seen, catalog = len(self._way.requests), len(self._stores.rest.requests())
        since, self._at = self._at, (seen, catalog)
        feed, all_kinds = self._way.kinds(since[0], FEED), self._way.kinds(since[0])
        return Asked(feed, all_kinds - feed, catalog - since[1])


@contextmanager
def away(home: Path) -> Iterator[Away]:
    """Run the servers, their files in `home`."""
    with ExitStack() as running:
        yield Away(home, running)
