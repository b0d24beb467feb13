"""Masks: what becomes of a column's values between reading them and everything else, and which columns have one.

    hash      HMAC-SHA256 in hex, over the family of the type and the value in its plainest form
    null      NULL
    redact    a part only: `last4`, `domain` (behind the last @), or `length`
    drop      nothing: the lake does not have the column
    constant  one text instead of every value that is not NULL

A policy has a line for each pattern over `schema.table.column`, and the most exact one counts for a column: where one
line is more exact in one part and another in another part, a line must say both, or the policy contradicts itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import combinations
from typing import Any

from cdc_assets.model.encryption import EncryptionKey, key_fingerprint
from cdc_assets.model.names import fold_name

__all__ = ["NO_MASK", "PARTS", "Mask", "MaskLine", "MaskPolicy"]

PARTS = ("last4", "domain", "length")
"""Parts of a value that `redact` can keep."""

NO_MASK = "none"
"""The fingerprint of a column whose values are as the source has them."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One way to mask values. `detail` is the part of `redact` or the text of `constant`, `key` that of `hash`.

    `pattern` is the line of the policy that asks for it, and `origin` names the column for good: it stays when the
    column is renamed. Neither makes another mask of it. `types` are those that the column has had, where the same value
    would be masked otherwise in another of them, oldest first, each by the columns that mask alike: values are masked
    as those of the newest one, which `as_type` names.
    """

    way: str
    detail: str = ""
    key: bytes = field(default=b"", repr=False)
    pattern: str = field(default="", compare=False)
    origin: str = field(default="", compare=False)
    types: tuple[tuple[Any, ...], ...] = field(default=(), repr=False)
    as_type: str = ""

    def __str__(self) -> str:
        """Return the mask as a person writes it, without its key."""
        return f"{self.way} {self.detail}" if self.detail else self.way

    @property
    def fingerprint(self) -> str:
        """A text that is equal for masks that make equal values of equal values; it gives no key away."""
        made = f"hash {key_fingerprint(self.key)}" if self.way == "hash" else str(self)
        return f"{made} as {self.as_type}" if self.as_type else made

    @property
    def leaves_types(self) -> bool:
        """Return whether what is left of a value depends on its type."""
        return self.way in ("hash", "redact")

    @property
    def keeps_keys(self) -> bool:
        """Return whether different values stay different, so that rows can be told apart by them."""
        return self.way == "hash"


@dataclass(frozen=True, slots=True)
class MaskLine:
    """A line of the policy: patterns of a schema, a table and a column, and the mask of what matches."""

    pattern: str
    mask: Mask

    @property
    def parts(self) -> tuple[str, ...]:
        """The three patterns in the form in which names are compared.

        Raises ValueError for another number of them, and for quotes or white space around one, which hardly a name has.
        """
        return pattern_parts(self.pattern)

    def matches(self, *names: str) -> bool:
        """Return whether it speaks of a schema, table and column; names that differ in letter case are the same."""
        return all(_fits(name, part) for name, part in zip(names, self.parts, strict=True))

    def concerns(self, schema: str, table: str) -> bool:
        """Return whether it speaks of columns of a table."""
        return all(_fits(name, part) for name, part in zip((schema, table), self.parts, strict=False))


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """The lines of a changefeed's setting `privacy`, in its order. `MaskPolicy()` masks nothing.

    With an `encryption_key` raw bytes of masked tables are kept encrypted, without one they are not kept.
    """

    lines: tuple[MaskLine, ...] = ()
    encryption_key: EncryptionKey | None = None

    def __bool__(self) -> bool:
        return bool(self.lines)

    def of(self, schema: str, table: str, column: str) -> Mask | None:
        """Return the mask of the most exact line for a column, None if there is none."""
        fitting = [line for line in self.lines if line.matches(schema, table, column)]
        best = next(
            (mask_line for mask_line in fitting if not any(_is_more_exact(other, mask_line) for other in fitting)), None
        )
        return None if best is None else best.mask

    def concerns(self, schema: str, table: str) -> bool:
        """Return whether a line is about columns of a table, if it has them or not."""
        return any(line.concerns(schema, table) for line in self.lines)

    def may_mean(self, column: str) -> bool:
        """Return whether a line speaks of a column of that name in some table."""
        return any(_fits(column, line.parts[2]) for line in self.lines)

    def contradiction(self) -> str:
        """Return the sentence on two lines that say different things of the same columns, "" where none do."""
        lines = {line.parts: line for line in self.lines}
        if len(lines) < len(self.lines):
            twice = next(duplicate for duplicate in self.lines if lines[duplicate.parts] is not duplicate)
            return f'"{twice.pattern}" and "{lines[twice.parts].pattern}" are the same columns. Leave one of them out.'
        for mask_line, other in combinations(self.lines, 2):
            ordered = _is_more_exact(mask_line, other) or _is_more_exact(other, mask_line)
            if mask_line.mask == other.mask or ordered or not _overlap(mask_line, other):
                continue
            common_parts = tuple(max(a, b, key=_exactness) for a, b in zip(mask_line.parts, other.parts, strict=True))
            sentence = (
                f'"{mask_line.pattern}" asks for {mask_line.mask} and "{other.pattern}" for {other.mask}, and '
                "neither is more "
                "exact for columns that match both."
            )
            if any(
                _exactness(a) == _exactness(b) and a != b for a, b in zip(mask_line.parts, other.parts, strict=True)
            ):
                return f"{sentence} Write one of them with more letters, or name the columns themselves."
            if common_parts not in lines:
                return f'{sentence} Say what is to be done there: "{".".join(common_parts)}".'
        return ""


@cache
def pattern_parts(pattern: str) -> tuple[str, ...]:
    """Return the three parts of a pattern, which are compared with the names of every column."""
    parts = tuple(fold_name(part) for part in pattern.split("."))
    if len(parts) != 3 or not all(parts):
        raise ValueError(
            f'"{pattern}" is no pattern of a column; expected schema.table.column, with ? for a dot in a name'
        )
    around = next((part for part in parts if part != part.strip() or _is_quoted(part)), None)
    if around is not None:
        raise ValueError(
            f'"{pattern}" has quotes or white space around "{around}", which would be part of the name; '
            "write names as they are, with ? for such a sign if a name has it"
        )
    return parts


def _is_quoted(part: str) -> bool:
    return len(part) > 1 and part[0] == part[-1] and part[0] in "`\"'"


def _fits(name: str, part: str) -> bool:
    """Return whether a pattern means a name: as it is written too, as one with brackets looks like a set of letters."""
    folded = fold_name(name)
    return folded == part or fnmatchcase(folded, part)


def _exactness(part: str) -> tuple[bool, int]:
    """A part without wildcards is the most exact, then one with more letters."""
    return not any(sign in part for sign in "*?["), len(part.replace("*", ""))


def _is_more_exact(line: MaskLine, other: MaskLine) -> bool:
    pairs = [(_exactness(a), _exactness(b)) for a, b in zip(line.parts, other.parts, strict=True)]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _overlap(line: MaskLine, other: MaskLine) -> bool:
    return all(_meet(a, b) for a, b in zip(line.parts, other.parts, strict=True))


def _meet(pattern: str, other: str) -> bool:
    """Return whether a name can match both patterns; one with a set of letters may match anything."""
    if "[" in pattern or "[" in other:
        return True
    reached = {(0, 0)}
    for at, to in ((a, b) for a in range(len(pattern) + 1) for b in range(len(other) + 1)):
        if (at, to) not in reached:
            continue
        letter, theirs = pattern[at : at + 1], other[to : to + 1]
        if letter == "*":
            reached |= {(at + 1, to), *([(at, to + 1)] if theirs else [])}
        if theirs == "*":
            reached |= {(at, to + 1), *([(at + 1, to)] if letter else [])}
        if letter and theirs and (letter == theirs or "?" in (letter, theirs)) and "*" not in (letter, theirs):
            reached.add((at + 1, to + 1))
    return (len(pattern), len(other)) in reached
