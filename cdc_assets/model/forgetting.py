"""Rows that are taken out of a lake for good: what was done, what was read to prove it, and keys that are kept out."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import FOREVER, Tso, tso_time
from cdc_assets.model.wording import counted


@dataclass(frozen=True, slots=True)
class ForgottenKeys(KeptDecision):
    """A person's decision that rows of some keys, at positions through `until`, are kept out of a table.

    `digests` are HMACs of the keys, told apart by the columns and collations in `form`; `key_fingerprint` is that of
    the key of these HMACs. The decision concerns the table of the source that was called `table` then, by its identity
    whatever it is called later, and every other one that has this name at some time. Of `lives` all rows from before
    the decision were forgotten; `others` had the name and rows in the lake by then that nobody looked through. `when`
    is ISO text in UTC. A name may have several, one for each `part`: the same keys as tables are told apart otherwise.
    """

    KEPT_AS: ClassVar[str] = "kept-out"

    name: str
    table: TableId
    lives: tuple[Life, ...]
    form: tuple[str, ...]
    key_fingerprint: str
    digests: tuple[str, ...] = field(repr=False)
    until: Tso = FOREVER
    who: str = ""
    when: str = ""
    others: tuple[Life, ...] = ()

    @property
    def part(self) -> tuple[TableId, tuple[str, ...]]:
        """Distinguishes decisions of one name: the table, and the property that tells its keys apart."""
        return self.table.folded, self.form

    @property
    def subject(self) -> tuple[Any, ...]:
        """The name and the part."""
        return self.name, self.part

    @property
    def place(self) -> tuple[Any, ...]:
        """All that it says: of two that are made at once none takes the place of the other."""
        return self.order, self.lives, self.others, self.digests, self.who

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: table and name."""
        return self.table, self.name, self.form, self.key_fingerprint, self.until, self.when

    def replaces(self, other: KeptDecision) -> bool:
        """Return whether it says all that another one of the same name and part says.

        Of one whose HMACs have another key that is told by how many keys there are.
        """
        if not isinstance(other, ForgottenKeys) or self.subject != other.subject or self.until < other.until:
            return False
        if not (set(other.lives) <= set(self.lives) and set(other.others) <= {*self.others, *self.lives}):
            return False
        if self.key_fingerprint != other.key_fingerprint:
            return len(other.digests) <= len(self.digests)
        return set(other.digests) <= set(self.digests)

    def with_keys_of(self, other: ForgottenKeys) -> ForgottenKeys:
        """Return it with the keys and tables of another decision of one part and key, through the later position."""
        lives = {*self.lives, *other.lives}
        return replace(
            self,
            digests=tuple(sorted({*self.digests, *other.digests})),
            lives=tuple(sorted(lives)),
            others=tuple(sorted({*self.others, *other.others} - lives)),
            until=max(self.until, other.until),
        )

    def concerns(self, life: Life, names: Collection[TableId]) -> bool:
        """Return whether it is about a table of the source with these names; others that stood keep their rows."""
        has_name = any(name.folded == self.table.folded for name in names)
        return life in self.lives or (has_name and life not in self.others)

    def is_of(self, life: str, name: TableId) -> bool:
        """Return whether it is about a table of the lake, by the text of its life and its name; history tables, too."""
        life_match, other = (
            any(f"{life}.".startswith(f"{identity}.") for identity in some) for some in (self.lives, self.others)
        )
        return life_match or (name.folded == self.table.folded and not other)

    @property
    def text(self) -> str:
        """Describe how many keys are kept out, and until when."""
        return f"{counted(len(self.digests), 'key')} {self.until_text} ({self.name})"

    @property
    def until_text(self) -> str:
        """Describe until when they are kept out."""
        return "for ever" if self.until == FOREVER else f"through {tso_time(self.until)}"


def united(decisions: Iterable[ForgottenKeys], *, whenever: bool = False) -> tuple[ForgottenKeys, ...]:
    """Return those of one name, part and key as one, by table and name: of several that are made at once all count.

    Those through different positions stay apart, but with `whenever`, for who asks which keys there are.
    """
    united_decisions: dict[object, ForgottenKeys] = {}
    for decision in sorted(decisions, key=lambda keys: keys.order):
        decision_key = decision.name, decision.part, decision.key_fingerprint, whenever or decision.until
        united_decisions[decision_key] = (
            decision.with_keys_of(united_decisions[decision_key]) if decision_key in united_decisions else decision
        )
    return tuple(united_decisions.values())


def kept_out(decisions: Decisions) -> tuple[ForgottenKeys, ...]:
    """Return the keys whose rows are kept out, by table and name."""
    return united(decisions.of(ForgottenKeys))


def digest_key(encryption_key: EncryptionKey, table: TableId) -> bytes:
    """Return the key of the HMACs of a table's keys: those of two tables are not equal for equal keys."""
    return hmac.digest(encryption_key.key, f"cdc-assets forget\0{table.folded}".encode(), hashlib.sha256).hex().encode()


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """The removal of rows from one table. `rows` counts copies: a row stands in as many data files as it had states.
    `keys` counts those of which there were rows.

    `orphans` counts files that nothing referred to. `moved` are keys that rows had before one of these, or after it, as
    far as a log tells.
    """

    life: Life
    rows: int = 0
    keys: int = 0
    files_rewritten: int = 0
    bytes_rewritten: int = 0
    snapshots_expired: int = 0
    orphans: int = 0
    moved: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchedFiles:
    """Files searched in one place, as proof that nothing is left there.

    `having` are files that have rows even so, `tags` those of its tags whose snapshots have them.
    """

    place: str
    files: int
    bytes: int
    having: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """The report on forgetting some keys of a table, in a form that can be filed: it contains none of them but `moved`.

    `moved` are the keys, as texts, under which rows were before they had one of these, or afterwards; they are not
    forgotten. `cuts` are those that were removed, `records` those of the quarantine that were removed, `unknown`
    such, and messages, that stay because no key of them could be decoded, and that may have one of these. `stages`
    counts windows that were staged with the rows, not committed, and were removed, `scratch` directories that killed
    runs had left on this machine, of any table. `messages` counts those of the
    landing that were emptied, `lost` are tables that had other rows in them: the landing does not bring these back.
    `feed` says what of the input is not ours and may bring the rows back. `kept_out` is the name of the decision that
    keeps them out even so, `until` until when. `continued` is when runs for the same keys began that were killed or
    left something: what these removed is not counted, but their cuts are among `cuts`. Times are ISO 8601 in UTC.
    """

    changefeed: str
    table: TableId
    keys: int
    run: str
    begun: str
    ended: str
    removed: tuple[RemovedRows, ...] = ()
    searched: tuple[SearchedFiles, ...] = ()
    cuts: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    stages: int = 0
    scratch: int = 0
    messages: int = 0
    lost: tuple[str, ...] = ()
    moved: tuple[tuple[str, ...], ...] = ()
    feed: str = ""
    kept_out: str = ""
    until: str = ""
    continued: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether nothing of the rows was found in what is left."""
        return not any(place.having or place.tags for place in self.searched)

    @property
    def kept_cuts(self) -> tuple[str, ...]:
        """The cuts, and other tags, that keep rows of the keys."""
        return tuple(sorted({tag for place in self.searched for tag in place.tags}))

    @property
    def copies(self) -> int:
        """Number of copies of rows that were removed from tables."""
        return sum(removal.rows for removal in self.removed)

    @property
    def found_nothing(self) -> bool:
        """Return whether nothing of the rows was there, so that the keys may be others than those that were meant."""
        return self.complete and not (
            self.copies or self.records or self.stages or self.messages or self.cuts or self.continued
        )
