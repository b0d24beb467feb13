"""Findings as a person reads them: one paragraph a cause, with all that it concerns. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.wording import counted, first_of

_SHOWN = 10
"""Most subjects of a cause that text shows."""
_SHORT = 60
"""Details of at most so many characters stand behind each other in a line."""


@dataclass(frozen=True, slots=True)
class GroupedSubject:
    """A subject of a cause: a table ("" for the whole feed), and the sentence about it alone.

    `new` is false for what an earlier run has already reported.
    """

    table: str
    detail: str = ""
    new: bool = True

    def __str__(self) -> str:
        return f"{self.table} ({self.detail})" if self.table and self.detail else self.table or self.detail


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one rule with equal words, and all their subjects."""

    rule: str
    severity: Severity
    sentence: str
    subjects: tuple[GroupedSubject, ...]


def grouped(findings: Iterable[Finding], new: Collection[Finding] | None = None) -> tuple[FindingGroup, ...]:
    """Return findings by their causes, the most important first; `new` are those of no earlier run, None for all."""
    groups: dict[tuple[str, Severity, str], dict[Finding, None]] = {}
    for finding in sorted(findings, key=lambda finding: (finding.weight, finding.table)):
        groups.setdefault((finding.rule, finding.severity, finding.sentence), {})[finding] = None
    return tuple(
        FindingGroup(
            *cause,
            tuple(GroupedSubject(finding.table, finding.detail, new is None or finding in new) for finding in members),
        )
        for cause, members in groups.items()
    )


def group_text(group: FindingGroup) -> str:
    """Return a group as one line: the sentence, and the first of what it concerns with a count of the others."""
    subjects = _named(group)
    return f"{group.sentence} ({first_of(subjects, _kind(group))})" if subjects else group.sentence


def group_lines(groups: Iterable[FindingGroup]) -> Iterator[str]:
    """Yield groups as lines of text: the sentence, and below it what it concerns, in lines of its own where long."""
    for group in groups:
        yield f"{group.severity.value}: {group.sentence}"
        subjects, kind = _named(group), _kind(group)
        if any(len(subject.detail) > _SHORT for subject in group.subjects):
            yield from (f"    {subject}" for subject in subjects[:_SHOWN])
            subjects = subjects[_SHOWN:]
            if subjects:
                yield f"    and {counted(len(subjects), f'more {kind}')}"
        elif subjects:
            yield f"    {first_of(subjects, kind, _SHOWN)}"


def shortened_lines(groups: Iterable[FindingGroup]) -> Iterator[str]:
    """Yield the groups that stop or hold as lines of text, and in one line the count of warnings with their rules."""
    shown = list(groups)
    yield from group_lines(group for group in shown if group.severity is not Severity.WARNING)
    if rules := [group.rule for group in shown if group.severity is Severity.WARNING]:
        count = counted(len(rules), "warning stands", "warnings stand")
        yield f"{count} ({', '.join(dict.fromkeys(rules))}): see `cdc-assets status --warnings`"


def beside_holds(groups: Iterable[FindingGroup], reasons: Mapping[str, str]) -> list[FindingGroup]:
    """Return groups without what repeats why tables are held; `reasons` are those by the names of held tables."""
    shown = []
    for group in groups:
        subjects = tuple(subject for subject in group.subjects if not _repeats(group, subject, reasons))
        if subjects:
            shown.append(replace(group, subjects=subjects))
    return shown


def _repeats(group: FindingGroup, subject: GroupedSubject, reasons: Mapping[str, str]) -> bool:
    """Return whether a reason has the words of a finding, be it of another file with the same fault.

    A finding that names no table may be repeated by the reason of any.
    """
    place, _, fault = subject.detail.partition(" ")
    texts = (group.sentence, subject.detail, fault.rstrip(".") if "/" in place else "")
    about = [reasons.get(subject.table, "")] if subject.table else reasons.values()
    return group.severity is not Severity.WARNING and any(text and text in reason for text in texts for reason in about)


def incomplete_lines(tables: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield lines on incomplete tables: (name, its own sentence, the cause in words that name no table).

    A cause of one table is its own sentence, with commands to copy.
    """
    by_cause: dict[str, list[tuple[str, str]]] = {}
    for table, sentence, cause in tables:
        by_cause.setdefault(cause, []).append((table, sentence))
    for cause, members in by_cause.items():
        (name, sentence), *more_members = members
        if not more_members:
            yield f"{name}: {sentence}"
            continue
        yield cause
        yield f"    {first_of(sorted(table for table, _ in members), 'table', _SHOWN)}"


def _named(group: FindingGroup) -> list[str]:
    return [text for text in map(str, group.subjects) if text]


def _kind(group: FindingGroup) -> str:
    return "table" if group.subjects[0].table else "place"
