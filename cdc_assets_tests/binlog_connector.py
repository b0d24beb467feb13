"""A connector of MySQL or MariaDB, message by message as Debezium writes them, on its way into an in-memory lake.

connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(20))")
connector.send(Change(200, 0, "c", None, {"id": 1, "v": "a"}))
connector.ddl(300, "ALTER TABLE `t` ADD `w` INT")
connector.apply(), connector.rows
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cdc_assets.model.schema import TableId
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

__all__ = ["TABLE", "BinlogConnector", "Change"]

TABLE = TableId("shop", "t")

Row = Mapping[str, Any]


class Change(NamedTuple):
    """A row event's row: the position of its event, its number in it (in the inner one of a compressed transaction)."""

    pos: int
    row: int
    op: str
    before: Row | None
    after: Row | None
    snapshot: str = "false"
    table: str = "t"


class BinlogConnector:
    """Sends changes of `shop.t`, or of other tables; `run` is "" for one too old to name its runs.

    `key` is the column of the key, "" for none; `keyless` are other tables without one. With `transactions` rows have
    their place in their transaction, counted anew after a restart. `block` is a schema block for rows, None for none.
    Messages of DDL say the default `charset` of their tables, if it is not "".
    """

    def __init__(
        self,
        *ddl: str,
        key: str = "id",
        run: str = "",
        server: str = "mysql",
        config: Path | None = None,
        keyless: Collection[str] = (),
        transactions: bool = False,
        charset: str = "",
    ) -> None:
        self.transactions, self.order, self.charset = transactions, (0, 0), charset
        self.block: Mapping[str, Any] | None = None
        self.keyless, self.key, self.run, self.server, self.ms = keyless, key, run, server, 1_764_000_000_000
        uri = "kafka://127.0.0.1:9092/my?protocol=debezium-json"
        self.feed = TopicFeed.of(MemoryLog([]), sink_uri=uri, name="c", changefeed_config=config)
        for number, text in enumerate(ddl):
            self.ddl(100 + number, text, "CREATE")

    def ddl(self, pos: int, text: str, kind: str = "ALTER", table: str = "t", snapshot: str = "false") -> None:
        """Send a change of the schema, which names its table as the connector's parser understood it; "" for none."""
        shown = {"defaultCharsetName": self.charset} if self.charset else None
        changed = [{"type": kind, "id": f'"shop"."{table}"', "table": shown}] if table else []
        stamped = self._stamped(pos, 0, snapshot)
        source = {**stamped["source"], "table": table or None}
        value = {**stamped, "source": source, "databaseName": "shop", "ddl": text, "tableChanges": changed}
        self._put("my", {"databaseName": "shop"}, value)

    def send(self, *changes: Change) -> None:
        for change in changes:
            self.ms += 2
            stamped = self._stamped(change.pos, change.row, change.snapshot)
            source = {**stamped["source"], "table": change.table}
            images = {"before": change.before, "after": change.after}
            value = {**images, "source": source, "transaction": self._transaction(change.pos)}
            row = change.after or change.before
            assert row is not None
            key = {self.key: row[self.key]} if self.key and change.table not in self.keyless else None
            payload = {**value, "op": change.op, "ts_ms": self.ms}
            with_block = payload if self.block is None else {"schema": self.block, "payload": payload}
            self._put(f"my.shop.{change.table}", key, with_block)

    def restart(self) -> None:
        """Let another run of the connector send what follows."""
        self.ms += 5000
        self.order = (0, 0)
        self.run = self.run and f"{self.run}+"

    def reasons(self) -> list[str]:
        """Apply what was sent; return why tables are held, or rows belong to none."""
        outcome = self.feed.apply()
        return list(
            dict.fromkeys([*(table.reason for table in outcome.tables if table.reason), *outcome.problems.values()])
        )

    def apply(self) -> list[dict[str, Any]]:
        """Apply what was sent, none of which may be held; return the rows."""
        assert self.reasons() == []
        return self.rows

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.feed.lake.read(TABLE).drop_columns(["_cdc_commit_ts"]).to_pylist())

    def _transaction(self, pos: int) -> Mapping[str, Any] | None:
        """Return a row's place in its transaction, which is all that has one position."""
        if not self.transactions:
            return None
        self.order = (pos, self.order[1] + 1 if self.order[0] == pos else 1)
        number = {"total_order": self.order[1], "data_collection_order": self.order[1]}
        return {"id": f"file=mysql-bin.000003,pos={pos}", **number}

    def _stamped(self, pos: int, row: int, snapshot: str = "false") -> dict[str, Any]:
        source = {"version": "3.5.0.Final", "connector": self.server, "name": "my", "ts_ms": 1_764_000_000_000}
        source |= {"snapshot": snapshot, "db": "shop", "sequence": None, "ts_us": self.ms * 1000, "table": "t"}
        source |= {"server_id": 1, "gtid": None, "file": "mysql-bin.000003", "pos": pos, "row": row}
        return {"source": source, "ts_ms": self.ms}

    def _put(self, topic: str, key: Any, value: Any) -> None:
        texts = [None if part is None else json.dumps(part, separators=(",", ":")).encode() for part in (key, value)]
        coded = [None if text is None else base64.b64encode(text).decode() for text in texts]
        headers = [["__debezium.context.runId", base64.b64encode(self.run.encode()).decode()]] if self.run else []
        offset = sum(line["topic"] == topic for line in self.feed.log.lines)
        line = {"topic": topic, "partition": 0, "offset": offset, "timestamp_ms": self.ms, "headers": headers}
        self.feed.log.lines.append({**line, "key_b64": coded[0], "value_b64": coded[1]})
