"""Addresses of storage: a URI with parameters, as TiDB's tools take it -> location and options.

A sink URI of TiCDC and the output directory of Dumpling have the same form.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from cdc_assets.errors import BadSettings
from cdc_assets.io.storage import Opener

_PROTOCOLS = {
    "file": "file", "local": "file", "s3": "s3", "gcs": "gcs", "gs": "gcs", "azure": "abfs", "azblob": "abfs",
    "abfs": "abfs", "abfss": "abfs", "memory": "memory",
}  # fmt: skip


def parameters(uri: str) -> dict[str, str]:
    """Return the URI's parameters by name. "+" is literal, as TiCDC reads it, because secret keys contain it."""
    query = uri.partition("?")[2].partition("#")[0].replace("+", "%2B")
    # Names of storage parameters may be spelled with "_".
    return {name.lower().replace("_", "-"): value for name, value in parse_qsl(query, keep_blank_values=True)}


def display(uri: str) -> str:
    """Return the URI without parameters and login, for messages."""
    return re.sub(r"://[^/@]*@", "://", uri.partition("?")[0])


def location(uri: str, what: str = "sink URI") -> tuple[str, str]:
    """Return fsspec's protocol and the path of the prefix without a slash at its end: `("s3", "bucket/prefix")`.

    `what` names the URI in messages. Raises BadSettings for a scheme that is not a storage and for an address without
    a bucket.
    """
    address = uri.partition("?")[0]
    scheme, separator, rest = address.partition("://")
    if not separator:
        if not address:
            raise BadSettings(f"the {what} is empty. Give it as it was given to TiDB's tools, such as s3://bucket/dir.")
        return "file", str(Path(address).expanduser().absolute())
    protocol = _PROTOCOLS.get(scheme.lower())
    if protocol is None:
        raise BadSettings(
            f'{what} scheme "{scheme}" is not a storage; known are {", ".join(sorted(_PROTOCOLS))}. '
            f"Give the {what} of a storage."
        )
    host, _, path = rest.partition("/")
    host = host.rpartition("@")[2]
    path = unquote(path).strip("/")
    if protocol == "file":
        if host not in ("", "localhost"):
            raise BadSettings(
                f'the file URI names a host "{host}"; expected file:///{host}/{path}. Write three slashes.'
            )
        return protocol, "/" + path
    if protocol == "memory":
        return protocol, "/" + posixpath.join(host, path).strip("/")
    if not host:
        raise BadSettings(f"the {what} names no bucket; expected {scheme}://bucket/prefix. Add it.")
    return protocol, posixpath.join(host, path).rstrip("/")


def opener(uri: str, options: Mapping[str, Any], what: str) -> Opener:
    """Return a reader of the files below a URI; `options` are fsspec's in clear text, `what` names it in messages."""
    protocol, prefix = location(uri, what)
    return Opener(protocol, prefix.rstrip("/"), display(uri).rstrip("/"), options)


def storage(uri: str) -> dict[str, Any]:
    """Return fsspec options for the parameters of external storage (`tidb:br/pkg/storage`), in clear text.

    Parameters about writing objects are ignored. Raises BadSettings for what TiDB's tools refuse, too.
    """
    protocol, uri_parameters = location(uri)[0], parameters(uri)
    options = {
        name: uri_parameters[parameter]
        for parameter, name in _STORAGE.get(protocol, {}).items()
        if uri_parameters.get(parameter)
    }
    finish = {"s3": _s3_storage, "gcs": _gcs_storage, "abfs": _azure_storage}.get(protocol)
    return finish(options, uri_parameters) if finish else dict(options)


_STORAGE: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "access-key": "key", "secret-access-key": "secret", "session-token": "token", "endpoint": "endpoint_url",
        "role-arn": "role_arn", "external-id": "external_id",
    },
    "gcs": {"credentials-file": "token", "endpoint": "endpoint_url"},
    "abfs": {"account-name": "account_name", "account-key": "account_key", "sas-token": "sas_token"},
}  # fmt: skip


_GOOGLE_KEYS = (("client_email", "private_key", "token_uri"), ("refresh_token", "client_id", "client_secret"))
"""The members of a service account's key file, and of a person's."""


def _s3_storage(named: Mapping[str, str], uri_parameters: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = dict(named)
    if "external_id" in options and "role_arn" not in options:
        raise BadSettings("the URI has the parameter external-id without role-arn. Name the role that it is for.")
    _with_scheme(options.get("endpoint_url"))
    if region := uri_parameters.get("region"):
        options["client_kwargs"] = {"region_name": region}
    accelerated = truth("use-accelerate-endpoint", uri_parameters.get("use-accelerate-endpoint") or False)
    # TiCDC forces path style by default, and never for these.
    virtual = accelerated or uri_parameters.get("provider", "").lower() in ("alibaba", "netease")
    if style := uri_parameters.get("force-path-style"):
        virtual = virtual or not truth("force-path-style", style)
    if style or virtual or "endpoint_url" in options:
        addressing: dict[str, Any] = {"addressing_style": "virtual" if virtual else "path"}
        if accelerated:
            addressing["use_accelerate_endpoint"] = True
        options["config_kwargs"] = {"s3": addressing}
    return options


def _gcs_storage(named: Mapping[str, str], uri_parameters: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = dict(named)
    if endpoint := options.get("endpoint_url"):
        _with_scheme(endpoint)
        # Google's Go client takes the address of the JSON API, gcsfs that of the server.
        options["endpoint_url"] = endpoint.rstrip("/").removesuffix("/storage/v1")
    if file := options.get("token"):
        options["token"] = _credentials(file)
    return options


def _credentials(file: str) -> dict[str, Any]:
    """Return the contents of a Google credentials file, so that tasks on other machines have them, too."""
    try:
        held = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"credentials-file {file} cannot be read ({type(error).__name__}). Name the key file of a service account."
        ) from None
    if not isinstance(held, dict) or not any(set(names) <= held.keys() for names in _GOOGLE_KEYS):
        raise BadSettings(
            f"credentials-file {file} has no credentials; expected the key file of a service account, a JSON object "
            f"with {', '.join(_GOOGLE_KEYS[0])}."
        )
    return held


def _azure_storage(named: Mapping[str, str], uri_parameters: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = dict(named)
    # TiDB's tools look for these names in the environment, adlfs for others.
    if account := options.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT"):
        options["account_name"] = account
    if not options.keys() & {"account_key", "sas_token"} and (key := os.environ.get("AZURE_STORAGE_KEY")):
        options["account_key"] = key
    endpoint = uri_parameters.get("endpoint")
    if not endpoint:
        return options
    _with_scheme(endpoint)
    if not account:
        raise BadSettings("the URI has the parameter endpoint without account-name. Name the storage account.")
    # Only a connection string leads adlfs to an endpoint with a path or without TLS.
    parts = {"BlobEndpoint": endpoint, "AccountName": account, "AccountKey": options.get("account_key")}
    parts["SharedAccessSignature"] = (options.get("sas_token") or "").lstrip("?")
    return {"connection_string": ";".join(f"{name}={value}" for name, value in parts.items() if value)}


def _with_scheme(endpoint: str | None) -> None:
    if endpoint and "://" not in endpoint:
        raise BadSettings(
            f'the parameter endpoint is "{endpoint}"; expected a URL with its scheme. Write https://{endpoint}, or '
            f"http://{endpoint} for a server without TLS."
        )


def truth(name: str, value: Any) -> bool:
    """Return an option's truth value by Go's strconv.ParseBool, which TiCDC uses; raises BadSettings."""
    if isinstance(value, bool):
        return value
    if str(value) in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if str(value) in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise BadSettings(f'{name} is "{value}"; expected true or false. Correct it in the sink URI or changefeed TOML.')
