"""The house rules that a program can hold: rooms, doors, sizes, names, and what the text of the project never says."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from cdc_assets_tests.package_code import MODULES, PACKAGE, ROOT, law_of, nodes, parsed, text_of

TESTS = sorted(Path(__file__).parent.rglob("*.py"))

ROOMS = {
    "boto3": ("io/", "settings/", "defs/", "sources/topics/registry/"),
    "click": ("cli/",),
    "confluent_kafka": ("sources/topics/kafka/",),
    "dagster": ("defs/", "definitions.py", "run_coordinator.py", "cli/demo.py"),
    "dagster_aws": ("defs/", "definitions.py"),
    "dagster_pyspark": ("defs/", "definitions.py"),
    "duckdb": ("operations/query.py",),
    "fastavro": ("formats/avro_records.py",),
    "fsspec": ("io/",),
    "google_crc32c": ("io/",),
    "pandera": ("decoding/",),
    "py4j": ("lake/spark/",),
    "pydantic": ("settings/", "defs/"),
    "pyiceberg": ("lake/",),
    "pymysql": ("sources/mysql_protocol/",),
    "pyspark": ("lake/", "defs/", "operations/opening.py"),
    "requests": ("sources/topics/registry/",),
    "rich": ("cli/",),
    "sqlalchemy": ("ledger.py",),
    "sqlglot": ("ddl/",),
    "yaml": ("settings/",),
}
"""Where a heavy library may be imported: modules, and folders with a slash at the end."""

PARSERS = {"json", "pyarrow.json", "fastavro"}
VIEWS = {"frombuffer", "buffers"}
MADE_OF_BYTES = {
    "records": "what all records can do: bytes at a place of a column",
    "json_records": "JSON messages -> records",
    "avro_records": "Avro messages -> records",
    "canal_json/file_records": "files of Canal-JSON -> the same records",
    "canal_json/ends": "both ends of rows of Canal-JSON -> their tables and commit-ts",
    "craft/frame": "Craft's messages -> events, and where their columns lie",
    "dialect": "delimited text -> columns of texts",
    "dump/sql": "the tuples of an INSERT -> delimited text",
}
"""Modules of formats that parse JSON or Avro, or look at the bytes of an array, and what they make of which bytes.

They alone do: a protocol reads records or columns, and does not know who made them. This list only shrinks.
"""

LAW = """
model errors < types jvm io < formats ddl ledger < sources history < decoding < preflight planning settings < lake
< landing < pipeline < report < operations < run_coordinator < defs < cli < definitions
"""
"""Each group of folders and modules imports only groups before it, and the folders of one group not each other.

Dagster loads the run coordinator with its instance, without the definitions: it comes before them.
"""

PLUGS = {
    "formats": ("formats/__init__.py", "formats/protocols.py", "features/dumps/formats.py"),
    "sources": ("sources/__init__.py", "preflight/", "landing/"),
    "features/kinds": (),
}
"""Rooms of plugs: folders or modules that never import a sibling -> who may name them besides, as a table of plugs."""

SHARED_BY_PLUGS = ("decoding", "lake", "lake_checks", "planning",
                   "avro_records", "changefeed_toml", "changes", "column_codes", "decoded", "described", "dialect",
                   "given", "json_records", "members", "messages", "protocols", "redaction",
                   "records", "replicated", "servers", "simple_records", "unchanged", "values", "words")  # fmt: skip
"""Modules of a room of plugs that are not plugs: what several of them have in common."""

NAMED_ELSEWHERE = {
    "cli/options.py": "`topics` is an option",
    "features/dumps/defs.py": "the asset dump",
    "sources/topics/source.py": "it says where in the landing splits of topics are",
    "model/progress.py": "a table may be complete by a dump",
    "operations/as_of.py": "states of scd2 are chosen by their intervals",
    "operations/requests.py": "extracts are written as CSV, too",
    "operations/change_files.py": "the same",
    "operations/table_rows.py": "extracts are what a log would have",
    "model/kinds.py": "the setting history names kinds",
    "settings/sections.py": "kinds of history tables, and extracts as CSV, are settings",
    "sources/dumpling/directory.py": "a log is the binlog of MySQL there",
    "lake/spark/training.py": "the JVM is trained with rows of its own, written as CSV",
    "settings/config.py": "the settings initial.dump and topics",
    "features/dumps/settings.py": "the setting initial.dump",
    "defs/names.py": "the asset of topics is called so",
    "settings/model.py": "the setting initial.dump may hold secrets",
    "sources/storage_sink/options.py": "TiCDC has tables of options by protocol",
}
"""Files outside that name a plug all the same, with the reason."""

NOT_BUILT: set[str] = set()
"""Rooms of the design that are still to come. This list only shrinks."""

EXECUTORS = (
    "cdc_assets.decoding.keyed_rows",
    "cdc_assets.lake.staging.tasks",
    "cdc_assets.landing.files",
    "cdc_assets.landing.tasks",
    "cdc_assets.formats.canal_json.decode",
    "cdc_assets.formats.csv.decode",
    "cdc_assets.formats.dump.csv",
    "cdc_assets.formats.dump.parquet",
    "cdc_assets.formats.dump.sql",
    "cdc_assets.sources.dumpling.splits",
    "cdc_assets.sources.mysql_protocol.rows",
    "cdc_assets.formats.canal_json.messages",
    "cdc_assets.formats.craft.messages",
    "cdc_assets.formats.debezium_json.messages",
    "cdc_assets.formats.open_protocol",
    "cdc_assets.formats.simple",
)
"""What a task on an executor begins with: nothing that it imports may load more than Arrow and polars."""

HEAVY = frozenset(ROOMS) | {"pandas", "s3fs"}

NAMELESS = re.compile(r"(^|_)(utils?|helpers?|common|base|managers?|misc)(_|$)")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the full name of every module that a file imports, at the top or in a function, but for types alone.

    Of `from a import b` both `a` and `a.b`, as `b` may be a module.
    """
    return frozenset(_imported(parsed(path)))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case) and not _is_for_types(node):
            yield from _imported(node)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def test_heavy_libraries_stay_in_their_rooms() -> None:
    for path in MODULES:
        inside = law_of(path.relative_to(PACKAGE).as_posix())
        for module in imports(path):
            library = module.split(".")[0]
            doors = ROOMS.get(library, (inside,))
            at_home = any(inside == door or (door.endswith("/") and inside.startswith(door)) for door in doors)
            assert at_home, f"{name_of(path)} imports {module}; {library} belongs into {', '.join(doors)}"


def test_bytes_are_looked_at_where_records_and_columns_are_made_of_them() -> None:
    modules = set[str]()
    for path in sorted((PACKAGE / "formats").rglob("*.py")):
        views = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)} & VIEWS
        if views or PARSERS & imports(path):
            modules.add(path.relative_to(PACKAGE / "formats").with_suffix("").as_posix())
    assert modules == set(MADE_OF_BYTES)


@cache
def arrows() -> dict[str, set[str]]:
    """Return for each file of the package the files that it imports, those for types and inside functions included.

    `from package import module` needs the module, and the package's own file only for what that defines.
    """
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES}
    arrows_by_module: dict[str, set[str]] = {}
    for path in MODULES:
        named = {alias.name for node in nodes(path) if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {name if name in files else node.module for name in modules}
        own = {files[name] for name in named if name in files and files[name] != path}
        arrows_by_module[path.relative_to(PACKAGE).as_posix()] = {
            target.relative_to(PACKAGE).as_posix() for target in own
        }
    return arrows_by_module


def test_imports_follow_the_layers() -> None:
    layer = {name: number for number, group in enumerate(LAW.split("<")) for name in group.split()}

    def room(file: str) -> str:
        return law_of(file).split("/")[0].removesuffix(".py")

    against = {
        (file, other)
        for file, others in arrows().items()
        for other in others
        if room(file) != room(other)
        and not {"__init__", "features"} & {room(file), room(other)}
        and layer[room(other)] >= layer[room(file)]
    }
    assert against == set()


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = arrows()
    reached = {file: set(others) for file, others in graph.items()}
    changed = True
    while changed:
        changed = False
        for others in reached.values():
            more = set().union(*(reached[other] for other in others)) - others
            if more:
                others |= more
                changed = True
    circles = {tuple(sorted(other for other in reached[file] if file in reached[other])) for file in graph}
    assert circles - {()} == set()


def plugs(room: str) -> set[str]:
    """Return the names of a room's plugs: its folders and modules, but for what they share."""
    names = {
        path.stem for path in (PACKAGE / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    return names - {"__init__", "__pycache__", *SHARED_BY_PLUGS}


@pytest.mark.parametrize("room", PLUGS)
def test_a_plug_never_imports_its_sibling(room: str) -> None:
    def plug(file: str) -> str:
        return file.removeprefix(f"{room}/").split("/")[0].removesuffix(".py") if file.startswith(f"{room}/") else ""

    pairs = {(plug(file), plug(other)) for file, others in arrows().items() for other in others}
    assert {(plug, other) for plug, other in pairs if {plug, other} <= plugs(room) and plug != other} == set()


@pytest.mark.parametrize("room", PLUGS)
def test_a_plug_is_named_in_its_folder_and_in_the_table_of_plugs_only(room: str) -> None:
    names = plugs(room) | {name.replace("_", "-") for name in plugs(room)}
    named = set()
    for path in MODULES:
        inside = path.relative_to(PACKAGE).as_posix()
        if inside.startswith((f"{room}/", *PLUGS[room])):
            continue
        texts = {node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        door = f"cdc_assets.{room.replace('/', '.')}."
        imported = {name.removeprefix(door).split(".")[0] for name in imports(path) if name.startswith(door)}
        if (texts & names) or (imported & plugs(room)):
            named.add(inside)
    assert named <= set(NAMED_ELSEWHERE)


DESIGN = ROOT.parent / "shared" / "design.md"


@pytest.mark.skipif(not DESIGN.exists(), reason="the design is not beside this clone")
def test_the_design_draws_the_house_as_it_is() -> None:
    drawn = re.search(r"^cdc_assets/\n((?:  .*\n|\n)+)", DESIGN.read_text(), re.MULTILINE)
    assert drawn is not None
    rooms = {name.strip("/").removesuffix(".py") for line in drawn[1].splitlines() for name in _drawn(line)}
    real = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - NOT_BUILT == real - {"__init__", "features"}  # it draws the layers, and speaks of features apart


def _drawn(line: str) -> list[str]:
    """Return the rooms that begin a line of the drawing: `model/  values …`, or files side by side."""
    words = line.split()
    return [word for word in words if word.endswith(".py")] or words[:1]


def loaded_by(*modules: str) -> set[str]:
    """Return the top-level modules that a fresh Python has loaded after importing these."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_runs_on_executors_loads_no_engine() -> None:
    assert loaded_by(*EXECUTORS) & HEAVY <= {"pandera"}


def test_the_command_line_starts_without_any_engine() -> None:
    assert loaded_by("cdc_assets.cli") & (HEAVY | {"pyarrow", "polars"}) <= {"click"}


def test_the_package_itself_imports_nothing() -> None:
    assert imports(PACKAGE / "__init__.py") == set()


def test_no_name_is_imported_at_the_top_and_again() -> None:
    again = []
    for path in MODULES:
        body, names = parsed(path).body, (set[tuple[str, str]](), set[tuple[str, str]]())
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names[node in body].update((getattr(node, "module", ""), alias.name) for alias in node.names)
        again += [f"{name_of(path)}: {name}" for _, name in names[0] & names[1]]
    assert not again, (
        "import it late, or for types, or at the top: what is late or for types is loaded at once otherwise"
    )


def test_class_names_are_unique() -> None:
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(name_of(path))
    shared = {name for name, files in homes.items() if len(files) > 1}
    assert shared == set(), "give a new class a name of its own"


def test_modules_have_names_of_their_own() -> None:
    nameless = [
        name_of(path)
        for path in [*MODULES, *TESTS]
        if any(NAMELESS.search(part) for part in path.relative_to(ROOT).with_suffix("").parts)
    ]
    assert nameless == [], "say what stage or thing it is"


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
    problems = []
    for path in tracked():
        try:
            text = text_of(path)
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), 1) if pattern.search(text) else ()
        problems += [
            f"{name_of(path)}:{number}: {line.strip()[:100]}" for number, line in lines if pattern.search(line)
        ]
    assert problems == []


FOLDERS = [path.parent for path in MODULES if path.name == "__init__.py" and path.parent != PACKAGE]


def listed(folder: Path) -> set[str]:
    """Return the modules that a folder's docstring lists, a line each: `name   what it is`."""
    named = ast.get_docstring(parsed(folder / "__init__.py"), clean=False) or ""
    return set(re.findall(r"^(?: {4})?([a-z_0-9]+)/?  +\S", named, re.MULTILINE))


def test_what_a_folder_lists_is_what_it_holds() -> None:
    for folder in FOLDERS:
        real = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        room = folder.relative_to(PACKAGE).as_posix()
        by_table = plugs(room) if room in PLUGS else set()
        if len(real) > 2:
            assert real - {"__init__"} - by_table <= listed(folder), f"a module is missing from the list of {room}"
        there = {name for name in listed(folder) if not name.startswith("_")} - NO_MODULES
        assert there <= real, f"{room} lists what is not there"


NO_MODULES = {"fence", "splits", "events"}
"""What docstrings of folders list beside modules: what a source gives."""


DRAWN = re.compile(r"^ {0,8}(?:([A-Za-z_][\w.]*)\(|([a-z]+_[a-z_]+)(?:, [a-z_]+)*  +\S)", re.MULTILINE)
"""What begins a line of a header's drawing: `Class.function(…)`, or a `function_name   what it does`."""

NO_FUNCTIONS = {"gbk_chinese_ci"}
"""What begins lines of headers beside functions: a collation."""


def test_headers_draw_functions_that_exist() -> None:
    named: dict[Path, set[str]] = {}
    for path in MODULES:
        defined = {node.name for node in nodes(path) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        named.setdefault(path.parent, set()).update(defined, {path.stem})
    wrong = {
        f"{name_of(path)}: {name}"
        for path in MODULES
        for match in DRAWN.finditer(ast.get_docstring(parsed(path), clean=False) or "")
        if (name := (match[1] or match[2]).split(".")[-1]) not in named[path.parent] | NO_FUNCTIONS
    }
    assert wrong == set()
