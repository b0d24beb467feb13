"""Rules about the setting privacy."""

from __future__ import annotations

from collections.abc import Iterator

from cdc_assets.features.masks.history import mask_holds
from cdc_assets.history.policies import Rules
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.masks import MaskPolicy
from cdc_assets.model.table_history import History
from cdc_assets.preflight.conformance import warning

KEY_BYTES = 16
"""A key of fewer bytes can be found by trying."""


def findings(history: History, rules: Rules) -> Iterator[Finding]:
    """Yield tables that the setting privacy holds, and keys that are too short."""
    masks: MaskPolicy = rules.features.get("masks", MaskPolicy())
    for hold in mask_holds(history) if masks else ():
        name = history.lives[hold.life].last_name or hold.life.born_as
        yield Finding("mask", Severity.HOLD, str(name), hold.reason)
    keys = {f'privacy."{line.pattern}"': line.mask.key for line in masks.lines if line.mask.key}
    keys |= {} if masks.encryption_key is None else {"privacy_key": masks.encryption_key.key}
    short = [name for name, key in keys.items() if len(key) < KEY_BYTES]
    if short:
        yield warning(
            "short-key",
            f"a key has fewer than {KEY_BYTES} bytes: anyone with hashes or encrypted records can find it by "
            "trying, and with it the values. Give one of 32 random bytes, such as openssl rand -hex 32 prints; tables "
            "that are hashed by another key are rebuilt.",
            detail=", ".join(short),
        )
