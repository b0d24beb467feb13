"""`mysql://user@host:4000/database?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE`: where a server is, and how it is reached.

The parameters are the options of MySQL's own client. A password stands in no URI: it comes from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from cdc_assets.errors import BadSettings

_SCHEMES = ("mysql", "tidb")
_TIDB_PORT = 4000
MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_FILES = {"ssl-ca": "ca", "ssl-cert": "certificate", "ssl-key": "key"}


@dataclass(frozen=True, slots=True)
class Tls:
    """--ssl-mode of MySQL's own client, and paths of PEM files; without `ca` those of the machine are trusted."""

    mode: str = "PREFERRED"
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """A server and who reads it. `database` is the one to read, "" for all."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    database: str = ""
    tls: Tls = Tls()

    @property
    def uri(self) -> str:
        """The address without login, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql://{host}:{self.port}" + (f"/{self.database}" if self.database else "")


def parse_address(uri: str, password: str = "") -> Address:
    """Return the address that a URI gives; raises BadSettings, which never shows a password."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        raise _refused("cannot be read: its host or its port is not valid") from None
    if parts.scheme.lower() not in _SCHEMES:
        raise _refused(f'has the scheme "{parts.scheme}"' if "://" in uri else "has no scheme")
    if parts.password is not None:
        raise _refused(
            "has a password in it, where it would be kept and shown. Take it out, and name the environment variable "
            "that holds it: password: {env: NAME}"
        )
    if not parts.hostname or not parts.username:
        raise _refused("names no host" if not parts.hostname else "names no user")
    database = unquote(parts.path.strip("/"))
    return Address(parts.hostname, port or _TIDB_PORT, unquote(parts.username), password, database, _tls(parts))


def _tls(parts: SplitResult) -> Tls:
    options = {name.lower().replace("_", "-"): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    mode = options.pop("ssl-mode", "VERIFY_IDENTITY" if "ssl-ca" in options else "PREFERRED").upper().replace("-", "_")
    foreign = sorted(options.keys() - _FILES.keys())
    if foreign:
        raise _refused(f'has the parameter "{foreign[0]}"; known are ssl-mode, {", ".join(_FILES)}')
    if mode not in MODES:
        raise _refused(f"has an ssl-mode that is not one of {', '.join(MODES)}")
    if options and mode in ("DISABLED", "PREFERRED"):
        raise _refused(f"gives {min(options)}, which ssl-mode {mode} ignores; set ssl-mode to REQUIRED or stricter")
    return Tls(mode, **{_FILES[name]: path for name, path in options.items()})


def _refused(what: str) -> BadSettings:
    return BadSettings(
        f"the URI of the source {what}. Expected mysql://user@host:4000, with /database behind it to read one only."
    )
