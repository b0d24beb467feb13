"""The texts with which the code holds a table, taken from the code itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cdc_assets_tests.package_code import MODULES, PACKAGE, law_of, nodes, parsed

_REASON_OF = {
    "TableHeld": 0, "HoldTable": 2, "held": 1, "_held": 1,
    "Unrecoverable": 0, "Unresolved": 0, "_Unmaskable": 0,
}  # fmt: skip
"""Which argument of a call is the reason of a hold, or of an error that planning turns into one."""
_NAMED = {"reason", "why", "doubt"}
"""Variables by which a reason is passed on."""
_OF_FILES = ("pipeline/settled", "sources/storage_sink/source")
"""They say in whole sentences what is wrong with a file, and in a few words why a name is passed over."""
_DECIDING = ("history/", "decoding/kinds/", "planning/", "preflight/conformance",
             "lake/schema", "operations/verification_repair", "pipeline/planner", *_OF_FILES)  # fmt: skip
"""Folders and modules that make reasons by which others hold a table."""
_SENTENCES = {"_RESTORED", "_LATE"}
"""Constants of these modules that are reasons, with `{}` for each value."""
_OF_CUTS = "planning/cuts"
"""It says why a table is not in a cut, which holds nothing."""


@cache
def reasons() -> tuple[tuple[str, str], ...]:
    """Return each reason of a hold as its place in the code and its text, with `{}` for each value in it.

    A reason is an argument of `TableHeld`, `HoldTable` and the like, or of an error whose text they take over. Where
    that is no literal, it is made in a module that decides about holds: assigned to a variable of a known name, or
    returned as a text. The landing holds a table by constants that say what is wrong with a message.
    """
    hold_reasons = []
    taken_over = {error for path in MODULES for error in _taken_over(path)}
    for path in MODULES:
        calls = [node for node in nodes(path) if isinstance(node, ast.Call)]
        texts = [_reason(call) for call in calls if _called(call) in _REASON_OF]
        texts += [call.args[0] for call in calls if (_room(path), _called(call)) in taken_over and call.args]
        place = law_of(path.relative_to(PACKAGE).as_posix())
        if place.startswith(_DECIDING) and not place.startswith(_OF_CUTS):
            texts += _passed_on(path)
        if path.parent.name == "landing":
            texts += _refused_messages(path)
        for node in texts:
            text = _text(node)
            if place.startswith(_OF_FILES) and not text.endswith("."):
                continue
            if _is_sentence(text) and not text.startswith("cdc-assets "):
                hold_reasons.append((f"{place}:{node.lineno}", " ".join(text.split())))
    return tuple(hold_reasons)


def _is_sentence(text: str) -> bool:
    return len(re.findall("[A-Za-z]{2,}", text)) > 3


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def _taken_over(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the errors, each with the folder that raises it, whose text is the reason of a hold where they are caught.

    Where a hold has a sentence of its own beside the text of the error, that sentence is the reason.
    """
    handlers = (node for node in nodes(path) if isinstance(node, ast.ExceptHandler) and node.name)
    for handler in handlers:
        calls = (node for node in ast.walk(handler) if isinstance(node, ast.Call) and _called(node) in _REASON_OF)
        for reason in map(_reason, calls):
            names = {node.id for node in ast.walk(reason) if isinstance(node, ast.Name)}
            if handler.name in names and isinstance(handler.type, ast.Name) and not _is_sentence(_text(reason)):
                yield _room(path), handler.type.id


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _reason(call: ast.Call) -> ast.expr:
    place = _REASON_OF[_called(call)]
    if len(call.args) > place:
        return call.args[place]
    given = [keyword.value for keyword in call.keywords if keyword.arg in ("message", "reason")]
    return given[0] if given else ast.Constant("")


def _passed_on(path: Path) -> Iterator[ast.expr]:
    """Yield the texts of a module that may become a reason."""
    for node in nodes(path):
        if isinstance(node, ast.Assign) and {getattr(target, "id", "") for target in node.targets} & (
            _NAMED | _SENTENCES
        ):
            yield from _branches(node.value)
        elif isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.returns.id == "str":
            for returned in ast.walk(node):
                if isinstance(returned, ast.Return) and returned.value is not None:
                    yield from _branches(returned.value)


def _refused_messages(path: Path) -> Iterator[ast.expr]:
    """Yield the constants of a module of the landing that begin with the message, or with the snapshot, as subject."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and re.match("it |its |another part |the connector ", _text(node.value)):
            yield node.value


def _branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from _branches(node.body)
        yield from _branches(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _branches(value)
    else:
        yield node


def _text(node: ast.expr) -> str:
    """Return a literal's text, "" for any other expression."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value) if isinstance(value, ast.Constant) else "{}" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case _:
            return ""
