"""Lakes in object stores: one way to write the settings for each type of catalog, over servers that run once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.postgres import PASSWORD, postgres
from cdc_assets_tests.servers.azure import ACCOUNT, ACCOUNT_KEY, CONTAINER, azure
from cdc_assets_tests.servers.gcs import gcs
from cdc_assets_tests.servers.glue import glue
from cdc_assets_tests.servers.hive_metastore import hive_metastore
from cdc_assets_tests.servers.object_store import BUCKET, OWNER, VENDED, VENDED_FOR, ObjectStore
from cdc_assets_tests.servers.rest_catalog import RestCatalog, rest_catalog

__all__ = ["CLIENT", "KINDS", "SECRETS", "WAREHOUSE_NAME", "Stores"]

CLIENT, TOKEN = "applier:open-6f1ed002ab5595859014ebf0951522d9", "tkn-7902699be42c8a8e46fbbb4501726517"
WAREHOUSE_NAME = "prod"
GLUE_SECRET = "glue-2c624232cdd221771294dfbb310aca00"
SECRETS = (CLIENT.partition(":")[2], TOKEN, OWNER[1], VENDED[1], GLUE_SECRET, ACCOUNT_KEY, PASSWORD)
"""What no output, event, stage, table property or error may repeat."""

KINDS = ("postgres", "rest", "vended", "glue", "hive")
"""A database; a REST catalog; one with a named warehouse, OAuth and vended credentials; AWS Glue; a Hive metastore."""


class Stores:
    """The servers, each started by what first asks for it and stopped with `running`."""

    def __init__(self, store: ObjectStore, home: Path, running: ExitStack) -> None:
        self.store = store
        self._home = home
        self._running = running

    @cached_property
    def database(self) -> str:
        """The JDBC address of an empty Postgres."""
        server = self._running.enter_context(postgres())
        return f"jdbc:postgresql://127.0.0.1:{server['DAGSTER_PG_PORT']}/{server['DAGSTER_PG_DB']}"

    @cached_property
    def rest(self) -> RestCatalog:
        """A REST catalog that asks for nothing."""
        return self._running.enter_context(rest_catalog(self._home / "rest", self._behind()))

    @cached_property
    def vending(self) -> RestCatalog:
        """A REST catalog with a named warehouse that asks for a login and vends credentials for its tables."""
        return self.lending(self._home / "vending")

    def lending(self, home: Path, **more: str) -> RestCatalog:
        """Run another such catalog, with `more` properties; it vends what `lend` writes to `home`."""
        home.mkdir()
        self.lend(home)
        asks = {"name": WAREHOUSE_NAME, "credential": CLIENT, "token": TOKEN, "vended": str(home / "vended")}
        return self._running.enter_context(rest_catalog(home, {**self._behind(), **asks, **more}))

    def lend(self, home: Path, who: tuple[str, str] = VENDED) -> None:
        """Let the catalog in `home` vend these keys from now on."""
        vended = self.store.properties(who) | {"client.region": "us-east-1", "s3.path-style-access": "true"}
        (home / "vended.new").write_text("".join(f"{key}={value}\n" for key, value in vended.items()))
        (home / "vended.new").replace(home / "vended")

    @cached_property
    def glue(self) -> str:
        """The endpoint of a Glue."""
        return self._running.enter_context(glue(self._home / "glue"))

    @cached_property
    def hive(self) -> str:
        """The address of a Hive metastore."""
        return self._running.enter_context(hive_metastore(self._home / "hive", f"s3://{BUCKET}/hive"))

    @cached_property
    def gcs(self) -> str:
        """The endpoint of a Cloud Storage with a bucket."""
        return self._running.enter_context(gcs(self._home / "gcs", BUCKET))

    @cached_property
    def azure(self) -> str:
        """The endpoint of an account of a Blob Storage with a container."""
        return self._running.enter_context(azure(self._home / "azure"))

    def _behind(self) -> dict[str, str]:
        reach = {"s3.path-style-access": "true", "client.region": "us-east-1", **self.store.properties()}
        return {"warehouse": f"s3://{BUCKET}/rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **reach}

    def settings(self, kind: str, **more: Any) -> LakeSettings:
        """Return the settings of a new lake with that type of catalog; `more` changes properties of the catalog."""
        unique = uuid4().hex[:8]
        make: dict[str, Callable[[str], tuple[dict[str, Any], str]]] = {
            "postgres": self._postgres,
            "rest": self._rest,
            "vended": self._vended,
            "glue": self._glue,
            "gcs": self._gcs,
            "azure": self._azure,
            "hive": self._hive,
        }
        catalog, place = make[kind](unique)
        warehouse = f"{place if '://' in place else f's3://{place}'}/{unique}"
        return LakeSettings(catalog={**catalog, **more}, warehouse=warehouse, name=f"lake_{unique}")

    def _postgres(self, unique: str) -> tuple[dict[str, Any], str]:
        return {**self._in_database(), **self.store.properties()}, f"{BUCKET}/jdbc"

    def _in_database(self) -> dict[str, Any]:
        return {"type": "jdbc", "uri": self.database, "jdbc.user": "dagster", "jdbc.password": PASSWORD}

    def _gcs(self, unique: str) -> tuple[dict[str, Any], str]:
        return {**self._in_database(), "gcs.service.host": self.gcs}, f"gs://{BUCKET}/jdbc"

    def _azure(self, unique: str) -> tuple[dict[str, Any], str]:
        login = {"adls.account-name": ACCOUNT, "adls.account-key": ACCOUNT_KEY, "adls.endpoint": self.azure}
        return {**self._in_database(), **login}, f"abfss://{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/jdbc"

    def _hive(self, unique: str) -> tuple[dict[str, Any], str]:
        return {"type": "hive", "uri": self.hive, **self.store.properties()}, f"{BUCKET}/hive"

    def _rest(self, unique: str) -> tuple[dict[str, Any], str]:
        return {"type": "rest", "uri": self.rest.uri, **self.store.properties()}, f"{BUCKET}/rest"

    def _vended(self, unique: str) -> tuple[dict[str, Any], str]:
        asks = {"warehouse": WAREHOUSE_NAME, "credential": CLIENT}
        return {"type": "rest", "uri": self.vending.uri, **asks}, VENDED_FOR

    def _glue(self, unique: str) -> tuple[dict[str, Any], str]:
        keys = {"client.access-key-id": "AKGLUE", "client.secret-access-key": GLUE_SECRET, "client.region": "us-east-1"}
        return {"type": "glue", "glue.endpoint": self.glue, **keys, **self.store.properties()}, f"{BUCKET}/glue"
