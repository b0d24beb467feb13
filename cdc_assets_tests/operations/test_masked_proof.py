"""Masked tables compared with their source, repaired and explained: nothing of it shows or keeps a value of theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pymysql
import pytest
import yaml

from cdc_assets.cli import main
from cdc_assets.defs import build_changefeed_defs
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import load
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.lake.test_masked_lake import COLUMNS, PRIVACY, SECRET, TYPES, Canaries
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.loaded import drop
from cdc_assets_tests.mariadb import PASSWORD, Server
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.tidb import TidbStandIn

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

AT = FIRST + 900


class Proof:
    """A feed that is applied to a lake in memory, and a source that has other rows."""

    def __init__(self, directory: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed, self.left, self.server = Canaries(directory / "feed"), directory / "left", server
        self.left.mkdir()
        self.texts: dict[TableId, str] = {}
        self.lake, self.ledger = MemoryLake(), Ledger(f"sqlite:///{self.left / 'ledger.db'}")
        toml, self.file, self._patch = directory / "changefeed.toml", directory / "changefeeds.yaml", monkeypatch
        toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        feed: dict[str, Any] = {
            "name": "shop", "sink_uri": f"file://{self.feed.bucket}?protocol=csv", "changefeed_config": str(toml),
            "privacy": PRIVACY, "privacy_key": {"env": "MASK_KEY"}, "history": {"shop.*": ["log", "scd2"]},
            "verify": {"source": {"uri": server.uri, "password": {"env": "SOURCE_PASSWORD"}}},
        }  # fmt: skip
        self.file.write_text(yaml.safe_dump({"lake": {"warehouse": str(self.left)}, "changefeeds": [feed]}))
        for name, value in (("MASK_KEY", SECRET), ("SOURCE_PASSWORD", PASSWORD)):
            monkeypatch.setenv(name, value)
        for place in ("cdc_assets.operations.opening.open_pipeline", "cdc_assets.defs.resources.open_pipeline"):
            monkeypatch.setattr(place, self.opened)
        monkeypatch.delenv("CDC_ASSETS_CONFIG", raising=False)

    @contextmanager
    def opened(self, settings: Any, *_: Any, **__: Any) -> Iterator[Pipeline]:
        yield Pipeline(settings, settings.open_source(), self.lake, self.ledger)

    def source(self, table: str, rows: Sequence[dict[str, str]], **types: str) -> None:
        """Give the source a table: of the feed's columns, or of other `types`."""
        columns = ", ".join(f"`{name}` {types.get(name, of)}" for name, of in TYPES.items())
        text = f"CREATE TABLE `{table}` ({columns}, PRIMARY KEY (`id`))"
        values = ["(" + ", ".join("'" + row[name].replace("'", "''") + "'" for name in COLUMNS) + ")" for row in rows]
        self.server.run("USE shop", text, f"INSERT INTO `{table}` VALUES {', '.join(values)}")
        self.texts[TableId("shop", table)] = text

    def stand(self) -> None:
        """Let a TiDB stand with what the source has, as of the checkpoint."""
        standing = TidbStandIn(self.server, self.texts)
        self._patch.setattr(pymysql, "connect", standing.connect)
        standing.keep(AT, "shop")


@pytest.fixture
def proof(tmp_path: Path, mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proof]:
    drop(mariadb, "shop")
    mariadb.run("CREATE DATABASE shop")
    yield Proof(tmp_path, mariadb, monkeypatch)
    monkeypatch.undo()
    drop(mariadb, "shop")


def test_nothing_that_compares_repairs_or_explains_shows_or_keeps_a_value_of_a_masked_column(
    proof: Proof,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setattr("cdc_assets.features.verification.operations._SAMPLED", 1)
    monkeypatch.setattr("cdc_assets.features.verification.operations_ranges._FEWEST", 9)
    feed, printed_texts = proof.feed, list[str]()

    def do(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cdc-assets", *words, "--settings", str(proof.file)])
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main()
        printed = capsys.readouterr()
        printed_texts.append(f"{words[0]}\n{printed.out}\n{printed.err}")
        return printed.out

    for table in "tvwx":
        feed.create(table)
        feed.rows(table, FIRST, [("I", FIRST + 1 + number, number) for number in range(12)])
        feed.rows(table, FIRST, [("U", FIRST + 100, 3), ("D", FIRST + 101, 11)])
    feed.publish(AT)
    with proof.opened(load(proof.file).changefeeds[0]) as pipeline:
        assert [table.reason for table in pipeline.apply("run").tables if table.reason] == []
    rows = [feed.values(FIRST + 1 + number, number) for number in range(11)]
    rows[3] = feed.values(AT, 3)
    rows[7] |= {"mail": feed.values(AT, 7)["mail"], "seen": "2"}
    rows[8] |= {"note": feed.values(AT, 8)["note"], "born": "0000-00-00 00:00:00"}
    rows[9] = feed.values(AT, 31)
    for table in "tvx":
        proof.source(table, rows)
    texts = {"born": "no time-55190", "phone": "no number-55191", "tag": "member-gamma-55192"}
    feed.tokens |= {text.encode() for text in texts.values()}
    proof.source("w", [*rows[1:], {**feed.values(AT, 32), **texts}], **dict.fromkeys(("id", *texts), "VARCHAR(40)"))
    proof.stand()

    shown = do("verify")
    assert shown.count("1 missing in the lake, 1 only in the lake, 2 differing") == 3
    settings = load(proof.file)
    job = build_changefeed_defs(settings.changefeeds[0], settings.lake).resolve_job_def("shop_verify")
    for config in ({}, {"repair": True, "tables": ["shop.x"]}):
        run_config: dict[str, Any] = {"ops": {"shop_verify_tables": {"config": config}}}
        job.execute_in_process(run_config=run_config, instance=instance, raise_on_error=False)
    for words in (
        ("explain", "shop.t", rows[3]["id"]), ("verify", "shop.t", "--repair", "--debug"),
        ("verify", "shop.v", "--repair", "--json"), ("verify", "shop.w", "--repair"),
        ("explain", "shop.t", rows[3]["id"]), ("explain", "shop.v", rows[9]["id"], "--json"),
        ("explain", "shop.v", rows[9]["id"] + "x"), ("verify", "--json", "--where", "seen >= 1"),
    ):  # fmt: skip
        do(*words)
    journal = repr(proof.ledger.journal("shop"))
    assert journal.count("action='repair'") >= 3
    printed_texts += [repr(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    printed_texts += [journal, repr(proof.ledger.comparisons("shop")), caplog.text]
    (proof.left / "said.txt").write_text("\n".join(printed_texts))
    for number, of_lake in enumerate(proof.lake.tables.values()):
        pq.write_table(of_lake.rows, proof.left / f"table-{number}.parquet")
    assert [*leaks(proof.left, feed.tokens), *leaks(Path(instance.root_directory), feed.tokens)] == []
