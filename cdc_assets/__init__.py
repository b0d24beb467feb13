"""From a source's change feed to Iceberg tables.

    model, errors        values that cross a stage, and the tree of errors
    types, io, jvm       type tables and value rules; bytes from any store; Java and jars
    formats, ddl, ledger wire formats, bytes -> changes; DDL texts and schemas; what was read and done
    sources, history     a kind of feed a folder; what every table was called and looked like, when
    decoding             one window: read, decode, validate, filter, upgrade, dedupe
    preflight, planning  is the feed safe to apply? listing + applied state -> ordered steps
    settings             changefeeds.yaml and flags
    lake                 Iceberg: state, staging, one guarded commit
    pipeline             the spine: look, plan, run each step
    report, operations   how things are shown; what people ask for, and the wiring
    defs, cli            Dagster; the command line

Each may import only those above it.
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
