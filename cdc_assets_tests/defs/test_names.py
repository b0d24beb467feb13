"""Names that a source may have and Dagster may not: everything loads, and no two names become one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs import changefeed as changefeed_module
from cdc_assets.defs.names import check_output, feed_name, lake_key, shown
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.operations.opening import open_ledger
from cdc_assets.settings.config import settings_of
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Case
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

PLAIN = re.compile(r"[A-Za-z0-9_]+")
ODD = (
    *(
        TableId("s", name)
        for name in ("a-b", "a_b", "a.b", "a b", "a__b", "A_B", "ä_b", "表格", "列表", "a/b", "a%2Fb")
    ),
    *(
        TableId("South Side", name)
        for name in ("Red Über", "Red Uber", "select", "type", "*", "[x]", 'q"', "'", "x" * 64)
    ),
    *(
        TableId(schema, name)
        for schema, name in (("a", "b__c"), ("a__b", "c"), ("a.b", "c"), ("a", "b.c"), ("😀", "`"))
    ),
)


def record_states(
    lake: LakeSettings, changefeed: str, tables: Iterable[TableId], state: State = State.APPLIED, at: int = 9
) -> None:
    """Write down how tables stand, as a run does."""
    states = [TableState(name, n, at, state, life=str(Life(name, n)), checkpoint=9) for n, name in enumerate(tables)]
    with open_ledger(lake) as ledger:
        ledger.record_states(changefeed, states, {})


@pytest.fixture
def lake(tmp_path: Path) -> LakeSettings:
    return LakeSettings.from_warehouse(tmp_path / "lake")


@pytest.fixture
def feed(tmp_path: Path) -> LittleFeed:
    made = LittleFeed(tmp_path / "feed")
    made.create("s.t")
    made.publish(FIRST + 10)
    return made


def recorded_names() -> set[TableId]:
    return {name for case in ("F_names", "M_slash_names") for name in Case(case).expected()}


def test_definitions_load_whatever_tables_are_called(feed: LittleFeed, lake: LakeSettings) -> None:
    tables = {*ODD, *recorded_names()}
    record_states(lake, "little", tables)
    defs = build_changefeed_defs(feed.settings(lag_target_seconds=60), lake)
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    keys = {key for key in graph.get_all_asset_keys() if key.path[0] == "lake"}
    assert len(keys) == len(tables)
    checked = [(key.asset_key, key.name) for key in graph.asset_check_keys if key.asset_key in keys]
    assert sorted(checked) == sorted(
        (key, name) for key in keys for name in ("freshness", "holds", "initial_rows", "keeps_up", "row_arithmetic")
    )


def test_a_check_of_one_table_runs_and_says_nothing_of_its_likes(
    feed: LittleFeed, lake: LakeSettings, instance: dg.DagsterInstance
) -> None:
    for name in ("a-b", "a_b", "Red Über"):
        feed.create(f"s.{name}")
    record_states(lake, "little", [TableId("s", name) for name in ("a-b", "a_b", "Red Über")])
    defs = build_changefeed_defs(feed.settings(lag_target_seconds=60), lake)
    for table in ("a-b", "Red Über"):
        key = dg.AssetCheckKey(lake_key(feed.settings(), TableId("s", table)), "freshness")
        job = dg.define_asset_job("check", selection=dg.AssetSelection.checks(key))
        whole = dg.Definitions.merge(defs, dg.Definitions(jobs=[job]))
        result = whole.resolve_job_def("check").execute_in_process(instance=instance)
        (evaluation,) = result.get_asset_check_evaluations()
        assert (evaluation.asset_check_key, evaluation.passed) == (key, False)
        assert f"s.{table} is applied through" in str(evaluation.description)


def test_a_table_that_dagster_refuses_leaves_out_its_own_definitions_only(
    feed: LittleFeed, lake: LakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record_states(lake, "little", [TableId("s", "one"), TableId("s", "two")])
    spec = changefeed_module._lake_spec

    def refusing(source: object, table: TableId) -> dg.AssetSpec:
        if table.table == "two":
            return dg.AssetSpec(["lake"], group_name="no name, says Dagster")
        return spec(source, table)  # type: ignore[arg-type]

    monkeypatch.setattr(changefeed_module, "_lake_spec", refusing)
    defs = build_changefeed_defs(feed.settings(), lake)
    dg.Definitions.validate_loadable(defs)
    keys = defs.resolve_asset_graph().get_all_asset_keys()
    assert {tuple(key.path) for key in keys if key.path[0] == "lake"} == {("lake", "s", "one")}
    assert "s.two" in caplog.text
    assert "no name, says Dagster" in caplog.text


@pytest.mark.parametrize("location", ["ours", "a project's"])
def test_the_code_location_loads_without_a_warning(location: str, tmp_path: Path) -> None:
    """Of tables with lag targets and odd names, as the webserver loads it."""
    feed, lake = LittleFeed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    record_states(lake, "little", ODD)
    settings = tmp_path / "changefeeds.yaml"
    settings.write_text(
        f'lake: {{warehouse: lake}}\nchangefeeds:\n  - name: little\n    sink_uri: "file://{feed.bucket}?protocol=csv"\n'
        f"    changefeed_config: {feed.toml}\n    lag_target_seconds: 60\n"
    )
    code = {
        "ours": "from cdc_assets.definitions import defs\ndefs().get_repository_def().load_all_definitions()",
        "a project's": "import dagster as dg\nfrom cdc_assets.defs import build_changefeed_defs\n"
        f"dg.Definitions.validate_loadable(dg.Definitions.merge(build_changefeed_defs(lake={str(tmp_path / 'lake')!r}, "
        f"name='little', sink_uri='file://{feed.bucket}?protocol=csv', changefeed_config={str(feed.toml)!r})))",
    }[location]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "CDC_ASSETS_CONFIG": str(settings)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


# --- two changefeeds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("a-b", "a_b"), ("a.b", "a-b"), ("A", "a"), ("type", "class"), ("lake", "1"), ("a", "a_b")]
)
def test_changefeeds_with_names_alike_load_beside_each_other(
    names: tuple[str, str], feed: LittleFeed, lake: LakeSettings
) -> None:
    defs = dg.Definitions.merge(*(build_changefeed_defs(feed.settings(name), lake) for name in names))
    dg.Definitions.validate_loadable(defs)
    assert len(defs.resolve_asset_graph().get_all_asset_keys()) == 6
    assert len({job.name for job in defs.resolve_all_job_defs() if "catch_up" in job.name}) == 2


@pytest.mark.parametrize(("at", "state"), [(0, State.HELD), (0, State.APPLIED), (7, State.FAILED)])
def test_a_table_that_waits_for_a_name_of_another_changefeed_has_no_asset_beside_that_ones(
    at: int, state: State, feed: LittleFeed, lake: LakeSettings
) -> None:
    record_states(lake, "one", [TableId("s", "t")])
    record_states(lake, "two", [TableId("s", "t")], state, at)
    defs = dg.Definitions.merge(*(build_changefeed_defs(feed.settings(name), lake) for name in ("one", "two")))
    dg.Definitions.validate_loadable(defs)
    assert defs.resolve_asset_graph().get(dg.AssetKey(["lake", "s", "t"])).group_name == "one"


def test_tables_of_one_name_in_two_namespaces_are_two_assets(feed: LittleFeed, lake: LakeSettings) -> None:
    for name in ("eu", "us"):
        record_states(lake, name, [TableId("s", "t")])
    each = (build_changefeed_defs(feed.settings(name, namespace=name + "_{schema}"), lake) for name in ("eu", "us"))
    graph = dg.Definitions.merge(*each).resolve_asset_graph()
    assert {dg.AssetKey(["lake", "eu_s", "t"]), dg.AssetKey(["lake", "us_s", "t"])} <= graph.get_all_asset_keys()


# --- the names themselves ---------------------------------------------------------------------------------------------

CHANGEFEEDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}", fullmatch=True)
TABLES = st.builds(
    TableId, st.text("aA_-./%`ü ", min_size=1, max_size=4), st.text("aA_-./%`ü ", min_size=1, max_size=4)
)


@given(st.sets(CHANGEFEEDS, min_size=2))
def test_changefeeds_have_names_that_dagster_takes_and_no_two_the_same(changefeeds: set[str]) -> None:
    names = [feed_name(changefeed) for changefeed in changefeeds]
    assert all(PLAIN.fullmatch(name) for name in names)
    assert len(set(names)) == len(names)
    assert all(feed_name(name) != other for name in names for other in names if name != feed_name(name))


@given(st.sets(TABLES, min_size=2))
def test_tables_have_keys_labels_and_outputs_of_their_own_by_letter_case_too(tables: set[TableId]) -> None:
    settings = settings_of({"changefeeds": [{"sink_uri": "file:///feed?protocol=csv"}]}, Path()).changefeeds[0]
    keys = [lake_key(settings, table) for table in tables]
    assert len({key.to_user_string() for key in keys}) == len(tables)
    outputs = [
        check_output(key, check)
        for key in keys
        for check in ("", "freshness", "holds", "initial_rows", "keeps_up", "row_arithmetic")
    ]
    assert all(PLAIN.fullmatch(output) for output in outputs)
    assert len({output.casefold() for output in outputs}) == len(outputs)
    assert len({shown(table) for table in tables}) == len(tables)
