"""The run config of a run over many tables: the sensor writes it, the job reads it, and the next tick reads it too."""

from typing import Any

import dagster as dg
from pydantic import Field


class CatchUpConfig(dg.Config):
    """Options of a run that applies tables to the checkpoint; all are optional."""

    tables: list[str] = Field(
        default_factory=list,
        description="Only these tables, and those that they exchange names or rows with, by present name or as "
        "`schema.table@first version`; default: all tables.",
    )
    exclude: list[str] = Field(default_factory=list, description="Tables to skip, if `tables` is empty.")
    keep_alive: bool = Field(
        default=False,
        description="Keep applying while the checkpoint moves, for the setting `run_keep_alive_seconds`.",
    )
    releases: dict[str, str] = Field(
        default_factory=dict,
        description="Held DDL to release: `schema.table@version` of the DDL -> skip, rebuild, apply, or "
        "`apply: <the DDL text that says what really happened>`; with a TSO in place of the version `new-settings`: "
        "rows from there on are written as the settings say now. For example "
        '`{"shop.orders@449013045469052931": "skip"}`.',
    )
    confirmed: bool = Field(
        default=False, description="Set to true to release a DDL by which rows are deleted: that cannot be undone."
    )


def op_of(job_name: str) -> str:
    """Return the name of the job's only op."""
    return f"{job_name}_tables"


def format_run_config(job_name: str, tables: list[str], exclude: list[str], *, keep_alive: bool) -> dict[str, Any]:
    """Return the run config that requests tables; the inverse of parse_run_config."""
    config = {"tables": tables, "exclude": exclude, "keep_alive": keep_alive}
    return {"ops": {op_of(job_name): {"config": config}}}


def parse_run_config(job_name: str, run_config: object) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tables of a run, none for all, and those that it excludes, for any run of the job."""
    config = _config_of(job_name, run_config)
    return frozenset(config.get("tables", ())), frozenset(config.get("exclude", ()))


def does_it_all(job_name: str, run_config: object, config: CatchUpConfig) -> bool:
    """Return whether a run of the job lives on and takes all tables that one with this config takes."""
    tables, exclude = parse_run_config(job_name, run_config)
    wanted_tables, left_out = frozenset(config.tables), frozenset(config.exclude)
    takes_all = (
        bool(wanted_tables) and wanted_tables <= tables
        if tables
        else not exclude & wanted_tables
        if wanted_tables
        else exclude <= left_out
    )
    return takes_all and bool(_config_of(job_name, run_config).get("keep_alive"))


def _config_of(job_name: str, run_config: object) -> dict[str, Any]:
    section: Any = run_config
    for part in ("ops", op_of(job_name), "config"):
        section = section.get(part) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else {}
