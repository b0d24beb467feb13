"""Options of a lake's storage: one spelling of properties in, Iceberg's for Java and PyIceberg's out.

Iceberg's classes for Java follow from the warehouse's scheme, so no file system of Hadoop is needed. An endpoint of its
own means path-style access and some region, unless given: else clients ask Amazon for what it cannot know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from cdc_assets.errors import BadSettings

SECRET_PROPERTIES = ("secret", "password", "token", "credential", "access-key", "account-key", "key.account")
"""Parts of property names whose values are secrets."""

ENDPOINTS = ("s3.endpoint", "gcs.service.host", "adls.endpoint", "glue.endpoint")
"""Names of properties whose values are URLs of servers."""

_ROLE = {
    "s3.role-arn": "client.assume-role.arn",
    "s3.role-session-name": "client.assume-role.session-name",
    "client.role-arn": "client.assume-role.arn",
    "client.role-session-name": "client.assume-role.session-name",
}
_KEYS = ("access-key-id", "secret-access-key", "session-token")


@dataclass(frozen=True, slots=True)
class Store:
    """A kind of storage: `io` is Iceberg's class for it in Java, `extra` names the jars with what that class calls."""

    io: str = ""
    extra: str = ""

    def python_properties(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return PyIceberg's properties. Raises BadSettings for options that only one side supports."""
        return {**options, **self._both(options)[0]}

    def java_properties(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return Iceberg's properties for Java."""
        properties = {**options, **self._both(options)[1]}
        return {"io-impl": self.io, **properties} if self.io else properties

    def _both(self, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        return {"aws": _s3, "gcp": _gcs, "azure": _adls}.get(self.extra, _as_given)(options)


_S3 = Store("org.apache.iceberg.aws.s3.S3FileIO", "aws")
_GCS = Store("org.apache.iceberg.gcp.gcs.GCSFileIO", "gcp")
_ADLS = Store("org.apache.iceberg.azure.adlsv2.ADLSFileIO", "azure")
_STORES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _S3),
    "gs": _GCS,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _ADLS),
}


def store_of(location: str) -> Store:
    """Return the kind of storage that a location's scheme names; one that is not known is left to Hadoop."""
    return _STORES.get(location.partition("://")[0].lower(), Store()) if "://" in location else Store()


def _as_given(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    return {}, {}


def _s3(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    endpoint, python, java = endpoint_of(options, "s3.endpoint"), dict[str, str](), dict[str, str]()
    if "client.assume-role.external-id" in options:
        raise BadSettings(
            "lake.catalog: client.assume-role.external-id is supported by Java's client only, so the lake could be "
            "written but not read. Assume the role outside (a profile of AWS_CONFIG_FILE) and omit it here."
        )
    region = options.get("s3.region") or options.get("client.region") or ("us-east-1" if endpoint else None)
    if region:
        python["s3.region"] = java["client.region"] = region
    path_style = options.get("s3.path-style-access") or _opposite(options.get("s3.force-virtual-addressing"))
    if path_style or endpoint:
        java["s3.path-style-access"] = path_style or "true"
        python["s3.force-virtual-addressing"] = _opposite(path_style or "true")
    for name in _KEYS:
        value = options.get(f"s3.{name}") or options.get(f"client.{name}")
        if value:
            python[f"s3.{name}"] = java[f"s3.{name}"] = value
    for client_name, own_name in _ROLE.items():
        if value := options.get(client_name) or options.get(own_name):
            python[client_name.replace("client.", "s3.")] = java[own_name] = value
    if "client.assume-role.arn" in java:
        java.setdefault("client.factory", "org.apache.iceberg.aws.AssumeRoleAwsClientFactory")
        java["client.assume-role.region"] = options.get("client.assume-role.region") or region or "us-east-1"
    return python, java


def endpoint_of(options: Mapping[str, str], name: str) -> str | None:
    """Return the URL that a property names, None without it. Raises BadSettings for one without scheme."""
    endpoint = options.get(name)
    if endpoint is not None and "://" not in endpoint:
        raise BadSettings(
            f"lake.catalog: {name} is {endpoint!r} and has no scheme. Write https://{endpoint}, or http://…."
        )
    return endpoint


def _gcs(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A server of its own is asked without credentials unless a token is given, and nobody is asked for a project."""
    endpoint, token = endpoint_of(options, "gcs.service.host"), options.get("gcs.oauth2.token")
    python, java = dict[str, str](), dict[str, str]()
    if endpoint and not token:
        java = {"gcs.no-auth": "true"}
        python["gcs.oauth2.token"] = "none"
    if endpoint:
        java["gcs.project-id"] = options.get("gcs.project-id", "lake")
    if endpoint or token:  # pyarrow takes a token only with its end
        python["gcs.oauth2.token-expires-at"] = options.get("gcs.oauth2.token-expires-at", _NEVER_MS)
    return python, java


_NEVER_MS = "4102444800000"
"""The year 2100, in milliseconds since 1970."""

_ADLS_HOST = "dfs.core.windows.net"


def _adls(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """An account's own endpoint is Java's `adls.connection-string.ACCOUNT`; a vended grant names its account."""
    python, java = dict[str, str](), dict[str, str]()
    vended = next((name for name in options if name.startswith("adls.sas-token.")), "").removeprefix("adls.sas-token.")
    name = options.get("adls.account-name") or vended.partition(".")[0]
    key, grant = (
        options.get("adls.account-key"),
        options.get("adls.sas-token") or options.get(f"adls.sas-token.{vended}"),
    )
    if (key or grant) and not name:
        raise BadSettings("lake.catalog has a key or a SAS token for Azure; give the account in adls.account-name.")
    if name:
        python["adls.account-name"] = name
    if name and key:
        java = {"adls.auth.shared-key.account.name": name, "adls.auth.shared-key.account.key": key}
    elif name and grant:
        python["adls.sas-token"] = java[f"adls.sas-token.{vended or f'{name}.{_ADLS_HOST}'}"] = grant
    endpoint = endpoint_of(options, "adls.endpoint")
    if endpoint and name:
        place = urlsplit(endpoint)
        java[f"adls.connection-string.{name}.{_ADLS_HOST}"] = endpoint
        for service in ("blob", "dfs"):
            python |= {
                f"adls.{service}-storage-authority": place.netloc,
                f"adls.{service}-storage-scheme": place.scheme,
            }
        login = f"AccountKey={key}" if key else f"SharedAccessSignature={grant}"
        python["adls.connection-string"] = f"AccountName={name};{login};BlobEndpoint={endpoint}"
    return python, java


def _opposite(value: str | None) -> str:
    return "" if value is None or not value else ("false" if value.lower() == "true" else "true")
