"""Each type that DDL texts may name, in each format: one that a format cannot read concerns its column alone."""

from __future__ import annotations

from itertools import product

import pytest

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions, Wire
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.debezium_json.columns import connector_settings, field_of
from cdc_assets.formats.protocols import CONNECTOR_MODES, PROTOCOLS
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import CONNECT_TYPES, SERVER_TYPES
from cdc_assets.types.mysql_types import TYPES
from cdc_assets.types.ydb_types import YDB_TYPES

EVERY = (*TYPES, *SERVER_TYPES, *CONNECT_TYPES, *YDB_TYPES, "", "OF_A_LATER_SERVER")


@pytest.mark.parametrize("wire", [CsvOptions(), *(MessageOptions(protocol=name) for name in PROTOCOLS)], ids=repr)
def test_a_format_says_of_every_type_by_which_settings_it_is_read(wire: Wire) -> None:
    for kind in EVERY:
        assert isinstance(dict(wire.read_by(Column("c", kind))), dict), kind


@pytest.mark.parametrize("kind", [*TYPES, *SERVER_TYPES])
def test_a_connector_writes_every_type_of_mysql_and_mariadb_as_some_field(kind: str) -> None:
    choices = [[(name, mode) for mode in modes] for name, modes in CONNECTOR_MODES.items() if modes]
    for modes in product(*choices):
        assert field_of(
            Column("c", kind), connector_settings(MessageOptions(protocol="debezium-json", connector=modes))
        )


def test_a_type_without_a_reader_is_named_with_its_column() -> None:
    with pytest.raises(MalformedData, match=r'"c".*"OF_A_LATER_SERVER"'):
        field_of(Column("c", "OF_A_LATER_SERVER"), connector_settings(MessageOptions(protocol="debezium-json")))
