"""From a TiDB changefeed in object storage to Iceberg tables.

changefeed/ ──▶ history ──▶ plan ──▶ pipeline ──▶ lake/ ──▶ Iceberg
  listing         lives      steps     run each     ▲
                    ▲                                │ staged Parquet
                  ddl/      formats/ ──▶ checks ──▶ evolution ──▶ reduce
                            └──────── window, on Spark's executors ────┘
"""

# Dagster's components are found as attributes of a package. This one loads when it is asked for, so that importing the
# package stays free.
_COMPONENTS = {"Changefeed": "cdc_assets.defs.component"}


def __getattr__(name: str) -> object:
    if name not in _COMPONENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(_COMPONENTS[name], fromlist=[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_COMPONENTS})
