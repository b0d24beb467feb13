"""Recorded cases whose rows lie elsewhere, as the sink's reuse of directories allows, end equal all the same.

A sink looks for a schema file with the checksum of a row's columns and takes the directory of the highest version, so
rows around a DDL that leaves the checksum as it is may lie in the older or in the newer directory, and a restart
delivers rows of before a DDL again into what is there by then.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fsspec
import pytest

from cdc_assets.history.history import read_history
from cdc_assets.history.policies import Rules
from cdc_assets.ledger import Ledger
from cdc_assets.model.splits import DataFile, Listing, SchemaFile
from cdc_assets.model.table_history import Event
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare

Files = dict[str, bytes]
Refiling = Callable[[Listing, Files], Files]

EVERY = [
    config
    for case in cases()
    if case.name.startswith(("A_", "B_", "C_", "D_", "E_", "F_", "I_", "K_", "M_"))
    for config in case.configs
    if config.options.wire.has_commit_ts and not config.name.startswith("na-") and not config.name.endswith("-nopart")
]
"""Old architecture: the new one drops what it delivers again into a newer directory."""
CHOSEN = ("C_ddl_tables/canal-ext", "D_keys/csv-old")
FEW = [config for config in EVERY if str(config) in CHOSEN]

_NUMBERS = itertools.count()
_BEGIN_OR_END = (3, 4, 25, 60)
"""CREATE, DROP and RECOVER TABLE: rows do not cross them."""


# --- buckets ----------------------------------------------------------------------------------------------------------


def recorded(config: Config) -> Files:
    bucket = config.bucket()
    return {p.relative_to(bucket).as_posix(): p.read_bytes() for p in sorted(bucket.rglob("*")) if p.is_file()}


class Played:
    """A bucket in memory that is applied to a lake again and again."""

    def __init__(self, config: Config) -> None:
        self.root = f"refiled{next(_NUMBERS)}"
        self.settings = config.settings(sink_uri=f"memory://{self.root}?{config.recorded_options['sink_uri_params']}")
        self.memory = fsspec.filesystem("memory")
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")

    def put(self, files: Files) -> None:
        for path, data in files.items():
            self.memory.pipe_file(f"/{self.root}/{path}", data)

    def apply(self, checkpoint: Tso) -> Outcome:
        self.put({"metadata": b'{"checkpoint-ts":%d}' % checkpoint})
        return Pipeline(self.settings, self.settings.open_source(), self.lake, self.ledger).apply("test")

    @property
    def listing(self) -> Listing:
        return self.settings.open_source().listing()

    @property
    def journaled(self) -> set[Tso]:
        return {entry.tso for entry in self.ledger.journal(self.settings.name)}


@contextmanager
def played(config: Config, files: Files) -> Iterator[Played]:
    bucket = Played(config)
    bucket.put(files)
    yield bucket
    bucket.ledger.close()
    bucket.memory.rm(f"/{bucket.root}", recursive=True)


# --- refiling ---------------------------------------------------------------------------------------------------------


def alike(listing: Listing) -> Iterator[list[SchemaFile]]:
    """Yield runs of a table's schema files with one checksum, oldest first; a birth or death ends a run."""
    roots: dict[str, list[SchemaFile]] = {}
    for file in sorted(listing.schema_files, key=lambda f: f.version):
        if file.table.table:
            roots.setdefault(file.root, []).append(file)
    for files in roots.values():
        run: list[SchemaFile] = []
        for file in files:
            if run and (file.checksum != run[-1].checksum or file.type in _BEGIN_OR_END):
                yield run
                run = []
            run.append(file)
        yield run


def moved(data: DataFile, version: Tso, files: Files) -> str:
    """The path of one more file in the directory of another version of the same table."""
    directory = data.directory.replace(f"/{data.version}", f"/{version}", 1)
    name = data.path.rpartition("/")[2]
    width = len(re.sub(r"^CDC(_.*_)?|\..*$", "", name))
    there = [p for p in files if p.rpartition("/")[0] == directory and p.endswith(name[-4:])]
    highest = max((int(re.findall(r"([0-9]+)\.", p)[-1]) for p in there), default=0)
    return f"{directory}/CDC{highest + 1:0{width}d}{name[name.rindex('.') :]}"


def _gather(listing: Listing, files: Files, choose: Callable[[list[Tso]], Tso]) -> Files:
    files = dict(files)
    for run in alike(listing):
        versions = [file.version for file in run]
        goal = choose(versions)
        for data in sorted(listing.data_files, key=lambda f: (f.version, f.directory, f.number)):
            if data.root == run[0].root and data.version in versions and data.version != goal:
                files[moved(data, goal, files)] = files.pop(data.path)
    return files


def to_the_oldest(listing: Listing, files: Files) -> Files:
    """Rows after a DDL that leaves the checksum as it is stay in the directory of before it."""
    return _gather(listing, files, min)


def to_the_newest(listing: Listing, files: Files) -> Files:
    """Rows before such a DDL come later, into the directory of after it."""
    return _gather(listing, files, max)


def delivered_again(listing: Listing, files: Files) -> Files:
    """Restarts from before every DDL: its directory's rows and those before it once more, where the sink puts them."""
    files = dict(files)
    highest = {file.version: run[-1].version for run in alike(listing) for file in run}
    keyed = {(f.root, f.version): any(column.is_pk for column in f.columns) for f in listing.schema_files}
    for data in sorted(listing.data_files, key=lambda f: (f.version, f.directory, f.number)):
        if keyed[data.root, data.version] or len(commits(data, files[data.path])) > 1:
            files[moved(data, highest[data.version], files)] = files[data.path]
    return files


def commits(data: DataFile, content: bytes) -> set[bytes]:
    """The commit-ts in a file. A single one delivered twice in a row looks like a split transaction."""
    pattern = rb'"commitTs":([0-9]+)' if data.path.endswith(".json") else rb"\b(4[0-9]{17})\b"
    return set(re.findall(pattern, content))


VARIANTS = (to_the_oldest, to_the_newest, delivered_again)


def check_refiled(config: Config, refile: Refiling) -> None:
    original = recorded(config)
    with played(config, original) as bucket:
        listing = bucket.listing
    files = refile(listing, original)
    filled = {(data.root, data.version) for data in listing.data_files}
    several = any(len(run) > 1 and filled & {(f.root, f.version) for f in run} for run in alike(listing))
    assert files != original or not several
    final = config.checkpoints[-1]
    with played(config, files) as often, played(config, files) as once:
        for checkpoint in config.checkpoints:
            outcome = often.apply(checkpoint.ts)
            if checkpoint.expected is not None:
                assert compare(config, checkpoint.expected, often.lake, outcome) == [], checkpoint.note
        outcome = once.apply(final.ts)
        assert final.expected is not None
        assert compare(config, final.expected, once.lake, outcome) == []


@pytest.mark.parametrize("refile", VARIANTS, ids=lambda refile: refile.__name__)
@pytest.mark.parametrize("config", FEW, ids=str)
def test_refiled_rows_end_equal_to_the_source(config: Config, refile: Refiling) -> None:
    check_refiled(config, refile)


@pytest.mark.soak
@pytest.mark.parametrize("refile", VARIANTS, ids=lambda refile: refile.__name__)
@pytest.mark.parametrize("config", [c for c in EVERY if c not in FEW], ids=str)
def test_refiled_rows_end_equal_to_the_source_in_every_configuration(config: Config, refile: Refiling) -> None:
    check_refiled(config, refile)


# --- a checkpoint before its DDL --------------------------------------------------------------------------------------


def check_late_ddl(config: Config) -> None:
    files = recorded(config)
    with played(config, files) as bucket:
        listing = bucket.listing
    appears = {file.path: file.version for file in listing.schema_files}
    appears |= {file.path: file.version for file in listing.data_files}
    late = {file.version for file in listing.schema_files if file.query}
    expected = {checkpoint.ts: checkpoint.expected for checkpoint in config.checkpoints if checkpoint.expected}
    before = 0
    with played(config, {}) as bucket:
        for moment in sorted({*late, *expected}):
            bucket.put({path: data for path, data in files.items() if before < appears.get(path, 0) < moment})
            outcome = bucket.apply(moment)
            assert not bucket.journaled & {moment}
            if moment in expected:
                assert compare(config, expected[moment], bucket.lake, outcome) == [], moment
            bucket.put({path: data for path, data in files.items() if appears.get(path) == moment})
            before = moment
            bucket.apply(moment)
        assert late & {event.at for event in events(bucket)} == late & bucket.journaled


def events(bucket: Played) -> list[Event]:
    """Every DDL of a table that is more than a fact."""
    listing = bucket.listing
    history = read_history(listing.schema_files, listing.checkpoint, Rules(keys=bucket.settings.keys))
    return [event for table in history.lives.values() for event in table.events if not event.neutral]


@pytest.mark.parametrize("config", FEW[1:], ids=str)
def test_a_checkpoint_may_be_published_before_the_schema_file_of_its_ddl(config: Config) -> None:
    check_late_ddl(config)


@pytest.mark.soak
@pytest.mark.parametrize("config", [c for c in EVERY if c not in FEW[1:]], ids=str)
def test_a_checkpoint_may_be_published_before_any_ddl_in_every_configuration(config: Config) -> None:
    check_late_ddl(config)
