"""A registry that is not ours, with login and TLS: schemas are registered there, and messages name them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import requests

from cdc_assets.errors import BucketMissing, StorageUnavailable
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.avro import classify, schema_ids
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.registry import connect
from cdc_assets_tests.avro_writer import INT, AvroBroker
from cdc_assets_tests.servers.schema_registry import schema_registry
from cdc_assets_tests.topics import messages_of

LOGIN = ("reader", "p@ss/word")


@pytest.mark.soak
def test_schemas_of_a_registry_that_is_not_ours_are_read_with_login_and_tls(tmp_path: Path) -> None:
    header = "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()
    broker = AvroBroker()
    orders = broker.table("shop", "orders", {"id": INT}, ("id",))
    with schema_registry(tmp_path, header) as registry:
        trust = {"ssl.ca.location": str(registry.certificate)}
        for number, (name, text) in enumerate(broker.registry.items()):
            subject = f"{registry.url}/subjects/cdc-{('key', 'value')[number]}/versions"
            made = requests.post(
                subject, json={"schema": text}, auth=LOGIN, verify=trust["ssl.ca.location"], timeout=10
            )
            assert made.json()["id"] == int(name)
        inside = connect({"url": registry.url.replace("//", "//reader:p%40ss%2Fword@"), **trust})
        batch = messages_of([orders.row(7, id=1)])
        schemas_by_id = {name: inside.schema(name) or "" for name in schema_ids(batch, MessageOptions(protocol="avro"))}
        assert [json.loads(text) for text in schemas_by_id.values()] == [
            json.loads(text) for text in broker.registry.values()
        ]
        (spoken,) = classify(batch, MessageOptions(protocol="avro", registry=schemas_by_id)).to_pylist()
        assert (TableId(spoken["schema"], spoken["table"]), spoken["commit_ts"]) == (TableId("shop", "orders"), 7)
        assert inside.schema("999") is None
        with pytest.raises(BucketMissing, match="refused the login"):
            connect({"url": registry.url, "basic.auth.user.info": "reader:wrong", **trust}).schema("1")
        with pytest.raises(StorageUnavailable, match=r"ssl\.ca\.location"):
            connect({"url": registry.url}).schema("1")
