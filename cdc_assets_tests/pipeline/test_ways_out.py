"""The ways out of a hold: each is taken, and the table goes on. Every reason in the code has its place here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.hold_reasons import reasons
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

TESTS = Path(__file__).parent.parent


class Shop(LittleFeed):
    """A feed that a test writes, with settings that it changes, in a lake in memory."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory)
        self.lake, self.ledger, self.given, self.at = MemoryLake(), Ledger("sqlite://"), settings, FIRST
        self.create("shop.orders")
        self.rows("shop.orders", FIRST, [("I", FIRST + 1, 1, "one")])

    @property
    def pipeline(self) -> Pipeline:
        feed = self.settings(**self.given)
        return Pipeline(feed, feed.open_source(), self.lake, self.ledger)

    def apply(self) -> dict[str, TableOutcome]:
        self.at += 20
        self.publish(self.at)
        tables = self.pipeline.apply("test").tables  # a history table may want the name of another one
        return {str(table.name): table for table in sorted(tables, key=lambda table: table.state is State.HELD)}

    def run(self, command: str, query: str = "") -> None:
        """Take a way that is a command; `query` stands for the DDL that a person gives."""
        program, name, table, *rest = shlex.split(command)
        assert program == "cdc-assets", command
        if name == "rebuild":
            rebuild(self.pipeline, MemoryRebuilds(self.lake), [table], "test")
            return
        assert name == "release", command
        version, flag, *text = rest
        way = flag.removeprefix("--")
        given = query if text else ""
        if way == "apply" and not text:
            way = "as written"
        release(self.pipeline, table, int(version), "apply" if way == "as written" else way, given)


Way = Callable[[Shop], object]


@dataclass(frozen=True)
class Scenario:
    """How a table comes to be held, words of the reason, and the ways that are no command of it."""

    make: Callable[[Path], Shop]
    table: str
    words: str
    ways: Mapping[str, Way] = field(default_factory=dict)
    query: str = ""
    """The DDL that a person gives where a command asks for one."""
    commands: int = 0
    """How many commands the hold offers."""


def gives(**settings: Any) -> Way:
    return lambda shop: shop.given.update(settings)


def unreadable(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.apply()
    shop.ddl("shop.orders", FIRST + 25, "ALTER TABLE `orders` FROBNICATE", 99)
    return shop


def late(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.rows("shop.orders", FIRST, [("I", FIRST + 15, 2, "two")])
    shop.apply()
    shop.ddl("shop.orders", FIRST + 10, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    return shop


def named_alike(directory: Path) -> Shop:
    shop = Shop(directory, history={"shop.orders": "log"})
    shop.create("shop.order", FIRST + 12)
    shop.apply()
    shop.given = {"history": {**shop.given["history"], **log_called("shop.order", "s__log")}}
    return shop


def log_called(table: str, suffix: str) -> dict[str, Any]:
    return {table: {"kinds": ["log"], "suffix": {"log": suffix}}}


def named_later(directory: Path) -> Shop:
    shop = Shop(directory, history={"shop.orders": "log"})
    shop.apply()
    shop.create("shop.orders__log", FIRST + 25)
    return shop


def tracking(directory: Path) -> Shop:
    return Shop(directory, history={"shop.orders": {"kinds": ["scd2"], "track": ["nothing"]}})


def repaired(directory: Path) -> Shop:
    shop = Shop(directory, history={"shop.orders": "log"})
    shop.apply()
    shop.given = {}
    shop.apply()
    mirror = next(table for life, table in shop.lake.tables.items() if not life.kind)
    mirror.repaired = shop.at
    shop.given = {"history": {"shop.orders": "log"}}
    return shop


def drop_log(shop: Shop) -> None:
    for life in [life for life in shop.lake.tables if life.kind == "log"]:
        del shop.lake.tables[life]


def forgotten_drop(directory: Path) -> Shop:
    """The schema file of a DROP and of the table are gone, and another table has the name."""
    shop = Shop(directory)
    shop.apply()
    shutil.move(shop.bucket / "shop" / "orders" / str(FIRST), directory / "rows")
    shutil.move(shop.bucket / "shop" / "orders" / "meta", directory / "meta")
    shop.create("shop.orders", FIRST + 25)
    return shop


def restore_schemas(shop: Shop) -> None:
    directory = shop.bucket.parent
    shutil.move(directory / "rows", shop.bucket / "shop" / "orders" / str(FIRST))
    for file in (directory / "meta").iterdir():
        shutil.move(file, shop.bucket / "shop" / "orders" / "meta" / file.name)
    shop.ddl("shop.orders", FIRST + 24, "DROP TABLE `orders`", 4, columns=False)


def lost_schema(directory: Path) -> Shop:
    """The schema file of an ADD COLUMN is lost; rows of its version are there."""
    shop = Shop(directory)
    shop.apply()
    version = FIRST + 25
    rows = shop.rows("shop.orders", version, [("I", version + 1, 2, "two")])
    rows.write_bytes(rows.read_bytes().replace(b'"two"', b'"two",5'))
    return shop


def write_schema_by_hand(shop: Shop) -> None:
    """Copy the table's other schema file, and change what the message says."""
    (known,) = (shop.bucket / "shop" / "orders" / "meta").iterdir()
    written = json.loads(known.read_text())
    written["TableVersion"], written["Type"] = FIRST + 25, 0
    written["Query"] = "ALTER TABLE `orders` ADD COLUMN `w` INT DEFAULT 7"
    written["TableColumns"].append({"ColumnName": "w", "ColumnType": "INT", "ColumnPrecision": "11"})
    written["TableColumnsTotal"] = 3
    known.with_name(f"schema_{FIRST + 25}_0000000000.json").write_text(json.dumps(written))


def test_a_schema_file_that_is_written_by_hand_gives_old_and_new_rows_their_values(tmp_path: Path) -> None:
    shop = lost_schema(tmp_path)
    assert f"schema_{FIRST + 25}_0000000000.json" in shop.apply()["shop.orders"].reason
    write_schema_by_hand(shop)
    assert shop.apply()["shop.orders"].state is State.APPLIED
    rows = shop.lake.read(TableId("shop", "orders")).sort_by("id").to_pylist()
    assert [(row["v"], row["w"]) for row in rows] == [("one", 7), ("two", 5)]


def keyless(directory: Path) -> Shop:
    shop = Shop(directory, history={"shop.plain": "scd2"})
    shop.create("shop.plain", keyed=False)
    return shop


def key_setting(directory: Path) -> Shop:
    return Shop(directory, keys={"shop.orders": ["nothing"]})


def other_key(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.apply()
    shop.given = {"keys": {"shop.orders": ["v"]}}
    shop.rows("shop.orders", FIRST, [("I", FIRST + 25, 2, "two")])
    return shop


def masked_otherwise(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.apply()
    shop.given = {"privacy": {"shop.orders.v": None}}
    shop.rows("shop.orders", FIRST, [("I", FIRST + 25, 2, "two")])
    return shop


def masked_key(directory: Path) -> Shop:
    return Shop(directory, privacy={"shop.orders.id": None})


def unknown_name(directory: Path) -> Shop:
    shop = Shop(directory)
    shop.apply()
    shop.ddl("shop.new", FIRST + 25, "RENAME TABLE `shop`.`other` TO `shop`.`new`", 14)
    return shop


def by_policy(directory: Path) -> Shop:
    shop = Shop(directory, policies={"truncate table": "hold"})
    shop.apply()
    shop.ddl("shop.orders", FIRST + 25, "TRUNCATE TABLE `orders`", 11)
    return shop


def waiting(directory: Path) -> Shop:
    """Another table takes the name of one that is held."""
    shop = unreadable(directory)
    shop.create("shop.other", FIRST + 26)
    shop.ddl("shop.old", FIRST + 27, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", 14)
    shop.ddl("shop.orders", FIRST + 28, "RENAME TABLE `shop`.`other` TO `shop`.`orders`", 14)
    return shop


def without_commit_ts(directory: Path) -> Shop:
    shop = Shop(directory, accept_unordered=True, history={"shop.orders": "log"})
    shop.toml.write_text("[sink.csv]\ninclude-commit-ts = false\n")
    for file in (shop.bucket / "shop" / "orders" / str(FIRST)).iterdir():
        file.write_text('"I","orders","shop",1,"one"\r\n', newline="")
    return shop


SCENARIOS: Mapping[str, Scenario] = {
    "a DDL that a person decides": Scenario(
        unreadable, "shop.orders", "FROBNICATE", query="ALTER TABLE `orders` COMMENT 'no'", commands=2
    ),
    "a DDL that came late": Scenario(
        late, "shop.orders", "appeared in", query="ALTER TABLE `orders` ADD COLUMN `w` INT", commands=3
    ),
    "a RENAME of an unknown table": Scenario(
        unknown_name,
        "shop.new",
        "is not known under that name",
        query="CREATE TABLE `new` (`id` INT PRIMARY KEY,`v` VARCHAR(40))",
    ),
    "a policy": Scenario(by_policy, "shop.orders", "is to hold it until a person decides"),
    "a held table before it": Scenario(
        waiting, "shop.orders", "waits for", query="ALTER TABLE `orders` COMMENT 'no'", commands=2
    ),
    "the name of a table of the lake": Scenario(
        named_alike,
        "shop.orders__log",
        "is called shop.orders__log in the lake",
        {"suffix": gives(history={"shop.orders": "log", **log_called("shop.order", "__log_of")})},
    ),
    "the name of a table of the source": Scenario(
        named_later,
        "shop.orders__log",
        "a table of the source is called",
        {"suffix": gives(history=log_called("shop.orders", "__log_of"))},
    ),
    "a tracked column that is none": Scenario(
        tracking,
        "shop.orders__scd2",
        'tracks the column "nothing"',
        {"correct": gives(history={"shop.orders": {"kinds": ["scd2"], "track": ["v"]}})},
    ),
    "states of a table without key": Scenario(
        keyless, "shop.plain__scd2", "no key", {"log": gives(history={"shop.plain": "log"})}
    ),
    "a repair that a log did not see": Scenario(
        repaired, "shop.orders__log", "a repair (verify --repair)", {"drop": drop_log}, commands=1
    ),
    "rows without commit-ts": Scenario(
        without_commit_ts, "shop.orders__log", "carry no commit-ts", {"take out": gives(history={})}
    ),
    "a schema file that was removed": Scenario(
        forgotten_drop, "shop.orders", "a schema file was removed", {"restore": restore_schemas}
    ),
    "a key that is no column": Scenario(
        key_setting, "shop.orders", "which the table does not store", {"correct": gives(keys={"shop.orders": ["v"]})}
    ),
    "a setting that is another one now": Scenario(
        other_key, "shop.orders", "the settings now have", {"back": gives(keys={})}, commands=1
    ),
    "a mask that is new": Scenario(
        masked_otherwise, "shop.orders", "masked otherwise now", {"back": gives(privacy={})}
    ),
    "a mask of a key": Scenario(
        masked_key, "shop.orders", "can be masked by hash alone", {"correct": gives(privacy={"shop.orders.v": None})}
    ),
}


def held(shop: Shop, scenario: Scenario) -> TableOutcome:
    table = shop.apply()[scenario.table]
    assert (table.state, scenario.words in table.reason) == (State.HELD, True), table.reason
    return table


def commands(table: TableOutcome) -> list[str]:
    """The commands that a hold offers, in its ways and in its reason."""
    text = [way.partition(": cdc-assets ")[2] for way in table.ways if ": cdc-assets " in way]
    text += re.findall(r"cdc-assets ((?:rebuild|release) [^\s,;)]+)", table.reason)
    return [f"cdc-assets {line.rstrip('.')}" for line in text]


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_way_out_of_a_hold_lets_the_table_go_on(name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    shop = scenario.make(tmp_path / "first")
    offered = commands(held(shop, scenario))
    assert len(offered) >= scenario.commands
    ways: dict[str, Way] = {command: partial(Shop.run, command=command, query=scenario.query) for command in offered}
    assert ways or scenario.ways, "a hold has a way out"
    for number, (what, way) in enumerate({**ways, **scenario.ways}.items()):
        own = scenario.make(tmp_path / str(number))
        held(own, scenario)
        way(own)
        left = {name: table.reason for name, table in own.apply().items() if scenario.words in table.reason}
        assert left == {}, what


# --- every reason in the code -----------------------------------------------------------------------------------------

RELEASED = "a DDL that a person decides"
"""The scenario of holds whose ways are those of `ways_out`, the same for each DDL that is not understood."""

PLACES: Mapping[str, str] = {
    r"ddl/schema.* The key setting": "a key that is no column",
    r"ddl/": RELEASED,
    r"types/conversions/": RELEASED,
    r"decoding/upgrade": RELEASED,
    r"history/(exchanges|history|lives|recovery|shadows)": RELEASED,
    r"history/renames.* is not known under that name": "a RENAME of an unknown table",
    r"history/renames": RELEASED,
    r"history/policies": "a policy",
    r"decoding/kinds/scd2": "states of a table without key",
    r"history/masks": "a mask of a key",
    r"planning/held_back.* no schema file says": "a schema file that was removed",
    r"planning/held_back.* is called": "the name of a table of the lake",
    r"planning/held_back.* waits for": "a held table before it",
    r"planning/kinds.* a table of the source is called": "the name of a table of the source",
    r"planning/kinds.* a repair": "a repair that a log did not see",
    r"planning/kinds.* tracks": "a tracked column that is none",
    r"planning/kinds.* commit-ts": "rows without commit-ts",
    r"planning/recipe.* masked otherwise now": "a mask that is new",
    r"planning/recipe": "a setting that is another one now",
    r"planning/plan.* appeared in": "a DDL that came late",
    r"planning/plan.* the schema files say": "a schema file that was removed",
    r"(history|planning)/dumps": "not tried: the ways are other dumps",
    r"planning/kinds.* its mirror stands": "not tried: the ways are other dumps",
    r"planning/layout": "not tried: the ways are other partitions of the settings",
    r"planning/kinds": "not tried: rows of a table that the lake does not have, by EXCHANGE PARTITION",
    r"planning/(forgetting|masks)|decoding/keyed_rows": "not tried: a person has the keys",
    r"types/masks": "not tried: the ways are other dumps",
    r"operations/": "not tried: it refuses a command of a person, which names the one before it",
    r"lake/|pipeline/planner": "not tried: it is of the catalog, and another program's doing",
    r"landing/": "not tried: the ways are other topics",
    r"pipeline/settled": "not tried: files that come late are rebuilt in test_settled",
    r"sources/storage_sink/": "not tried: the way is a file that a person restores",
    r"decoding/(kinds/multiset|patches)": "not tried: the ways are other settings of the writer",
    r"preflight/conformance": "not tried: the ways are other settings of the writer",
}
"""By place and words of reasons, the first that fits counts: the scenario that takes its ways, or why none does."""


def place_of(place: str, text: str) -> str:
    whole = f"{place.partition(':')[0]} {text}"
    return next((known for pattern, known in PLACES.items() if re.match(pattern, whole)), "")


def test_each_reason_in_the_code_has_ways_that_are_taken() -> None:
    without = [f"{place} {text}" for place, text in reasons() if not place_of(place, text)]
    assert without == [], "take the ways of a new hold in a scenario, or say why not"


def test_each_place_of_a_reason_is_one() -> None:
    used = {place_of(place, text) for place, text in reasons()}
    assert used == set(PLACES.values())
    assert {known for known in used if not known.startswith("not tried: ")} == SCENARIOS.keys()
