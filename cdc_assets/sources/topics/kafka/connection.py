"""Connection to a broker: TiCDC's settings and the user's own, as librdkafka's options.

TiCDC's names and rules are those of `pkg/sink/kafka/options.go`: a parameter of the sink URI wins over the same name in
`[sink.kafka-config]`. Most say how it writes (partition-num, replication-factor, compression, kafka-version,
auto-create-topic, max-message-bytes, required-acks, timeouts) and are of no use to a reader. TiCDC passes over
parameters that it does not know, and so does this.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage_uri import truth

OURS: Mapping[str, str] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
}
"""Client options that keep offsets exact: no setting may change them."""

_OF_A_READER: Mapping[str, Any] = {
    "client.id": "cdc_assets",
    "group.id": "cdc_assets",  # librdkafka wants a name; the group is never joined
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.message.max.bytes": 4 << 20,
    "allow.auto.create.topics": "false",
    "topic.metadata.propagation.max.ms": 10_000,  # how long a topic may be unknown before it counts as gone
}

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER")
_KERBEROS = {
    "sasl-gssapi-service-name": "sasl.kerberos.service.name",
    "sasl-gssapi-keytab-path": "sasl.kerberos.keytab",
}
_OAUTH = {
    "sasl-oauth-client-id": "sasl.oauthbearer.client.id",
    "sasl-oauth-token-url": "sasl.oauthbearer.token.endpoint.url",
}
_FILES = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}


def from_ticdc(parameters: Mapping[str, str], kafka_config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the broker's options in a sink URI's parameters and `[sink.kafka-config]`, in clear text.

    Raises BadSettings for what TiCDC refuses.
    """
    options = {name: value for name, value in (kafka_config or {}).items() if value is not None}
    options |= {name: value for name, value in parameters.items() if value != ""}
    tls = _tls(options)
    login = _login(options)
    protocol = ("SASL_" if login else "") + ("SSL" if tls is not None else "PLAINTEXT")
    return {"security.protocol": protocol, **(tls or {}), **login}


def with_ours(brokers: str, access: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a consumer; raises BadSettings for one that may not be changed."""
    for name, value in access.items():
        if name in OURS and str(value).lower() != OURS[name]:
            raise BadSettings(
                f"the setting kafka.{name} cannot be changed: it is always {OURS[name]}, which keeps offsets exact. "
                "Remove it."
            )
    return {"bootstrap.servers": brokers, **_OF_A_READER, **access, **OURS}


def _tls(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of TLS, None where there is none. TiCDC turns it on when files are given."""
    files = {option: str(options[name]) for name, option in _FILES.items() if options.get(name)}
    enabled = _flag(options, "enable-tls")
    if files and len(files) < len(_FILES):
        missing = ", ".join(name for name in _FILES if not options.get(name))
        raise BadSettings(
            f"of ca, cert and key the sink URI lacks {missing}; TiCDC takes all three or none. Give them all; where "
            "only an authority is to be trusted, set enable-tls=true and kafka: {ssl.ca.location: FILE}."
        )
    if files and enabled is False:
        raise BadSettings("the sink URI has ca, cert and key, and enable-tls=false; TiCDC refuses that. Remove one.")
    if not files and not enabled:
        return None
    unchecked = {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}
    return files | (unchecked if _flag(options, "insecure-skip-verify") else {})


def _login(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of SASL. TiCDC logs in only where a mechanism is named."""
    mechanism = str(settings.get("sasl-mechanism") or "").upper()
    if not mechanism:
        return {}
    if mechanism not in _MECHANISMS:
        raise BadSettings(
            f'sasl-mechanism is "{settings["sasl-mechanism"]}"; TiCDC knows {", ".join(_MECHANISMS)}. '
            "Correct it in the sink URI."
        )
    options: dict[str, Any] = {"sasl.mechanism": mechanism}
    if mechanism == "GSSAPI":
        kerberos = {option: str(settings[name]) for name, option in _KERBEROS.items() if settings.get(name)}
        if user := settings.get("sasl-gssapi-user"):
            realm = settings.get("sasl-gssapi-realm")
            kerberos["sasl.kerberos.principal"] = f"{user}@{realm}" if realm else str(user)
        return options | kerberos
    if mechanism == "OAUTHBEARER":
        oauth: dict[str, Any] = {option: str(settings[name]) for name, option in _OAUTH.items() if settings.get(name)}
        if secret := settings.get("sasl-oauth-client-secret"):
            try:
                oauth["sasl.oauthbearer.client.secret"] = base64.b64decode(str(secret), validate=True).decode()
            except (binascii.Error, ValueError):
                raise BadSettings(
                    "sasl-oauth-client-secret is not base64, as TiCDC has it. Correct the TOML."
                ) from None
        if scopes := settings.get("sasl-oauth-scopes"):
            oauth["sasl.oauthbearer.scope"] = " ".join(map(str, scopes))
        return options | oauth | ({"sasl.oauthbearer.method": "oidc"} if oauth else {})
    for name, option in (("sasl-user", "sasl.username"), ("sasl-password", "sasl.password")):
        if settings.get(name):
            options[option] = str(settings[name])
    return options


def _flag(options: Mapping[str, Any], name: str) -> bool | None:
    return truth(name, options[name]) if options.get(name) is not None else None
