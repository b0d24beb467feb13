"""Credentials and tokens that end in mid-run: they are renewed, or a sentence ends the run and the next goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cdc_assets.errors import LakeUnavailable, SetupError
from cdc_assets.lake import Lake
from cdc_assets.lake.catalogs import remembered
from cdc_assets.lake.catalogs.remembered import discard_lent, knows, remember
from cdc_assets.ledger import Ledger
from cdc_assets_tests.kills import Trap, named, trapped
from cdc_assets_tests.lake.test_stores import inside as inside
from cdc_assets_tests.lake.test_stores import open_in as open_in
from cdc_assets_tests.lake.test_stores import own_names, shown
from cdc_assets_tests.replay import compare, replay
from cdc_assets_tests.servers.lakes import Stores
from cdc_assets_tests.servers.object_store import VENDED

pytestmark = pytest.mark.timeout(900)

PLACE = "s3://b/t/metadata/0.json"


class Catalog:
    """Stands for PyIceberg's."""


CATALOG: Any = Catalog


@pytest.mark.parametrize(
    ("config", "later", "holds"),
    [
        ({"s3.access-key-id": "A", "s3.session-token-expires-at-ms": "10000000"}, 9_000, True),
        ({"s3.access-key-id": "A", "s3.session-token-expires-at-ms": "10000000"}, 9_200, False),
        ({"gcs.oauth2.token": "A", "gcs.oauth2.token-expires-at": "10000000"}, 9_200, False),
        ({"adls.sas-token.a": "A", "adls.sas-token-expires-at-ms.a": "10000000"}, 9_200, False),
        ({"s3.secret-access-key": "A"}, 500, True),
        ({"s3.secret-access-key": "A"}, 700, False),
        ({"s3.region": "here"}, 10**9, True),
    ],
)
def test_lent_credentials_are_requested_again_before_they_end(
    config: dict[str, str], later: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, now = CATALOG(), [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    remember(catalog, PLACE, b"", config)
    assert knows(catalog, PLACE)
    now[0] = later
    assert knows(catalog, PLACE) is holds


def test_credentials_that_a_store_refuses_are_forgotten_unless_they_were_just_lent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, now = CATALOG(), [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    remember(catalog, PLACE, b"", {"s3.secret-access-key": "A"})
    assert not discard_lent(catalog, PLACE)
    now[0] = 100
    assert discard_lent(catalog, PLACE)
    assert not knows(catalog, PLACE)
    assert not discard_lent(catalog, PLACE)


PLACES = ("before Lake.stage of ApplyRows", "before Lake.commit of ApplyRows", "before publish of ApplyRows")


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
def test_lent_credentials_that_end_in_mid_run_are_renewed(
    place: str, stores: Stores, open_in: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "_JUST_SECONDS", 0.0)
    settings, config, home = stores.settings("vended"), named("D_keys/csv-old"), stores.vending.log.parent
    lent: list[tuple[str, str]] = []

    def ends(number: int, name: str) -> bool:
        if place in name and not lent:
            lent.append((f"AKLENT{number:09d}", uuid4().hex))
            stores.lend(home, lent[-1])
            stores.store.lend(lent[-1])
        return False

    lake, ledger = open_in(settings, own_names()), Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    checkpoint = config.checkpoints[-1]
    assert checkpoint.expected is not None
    try:
        with trapped(Trap(ends)):
            outcome = replay(config, checkpoint, lake, ledger)
        assert lent
        assert compare(config, checkpoint.expected, lake, outcome) == []
        assert not [secret for _, secret in lent if secret in repr(outcome)]
    finally:
        stores.lend(home, VENDED)
        stores.store.lend(VENDED)
        ledger.close()


@pytest.mark.soak
def test_tokens_that_end_in_mid_run_are_renewed(stores: Stores, open_in: Callable[..., Lake], tmp_path: Path) -> None:
    catalog = stores.lending(tmp_path / "short", token_seconds="4")
    settings, config = stores.settings("vended", uri=catalog.uri), named("C_ddl_tables/csv-ts")
    lake, checkpoint = open_in(settings, own_names()), config.checkpoints[-1]
    assert checkpoint.expected is not None
    outcome = replay(config, checkpoint, lake)
    assert compare(config, checkpoint.expected, lake, outcome) == []
    assert len([line for line in catalog.requests() if line == "POST /v1/oauth/tokens 200"]) > 4


@pytest.mark.soak
def test_a_login_that_is_withdrawn_in_mid_run_ends_it_with_a_sentence_and_the_next_run_completes(
    stores: Stores, open_in: Callable[..., Lake], tmp_path: Path
) -> None:
    settings, config = stores.settings("vended"), named("D_keys/csv-old")
    names, checkpoint, withdrawn = own_names(), config.checkpoints[-1], list[str]()
    assert checkpoint.expected is not None
    ledger = Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")

    def ends(number: int, name: str) -> bool:
        if "before Lake.commit of ApplyRows" in name and not withdrawn:
            withdrawn.append(name)
            stores.store.lend(("AKNOBODY0000000", uuid4().hex))
        return False

    try:
        with trapped(Trap(ends)):
            try:
                sentence = "; ".join(
                    table.reason for table in replay(config, checkpoint, open_in(settings, names), ledger).tables
                )
            except (SetupError, LakeUnavailable) as error:
                sentence = str(error)
        assert re.search(r"refuses access|credentials", sentence)
        assert "\n" not in sentence
        assert shown([sentence]) == []
    finally:
        stores.store.lend(VENDED)
    lake = open_in(settings, names)
    outcome = replay(config, checkpoint, lake, ledger)
    assert compare(config, checkpoint.expected, lake, outcome) == []
    ledger.close()
