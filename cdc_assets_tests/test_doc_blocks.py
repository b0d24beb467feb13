"""The blocks of the pages: commands and options exist, settings and launch forms are accepted, languages parse.

What a block does is shown by the tests that run it, page by page. These here hold for every block of every page.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import dagster as dg
import duckdb
import pytest
import sqlglot
import yaml

from cdc_assets.cli import commands
from cdc_assets.cli.help import GROUPS
from cdc_assets.defs import build_changefeed_defs
from cdc_assets.model.findings import RULES
from cdc_assets.report.metrics import METRICS, PREFIX
from cdc_assets.settings.config import ChangefeedSettings, settings_of
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.package_code import PACKAGE
from cdc_assets_tests.test_docs import GENERATED, PAGES, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
OUTPUT = ""
"""The language of blocks that have commands, what they print, or a drawing."""


def blocks(language: str) -> Iterator[Any]:
    """Yield the blocks of a language that people wrote, each with its page and line as the name of the test."""
    for page in (page for page in PAGES if page.name not in GENERATED):
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            indent, spoken, body = match.groups()
            if spoken == language:
                lines = (line.removeprefix(indent) for line in body.splitlines(keepends=True))
                yield pytest.param("".join(lines), id=f"{page.name}:{text[: match.start()].count(chr(10)) + 1}")


def command_lines() -> Iterator[Any]:
    """Yield the lines of blocks, and the inline texts, that name a command of `cdc-assets`."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        joined = "\n".join(body for _, _, body in BLOCK.findall(text)).replace("\\\n", " ")
        lines = re.findall(r"^\s*(?:\.venv/bin/)?cdc-assets +(.*)$", joined, re.MULTILINE)
        inline = INLINE.findall(BLOCK.sub("", text))
        lines += [code.removeprefix("cdc-assets ") for code in inline if code.startswith("cdc-assets ")]
        for line in dict.fromkeys(lines):
            yield pytest.param(line, id=f"{page.name}: {line}")


def test_the_languages_of_blocks_are_those_that_are_checked() -> None:
    spoken = {language for page in PAGES for _, language, _ in BLOCK.findall(page.read_text(encoding="utf-8"))}
    generated = {"properties"}
    assert spoken <= {OUTPUT, "sh", "bash", "yaml", "json", "toml", "python", "sql", *generated}


@pytest.mark.parametrize("line", [*command_lines()])
def test_commands_and_their_options_exist(line: str) -> None:
    words = shlex.split(line.replace("…", " ").replace("’", ""), comments=True)
    command: click.Command = commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"-h", "--help"}
    options = [word for word in words[: words.index("--") if "--" in words else None] if re.match("--?[a-z]", word)]
    assert [option for option in options if option.partition("=")[0] not in known] == []


OPTIONS_OF_OTHERS = {"--snapshot", "--no-data", "--packages", "--conf"}
"""Options of Dumpling and of Spark that sentences name."""


def test_options_within_sentences_are_options_of_a_command() -> None:
    known = set(OPTIONS_OF_OTHERS)
    waiting: list[click.Command] = [commands]
    while waiting:
        command = waiting.pop()
        waiting += command.commands.values() if isinstance(command, click.Group) else ()
        known |= {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    texts = [code for page in PAGES for code in INLINE.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))]
    named = {option for code in texts for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    assert named - known == set()


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_the_page_about_dagster_names_every_check_and_job(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "dagster.md").read_text(encoding="utf-8")
    given: dict[str, Any] = {"sink_uri": "s3://feeds/shop?protocol=csv", "lag_target_seconds": 9}
    given["verify"] = {"source": {"uri": "mysql://reader@db"}}
    defs = build_changefeed_defs(name="shop", lake=tmp_path / "lake", **given)
    checks = {key.name for key in defs.resolve_asset_graph().asset_check_keys}
    jobs = {job.name for job in defs.resolve_all_job_defs() if job.name.startswith("shop_")}
    named = set(INLINE.findall(BLOCK.sub("", page)))
    assert checks - named == set()
    assert {job.replace("shop_", "<changefeed>_") for job in jobs} - named == set()


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")  # of Dagster's own, as `cdc_assets.definitions` does
@pytest.mark.parametrize("text", [*blocks("yaml")])
def test_settings_and_launch_forms_are_accepted(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\{env: (\w+)\}", text):
        monkeypatch.setenv(name, "a-value-of-more-than-16-bytes")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changefeed.toml").touch()
    document = yaml.safe_load(text)
    if "ops" in document:
        defs = build_changefeed_defs(name="shop", sink_uri="s3://feeds/shop?protocol=csv", lake=tmp_path / "lake")
        (op,) = document["ops"]
        (job,) = (job for job in defs.resolve_all_job_defs() if op in [node.name for node in job.nodes])
        assert dg.validate_run_config(job, document)
    elif "groups" in document:
        rules = [rule["expr"] for group in document["groups"] for rule in group["rules"]]
        assert {name for rule in rules for name in re.findall(rf"{PREFIX}(\w+)", rule)} <= METRICS.keys()
    elif document.get("type") == "cdc_assets.Changefeed":
        assert document["attributes"].keys() >= {"name", "sink_uri", "lake"}  # loaded by the test of components
    else:
        assert document.keys() <= {"lake", "changefeeds"}
        for feed in document.get("changefeeds", ()):
            feed.setdefault("sink_uri", "s3://feeds/shop?protocol=csv")
        assert settings_of(document, tmp_path)


def inline_settings() -> Iterator[Any]:
    """Yield inline texts that are a setting of a changefeed with its value."""
    for page in PAGES:
        for code in INLINE.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
            name, colon, value = code.partition(": ")
            if colon and name in ChangefeedSettings.model_fields and "…" not in value:
                yield pytest.param(code, id=f"{page.name}: {code}")


@pytest.mark.parametrize("code", [*inline_settings()])
def test_settings_within_sentences_are_accepted(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\{env: (\w+)\}", code):
        monkeypatch.setenv(name, "a-value-of-more-than-16-bytes")
    given = yaml.safe_load(code.replace("[...]", "[]"))
    assert ChangefeedSettings.model_validate({"sink_uri": "s3://feeds/shop?protocol=csv", **given})


@pytest.mark.parametrize("text", [*blocks("python")])
def test_python_compiles(text: str) -> None:
    compile(text, "page", "exec", dont_inherit=True)


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
@pytest.mark.parametrize("text", [block for block in blocks("python") if "\ndefs = " in block.values[0]])
def test_definitions_of_pages_load(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "changefeed.toml").touch()
    names: dict[str, Any] = {"__file__": str(tmp_path / "definitions.py")}
    exec(text.replace("/srv/lake", str(tmp_path / "lake")), names)
    dg.Definitions.validate_loadable(names["defs"])


@pytest.mark.parametrize("text", [*blocks("sh"), *blocks("bash")])
def test_shell_parses(text: str) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("there is no bash")
    subprocess.run([shell, "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("text", [*blocks("sql")])
def test_sql_parses(text: str) -> None:
    for dialect in ("databricks", "trino", "mysql", "duckdb"):
        own = text if dialect == "trino" else re.sub(r".*-- Trino$", "", text, flags=re.MULTILINE)
        try:
            assert duckdb.extract_statements(own) if dialect == "duckdb" else sqlglot.parse(own, dialect=dialect)
        except (sqlglot.ParseError, duckdb.Error):
            continue
        return
    pytest.fail("no dialect reads it")


@pytest.mark.parametrize("text", [*blocks("json")])
def test_json_parses(text: str) -> None:
    assert json.loads(text)


@pytest.mark.parametrize("text", [*blocks("toml")])
def test_toml_parses(text: str) -> None:
    assert tomllib.loads(text)


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", pages, re.MULTILINE))
    assert {name for pair in named for name in pair if name} <= targets


def sentences() -> str:
    """Return what all pages that people wrote say outside of blocks."""
    return "\n".join(BLOCK.sub("", page.read_text(encoding="utf-8")) for page in PAGES if page.name not in GENERATED)


def test_settings_named_by_their_path_exist() -> None:
    broken = []
    for path in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", sentences()):
        model: Any = {"lake": LakeSettings}.get(path.partition(".")[0], ChangefeedSettings)
        first, *rest = path.split(".")[1:] if model is LakeSettings else path.split(".")
        if model is ChangefeedSettings and first not in model.model_fields:
            continue  # an option of a producer, of Spark, or of Kafka
        for name in (first, *rest):
            if model is not None and name not in model.model_fields:
                broken.append(path)
                break
            model = model and _section(model.model_fields[name].annotation)
    assert broken == []


def _section(annotation: Any) -> Any:
    """Return the model of a setting that is a section, None for another."""
    kinds = [annotation, *get_args(annotation)]
    return next((kind for kind in kinds if isinstance(kind, type) and hasattr(kind, "model_fields")), None)


def test_variables_of_the_environment_are_those_of_the_code() -> None:
    pattern = re.compile(r"\bCDC_ASSETS_[A-Z_]+\b")
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert set(pattern.findall(pages)) == set(pattern.findall(code)) - INNER_VARIABLES


INNER_VARIABLES = {"CDC_ASSETS_DEMO"}
"""Variables by which processes of the package speak with each other."""


def test_the_readme_has_every_command_and_every_extra() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Commands")[2].partition("## ")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*) \|$", table, re.MULTILINE)
    assert {title.capitalize(): tuple(INLINE.findall(names)) for title, names in rows} == GROUPS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(
        INLINE.findall(
            "\n".join(re.findall(r"^\|([^|]+)\|", readme.partition("| extra |")[2].partition("\n\n")[0], re.MULTILINE))
        )
    )
    assert extras == project["optional-dependencies"].keys() - {"dev"}


def test_rules_of_findings_named_on_pages_exist() -> None:
    named = set(re.findall(r"\(`([a-z]+(?:-[a-z]+)+)`\)|finding `([a-z-]+)`", sentences()))
    assert {name for pair in named for name in pair if name} <= set(RULES)


def test_the_metadata_of_tables_on_the_page_are_those_of_events() -> None:
    page = (
        (ROOT / "docs" / "dagster.md")
        .read_text(encoding="utf-8")
        .partition("| metadata of a table")[2]
        .partition("\n\n")[0]
    )
    code = "\n".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "defs").glob("*.py"))
    cells = "\n".join(re.findall(r"^\|([^|]+)\|", page, re.MULTILINE))
    names = [re.sub("^lag_(written|checkpoint|applied)_", "lag_{stage}_", name) for name in INLINE.findall(cells)]
    assert [name for name in names if f'"{name}"' not in code] == []
