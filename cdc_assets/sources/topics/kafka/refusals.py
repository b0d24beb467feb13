"""What librdkafka says went wrong -> an error with the setting to look at, and without any secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, StorageUnavailable

_LOGIN = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)
_RIGHTS = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
LASTING = _LOGIN | _RIGHTS | {KafkaError._SSL}
"""Codes of errors that waiting does not fix."""

_WHEN = re.compile(r" \(after \d+ms in state \w+\)")
"""What librdkafka adds of itself, which helps nobody to correct a setting."""
_SECRET = re.compile("password|secret|key.pem|sasl.jaas|token", re.IGNORECASE)


def redacted(text: str, options: Mapping[str, Any]) -> str:
    """Return a text without any secret of the options."""
    secrets = (str(value) for name, value in options.items() if _SECRET.search(name) and str(value))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def bad_option(problem: object, options: Mapping[str, Any]) -> BadSettings:
    """Return the error for options that librdkafka does not take."""
    text = _said(problem, options)
    return BadSettings(
        f"the settings of the Kafka client do not fit: {text}. Correct `kafka` in the settings, which takes "
        "librdkafka's option names, or what the sink URI says of SASL and TLS."
    )


def refusal(problems: Iterable[Any], uri: str, options: Mapping[str, Any], where: str = "") -> CdcError:
    """Return the error for what a broker, or the way to it, refused: that which only a person can fix counts first.

    `problems` are KafkaErrors as they came; `where` is the topic, partition and offset that it is about.
    """
    problem = _weightiest(list(problems))
    code = None if problem is None else problem.code()
    reason = "it did not answer" if problem is None else _said(problem, options)
    at = f"{uri}{f', {where}' if where else ''}"
    servers = options.get("bootstrap.servers")
    if code in _LOGIN:
        user, how = options.get("sasl.username"), options.get("sasl.mechanism")
        whom = f" for the user {user}" if user else ""
        return BucketMissing(
            f"{at}: the broker refused the login{whom} by {how or 'no mechanism'}: {reason}. Look at sasl.mechanism, "
            "sasl.username and sasl.password under `kafka`, or at sasl-mechanism, sasl-user and sasl-password of the "
            "sink URI."
        )
    if code in _RIGHTS:
        return BucketMissing(
            f"{at}: the login may not read there: {reason}. Give it the rights DESCRIBE and READ on the changefeed's "
            "topics."
        )
    if code == KafkaError._SSL:
        return BucketMissing(
            f"{at}: no TLS with {servers}: {reason}. Look at ssl.ca.location and security.protocol under `kafka`, or "
            "at enable-tls, ca, cert and key of the sink URI; the port may be one without TLS."
        )
    if code == KafkaError._RESOLVE:
        return StorageUnavailable(
            f"{at}: the address of a broker is not known ({reason}). Look at the host in the sink URI, or set "
            "bootstrap.servers under `kafka`; brokers that advertise names of their own network need those resolved."
        )
    return StorageUnavailable(
        f"{at}: no broker at {servers} answers ({reason}). Try again later; if it never does, look at host and port in "
        "the sink URI, and at security.protocol under `kafka`: a listener with TLS or SASL closes other connections."
    )


def _weightiest(problems: Sequence[Any]) -> Any:
    """Return the problem that explains the others; None for none."""
    lasting = [problem for problem in problems if problem.code() in LASTING]
    unresolved = [problem for problem in problems if problem.code() == KafkaError._RESOLVE]
    passing = [problem for problem in problems if problem.code() != KafkaError._ALL_BROKERS_DOWN]
    return next(iter([*lasting, *unresolved, *reversed(passing), *problems]), None)


def _said(problem: object, options: Mapping[str, Any]) -> str:
    text = problem.str() if isinstance(problem, KafkaError) else str(problem)
    return redacted(_WHEN.sub("", " ".join(text.split()))[:300].rstrip(". "), options)
