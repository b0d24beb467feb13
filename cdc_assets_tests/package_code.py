"""The package's modules as syntax trees: each is parsed and walked once in a process, for all tests of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "cdc_assets"
MODULES = sorted(PACKAGE.rglob("*.py"))

_TOKEN = re.compile(
    r"""(?s:(?i:[rbuf]{0,2})(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"))"""
    r"""|(?i:[rbuf]{0,2})(?:'(?:\\(?s:.)|[^'\\\n])*'|"(?:\\(?s:.)|[^"\\\n])*")"""
    r"""|\#.*|\d[\w.]*|([^\W\d]\w*)"""
)
"""A text, a comment, a number, or a name, which is the group."""


def law_of(inside: str) -> str:
    """Return the path by whose folder a file of the package is judged: the layer that a feature's file is called as.

    `features/cuts/planning.py` is `planning/cuts.py`, `features/kinds/log/lake.py` is `lake/kinds/log.py`.
    """
    folder, _, name = inside.rpartition("/")
    if not inside.startswith("features/") or name == "__init__.py":
        return inside
    layer, _, rest = name.removesuffix(".py").partition("_")
    return f"{layer}/{folder.removeprefix('features/')}{f'_{rest}' if rest else ''}.py"


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's syntax tree, in the order of `ast.walk`."""
    return tuple(ast.walk(parsed(path)))


@cache
def identifiers(path: Path) -> frozenset[str]:
    """Return the names in a module's code, keywords among them: not those in texts and comments."""
    return frozenset(match[1] for match in _TOKEN.finditer(text_of(path)) if match[1])
