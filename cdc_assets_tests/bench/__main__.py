"""`python -m cdc_assets_tests.bench`: run scenarios, print a table, write JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cdc_assets.jvm.java import prepare_environment
from cdc_assets_tests.bench.freshness import SCENARIOS
from cdc_assets_tests.bench.scenarios import Figure, Place

MEMORY_LIMIT_MB = 3_000
_VERSIONS = ("cdc-assets", "duckdb", "pandera", "polars", "pyarrow", "pyiceberg", "pyspark")


def measure(names: list[str], place: Place) -> list[Figure]:
    """Run scenarios one after the other and print each figure as it comes."""
    figures: list[Figure] = []
    for name in names:
        inside = Place(place.directory / name, place.scale, place.minutes)
        begun = time.perf_counter()
        for figure in SCENARIOS[name](inside):
            figures.append(figure)
            print(line(figure), flush=True)
        print(f"{'':<12} {name} took {time.perf_counter() - begun:.0f} s", flush=True)
    theirs = ("DuckDB", "plain Spark")
    peaks = [(f.notes.get("peak_pss_mb", 0), f.scenario) for f in figures if not f.what.startswith(theirs)]
    if any(peak for peak, _ in peaks):
        peak, where = max(peaks)
        figures.append(Figure("memory", f"driver, workers and JVM together, in {where}", peak, "MB", MEMORY_LIMIT_MB))
        print(line(figures[-1]))
    return figures


def unmeasured(figures: Iterable[Figure]) -> list[str]:
    """Return a sentence for each figure that cannot be one, so that nobody writes it down."""
    return [
        f"{figure.scenario}: {figure.what} came out as {figure.value:g}" for figure in figures if not figure.measured
    ]


def line(figure: Figure) -> str:
    """Return a figure as a line of the table."""
    verdict = {None: "", True: "met", False: "NOT met"}[figure.met]
    limit = "" if figure.limit is None else f"at most {figure.limit:g}"
    cpu = figure.notes.get("cpu_seconds", "")
    spent = f"cpu {cpu if not isinstance(cpu, list) else min(cpu)}" if cpu != "" else ""
    return (
        f"{figure.scenario:<12} {figure.what:<58}{figure.value:>9.3f} {figure.unit:<2} {limit:<14}{verdict:<8}{spent}"
    ).rstrip()


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    prepare_environment()
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "python": platform.python_version(),
        "java": output.partition("\n")[0],
        "cores": os.cpu_count(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "system": platform.platform(),
        "load": os.getloadavg(),
    }


def main() -> None:
    """Measure, print, write JSON."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets_tests.bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(SCENARIOS), help="one scenario; may be repeated")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; targets are for 1")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the scenarios that measure a stretch of time")
    parser.add_argument("--json", type=Path, default=Path("bench.json"))
    parser.add_argument("--directory", type=Path, help="where to work; default: a temporary directory")
    given = parser.parse_args()
    report = {"machine": machine(), "versions": {name: version(name) for name in _VERSIONS}, "scale": given.scale}
    with tempfile.TemporaryDirectory(dir=given.directory) as directory:
        figures = measure(given.only or list(SCENARIOS), Place(Path(directory), given.scale, given.minutes))
    written = [{**dataclasses.asdict(figure), "met": figure.met} for figure in figures]
    given.json.write_text(json.dumps({**report, "figures": written}, indent=2))
    missed = sum(figure.met is False for figure in figures)
    print(f"{len(figures)} figures, {missed} targets not met at scale {given.scale:g}; all in {given.json}")
    if wrong := unmeasured(figures):
        sys.exit("what was counted or timed was not there: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
