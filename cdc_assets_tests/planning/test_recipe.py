"""What each format says that settings decide is what they decide: recorded rows, decoded with other settings.

And what a recipe says of the rows of each position, as people say from where on settings count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import CdcError
from cdc_assets.formats import MessageOptions, SinkWire, decode, wire_class
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.messages import codec_of
from cdc_assets.formats.protocols import CONNECTOR_MODES, PROTOCOLS
from cdc_assets.history.history import read_history
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.recipe import Recipe
from cdc_assets.model.releases import SettingsChange
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import TableHistory
from cdc_assets.planning.recipe import Difference, Recipes, deciding, made_for, read_otherwise
from cdc_assets.types.connect_types import CONNECT_TYPES, DECIMAL
from cdc_assets.types.mysql_types import TYPES
from cdc_assets.types.zones import Zone
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.topics import Topic, topics

TOPICS = [topic for topic in topics(*PROTOCOLS, "canal-json-compat", "simple-avro") if topic.case.name == "A_all_types"]
FILES = [
    config
    for case in cases()
    if case.name == "A_all_types"
    for config in case.configs
    if config.name in ("csv-ts", "csv-custom", "canal-ext", "canal-compat")
]
OTHERS: Mapping[str, tuple[str, ...]] = {
    "tz": ("America/New_York",),
    "content-compatible": ("true", "false"),
    "null": ("", "NULL"),
    "binary-encoding-method": ("hex", "base64"),
}


def _changed(decoded_rows: Decoded, other: Decoded, schema: TableSchema) -> Iterator[str]:
    """Columns of which a record has another value: a record that is refused instead is seen."""
    for column in schema.stored:
        if column.name in decoded_rows.changes.column_names and column.name in other.changes.column_names:
            before, after = decoded_rows.changes.column(column.name), other.changes.column(column.name)
            if len(before) == len(after) and not before.combine_chunks().equals(after.combine_chunks()):
                yield column.name


@pytest.mark.parametrize("topic", TOPICS, ids=str)
def test_a_setting_decides_the_values_of_messages_that_it_is_said_to_decide(topic: Topic) -> None:
    history = read_history(topic.listing.schema_files, topic.listing.checkpoint)
    wire, codec, seen = topic.options, codec_of(topic.options), False
    for file in topic.listing.data_files:
        for table, schema in history.decoding[file.root, file.version]:
            plain = codec.decode(topic.rows[file.path], file.path, table, schema, wire)
            for name in wire.settings:
                for value in OTHERS[name]:
                    other = wire.having({name: value})
                    try:
                        decoded_rows = codec.decode(topic.rows[file.path], file.path, table, schema, other)
                    except CdcError:
                        continue  # that is seen
                    doubtful_columns = set(
                        read_otherwise(other, deciding(wire, schema.stored), schema.stored).get(name, ())
                    )
                    assert set(_changed(plain, decoded_rows, schema)) <= doubtful_columns
                    seen |= bool(doubtful_columns)
    assert seen == bool({"tz", "content-compatible"} & deciding(wire, _every_type()).keys())


@pytest.mark.parametrize("config", FILES, ids=str)
def test_a_setting_decides_the_values_of_files_that_it_is_said_to_decide(config: Config) -> None:
    source = config.settings().open_source()
    listing = source.listing()
    history = read_history(listing.schema_files, listing.checkpoint)
    wire, zoned = config.options.wire, False
    for file in listing.data_files:
        data = source.reader.read(file.path)
        for table, schema in history.decoding[file.root, file.version]:
            plain = decode(wire, data, file.path, table, schema)
            for name in wire.settings:
                for value in OTHERS[name]:
                    other = wire.having({name: value})
                    try:
                        decoded_rows = decode(other, data, file.path, table, schema)
                    except CdcError:
                        continue
                    changed = set(_changed(plain, decoded_rows, schema))
                    doubtful_columns = read_otherwise(other, deciding(wire, schema.stored), schema.stored).get(name, ())
                    assert changed <= set(doubtful_columns)
                    zoned |= name == "tz" and bool(changed)
    assert zoned


def _every_type() -> list[Column]:
    return [Column(f"c{number}", type_) for number, type_ in enumerate(TYPES)]


@pytest.mark.parametrize("wire", [CsvOptions(), CanalJsonOptions()])
def test_settings_come_back_as_they_were(wire: SinkWire) -> None:
    others = {
        name: next(setting for setting in OTHERS[name] if setting != value) for name, value in wire.settings.items()
    }
    assert wire.having(others).settings == others
    assert wire.having(others).having(wire.settings).settings == wire.settings
    assert wire.having({"no such": "x"}) == wire
    assert isinstance(wire, wire_class(wire.format))


# --- connectors -------------------------------------------------------------------------------------------------------


def _connector(**modes: str) -> MessageOptions:
    given = tuple(sorted((name.replace("_", "."), value) for name, value in modes.items()))
    return MessageOptions(protocol="debezium-json", connector=given)


@pytest.mark.parametrize("mode", [(name, value) for name, values in CONNECTOR_MODES.items() for value in values])
def test_every_type_says_what_every_mode_makes_of_it(mode: tuple[str, str]) -> None:
    wire = _connector().having(dict([mode]))
    for type_ in (*TYPES, *CONNECT_TYPES):
        assert isinstance(wire.read_by(Column("c", type_, precision=10, scale=2)), dict)


@pytest.mark.parametrize(
    ("column", "then", "now", "differs"),
    [
        (Column("c", "DATETIME"), "", "adaptive_time_microseconds", False),
        (Column("c", "DATETIME"), "", "isostring", True),
        (Column("c", "DATE"), "microseconds", "nanoseconds", False),
        (Column("c", "DATE"), "adaptive", "isostring", True),
        (Column("c", "TIMESTAMP"), "", "isostring", False),
        (Column("c", "io.debezium.time.MicroTimestamp"), "", "adaptive", False),
        (Column("c", "io.debezium.time.MicroTimestamp"), "connect", "adaptive", True),
        (Column("c", "INT"), "connect", "isostring", False),
    ],
)
def test_a_mode_of_moments_matters_where_they_are_written_otherwise(
    column: Column, then: str, now: str, differs: bool
) -> None:
    differences = read_otherwise(_connector(time_precision_mode=now), {"time.precision.mode": then}, [column])
    assert differences == ({"time.precision.mode": ("c",)} if differs else {})


@pytest.mark.parametrize(
    ("type_", "then", "now", "differs"),
    [("DECIMAL", "", "precise", False), ("DECIMAL", "precise", "string", True), (DECIMAL, "double", "string", False)],
)
def test_a_mode_of_decimals_matters_where_bytes_become_digits(type_: str, then: str, now: str, differs: bool) -> None:
    differences = read_otherwise(
        _connector(decimal_handling_mode=now), {"decimal.handling.mode": then}, [Column("c", type_)]
    )
    assert bool(differences) is differs


def test_a_connector_keeps_what_is_no_setting_of_values() -> None:
    wire = _connector(snapshot_mode="no_data")
    assert wire.having({"decimal.handling.mode": "string"}).having(wire.settings) == wire


# --- zones ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "other", "equal"),
    [
        ("UTC", "Etc/UTC", True),
        ("UTC", "+00:00", True),
        ("+08:00", "Etc/GMT-8", True),
        ("PRC", "Asia/Shanghai", True),
        ("Asia/Shanghai", "+08:00", False),  # which had summers from 1986 to 1991
        ("Europe/Berlin", "Europe/London", False),
        ("UTC", "No/Where", False),
    ],
)
def test_zones_are_equal_by_their_rules(zone: str, other: str, equal: bool) -> None:
    assert (Zone(zone) == Zone(other)) is equal
    assert (Zone(other) == Zone(zone)) is equal


def test_blocks_of_messages_state_what_settings_would_decide() -> None:
    field = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "a"}
    row = {"type": "struct", "optional": True, "fields": [field]}
    block = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    source = '"source":{"version":"3","connector":"mysql","name":"n","ts_ms":1,"snapshot":"false","db":"d","table":"t",'
    payload = '{"before":null,"after":{"a":1000000},' + source + '"file":"f","pos":1,"row":0},"op":"c","ts_ms":1}'
    schema = TableSchema((Column("a", "DATETIME", scale=6),))
    wire = _connector()
    codec = codec_of(wire)
    for text, stated in (
        (payload, False),
        (f'{{"schema":{json.dumps(block, separators=(",", ":"))},"payload":{payload}}}', True),
    ):
        rows = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([None], pa.binary()),
                "value": pa.array([text.encode()]),
                "ordinals": pa.array([[0]], pa.list_(pa.int32())),
            }
        )
        decoded_rows = codec.decode(rows, "p", TableId("d", "t"), schema, wire)
        assert not decoded_rows.rejects
        assert ("time.precision.mode" in decoded_rows.stated) is stated


# --- from which position on a setting counts --------------------------------------------------------------------------

TABLE = TableId("s", "a")
LIFE = Life(TABLE, 10)
ZONED = TableSchema((Column("id", "INT", is_pk=True), Column("t", "TIMESTAMP")), ("id",))
ZONES = st.sampled_from(["UTC", "Asia/Tokyo", "Europe/Berlin"])
STATEMENTS = st.dictionaries(st.integers(20, 60), ZONES, max_size=4).map(
    lambda zones: tuple(SettingsChange("s.a", since, {"tz": zone}) for since, zone in sorted(zones.items()))
)


def zoned_table() -> TableHistory:
    text = "CREATE TABLE `a` (`id` INT PRIMARY KEY,`t` TIMESTAMP)"
    created = SchemaFile("s/a/meta/schema_10_0.json", "s/a", TABLE, 10, text, 3, ZONED.columns)
    return read_history((created,), 100).lives[LIFE]


def read_with(recipes: Recipes, ends: Iterable[int]) -> AppliedState:
    """Return the state of a table after windows through these positions."""
    recipe, through = made_for(ZONED), 9
    for through in sorted({*ends, *(at for at in recipes.changes_of(LIFE) if at < max(ends))}):
        window = recipes.of(LIFE, ZONED, through, recipe)
        recipe = recipe.after(window, window.settings)
    return AppliedState(Progress(through, Phase.ROWS), 10, TABLE, recipe=recipe)


@given(STATEMENTS, ZONES, st.sets(st.integers(10, 70), min_size=1, max_size=5))
def test_a_recipe_says_with_which_setting_the_rows_of_each_position_were_read(
    changes: tuple[SettingsChange, ...], present: str, ends: set[int]
) -> None:
    recipes = Recipes(CsvOptions(timezone=present), changes)
    state = read_with(recipes, ends)
    zone = state.recipe.settings["tz"]
    for position in range(11, max(ends) + 1):
        former = [value for at, value in zone.before if at > position]
        assert (former or [zone.value])[0] == recipes.zone(LIFE, position)
    assert recipes.difference(zoned_table(), state) == {}
    assert Recipe.parse(state.recipe.fingerprint) == state.recipe


@given(STATEMENTS, ZONES, ZONES, st.sets(st.integers(10, 70), min_size=1, max_size=5))
def test_another_setting_counts_from_a_position_on_once_a_person_says_so(
    changes: tuple[SettingsChange, ...], present: str, other: str, ends: set[int]
) -> None:
    state, through = read_with(Recipes(CsvOptions(timezone=present), changes), ends), max(ends)
    changes = tuple(change for change in changes if change.since <= through)
    then = state.recipe.settings["tz"].value
    changed = Recipes(CsvOptions(timezone=other), changes)
    differences = changed.difference(zoned_table(), state)
    assert differences == ({"tz": Difference(then, other, ("t",), from_here_on=True)} if then != other else {})
    released = replace(changed, changes=(*changes, SettingsChange("s.a", through + 1, {"tz": then})))
    assert released.difference(zoned_table(), state) == {}
    assert {released.zone(LIFE, through), released.zone(LIFE, through + 1)} == {then, other}


@given(STATEMENTS.filter(bool), ZONES, st.data())
def test_a_statement_by_which_rows_were_read_cannot_be_taken_back(
    changes: tuple[SettingsChange, ...], present: str, data: st.DataObject
) -> None:
    wire, gone = CsvOptions(timezone=present), data.draw(st.sampled_from(changes))
    state = read_with(Recipes(wire, changes), [70])
    left = Recipes(wire, tuple(change for change in changes if change != gone))
    difference = left.difference(zoned_table(), state)[f"tz before {gone.since}"]
    assert (difference.then, difference.from_here_on) == (gone.before["tz"], False)


def test_a_setting_of_a_column_that_is_gone_holds_no_table() -> None:
    state = read_with(Recipes(CsvOptions(), (SettingsChange("s.a", 20, {"tz": "Asia/Tokyo"}),)), [70])
    table = zoned_table()
    (event,) = table.events
    bare = replace(table, events=(replace(event, after=replace(ZONED, columns=ZONED.columns[:1])),))
    assert state.recipe.settings["tz"].before
    assert Recipes(CsvOptions()).difference(bare, state) == {}
