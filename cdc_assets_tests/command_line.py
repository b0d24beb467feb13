"""The command line, in a process of its own as a user starts it, or in this one where only the way it ends matters."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_assets.cli import main
from cdc_assets.operations import opening

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent


def run(*arguments: str, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a process of its own, as a user does."""
    environment = {name: value for name, value in os.environ.items() if name != "CDC_ASSETS_CONFIG"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run(
        [sys.executable, "-c", "from cdc_assets.cli import run_process; run_process()", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        timeout=600,
        check=False,
    )


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


Commands = Callable[..., Said]


@contextmanager
def commands_here(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Commands]:
    """Run commands in this process on a session that is there: nothing else of theirs is replaced."""
    opened: Callable[..., AbstractContextManager[object]] = partial(opening.open_pipeline, spark=lambda: spark)
    monkeypatch.setattr(opening, "open_pipeline", opened)
    yield commands_without_spark(monkeypatch, capsys)


def commands_without_spark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return what runs commands in this process, of which none comes to need Spark: it would start its own."""
    monkeypatch.delenv("CDC_ASSETS_CONFIG", raising=False)

    def run_here(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["cdc-assets", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, printed.out, printed.err)

    return run_here
