"""Texts by which engines connect to a lake and read a table as of a snapshot; they run where they are pasted.

Secrets are never part of it: what holds one is read from the environment, by the variable that the settings name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from cdc_assets.jvm.jars import EXTRAS, JARS

if TYPE_CHECKING:
    from cdc_assets.lake.names import Identifier
    from cdc_assets.settings.lake import LakeSettings

ATTACHED = ("rest", "glue")
"""The types of catalogs that DuckDB can attach; of others it reads a table's metadata file."""

STATEMENTS: Mapping[str, tuple[str, str]] = {
    "spark": ("`", "SELECT {columns} FROM {table} VERSION AS OF {snapshot}{where}"),
    "trino": ('"', "SELECT {columns} FROM {table} FOR VERSION AS OF {snapshot}{where}"),
    "duckdb": ('"', "SELECT {columns} FROM {table} AT (VERSION => {snapshot}){where}"),
    "pyiceberg": (
        "",
        "catalog.load_table({name!r}).scan({filter}{selected}snapshot_id={snapshot}).to_arrow(){renamed}",
    ),
}
"""Quoting of names and reading of a snapshot, by engine; the lake's catalog has the name that the settings give it."""

_SCAN = "SELECT {columns} FROM iceberg_scan({metadata}, snapshot_from_id => {snapshot}){where}"
"""DuckDB's way to read a snapshot of a catalog that it cannot attach."""


def snapshot_statements(
    lake: LakeSettings,
    name: Identifier,
    metadata: str,
    snapshot: int,
    condition: str = "",
    columns: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the statement by engine that reads a snapshot of the table of that name and metadata file.

    It has all columns, or those named here, each under another name; Trino has none where it has no such catalog.
    """

    def quoted(text: str, sign: str) -> str:
        return f"{sign}{text.replace(sign, 2 * sign) if sign else text}{sign}"

    def listed(sign: str) -> str:
        pairs = [(quoted(column, sign), quoted(shown, sign)) for column, shown in (columns or {}).items()]
        return ", ".join(column if column == shown else f"{column} AS {shown}" for column, shown in pairs) or "*"

    renamed = columns is not None and any(column != shown for column, shown in columns.items())
    templates = dict(STATEMENTS)
    if lake.catalog["type"] not in ATTACHED:
        templates["duckdb"] = ('"', _SCAN)
    if lake.catalog_file is not None:
        del templates["trino"]
    return {
        engine: text.format(
            columns=listed(sign),
            table=".".join(quoted(part, sign) for part in (lake.name, *name)),
            name=name,
            metadata=_sql_text(metadata),
            snapshot=snapshot,
            where=f" WHERE {condition}" if condition else "",
            filter=f"{condition!r}, " if condition else "",
            selected=f"selected_fields={tuple(columns)!r}, " if columns else "",
            renamed=f".rename_columns({dict(columns or {})!r})" if renamed else "",
        )
        for engine, (sign, text) in templates.items()
    }


def connections(lake: LakeSettings) -> dict[str, str]:
    """Return the lines by engine that connect it to the lake: before statements, in the engine's own language.

    Those of Spark begin the program `spark-sql`, those of Trino are a file of its configuration.
    """
    return {engine: connect(lake) for engine, connect in _CONNECTIONS.items()}


def _spark(lake: LakeSettings) -> str:
    jars = [
        *JARS[: 2 if lake.catalog_file is not None else 1],
        *(jar for extra in lake.extras for jar in EXTRAS[extra]),
    ]
    properties = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **lake.spark_properties(),
    }
    hidden = _without_secrets(lake)
    lines = [f"spark-sql --packages {','.join(jar.coordinates for jar in jars)}"]
    for name, value in properties.items():
        prefix = f"spark.sql.catalog.{lake.name}."
        lines.append(f"--conf {_shell_word(f'{name}={hidden(name.removeprefix(prefix), value)}')}")
    return " \\\n  ".join(lines)


def _pyiceberg(lake: LakeSettings) -> str:
    hidden, lines = _without_secrets(lake), []
    for name, value in lake.pyiceberg_properties().items():
        lines.append(f"        {json.dumps(name)}: {_python_text(hidden(name, str(value)))},\n")
    pairs = "".join(lines)
    imports = "import os\n\n" if "os.environ[" in pairs else ""
    call = f"catalog = load_catalog(\n    {json.dumps(lake.name)},\n    **{{\n{pairs}    }},\n)"
    return f"{imports}from pyiceberg.catalog import load_catalog\n\n{call}"


def _duckdb(lake: LakeSettings) -> str:
    loaded = "INSTALL iceberg; LOAD iceberg;"
    properties = lake.pyiceberg_properties()
    if not lake.warehouse.startswith(("/", "file:")):
        loaded += f" INSTALL httpfs; LOAD httpfs; CREATE SECRET (TYPE {_store(lake)}, PROVIDER credential_chain);"
    if lake.catalog["type"] == "glue":
        account = properties.get("glue.id", "ACCOUNT_ID")
        return f"{loaded}\nATTACH {_sql_text(account)} AS {lake.name} (TYPE iceberg, ENDPOINT_TYPE glue);"
    if lake.catalog["type"] == "rest":
        client = "CLIENT_ID 'CLIENT', CLIENT_SECRET 'SECRET'"
        scope = f", OAUTH2_SCOPE {_sql_text(properties['scope'])}" if "scope" in properties else ""
        server = properties.get("oauth2-server-uri", f"{properties['uri'].rstrip('/')}/v1/oauth/tokens")
        return (
            f"{loaded}\nCREATE SECRET catalog (TYPE iceberg, {client}{scope}, OAUTH2_SERVER_URI {_sql_text(server)});\n"
            f"ATTACH {_sql_text(properties.get('warehouse', ''))} AS {lake.name} "
            f"(TYPE iceberg, ENDPOINT {_sql_text(properties['uri'])}, SECRET catalog);"
        )
    return loaded


def _store(lake: LakeSettings) -> str:
    return {"gs": "gcs", "abfs": "azure", "abfss": "azure"}.get(lake.warehouse.partition("://")[0], "s3")


def _trino(lake: LakeSettings) -> str:
    if lake.catalog_file is not None:
        return (
            "-- Trino has no catalog of the type JDBC on SQLite. Give the lake a REST, Glue, Hive or Postgres catalog."
        )
    hidden = _without_secrets(lake)

    def shown(name: str, value: str) -> str:
        return _VARIABLE.sub(r"${ENV:\1}", hidden(name, value))

    properties, prefix = lake.pyiceberg_properties(), f"spark.sql.catalog.{lake.name}."
    spark = {name.removeprefix(prefix): value for name, value in lake.spark_properties().items()}
    kind = lake.catalog["type"]
    lines = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": {"hive": "hive_metastore"}.get(kind, kind),
    }
    if kind == "rest":
        lines["iceberg.rest-catalog.uri"] = properties["uri"]
        lines["iceberg.rest-catalog.warehouse"] = properties.get("warehouse", "")
        if "credential" in properties:
            lines["iceberg.rest-catalog.security"] = "OAUTH2"
            lines["iceberg.rest-catalog.oauth2.credential"] = shown("credential", properties["credential"])
        lines["iceberg.rest-catalog.vended-credentials-enabled"] = "true"
    elif kind == "hive":
        lines["hive.metastore.uri"] = properties["uri"]
    elif kind == "jdbc":
        lines |= {
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": shown("uri", spark["uri"]),
            "iceberg.jdbc-catalog.catalog-name": lake.name,
            "iceberg.jdbc-catalog.default-warehouse-dir": lake.warehouse,
            "iceberg.jdbc-catalog.connection-user": spark.get("jdbc.user", ""),
            "iceberg.jdbc-catalog.connection-password": shown("jdbc.password", spark.get("jdbc.password", "")),
        }
    store = {"gcs": "gcs", "azure": "azure"}.get(_store(lake), "s3")
    lines[f"fs.native-{store}.enabled"] = "true"
    head = f"-- etc/catalog/{lake.name}.properties of Trino:\n"
    return head + "\n".join(f"--   {name}={value}" for name, value in lines.items() if value)


_CONNECTIONS: Mapping[str, Callable[[LakeSettings], str]] = {
    "spark": _spark,
    "trino": _trino,
    "duckdb": _duckdb,
    "pyiceberg": _pyiceberg,
}


def _without_secrets(lake: LakeSettings) -> Callable[[str, str], str]:
    """Return a function of a property's name and value that puts \0VARIABLE\0 where the value has a secret.

    The variable is the one from which the settings read it, else LAKE_ with the property's name for the whole value.
    """
    variables = {
        os.environ[value["env"]]: str(value["env"])
        for value in lake.catalog.values()
        if isinstance(value, Mapping) and os.environ.get(value.get("env", ""))
    }
    secrets = lake.secrets

    def text(name: str, value: str) -> str:
        for secret, variable in variables.items():
            value = value.replace(secret, f"\0{variable}\0").replace(quote(secret, safe=""), f"\0{variable}\0")
        if any(secret in value for secret in secrets):
            return f"\0{re.sub(r'[^A-Za-z0-9_]', '_', f'LAKE_{name}').upper()}\0"
        return value

    return text


_VARIABLE = re.compile(r"\0(\w+)\0")


def _shell_word(text: str) -> str:
    if "\0" not in text:
        return shlex.quote(text)
    escaped = re.sub(r'(["$`\\])', r"\\\1", text)
    return '"' + _VARIABLE.sub(r"${\1}", escaped) + '"'


def _python_text(text: str) -> str:
    if whole := _VARIABLE.fullmatch(text):
        return f'os.environ["{whole[1]}"]'
    if "\0" not in text:
        return json.dumps(text, ensure_ascii=False)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("}", "}}")
    return 'f"' + _VARIABLE.sub(r"{os.environ['\1']}", escaped) + '"'


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
