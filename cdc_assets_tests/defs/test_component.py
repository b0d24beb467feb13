"""The package in other people's Dagster projects: `build_changefeed_defs`, and the component in a `defs.yaml`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._serdes import serialize_value
from pydantic import SecretStr

import cdc_assets
from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.component import Changefeed
from cdc_assets.errors import BadSettings
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Case

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

README = Path(__file__).parents[2] / "README.md"
DOCS = README.parent / "docs"
PROJECT = """\
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{name}"
"""


def keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder as `dg` makes it; its package is importable for the time of a test."""
    name = f"project_{tmp_path.name.replace('-', '_')}"
    (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=name))
    (tmp_path / name / "defs" / "shop").mkdir(parents=True)
    for folder in (tmp_path / name, tmp_path / name / "defs"):
        (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / name / "defs"
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]


def load(project: Path, attributes: str) -> dg.Definitions:
    indented = "".join(f"  {line}\n" for line in attributes.strip().splitlines())
    (project / "shop" / "defs.yaml").write_text(f"type: cdc_assets.Changefeed\nattributes:\n{indented}")
    return dg.load_from_defs_folder(path_within_project=project)


def test_a_defs_yaml_gives_what_the_function_gives(project: Path) -> None:
    bucket = Case("N_filtered_ddl").config("csv-ts").bucket()
    uri = f"file://{bucket}?protocol=csv"
    attributes = (
        f'name: shop\nsink_uri: "{uri}"\naccept_unordered: true\nowners: ["team:data"]\nlake: {{warehouse: lake}}'
    )
    loaded = load(project, attributes)
    settings = ChangefeedSettings(name="shop", sink_uri=SecretStr(uri), accept_unordered=True, owners=("team:data",))
    built = build_changefeed_defs(settings, LakeSettings.from_warehouse(project / "shop" / "lake"))
    assert keys(loaded) == keys(built) == {"shop/bucket", "shop/ddl", "shop/dml"}
    assert {job.name for job in loaded.jobs or ()} == {job.name for job in built.jobs or ()}
    assert {sensor.name for sensor in loaded.sensors or ()} == {sensor.name for sensor in built.sensors or ()}
    dg.Definitions.validate_loadable(loaded)


def test_two_changefeeds_live_in_one_project(project: Path) -> None:
    for name in ("first", "second"):
        (project / name).mkdir()
        (project / name / "defs.yaml").write_text(
            f"type: cdc_assets.Changefeed\nattributes: {{name: {name}, sink_uri: 'file:///{name}?protocol=csv', "
            "lake: {warehouse: ../lake}, accept_unordered: true}\n"
        )
    loaded = dg.load_from_defs_folder(path_within_project=project)
    assert {"first/dml", "second/dml"} <= keys(loaded)
    dg.Definitions.validate_loadable(loaded)


def test_paths_are_relative_to_the_folder_of_the_defs_yaml(project: Path) -> None:
    (project / "shop" / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n")
    attributes = "sink_uri: file:///feed?protocol=csv\nchangefeed_config: changefeed.toml\nlake: {warehouse: lake}"
    assert keys(load(project, attributes)) == {"default/bucket", "default/ddl", "default/dml"}


def test_templates_of_a_defs_yaml_are_resolved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_NAME", "from_env")
    attributes = 'name: "{{ env.SHOP_NAME }}"\nsink_uri: file:///feed?protocol=csv\nlake: {warehouse: lake}'
    assert "from_env/ddl" in keys(load(project, attributes))


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ("sink_uri: file:///feed?protocol=csv", "lake"),
        ("sink_uri: file:///feed?protocol=csv\nlake: {warehouse: lake}\nsink_url: x", "sink_url"),
        ("sink_uri: file:///feed?protocol=csv\nlake: {warehouse: lake}\nowners: [nobody]", "nobody"),
    ],
)
def test_a_wrong_attribute_is_named(project: Path, attributes: str, sentence: str) -> None:
    with pytest.raises(Exception, match="shop") as raised:
        load(project, attributes)
    causes: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        causes.append(str(error))
        error = error.__cause__
    assert sentence in "\n".join(causes)


def test_every_setting_of_a_changefeed_is_an_attribute() -> None:
    assert set(Changefeed.get_model_cls().model_fields) == {*ChangefeedSettings.model_fields, "lake"}


def test_the_component_is_found_where_the_tools_look_for_it() -> None:
    assert cdc_assets.Changefeed is Changefeed
    assert "Changefeed" in dir(cdc_assets)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        cdc_assets.Nothing  # noqa: B018


def test_settings_may_be_given_as_keywords(tmp_path: Path) -> None:
    defs = build_changefeed_defs(
        name="shop",
        sink_uri="s3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true",
        lake=tmp_path / "lake",
    )
    assert keys(defs) == {"shop/bucket", "shop/ddl", "shop/dml"}


def test_no_credential_of_the_lake_shows_in_a_launch_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_PASSWORD", "open-sesame")
    catalog = {
        "type": "jdbc",
        "uri": "jdbc:postgresql://catalog/lake",
        "jdbc.user": "ann",
        "jdbc.password": {"env": "CATALOG_PASSWORD"},
        "credential": "id:swordfish",
    }
    lake = LakeSettings(catalog=catalog, warehouse="s3://lake/warehouse", ledger=f"sqlite:///{tmp_path}/ledger.db")
    defs = build_changefeed_defs(
        name="shop", sink_uri="s3://bucket/prefix?protocol=canal-json&enable-tidb-extension=true", lake=lake
    )
    for job in defs.jobs or ():
        shown = serialize_value(defs.resolve_job_def(job.name).get_job_snapshot())
        assert "open-sesame" not in shown
        assert "swordfish" not in shown
        assert "spark_config" in shown


def test_a_keyword_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="sink_url"):
        build_changefeed_defs(sink_uri="s3://bucket/prefix?protocol=csv", sink_url="x", lake=tmp_path)


def test_a_schedule_of_maintenance_that_is_no_cron_is_refused(tmp_path: Path) -> None:
    uri = "s3://bucket/prefix?protocol=csv"
    with pytest.raises(BadSettings, match=r"maintenance\.cron.*of the changefeed shop is 'nightly'; expected the five"):
        build_changefeed_defs(name="shop", sink_uri=uri, maintenance={"cron": "nightly"}, lake=tmp_path)


def test_the_example_of_the_readme_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?build_changefeed_defs.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n")
    namespace: dict[str, object] = {"__file__": str(tmp_path / "definitions.py")}
    exec(code, namespace)
    defs = namespace["defs"]
    assert isinstance(defs, dg.Definitions)
    assert {"shop/ddl", "shop/dml", "revenue"} <= keys(defs)
    dg.Definitions.validate_loadable(defs)


def test_the_defs_yaml_of_the_page_about_dagster_loads(project: Path) -> None:
    (text,) = re.findall(r"```yaml\n(type: cdc_assets.Changefeed.*?)```", (DOCS / "dagster.md").read_text(), re.DOTALL)
    (project / "shop" / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n")
    (project / "shop" / "defs.yaml").write_text(text)
    assert "shop/dml" in keys(dg.load_from_defs_folder(path_within_project=project))


def test_every_picture_of_the_docs_is_there_and_small() -> None:
    pages = [README, *DOCS.glob("*.md")]
    shown = {page.parent / name for page in pages for name in re.findall(r"\]\(([^)]+\.webp)\)", page.read_text())}
    assert shown == set((DOCS / "images").iterdir())
    assert all(picture.stat().st_size < 120_000 for picture in shown)
