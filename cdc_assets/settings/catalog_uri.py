"""Two spellings of a JDBC catalog's address: Java's for Spark, SQLAlchemy's for PyIceberg."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote


def sqlalchemy_uri(uri: str, user: str | None = None, password: str | None = None) -> str:
    """Return SQLAlchemy's spelling of a JDBC catalog's address, with its login; one in that spelling stays as it is."""
    if not uri.startswith("jdbc:"):
        return uri
    kind, _, rest = uri[len("jdbc:") :].partition(":")
    if kind == "sqlite":
        return f"sqlite:///{rest}"
    driver = {"postgresql": "postgresql+psycopg2", "mysql": "mysql+pymysql"}.get(kind, kind)
    address, _, query = rest.removeprefix("//").partition("?")
    settings = dict(parse_qsl(query))
    user, password = user or settings.get("user"), password or settings.get("password")
    login = f"{_quoted(user)}:{_quoted(password)}@" if user and password else f"{_quoted(user)}@" if user else ""
    return f"{driver}://{login}{address}"


def _quoted(text: str | None) -> str:
    return "".join(c if c.isalnum() or c in "-._~" else "".join(f"%{b:02X}" for b in c.encode()) for c in text or "")


def jdbc_uri(uri: str) -> tuple[str, dict[str, str]]:
    """Return a Java spelling of a JDBC catalog's address, and the login that SQLAlchemy's spelling had in it."""
    if uri.startswith("jdbc:"):
        return uri, {}
    scheme, _, rest = uri.partition("://")
    kind = scheme.partition("+")[0]
    if kind == "sqlite":
        return f"jdbc:sqlite:{rest[1:]}", {}
    login, at, address = rest.rpartition("@")
    user, colon, password = login.partition(":")
    found = {"jdbc.user": unquote(user)} if at else {}
    return f"jdbc:{kind}://{address}", {**found, "jdbc.password": unquote(password)} if colon else found
