"""The page `docs/metrics.md`: every metric of `cdc-assets metrics` with its meaning.

`python -m cdc_assets.report.metrics_page > docs/metrics.md` writes the page anew.
"""

from __future__ import annotations

import sys

from cdc_assets.report.metrics import METRICS, PREFIX

_PAGE = """\
# Metrics

What `cdc-assets metrics` prints in the text format of Prometheus; all are gauges. This page is generated from the code
(`python -m cdc_assets.report.metrics_page`); a test compares the two. Alerts: [production.md](production.md#metrics).

Labels: `changefeed`, and of a table `table`. The lag has `stage` too (`written`, `checkpoint`, `applied`: see
[lag by stage](dagster.md#lag-by-stage)), a stopped table `state` (`held`, `failed`), what is not landed of a partition
`topic` and `partition`. A dropped or frozen table has no metrics, and a value that is not known has no line.

| metric | meaning |
| --- | --- |
"""


def metrics_page() -> str:
    """Return the page as Markdown."""
    return _PAGE + "".join(f"| `{PREFIX}{name}` | {meaning} |\n" for name, meaning in METRICS.items())


if __name__ == "__main__":
    sys.stdout.write(metrics_page())
