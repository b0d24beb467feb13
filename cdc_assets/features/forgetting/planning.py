"""Steps -> the same without the rows of forgotten keys, up to where nobody can tell which rows these are. Pure.

A decision is about a table by its identity, and about whatever has its name: a table that is dropped and created anew
is kept free of the keys from its first row. Where digests cannot tell, the table is held rather than let rows in:

    without the key of the HMACs, or with another one
    rows have another key, or one whose values compare otherwise
    rows come from another table without row events, by EXCHANGE PARTITION
    a table that stands already gets the name: what it has was never looked through
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.forgetting import ForgottenKeys, digest_key, united
from cdc_assets.model.progress import Life
from cdc_assets.model.recipe import ExcludedKeys
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import AddedStep, ApplyRows, ExchangePartition, HoldTable, RecoverTable, RenameTable, Step
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.model.wording import counted
from cdc_assets.types.key_digests import key_form

__all__ = ["UnknownKeys", "by_name", "digests_of", "forgotten_of", "form_at", "keeping_out", "undo_command"]


def forgotten_of(decided: Iterable[ForgottenKeys], table: TableHistory) -> tuple[ForgottenKeys, ...]:
    """Return the decisions about a table of the source."""
    names = [name for name, _, _ in table.names]
    return tuple(decision for decision in decided if decision.concerns(table.life, names))


def form_at(table: TableHistory, version: Tso, schema: TableSchema) -> tuple[str, ...]:
    """Return the columns by which rows of a version are identified, by names that stay."""
    return key_form(schema, table.origins_at(version))


class UnknownKeys(Exception):
    """A step after which rows of forgotten keys may be in the lake, the decision, and what a person can do first."""

    def __init__(self, reason: str, decision: ForgottenKeys, *ways: str) -> None:
        super().__init__(f"{reason}.")
        self.ways = (*ways, f"let the rows in: {undo_command(decision)}")


def keeping_out(
    steps: Iterable[Step],
    table: TableHistory,
    lives: Mapping[Life, TableHistory],
    decided: Sequence[ForgottenKeys],
    encryption_key: EncryptionKey | None,
    *,
    stands: bool,
) -> Iterator[Step]:
    """Yield the steps of one table, or of a history table of it, without rows of forgotten keys.

    `table` and `lives` are those of the source; `stands` says that the lake has the table.
    """
    decisions, hold = forgotten_of(decided, table), None
    for step in steps:
        if hold is not None:
            if isinstance(step, AddedStep) and step.at < hold.at:
                yield step
            continue
        try:
            if isinstance(step, ApplyRows) and decisions:
                excluded = digests_of(decisions, encryption_key, table, _schemas_of(step, table))
                step = replace(
                    step, reading=replace(step.reading, excluded=excluded), encryption_key=encryption_key, whole_at=None
                )
            elif isinstance(step, ExchangePartition):
                other = lives.get(step.other.source)
                concerned = decisions or (() if other is None else forgotten_of(decided, other))
                if concerned:
                    raise UnknownKeys(
                        f"{_kept_out(concerned[0])}, and EXCHANGE PARTITION of {step.life} with {step.other} brings "
                        "rows that are not looked through",
                        concerned[0],
                    )
            elif isinstance(step, (RenameTable, RecoverTable)) and stands:
                _refuse_name(step, decided, table)
        except UnknownKeys as problem:
            position = min(step.lo + 1, step.hi) if isinstance(step, ApplyRows) else step.at
            step = hold = HoldTable(step.life, position, str(problem), problem.ways)
        yield step


def by_name(decisions: Iterable[ForgottenKeys]) -> dict[str, list[ForgottenKeys]]:
    """Return decisions by their names: one request of a person may be about keys in several forms."""
    parts: dict[str, list[ForgottenKeys]] = {}
    for decision in decisions:
        parts.setdefault(decision.name, []).append(decision)
    return parts


def digests_of(
    decisions: Sequence[ForgottenKeys],
    encryption_key: EncryptionKey | None,
    table: TableHistory,
    schemas: Iterable[tuple[tuple[str, Tso], TableSchema]],
) -> tuple[ExcludedKeys, ...]:
    """Return the digests of decisions about a table, for rows with the columns of these directories and versions.

    Raises UnknownKeys where the HMACs have another key, or rows are told apart otherwise than they are.
    """
    digests: dict[tuple[TableId, tuple[str, ...]], tuple[dict[str, Tso], set[tuple[str, Tso]]]] = {}
    by_place = dict(schemas)
    for place, schema in by_place.items():
        form = form_at(table, place[1], schema)
        for parts in by_name(decisions).values():
            for fitting in _fitting(parts, encryption_key, form, table, place[1]):
                until, versions = digests.setdefault(fitting.part, ({}, set()))
                until |= {digest: max(fitting.until, until.get(digest, fitting.until)) for digest in fitting.digests}
                versions.add(place)
    return tuple(
        ExcludedKeys(
            digest_key(encryption_key, name), until, frozenset(versions if versions != by_place.keys() else ())
        )
        for (name, _), (until, versions) in digests.items()
        if encryption_key is not None
    )


def _fitting(
    parts: Sequence[ForgottenKeys],
    encryption_key: EncryptionKey | None,
    form: tuple[str, ...],
    table: TableHistory,
    version: Tso,
) -> list[ForgottenKeys]:
    """Return the decisions of one name that have all keys of rows that are told apart by `form`."""
    alike = [decision for decision in parts if decision.form == form] or parts
    if encryption_key is None or all(decision.key_fingerprint != encryption_key.fingerprint for decision in alike):
        obstacle = "no privacy_key is given" if encryption_key is None else "privacy_key is another one now"
        reason = f"{_kept_out(alike[0])}, and {obstacle}: nobody can tell which rows these are"
        raise UnknownKeys(reason, alike[0], "give privacy_key as it was when they were forgotten")
    forms = united(parts, whenever=True)
    whole = max(forms, key=lambda decision: len(decision.digests))
    usable = [
        decision
        for decision in forms
        if (decision.form, decision.key_fingerprint) == (form, encryption_key.fingerprint)
    ]
    fitting = max(usable, key=lambda decision: len(decision.digests), default=None)
    if fitting is not None and len(fitting.digests) >= len(whole.digests):
        return [
            decision
            for decision in parts
            if (decision.part, decision.key_fingerprint) == (fitting.part, fitting.key_fingerprint)
        ]
    by = f"({'; '.join(form) or 'no key'})"
    advice = f"forget all of them by the key as it is now, too: {_again(table.last_name or table.life, whole)}"
    raise UnknownKeys(
        f"{_kept_out(whole)} by ({'; '.join(whole.form)}), and rows of version {version} are told apart by {by}"
        + (": nobody can tell which of them are meant" if fitting is None else f", by which {_count(fitting)} came"),
        whole,
        advice if form else "name its key in the setting keys, and forget all of them by that, too",
    )


def _schemas_of(step: ApplyRows, table: TableHistory) -> Iterator[tuple[tuple[str, Tso], TableSchema]]:
    """Yield the columns by which a window's files are read, and those that its table has, of the source."""
    for place in sorted({(file.root, file.version) for file in step.files}):
        yield place, step.reading.schemas[place][1]
    yield from [(("", event.at), event.after) for event in table.events if event.at <= step.ddl][-1:]


def _refuse_name(step: RenameTable | RecoverTable, decisions: Sequence[ForgottenKeys], table: TableHistory) -> None:
    """Raise where a table that stands gets the name of a decision: what it has was not looked through.

    One that was made with the name is free of the keys from its first row, unless it stood when they were forgotten.
    """
    name = table.name_at(step.at)
    if name is None:
        return
    renamed = table.names[0][0].folded != name.folded
    for parts in by_name(decision for decision in decisions if decision.table.folded == name.folded).values():
        stood = renamed or any(table.life in decision.others for decision in parts)
        if stood and not any(table.life in decision.lives for decision in parts):
            raise UnknownKeys(
                f"it gets the name {name}, {_kept_out(parts[0])}, and it may have had such rows before",
                parts[0],
                f"forget the keys there, too: {_again(table.life, parts[0])}",
            )


def _count(decision: ForgottenKeys) -> str:
    return counted(len(decision.digests), "forgotten key")


def _kept_out(decision: ForgottenKeys) -> str:
    return f"rows of {_count(decision)} are kept out of {decision.table} ({decision.name})"


def _again(table: TableId | Life, decision: ForgottenKeys) -> str:
    """Return the command by which the keys of a decision are forgotten as another table has them."""
    until = "forever" if decision.until == FOREVER else decision.until
    return f"cdc-assets forget {shlex.quote(str(table))} KEY… --until {until} --decision {decision.name}"


def undo_command(decision: ForgottenKeys) -> str:
    """Return the command that takes a decision back."""
    return f"cdc-assets forget {shlex.quote(str(decision.table))} --undo {decision.name}"
