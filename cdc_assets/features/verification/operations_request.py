"""The operation `verify`: what is asked for, and its command, job and schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.operations.requests import TABLES, Operation, Request, Schedule, option

if TYPE_CHECKING:
    from cdc_assets.settings.config import ChangefeedSettings


@dataclass(frozen=True)
class VerifyRequest(Request):
    """Tables to compare, and how; default: those of the setting `verify.tables`, or all."""

    tables: Sequence[str] = option(
        "Only these tables, as `schema.table` or `schema.*`.", (), metavar=TABLES, argument=True
    )
    quiet: bool = option("State that nothing is written into the tables while they are compared.", False)
    repair: bool = option("Write the source's rows of the keys that differ into the tables, in one commit each.", False)
    where: str = option("Compare these rows only: \"id >= 1000 AND day < '2025-06-01'\".", metavar="CONDITION")
    sample: str = option("Compare a share of the rows, chosen by their key: 1%.", metavar="SHARE")
    cut: str = option("Compare tables as they are in a cut, with the source of then.", metavar="NAME")
    source: str = option("The server that has the tables: mysql://user@host:4000.", metavar="URI", place="command")
    password_env: str = option(
        "Environment variable that has the password of --source.", metavar="NAME", place="command"
    )
    dump: str = option("Compare with a dump instead, for tables that stand at its TSO.", metavar="URI", place="command")
    details: Sequence[str] = option(
        "Details of --dump: at, tz, separator, delimiter, null-value, escape-backslash, dialect, header.",
        (),
        flag="--dump-option",
        metavar="NAME=VALUE",
        place="command",
    )
    threads: int | None = option(
        "Connections that read the source at once (default: 4).", None, value=int, least=1, most=64, place="command"
    )
    limit_rate: int | None = option(
        "Rows a second that are read of the source.", None, metavar="ROWS", value=int, least=1, place="command"
    )
    shown: int | None = option(
        "Rows of a table to name (default: 100).", None, metavar="ROWS", value=int, least=0, place="command"
    )

    def check(self) -> None:
        """Raise BadSettings where a table has two others to be compared with."""
        if self.source and self.dump:
            raise BadSettings("--source and --dump exclude each other: tables are compared with one of them.")

    def check_settings(self, settings: ChangefeedSettings) -> None:
        """Raise BadSettings where neither the request nor the settings name what tables are compared with."""
        if not (self.source or self.dump):
            settings.verify.server  # noqa: B018 - it raises where there is none

    def check_done(self, parts_done: Iterable[object]) -> None:
        """Raise BadSettings where no table is called as those that are named."""
        if self.tables and not any(True for _ in parts_done):
            raise BadSettings(
                f"no table is called like {', '.join(self.tables)}. Give names, identities or patterns of tables."
            )


OPERATION = Operation(
    name="verify",
    request=VerifyRequest,
    module="cdc_assets.features.verification.operations",
    summary="Compare tables with their source, row by row; repair them.",
    text="""Compare each TABLE with its source, row by row: the source as it was at the TSO through which it is applied.

    A TiDB is read as of the fence; any other server as it is now, with --quiet. Reads only, unless --repair says
    otherwise. Exits with 1 where a table is different or could not be compared.
    """,
    examples=(
        "verify shop.orders --source mysql://reader@tidb:4000 --password-env TIDB_PASSWORD",
        "verify --sample 1%",
        "verify shop.orders --repair",
    ),
    job="Compares tables with the source of the changefeed's `verify` settings, row by row, as of the TSO "
    "through which they are applied. Fails where a table is different or could not be compared; writes only "
    "if `repair` is said.",
    work="Compare each table with the source as of the fence, and log its check with the rows that differ.",
    in_lake=True,
    writes=False,
    schedule=Schedule("verification", "verify", "Compares the tables with their source."),
)
