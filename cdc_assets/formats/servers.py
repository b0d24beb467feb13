"""Database servers behind Debezium's connectors: those that are read, and others, which are refused by name.

A connector is named in `source.connector` of its messages, in the types of CloudEvents, in the schemas that
AvroConverter writes (`io.debezium.connector.NAME.Source`), and in `connector.class` of its configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["SERVERS", "avro_reason", "connector_in", "foreign_reason", "other_connector"]

SERVERS: Mapping[str, str] = {"mysql": "MySQL", "mariadb": "MariaDB", "postgresql": "PostgreSQL"}
"""Names of the connectors that are read -> their servers."""

_OTHERS: Mapping[str, str] = {
    "sqlserver": "SQL Server",
    "oracle": "Oracle",
    "mongodb": "MongoDB",
    "vitess": "Vitess",
    "spanner": "Spanner",
    "informix": "Informix",
    "cassandra": "Cassandra",
    "yugabytedb": "YugabyteDB",
    "cockroachdb": "CockroachDB",
    "ingres": "Ingres",
    "as400": "Db2 for i",
    "db2": "Db2",
}
"""Names of other connectors -> their servers; one that is in another one comes behind it."""
_IN_TYPE = re.compile(r"io\.debezium\.connector\.(\w+)|/debezium/(\w+)/")


def foreign_reason(connector: str) -> str:
    """Return the reason why messages of a connector are refused, "" for one that is read."""
    if connector in SERVERS:
        return ""
    server = _OTHERS.get(connector)
    return (
        f'its connector is "{connector}"{f", for {server}" if server else ""}; read are those for '
        f"{', '.join(SERVERS.values())} alone. Take its topics out of this feed"
    )


def connector_in(text: str) -> str:
    """Return the connector that a type, a source of a CloudEvent, or a schema names, "" for none."""
    match = _IN_TYPE.search(text)
    return "" if match is None else match[1] or match[2]


def other_connector(connector_class: str) -> str:
    """Return the connector for another server that a class is of, "" for none."""
    text = connector_class.lower()
    if any(name in text for name in ("mysql", "mariadb", "postgres")):
        return ""
    return next((name for name in _OTHERS if name in text), "")


def avro_reason(data: bytes) -> str:
    """Return the reason why a message or schema in Avro is refused; names the connector of another server in its bytes.

    Avro has texts behind their length.
    """
    named = (name for name in _OTHERS if bytes([2 * len(name)]) + name.encode() in data)
    connector = next(named, "") or connector_in(data.decode("utf-8", "replace"))
    foreign = foreign_reason(connector) if connector else ""
    return foreign or (
        "it is Avro, as AvroConverter writes it, and no JSON. Let the connector have value.converter = "
        "org.apache.kafka.connect.json.JsonConverter, and write to new topics"
    )
