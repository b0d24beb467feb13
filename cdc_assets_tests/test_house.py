"""The house rules that a program can hold: rooms, doors, sizes, names, and what the text of the project never says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cdc_assets"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))

ROOMS = {
    "boto3": ("changefeed/", "config.py", "defs/"),
    "click": ("cli/", "demo.py", "demo/"),
    "dagster": ("defs/", "definitions.py", "run_coordinator.py", "demo.py", "demo/"),
    "dagster_aws": ("defs/", "definitions.py"),
    "dagster_pyspark": ("defs/", "definitions.py"),
    "fsspec": ("changefeed/", "lake/stage.py"),
    "pandera": ("checks.py",),
    "py4j": ("lake/",),
    "pydantic": ("config.py", "defs/"),
    "pyiceberg": ("lake/",),
    "pyspark": ("lake/", "pipeline.py", "defs/"),
    "rich": ("cli/", "describe.py", "demo.py", "demo/"),
    "sqlalchemy": ("ledger.py",),
    "sqlglot": ("ddl/",),
    "yaml": ("config.py",),
}
"""Where a heavy library may be imported: modules, and folders with a slash at the end."""

ON_EXECUTORS = ("collation", "conversions", "errors", "formats", "model", "mysql_types", "mysql_values", "reduce")
"""What a Spark executor imports for decoding: nothing of it may load more than Arrow and polars."""

HEAVY = frozenset(ROOMS) | {"pandas", "s3fs"}

LONG = {
    "cdc_assets/conversions.py": "one small function for each target type, side by side",
    "cdc_assets/model.py": "the vocabulary of all stages, and nothing but frozen values",
    "cdc_assets_tests/test_changefeed.py": "the path grammar's tables of names, which read best in one piece",
    "cdc_assets_tests/test_lake.py": "every step of the lake on one Spark session, with the same small source",
}
"""Modules of more than 500 lines, with the reason."""

NAMELESS = re.compile(r"(^|_)(utils?|helpers?|common|base|managers?|misc)(_|$)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module that is imported, at the top or in a function; not those for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imports(node)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    inside = path.relative_to(PACKAGE).as_posix()
    for module in imports(ast.parse(path.read_text())):
        library = module.split(".")[0]
        doors = ROOMS.get(library, (inside,))
        at_home = any(inside == door or (door.endswith("/") and inside.startswith(door)) for door in doors)
        assert at_home, f"{name_of(path)} imports {module}; {library} belongs into {', '.join(doors)}"


def loaded_by(*modules: str) -> set[str]:
    """Return the top-level modules that a fresh Python has loaded after importing these."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_runs_on_executors_loads_no_engine() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in MODULES
        if path.relative_to(PACKAGE).with_suffix("").parts[0] in ON_EXECUTORS
    ]
    assert loaded_by(*names) & HEAVY == set()


def test_the_command_line_starts_without_any_engine() -> None:
    assert loaded_by("cdc_assets.cli") & (HEAVY | {"pyarrow", "polars"}) <= {"click"}


def test_the_package_itself_imports_nothing() -> None:
    assert list(imports(ast.parse((PACKAGE / "__init__.py").read_text()))) == []


def test_a_module_has_at_most_500_lines_or_a_reason() -> None:
    long = {name_of(path) for path in [*MODULES, *TESTS] if path.read_text().count("\n") > 500}
    assert long == set(LONG)


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_a_module_has_a_name_of_its_own(path: Path) -> None:
    for part in path.relative_to(ROOT).with_suffix("").parts:
        assert not NAMELESS.search(part), f"{name_of(path)}: say what stage or thing it is"


def tracked() -> list[Path]:
    """Return the files of the project: what git tracks, or in a copy without git what is not generated."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if not GENERATED.intersection(p.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


GENERATED = {".venv", ".demo", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}

# Put together from parts, so that this file does not say them.
UNSAID = {
    "the address of a package registry": "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("files", "pythonhosted", "org"),
            ("repo1", "maven"),
            ("repo", "maven"),
            ("maven2", "org"),
            ("registry", "npmjs"),
            ("proxy", "golang"),
            ("crates", "io"),
        )
    ),
    "a path of one machine": r"(?<![\w.~*])/("
    + "|".join(("work", "farm", "root", "home/[a-z]", "Users/[A-Za-z]"))
    + ")/",
    "the number of a task": r"(?<!/)\b" + r"issue #?[0-9]",
}


@pytest.mark.parametrize("what", UNSAID)
def test_the_text_of_the_project_never_holds(what: str) -> None:
    pattern = re.compile(UNSAID[what], re.IGNORECASE)
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), 1)
        found += [f"{name_of(path)}:{number}: {line.strip()[:100]}" for number, line in lines if pattern.search(line)]
    assert found == []
