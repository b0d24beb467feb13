"""What is declared, what is locked, and what is in the wheel agree with what the code needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc_assets_tests.package_code import MODULES, PACKAGE, ROOT
from cdc_assets_tests.test_house import imports

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOT_IMPORTED = {
    "dagster-webserver": "the UI of `dagster dev`",
    "pandas": "Spark and pandera import it; here only to hold its version",
    "s3fs": "fsspec loads it by the scheme s3",
}
"""Dependencies that no module imports, with what they are for."""


@cache
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def declared() -> dict[str, Requirement]:
    return {
        canonicalize_name(requirement.name): requirement for requirement in map(Requirement, project()["dependencies"])
    }


def locked(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return the entries of a lock file, each with its hashes."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    entries = []
    for line in filter(None, text.splitlines()):
        requirement, *hashes = line.split("--hash=")
        entries.append((Requirement(requirement.strip()), [hash_text.strip() for hash_text in hashes]))
    return entries


def third_party() -> set[str]:
    """Return the distributions whose modules the package imports."""
    own_or_standard = set(sys.stdlib_module_names) | {"cdc_assets", "tomllib"}
    modules = {module for path in MODULES for module in imports(path)}
    names = {module.split(".")[0] for module in modules} - own_or_standard
    distributions = packages_distributions()
    # Python 3.10 does not know the modules of a distribution without top_level.txt; they are called alike then.
    return {canonicalize_name(distributions.get(name, [name])[0]) for name in names}


def test_every_import_is_declared() -> None:
    extras = project()["optional-dependencies"]
    optional = {
        canonicalize_name(Requirement(requirement).name)
        for extra in extras.keys() - {"dev"}
        for requirement in extras[extra]
    }
    with_pyspark = {"py4j"}
    assert third_party() - set(declared()) - optional - with_pyspark == set()


def test_every_dependency_is_used() -> None:
    unused = set(declared()) - third_party() - set(NOT_IMPORTED)
    if sys.version_info >= (3, 11):
        unused.discard("tomli")
    assert unused == set()


def test_every_dependency_has_its_reason_on_its_line() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    lines = text[text.index("dependencies = [") : text.index("[project.scripts]")].splitlines()
    dependencies = [line for line in lines if line.startswith('    "')]
    assert len(dependencies) >= len(declared())
    assert [line for line in dependencies if not re.search(r"[\",] +# \w+", line)] == []


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock", "requirements-build.lock"])
def test_a_lock_has_exact_versions_with_hashes(name: str) -> None:
    for requirement, hashes in locked(name):
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", hash_text) for hash_text in hashes)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-test.lock", "requirements-build.lock"])
def test_a_lock_names_no_index(name: str) -> None:
    assert not re.search(r"://|index-url|find-links", (ROOT / name).read_text())


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize(("lock", "without"), [("requirements.lock", {"dev"}), ("requirements-test.lock", set())])
def test_a_lock_holds_what_is_declared(lock: str, without: set[str], python: str, system: str) -> None:
    place = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": system}
    versions: dict[str, str] = {}
    for requirement, _ in locked(lock):
        if requirement.marker is None or requirement.marker.evaluate(place):
            name = canonicalize_name(requirement.name)
            assert name not in versions, f"two versions of {name}"
            versions[name] = str(requirement.specifier).removeprefix("==")
    groups = {name: group for name, group in project()["optional-dependencies"].items() if name not in without}
    extras = [Requirement(requirement) for group in groups.values() for requirement in group]
    for needed in [*declared().values(), *extras]:
        if needed.marker is None or needed.marker.evaluate(place):
            assert needed.specifier.contains(versions[canonicalize_name(needed.name)]), needed


def test_what_runs_is_locked_alike_for_tests_and_without_what_only_they_need() -> None:
    entries, with_tests = (
        [str(requirement) for requirement, _ in locked(name)]
        for name in ("requirements.lock", "requirements-test.lock")
    )
    assert set(entries) < set(with_tests)
    assert not {"pytest", "mypy", "ruff", "moto"} & {Requirement(requirement).name for requirement in entries}
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"^EXTRAS +:= (.+)$", makefile, re.MULTILINE)[1].split()  # type: ignore[index]
    assert set(extras) == project()["optional-dependencies"].keys() - {"dev"}


def test_every_make_target_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]
    output = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make ([\w-]+)", output, re.MULTILINE)) == phony


def test_setup_says_which_python_it_needs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copy(ROOT / "Makefile", tmp_path)
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(["make", "setup", f"PYTHON={old}"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no Python 3.10 or newer" in done.stderr


def test_the_package_installs_the_instance_settings_of_the_checkout() -> None:
    instance = PACKAGE / "defs" / "dagster.yaml"
    assert instance.resolve() == (ROOT / "dagster.yaml").resolve()
    assert instance.read_text().startswith("# A Dagster instance")
