"""A sink URI as TiCDC has it reaches the broker as TiCDC does, and the settings over it keep their secrets."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.settings.config import ChangefeedSettings, from_flags
from cdc_assets.sources.topics.kafka.connection import from_ticdc, with_ours

FILES = {"ca": "/ca.pem", "cert": "/cert.pem", "key": "/key.pem"}
PLACES = {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/cert.pem", "ssl.key.location": "/key.pem"}
LOGIN = {"sasl-mechanism": "plain", "sasl-user": "u", "sasl-password": "p+w"}
NAMED = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p+w"}


def settings(**given: Any) -> ChangefeedSettings:
    return ChangefeedSettings(**given)


@pytest.mark.parametrize(
    ("parameters", "options"),
    [
        ({}, {"security.protocol": "PLAINTEXT"}),
        ({"partition-num": "6", "compression": "lz4", "kafka-version": "2.4.0"}, {"security.protocol": "PLAINTEXT"}),
        ({"enable-tls": "true"}, {"security.protocol": "SSL"}),
        (FILES, {"security.protocol": "SSL", **PLACES}),
        (LOGIN, {"security.protocol": "SASL_PLAINTEXT", **NAMED}),
        ({**LOGIN, **FILES}, {"security.protocol": "SASL_SSL", **PLACES, **NAMED}),
        ({"sasl-user": "u", "sasl-password": "w"}, {"security.protocol": "PLAINTEXT"}),
        (
            {"enable-tls": "1", "insecure-skip-verify": "t"},
            {
                "security.protocol": "SSL",
                "enable.ssl.certificate.verification": "false",
                "ssl.endpoint.identification.algorithm": "none",
            },
        ),
        (
            {
                "sasl-mechanism": "GSSAPI",
                "sasl-gssapi-user": "a",
                "sasl-gssapi-realm": "R",
                "sasl-gssapi-service-name": "k",
            },
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.principal": "a@R",
                "sasl.kerberos.service.name": "k",
            },
        ),
    ],
)  # fmt: skip
def test_parameters_become_librdkafkas_options(parameters: dict[str, str], options: dict[str, Any]) -> None:
    assert from_ticdc(parameters) == options


def test_the_toml_fills_what_the_sink_uri_leaves_open() -> None:
    config = {"sasl-mechanism": "scram-sha-512", "sasl-user": "toml", "sasl-password": "w", "partition-num": 3}
    assert from_ticdc({"sasl-user": "uri", "sasl-password": ""}, config) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "uri",
        "sasl.password": "w",
    }


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"ca": "/ca.pem"}, "lacks cert, key"),
        ({**FILES, "enable-tls": "false"}, "enable-tls=false; TiCDC refuses"),
        ({"enable-tls": "yes"}, 'enable-tls is "yes"'),
        ({"sasl-mechanism": "digest"}, "TiCDC knows PLAIN, SCRAM-SHA-256"),
    ],
)
def test_what_ticdc_refuses_is_refused(parameters: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        from_ticdc(parameters)


def test_the_users_options_stand_over_those_of_the_sink_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_WORD", "hidden")
    feed = settings(
        sink_uri="kafka://one:9092,two:9092/cdc?protocol=craft&sasl-mechanism=plain&sasl-user=u&sasl-password=seen",
        kafka={"sasl.password": {"env": "CDC_TEST_WORD"}, "bootstrap.servers": "inside:9092"},
    )
    parameters = with_ours("one:9092,two:9092", feed.access())
    named = ("bootstrap.servers", "sasl.username", "sasl.password")
    assert tuple(parameters[name] for name in named) == ("inside:9092", "u", "hidden")
    for text in (repr(feed), str(feed), feed.model_dump_json(), repr(feed.source_options), repr(feed.given)):
        assert "hidden" not in text
        assert "seen" not in text


def test_a_secret_that_the_environment_lacks_is_named() -> None:
    feed = settings(sink_uri="kafka://b:1/t?protocol=craft", kafka={"sasl.password": {"env": "CDC_NOT_SET"}})
    with pytest.raises(BadSettings, match=r"kafka\.sasl\.password is to come from .* CDC_NOT_SET"):
        feed.access()


def test_flags_say_the_same() -> None:
    config = from_flags(sink_uri="kafka://b:1/t?protocol=craft", kafka={"security.protocol": "ssl"})
    assert config.changefeeds[0].access() == {"security.protocol": "ssl"}


def test_options_that_keep_offsets_exact_are_refused_where_they_are_set() -> None:
    with pytest.raises(BadSettings, match=r"kafka\.auto\.offset\.reset cannot be changed"):
        settings(sink_uri="kafka://b:1/t?protocol=craft", kafka={"auto.offset.reset": "earliest"})


def test_a_storage_has_no_broker() -> None:
    with pytest.raises(BadSettings, match="the setting kafka is for topics"):
        settings(sink_uri="/feed?protocol=csv", kafka={"client.id": "x"})
