"""From a source's change feed to Iceberg tables.

    model, errors        values that cross a stage, and the tree of errors
    types, io, jvm       type tables and value rules; bytes from any store; Java and jars
    formats, ddl, ledger wire formats, bytes -> changes; DDL texts and schemas; what was read and done
    sources, history     a kind of feed a folder; what every table was called and looked like, when
    decoding             one window: read, decode, filter, validate, upgrade, reduce
    preflight, planning  is the feed safe to apply? listing + applied state -> ordered steps
    settings             changefeeds.yaml and flags
    lake                 Iceberg: state, staging, one guarded commit
    landing              topics on their way: ranges in, rows and events of the landing table out
    pipeline             the spine: look, plan, run each step
    report, operations   how things are shown; what people ask for, and the wiring
    defs, cli            Dagster; the command line

Each may import only those above it.

    split       an immutable piece of input: where, how large, which table, what decodes it
    position    what orders changes and cuts windows; the commit-ts where rows carry one
    fence       the TSO through which everything is in what a source lists: a changefeed's checkpoint
    life        a table from its birth to its drop, whatever it is called meanwhile
    window      the changes of one table with lo < position <= hi
    step        what one commit does to one table: a DDL, or the rows of a window
    label       progress as properties of the snapshot that a step made
    hold        a table that stops at a DDL or at rows, until a person or a file lets it go on
    release     a person's decision that lets a hold go
    landing     messages of topics stored once and as they came, from which tables are applied; one commit of it
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
