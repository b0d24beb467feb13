"""Options of a storage -> the fsspec file system that reads it.

Options are those of s3fs, gcsfs and adlfs. S3 has two more, which TiCDC has in its sink URI: `role_arn` and
`external_id` name a role to assume.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import fsspec

from cdc_assets.errors import BadSettings, StorageUnavailable

_EXTRAS = {"gcs": "gcs", "gs": "gcs", "abfs": "azure", "az": "azure", "abfss": "azure"}
"""Protocol -> the extra of this package that brings its driver."""

_CONNECT_SECONDS = 3.0
_PATIENCE = {"connect_timeout": _CONNECT_SECONDS, "retries": {"max_attempts": 1}}
"""Botocore's own retries are off: the readers here retry themselves."""


def file_system(protocol: str, options: Mapping[str, Any], uri: str) -> Any:
    """Return the fsspec file system of a storage, one a process; `uri` names the storage in messages.

    Raises BadSettings if its driver is not installed or an option is impossible, StorageUnavailable if no server
    listens at the endpoint of the options.
    """
    endpoint = endpoint_of(options)
    if endpoint:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSettings(
                f'{uri}: its endpoint is "{endpoint}"; expected a URL with scheme and host, such as '
                f"https://{endpoint.rpartition('://')[2] or 'host:port'}. Correct endpoint in the URI, or "
                "endpoint_url in storage_options."
            )
        try:
            refuse_silent(
                endpoint,
                lambda place, silence: StorageUnavailable(
                    f"{uri}: no server answers at its endpoint {place} ({silence}). Check endpoint in the URI, or "
                    "endpoint_url in storage_options; if it is right, try again later.",
                    file=uri,
                ),
            )
        except ValueError as problem:
            raise BadSettings(f'{uri}: its endpoint is "{endpoint}": {problem}. Correct the port in it.') from None
    # gcsfs asks a second service of Google's for the kind of bucket, which no other server has.
    os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    try:
        return fsspec.filesystem(protocol, **(_s3_options(options) if protocol == "s3" else options))
    except ImportError as error:
        extra = _EXTRAS.get(protocol)
        way = f"Install it: pip install 'cdc-assets[{extra}]'." if extra else "Install it."
        raise BadSettings(f"{uri}: no driver for its storage is installed ({error}). {way}") from None


def endpoint_of(options: Mapping[str, Any]) -> str:
    """Return the URL of the server in the options, "" if they leave it to the driver."""
    client = options.get("client_kwargs")
    named = client.get("endpoint_url") if isinstance(client, Mapping) else None
    endpoint = named or options.get("endpoint_url")
    if not endpoint and isinstance(text := options.get("connection_string"), str):
        endpoint = dict(part.partition("=")[::2] for part in text.split(";")).get("BlobEndpoint")
    return endpoint if isinstance(endpoint, str) else ""


def refuse_silent(endpoint: str, error: Callable[[str, OSError], Exception]) -> None:
    """Raise an error made of the server's address and its silence if nobody listens at a URL with scheme and host.

    Drivers retry for half a minute and more before they report that. Behind a proxy nothing is found out. Raises
    ValueError for an impossible port.
    """
    parts = urlsplit(endpoint)
    port = parts.port or {"https": 443, "thrift": 9083}.get(parts.scheme, 80)
    if parts.scheme in getproxies() and not proxy_bypass(str(parts.hostname)):
        return
    try:
        _connect(str(parts.hostname), port)
    except OSError as silence:
        raise error(f"{parts.scheme}://{parts.hostname}:{port}", silence) from None


@lru_cache(maxsize=64)
def _connect(host: str, port: int) -> None:
    """Connect once a process to a server that answers."""
    socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()


def _s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    driver_options = dict(options)
    client = dict(driver_options.pop("client_kwargs", None) or {})
    # Both places may name the endpoint; botocore takes it once.
    endpoint = client.pop("endpoint_url", None) or driver_options.pop("endpoint_url", None)
    driver_options.pop("endpoint_url", None)
    role, external = driver_options.pop("role_arn", None), driver_options.pop("external_id", None)
    if role:
        own = [str(driver_options.pop(name, None) or "") for name in ("key", "secret", "token")]
        driver_options["session"] = _assumed(str(role), str(external or ""), *own, str(client.get("region_name") or ""))
    return {
        "max_concurrency": 1,  # else the size of a file is asked for before each reading of it
        **driver_options,
        **({"endpoint_url": endpoint} if endpoint else {}),
        "client_kwargs": client,
        "config_kwargs": {**_PATIENCE, **(driver_options.get("config_kwargs") or {})},
    }


@lru_cache(maxsize=64)
def _assumed(role_arn: str, external_id: str, key: str, secret: str, token: str, region: str) -> Any:
    """Return an aiobotocore session that signs as a role, which it assumes at its first request, and renews in time.

    The role is assumed with the credentials given, or with those that AWS's own chain finds where there are none.
    """
    from aiobotocore.config import AioConfig
    from aiobotocore.credentials import AioDeferredRefreshableCredentials
    from aiobotocore.session import AioSession
    from botocore.parsers import ResponseParserError

    logging.getLogger("aiobotocore.credentials").setLevel(logging.CRITICAL)  # it prints what is raised, with its trace
    own = AioSession()
    if key:
        own.set_credentials(key, secret, token or None)

    async def assume() -> dict[str, str]:
        role = {"RoleArn": role_arn, "RoleSessionName": "cdc-assets"}
        if external_id:
            role["ExternalId"] = external_id
        try:
            async with own.create_client("sts", region or "us-east-1", config=AioConfig(**_PATIENCE)) as sts:
                _refuse_silent_tokens(role_arn, sts.meta.endpoint_url)
                lent = (await sts.assume_role(**role))["Credentials"]
        except (ValueError, ResponseParserError) as error:
            message = str(error).partition(", invalid XML")[0]
            raise BadSettings(
                f"no token service can be asked for the role {role_arn} ({message}). {_TOKENS}."
            ) from None
        return {
            "access_key": lent["AccessKeyId"],
            "secret_key": lent["SecretAccessKey"],
            "token": lent["SessionToken"],
            "expiry_time": lent["Expiration"].isoformat(),
        }

    session = AioSession()
    # No public way leads to credentials that renew themselves; botocore's own providers set this attribute, too.
    session._credentials = AioDeferredRefreshableCredentials(refresh_using=assume, method="assume-role")
    return session


_TOKENS = "Check AWS_ENDPOINT_URL_STS, a URL with scheme and host; without it Amazon's own service is asked"


def _refuse_silent_tokens(role_arn: str, endpoint: str) -> None:
    """Raise StorageUnavailable if no token service listens at a URL: the reader's retries would take half a minute."""
    refuse_silent(
        endpoint,
        lambda place, silence: StorageUnavailable(
            f"no token service answers at {place} ({silence}), and the role {role_arn} is assumed there. {_TOKENS}. "
            "If it is right, try again later."
        ),
    )
