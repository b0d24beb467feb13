"""`--debug` shows the trace of an error, before its sentence and without secrets."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import pytest

from cdc_assets.cli import main
from cdc_assets.errors import LakeUnavailable
from cdc_assets.settings.config import from_flags

KEY, LOGIN = "k3y-of-the-bucket", "s3same-of-the-lake"


@pytest.mark.parametrize("debug", [True, False])
def test_a_trace_has_no_secret_of_the_settings(
    debug: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    def opened(settings: Any, *_: object, **__: object) -> NoReturn:
        try:
            raise OSError(f"signed with {KEY} and sent 'Bearer {LOGIN}'")
        except OSError as cause:
            raise LakeUnavailable("the lake does not answer. Try again.") from cause

    uri = f"s3://bucket/feed?protocol=csv&access-key=A&secret-access-key={KEY}"
    command = ["cdc-assets", "apply", "--sink-uri", uri, "--warehouse", str(tmp_path), *(["--debug"] if debug else [])]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr("cdc_assets.landing.opening.open_feed", opened)
    with pytest.raises(SystemExit) as ended:
        main()
    error_text = capsys.readouterr().err
    assert ended.value.code == 1
    assert error_text.endswith("cdc-assets: the lake does not answer. Try again.\n")
    assert ("Traceback" in error_text) is debug
    assert ("signed with *** and sent 'Bearer ***" in error_text) is debug
    assert KEY not in error_text


def test_the_secrets_of_a_feed_are_those_of_its_storage_and_its_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME", LOGIN)
    uri = f"s3://bucket/feed?protocol=csv&access-key=AKIDREADER&secret-access-key={KEY}&region=eu"
    (feed,) = from_flags(sink_uri=uri, storage_options={"token": {"env": "SESAME"}}, accept_unordered=True).changefeeds
    assert set(feed.secrets) == {"AKIDREADER", KEY, LOGIN}
