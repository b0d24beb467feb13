"""A changefeed of small tables that a test writes itself, file by file, as TiCDC lays it out.

Every table is `id INT` (its key) and `v VARCHAR(40)`; rows are CSV or Canal-JSON with commit-ts. What TiCDC writes in
all its corners is in the recorded feeds; here a test says what appears when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cdc_assets.ledger import Ledger
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.pipeline import Pipeline, PipelineLake
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.schema_documents import document, file_column, write_schema

__all__ = ["FIRST", "LittleFeed"]

FIRST: Tso = 465283339517952001
"""A TSO to begin with."""

_ID = file_column("id", "INT", "11", is_key=True)
_V = file_column("v", "VARCHAR", "40")
_W = file_column("w", "INT", "11")


class LittleFeed:
    """A bucket under `directory`; names are `schema.table`."""

    def __init__(self, directory: Path, protocol: str = "csv") -> None:
        self.protocol = protocol
        self.bucket = directory / "bucket"
        self.bucket.mkdir(parents=True)
        self.toml = directory / "changefeed.toml"
        self.toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        self._files: dict[tuple[str, Tso], int] = {}

    def settings(self, name: str = "little", **more: Any) -> ChangefeedSettings:
        uri = f"file://{self.bucket}?protocol={self.protocol}&enable-tidb-extension=true"
        given: dict[str, Any] = {"name": name, "sink_uri": uri, **more}
        return ChangefeedSettings(changefeed_config=self.toml, **given)

    def pipeline_into(self, lake: PipelineLake, ledger: Ledger | None = None, **more: Any) -> Pipeline:
        """Return the pipeline of these settings into a lake, with a ledger of its own unless one is given."""
        settings = self.settings(**more)
        return Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://") if ledger is None else ledger)

    def create(self, name: str, at: Tso = FIRST, *, keyed: bool = True) -> None:
        table = name.partition(".")[2]
        key = " PRIMARY KEY" if keyed else ""
        self.ddl(name, at, f"CREATE TABLE `{table}` (`id` INT{key},`v` VARCHAR(40))", 3, keyed=keyed)

    def ddl(
        self,
        name: str,
        at: Tso,
        query: str,
        kind: int,
        *,
        wide: bool = False,
        columns: bool = True,
        keyed: bool = True,
        key: Mapping[str, str] | None = None,
    ) -> None:
        """Write the schema file of a DDL; `wide` tables have a third column `w INT`, `key` is said of the first."""
        schema, _, table = name.partition(".")
        first = {**_ID, **(key or {})} if keyed else {**_ID, "ColumnNullable": "true", "ColumnIsPk": "false"}
        columns_ = ([first, _V, _W] if wide else [first, _V]) if columns else []
        write_schema(self.bucket, document(schema, table, at, Query=query, Type=kind, TableColumns=columns_))

    def rows(self, name: str, version: Tso, rows: Iterable[tuple[str, Tso, int | str, str]]) -> Path:
        """Write a file of rows (I, U or D; commit-ts; id; v) into the directory of a version; return it."""
        schema, _, table = name.partition(".")
        number = self._files[name, version] = self._files.get((name, version), 0) + 1
        directory = self.bucket / schema / table / str(version)
        directory.mkdir(parents=True, exist_ok=True)
        if self.protocol == "csv":
            lines = [f'"{op}","{table}","{schema}",{ts},{key},"{text}"\r\n' for op, ts, key, text in rows]
        else:
            lines = [_canal_json(schema, table, *row) for row in rows]
        path = directory / f"CDC{number:020d}.{self.protocol.removeprefix('canal-')}"
        path.write_text("".join(lines), newline="")
        return path

    def publish(self, checkpoint: Tso) -> None:
        fresh = self.bucket / "metadata.tmp"
        fresh.write_text(json.dumps({"checkpoint-ts": checkpoint}))
        fresh.replace(self.bucket / "metadata")


def _canal_json(schema: str, table: str, op: str, ts: Tso, key: int | str, text: str) -> str:
    kind = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[op]
    row = {"id": str(key), "v": text}
    record = {"id": 0, "database": schema, "table": table, "pkNames": ["id"], "isDdl": False, "type": kind}
    record |= {"es": ts >> 18, "ts": ts >> 18, "sql": "", "sqlType": {"id": 4, "v": 12}}
    record |= {"mysqlType": {"id": "int", "v": "varchar"}, "old": [row] if op == "U" else None, "data": [row]}
    return json.dumps(record | {"_tidb": {"commitTs": ts}}, separators=(",", ":")) + "\r\n"
