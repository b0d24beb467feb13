"""The house in numbers that only fall: files that know of a feature, helpers with one call; and names with nouns.

A number that has fallen is lowered here in the same commit: the test fails where one is higher than what is there, too.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from cdc_assets_tests.package_code import MODULES, PACKAGE, ROOT, identifiers, nodes, text_of

TESTS = sorted(Path(__file__).parent.rglob("*.py"))


class Feature(NamedTuple):
    """A feature that crosses the house, and the number of files beside its own that know of it."""

    identifiers: str
    """A pattern of the identifiers that know of it. Words in comments, docstrings and texts do not count."""
    own: str
    """A pattern of the paths, relative to the package, that are its own."""
    known_in: int


FEATURES = {
    "forgetting": Feature(
        r"forg[eo]t|[Kk]ept_?[Oo]ut|keep_out|keeping_out|KeyDigest",
        r"forg[eo]t|keep_out|key_digest|key_bytes",
        12,
    ),
    "masks": Feature(
        r"^(?!mask$|null_mask|.*with_mask)(.*Mask[A-Z]?.*|masks?_\w+|\w+_masks|masks|masked\w*|\w+_masked|privacy\w*)$",
        r"mask|privacy",
        18,
    ),
    "cuts": Feature(
        r"LakeCut|[Cc]ut_?[Rr]equest|^Cut[A-Z]|^\w*Cuts$|^cuts$|TagTable|due_cut|finish_cuts|Cuttable",
        r"(^|/)cuts?(\.py|/)",
        12,
    ),
    "kinds": Feature(
        r"scd2|SCD2|history_kind|HISTORY_KINDS|HistoryRule|StateChange|keeps_states|ColumnLife|beside_mirror",
        r"kinds|scd2|history_checks|states\.py|own_columns|kept_columns",
        14,
    ),
    "dumps": Feature(
        r"^(?!dumps?$|model_dump)(\w*[Dd]ump\w*|ChosenImport|Imported\w*|imports_\w+)$",
        r"dump|imports|initial|joined",
        19,
    ),
    "completeness": Feature(
        r"incomplete|complete_by$|said_complete|[Cc]ompleteness|^Gap$|^Lack$|^Filling$",
        r"complet|gaps",
        26,
    ),
    "quarantine": Feature(r"[Qq]uarantin", r"quarantine", 14),
    "value settings": Feature(
        r"Recipes|SettingsChange|read_otherwise|new_settings|masked_since|masked_otherwise",
        r"recipe",
        8,
    ),
    "extract, explain": Feature(
        r"[Ee]xtract|[Ee]xplain|RowExplanation",
        r"extract|explain|explanation|feed_changes|net_changes",
        25,
    ),
}

SINGLE_CALL_LINES_PERCENT = 19
"""Lines of private functions that are called at one place, in percent of all lines of the package."""

PRONOUNS = frozenset({"found", "one", "mine", "said", "asked", "told"})
"""Words that name nothing: parameters and variables have the noun of what they hold."""

PARTICIPLES = frozenset({"given", "kept", "known", "left", "wanted"})
"""Words that say what happened to a thing and not what it is; attributes of classes are not looked at."""

HEADLESS = re.compile(
    r"(Do so|Return the same|Yield (rows )?so|The same|What|Who|Whose|Where|When|Which|How|Those|These|Such|So|They"
    r"|(Return|Yield|Read|Find|Say|Tell|Write) (what|who|where|when|which|how|why))\b"
)
"""Beginnings of docstrings that have no subject of their own, or are not understood without their neighbour."""

SUBJECT = re.compile(r"[A-Za-z][\w ,/+.-]*: \S.*")
FIRST_SUBJECT_BY_RULE = "87b54d24"
"""The last commit before subjects began with their area."""


@pytest.mark.parametrize("name", FEATURES)
def test_no_more_files_know_of_a_feature(name: str) -> None:
    feature = FEATURES[name]
    outside = [path for path in MODULES if not re.search(feature.own, path.relative_to(PACKAGE).as_posix())]
    knowing = [path for path in outside if any(re.search(feature.identifiers, word) for word in identifiers(path))]
    assert len(knowing) == feature.known_in


def test_private_helpers_with_one_call_get_fewer() -> None:
    lines = 0
    for path in MODULES:
        uses = Counter(
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in nodes(path)
            if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        )
        lines += sum(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in nodes(path)
            if isinstance(node, ast.FunctionDef)
            and node.name.startswith("_")
            and not node.name.startswith("__")
            and uses[node.name] == 1
        )
    total = sum(text_of(path).count("\n") for path in MODULES)
    assert round(100 * lines / total) == SINGLE_CALL_LINES_PERCENT


def test_no_parameter_or_variable_is_called_by_a_pronoun() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (*MODULES, *TESTS)
        for node in ast.walk(ast.parse(text_of(path)))
        if (isinstance(node, ast.arg) and node.arg in PRONOUNS)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PRONOUNS)
    ]
    assert places == []


def test_parameters_and_variables_are_nouns() -> None:
    places = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for function in nodes(path)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if (isinstance(node, ast.arg) and node.arg in PARTICIPLES)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in PARTICIPLES)
    }
    assert places == set()


def test_every_docstring_names_its_subject() -> None:
    docstrings = [
        (path.relative_to(ROOT), statement.value.value)
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
    ]
    assert [f"{path}: {text.splitlines()[0]}" for path, text in docstrings if HEADLESS.match(text)] == []


def test_subjects_of_commits_name_their_area_and_fit_a_line() -> None:
    listing = subprocess.run(
        ["git", "log", "--no-merges", "--format=%s", f"{FIRST_SUBJECT_BY_RULE}..HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("this copy has no history to look at")
    subjects = listing.stdout.splitlines()
    assert [text for text in subjects if len(text) > 72 or not SUBJECT.fullmatch(text)] == []
