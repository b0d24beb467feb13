"""A reader of mistreated buckets: every state of a `Mutant` is applied and compared with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.errors import MetadataMissing
from cdc_assets.io.storage import Opener
from cdc_assets.ledger import Ledger
from cdc_assets.model.splits import Listing, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import KnownFiles
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.changefeed import sink_options
from cdc_assets_tests.mutations import Mutant, State
from cdc_assets_tests.replay import compare

__all__ = ["play"]


@dataclass(frozen=True, slots=True)
class _Eye(Opener):
    """Reads the beginning of torn files the first time."""

    torn: dict[str, int] = field(default_factory=dict)

    def read(self, path: str) -> bytes:
        data = Opener.read(self, path)
        return data[: self.torn.pop(path)] if path in self.torn else data


class _Reader(StorageSink):
    """Lists, and then files go."""

    def __init__(self, settings: ChangefeedSettings, state: State) -> None:
        super().__init__(sink_options(settings), settings.storage())
        self.state = state
        plain = self.opener
        self.opener = _Eye(
            plain.protocol, plain.prefix, plain.uri, plain.options, pauses=(0.0, 0.0), torn=dict(state.torn)
        )

    def listing(self, known: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        listing = super().listing(known, settled)
        for path in self.state.gone:
            (self.state.bucket / path).unlink(missing_ok=True)
        return listing


_WAITS = "the file was cut off, or is still being written"
"""Where not even a commit-ts is left of the last record its table waits for the rest of the file."""


def play(mutant: Mutant, lake: Any, ledger: Ledger | None) -> list[str]:
    """Apply every state and return what differs from the source, with the sins that were done until then.

    Without a ledger each state is read with an empty one.
    """
    done: list[str] = []
    before: Tso = 0
    for state in mutant.states():
        done += [f"at {state.checkpoint.ts} {action}" for action in state.done]
        settings = mutant.config.settings(state.bucket)
        pipeline = Pipeline(settings, _Reader(settings, state), lake, ledger or Ledger("sqlite://"))
        wrong = _in_trouble(state, pipeline, before) if state.trouble else []
        expected = state.checkpoint.expected
        outcome = pipeline.apply("test")
        if state.torn and expected is not None:
            mismatches = compare(mutant.config, expected, lake, outcome)
            wrong += [line for line in mismatches if _WAITS not in line]
            state.torn.clear()
            outcome = Pipeline(settings, _Reader(settings, state), lake, pipeline.ledger).apply("test")
        mutant.applied = before = state.checkpoint.ts
        if expected is not None:
            wrong += compare(mutant.config, expected, lake, outcome)
        if wrong:
            return [f"{mutant.config} {mutant.sins} at {state.checkpoint.ts}", *wrong, *done]
    return []


def _in_trouble(state: State, pipeline: Pipeline, before: Tso) -> list[str]:
    """While `metadata` is not as it should be nothing may change, and the message has to say so."""
    metadata = state.bucket / "metadata"
    whole = metadata.read_bytes()
    stood = dict(pipeline.lake.applied())
    if state.trouble == "missing":
        metadata.unlink()
    else:
        metadata.write_bytes(whole[:-5] if state.trouble == "halfway" else b'{"checkpoint-ts":%d}' % max(before - 1, 0))
    wrong: list[str] = []
    try:
        outcome = pipeline.apply("test")
        if state.trouble != "behind":
            wrong.append(f"metadata was {state.trouble} and {outcome} came of it")
        elif before and not any(warning.rule == "older-copy" for warning in outcome.warnings):
            wrong.append(f"the checkpoint went back without a warning: {outcome.warnings}")
    except MetadataMissing:
        if state.trouble == "behind":
            raise
    now = pipeline.lake.applied()
    if any(now[life] != at for life, at in stood.items() if at.progress.tso >= before or state.trouble != "behind"):
        wrong.append(f"tables moved while metadata was {state.trouble}")
    metadata.write_bytes(whole)
    return wrong
