"""Forgotten keys that stay out: `cdc-assets forget TABLE KEY… --until TIME [--decision NAME]`, until `--undo NAME`.

The decision lies in the lake and has HMACs of the keys, never their values. Whatever plans windows obeys it
(`planning.forgotten`): later input, rebuilds, replays, imports, extracts. It is made before rows are taken out, so that
nothing that is planned from then on brings them back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.features.forgetting.operations_tables import MeantTable, standing_others
from cdc_assets.features.forgetting.planning import by_name, forgotten_of, form_at
from cdc_assets.model.forgetting import ForgottenKeys, digest_key, kept_out, united
from cdc_assets.model.tso import FOREVER, Tso, iso_now, tso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.moments import position_of
from cdc_assets.operations.named import is_called
from cdc_assets.types.key_digests import key_digests

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["decide", "let_in", "parse_until"]

_MOST = 10_000
"""Digests are kept in properties of a namespace, which every look reads."""


def parse_until(pipeline: Pipeline, text: str) -> Tso:
    """Return the position through which rows are kept out: `forever`, a TSO, a time or a cut."""
    return FOREVER if text == "forever" else position_of(pipeline, text)


def decide(pipeline: Pipeline, planned: Plan, meant: MeantTable, until: Tso, name: str = "") -> ForgottenKeys:
    """Return the decision that rows of keys are kept out of a table through a position; nothing is kept of it yet.

    What the lake has of them by that plan is forgotten whatever `until` says. A decision of the same name keeps its
    keys. Raises BadSettings.
    """
    table, keys = meant.history, meant.keys_in_lake
    states = (state for life, state in planned.applied.items() if life.source in meant.sources and not state.is_purged)
    through = max((state.progress.tso for state in states), default=0)
    encryption_key, settings = pipeline.planner.encryption_key, pipeline.settings
    if encryption_key is None:
        raise BadSettings(
            "forgotten keys are kept out by an HMAC of them, never by their values, and its key is missing. Give "
            "privacy_key: {env: NAME} in the settings."
        )
    if until != FOREVER and not settings.source_options.wire.has_positions:
        raise BadSettings(
            "the rows of this changefeed carry no commit-ts, so nothing tells which of them are from before a moment. "
            "Keep the keys out by --until forever."
        )
    if until < through:
        raise BadSettings(
            f"the table is applied through {through} ({tso_time(through)}). All rows of the keys up to there are "
            f"forgotten, and a rebuild would bring back those after {until}. Keep the keys out at least --until "
            f"{through}."
        )
    if keys.num_rows > _MOST:
        raise BadSettings(f"{keys.num_rows:,} keys came, and at most {_MOST:,} can be kept out by one decision.")
    if name and not re.fullmatch(r"[\w.-]{1,60}", name):
        raise BadSettings(f'"{name}" is no name of a decision; expected up to 60 letters, digits, ".", "_" and "-".')
    digests = (
        key_digests(keys, meant.schema.in_lake, digest_key(encryption_key, meant.name)).unique().sort().to_pylist()
    )
    versions = [event.at for event in table.events if event.after == meant.schema]
    own = hashlib.sha256(f"{meant.name.folded} {digests}".encode()).hexdigest()[:12]
    decision = ForgottenKeys(
        name or f"forget-{own}",
        meant.name,
        tuple(sorted(meant.sources)),
        form_at(table, versions[-1] if versions else table.events[-1].at, meant.schema),
        encryption_key.fingerprint,
        tuple(digests),
        until,
        when=iso_now(),
        others=tuple(sorted(standing_others(planned, meant))),
    )
    return _with_former(decision, by_name(kept_out(pipeline.lake.decisions())).get(decision.name, ()), table)


def _with_former(decision: ForgottenKeys, decisions: Sequence[ForgottenKeys], table: TableHistory) -> ForgottenKeys:
    """Return a decision about a table, which may stand beside those of the same name.

    None of their keys is let in by that, and none that is let in meanwhile comes back by it. Digests of another form
    are not known of the same keys: as many have to come. Raises BadSettings.
    """
    names = {name.folded for name, _, _ in table.names}
    if decisions and not any(
        former_keys.table.folded in names or table.life in former_keys.lives for former_keys in decisions
    ):
        raise BadSettings(
            f"{decisions[0].name} is a decision about {decisions[0].table}. Give this one another --decision."
        )
    for former_keys in decisions:
        if decision.until < former_keys.until:
            raise BadSettings(
                f"{former_keys.name} keeps out {counted(len(former_keys.digests), 'key')} {former_keys.until_text}, "
                f"and {decision.until_text} "
                f"would let rows of them in sooner. Take it back first, if that is meant (--undo {former_keys.name})."
            )
        alike = (former_keys.part, former_keys.key_fingerprint) == (decision.part, decision.key_fingerprint)
        if alike and decision.until != former_keys.until and not set(former_keys.digests) <= set(decision.digests):
            raise BadSettings(
                f"{former_keys.name} keeps out {counted(len(former_keys.digests), 'key')} {former_keys.until_text}, "
                f"and not {decision.until_text}. Give the others another --decision."
            )
    forms = united(decisions, whenever=True)
    same_form = next(
        (form for form in forms if (form.part, form.key_fingerprint) == (decision.part, decision.key_fingerprint)), None
    )
    if same_form is not None:
        if len(forms) > 1 and not set(decision.digests) <= set(same_form.digests):
            raise BadSettings(
                f"{same_form.name} keeps out {counted(len(same_form.digests), 'key')} in {len(forms)} forms, and other "
                f"keys came in one of them, ({'; '.join(same_form.form)}). Give the others another --decision."
            )
        return decision
    whole = max(forms, key=lambda form: len(form.digests), default=decision)
    if len(decision.digests) != len(whole.digests):
        raise BadSettings(
            f"{whole.name} keeps out {counted(len(whole.digests), 'key')} of {whole.table} by "
            f"({'; '.join(whole.form)}), and {len(decision.digests):,} came to take their place. Give all of them and "
            "no others, as they are now, or other keys under another --decision."
        )
    return decision


def let_in(pipeline: Pipeline, table: str, name: str, run: str = "") -> ForgottenKeys:
    """Take a decision back, and return it: rows of its keys that come from then on are applied.

    Those that were left out come with a rebuild. Raises BadSettings for a decision that there is not.
    """
    decisions = kept_out(pipeline.lake.decisions())
    sources = pipeline.planner.plan()[1].sources.items()
    meant = [history for life, history in sources if is_called(table, (history.last_name, life))]
    of_meant = {decision for history in meant for decision in forgotten_of(decisions, history)}
    named = [decision for decision in decisions if is_called(table, (decision.table, *decision.lives))]
    about = by_name(dict.fromkeys((*named, *of_meant)))
    if name not in about:
        names = ", ".join(about) or "none"
        raise BadSettings(f'"{name}" is no decision about {table} that keeps keys out; known are: {names}.')
    parts, changefeed = by_name(decisions)[name], pipeline.settings.name
    for part in parts:
        pipeline.lake.remove_decision(part)
        pipeline.ledger.remove_comparison(changefeed, part.table)
    whole = max(united(parts, whenever=True), key=lambda part: len(part.digests))
    text = f"{counted(len(whole.digests), 'key')} of {name} are no longer kept out"
    pipeline.journal.note(whole.lives[0], whole.table, "let in", text, run)
    return whole
