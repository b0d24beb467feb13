"""TiCDC's settings of its Kafka sink: sink URI and changefeed TOML -> TopicOptions.

TiCDC's own names and precedence (`pkg/config/sink.go`, `pkg/sink/codec/common/config.go`): a parameter of the sink URI
wins over the TOML, but for those that TiCDC takes from the TOML alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.protocols import CONNECTOR_MODES, OTHER_NAMES, PROTOCOLS, MessageProtocol
from cdc_assets.formats.servers import foreign_reason, other_connector
from cdc_assets.io.storage_uri import display, location, parameters, truth
from cdc_assets.sources.changefeed_toml import (
    column_selectors,
    document,
    event_filters,
    known_protocol,
    misspelt,
    rules,
    table,
)
from cdc_assets.sources.given import FeedInputs
from cdc_assets.sources.topics.topic_options import ArchiveOptions, SnapshotOptions, TableLists, TopicOptions, TopicRule

_TOML: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "protocol": ((),),
    "enable-tidb-extension": (("kafka-config", "codec-config"),),
    "content-compatible": ((),),
    "only-output-updated-columns": ((),),
    "delete-only-output-handle-key-columns": ((),),
    "encoding-format": (("kafka-config", "codec-config"),),
    "large-message-handle-option": (("kafka-config", "large-message-handle"),),
    "large-message-handle-compression": (("kafka-config", "large-message-handle"),),
    "claim-check-raw-value": (("kafka-config", "large-message-handle"),),
    "claim-check-storage-uri": (("kafka-config", "large-message-handle"),),
    "required-acks": (("kafka-config",), ()),
}
"""Option -> the tables below [sink] of the changefeed TOML in which TiCDC has it."""

_FROM_URI = (
    "protocol", "enable-tidb-extension", "content-compatible", "only-output-updated-columns", "encoding-format",
    "required-acks", "delete-only-output-handle-key-columns",
)  # fmt: skip
_FLAGS = (
    "enable-tidb-extension", "content-compatible", "only-output-updated-columns", "claim-check-raw-value",
    "delete-only-output-handle-key-columns",
)  # fmt: skip


def topic_options(sink_uri: str, changefeed_config: Path | None, tz: str, inputs: FeedInputs) -> TopicOptions:
    """Return the options by which TiCDC writes its topics; raises BadSettings for refused and unknown ones."""
    config = ticdc_document(sink_uri, changefeed_config)
    options: dict[str, Any] = {}
    for option, paths in _TOML.items():
        for section in (table(config, "sink", *path) for path in paths):
            if option in section:
                options.setdefault(option, section[option])
    of_uri = parameters(sink_uri)
    options.update({option: of_uri[option] for option in _FROM_URI if of_uri.get(option)})
    options = {option: truth(option, value) if option in _FLAGS else value for option, value in options.items()}
    given_name = str(options.get("protocol") or "").lower()
    name = OTHER_NAMES.get(given_name, given_name)
    protocol = known_protocol(name, PROTOCOLS, "topics", "kafka://…/topic?protocol=canal-json")
    connector = connector_configuration(sink_uri, changefeed_config) if PROTOCOLS[protocol].by_connector else None
    brokers, topic = _address(sink_uri, connector, inputs.topics)
    compatible = options.get("content-compatible", False)
    messages = MessageOptions(
        protocol=protocol,
        enable_tidb_extension=options.get("enable-tidb-extension", False),
        content_compatible=compatible,
        only_output_updated_columns=compatible or options.get("only-output-updated-columns", False),
        delete_only_output_handle_key_columns=options.get("delete-only-output-handle-key-columns", False),
        large_message_handle_option=str(options.get("large-message-handle-option") or "none").lower(),
        large_message_handle_compression=str(options.get("large-message-handle-compression") or "none").lower(),
        claim_check_raw_value=options.get("claim-check-raw-value", False),
        encoding_format=str(options.get("encoding-format") or "json").lower(),
        timezone=tz,
        connector=connector.modes if connector is not None else (),
        patch_without_row=inputs.patch_without_row,
        column_selectors=column_selectors(config),
        case_sensitive=truth("case-sensitive", config.get("case-sensitive", False)),
        old_values=_has_old_values(PROTOCOLS[protocol], config, sink_uri),
        confidential=inputs.confidential,
    )
    raw_changes = table(config, "sink", "kafka-config").get("output-raw-change-event", False)
    dispatchers = _rules(table(config, "sink"))
    _refuse_spread_rows(dispatchers, messages)
    return TopicOptions(
        brokers=brokers,
        topic=topic,
        messages=messages,
        rules=dispatchers,
        case_sensitive=truth("case-sensitive", config.get("case-sensitive", False)),
        topics=inputs.topics or (connector.topics(topic) if connector is not None else ()),
        schemas=str(inputs.schemas) if inputs.schemas is not None else "",
        snapshots=SnapshotOptions(_scans(sink_uri)) if connector is None else connector.snapshots,
        losses=() if connector is None else connector.losses,
        event_filters=event_filters(config),
        misspelt=tuple(misspelt(parameters(sink_uri), _FROM_URI)) if connector is None and messages.sends_again else (),
        leaves_old_keys=truth("output-raw-change-event", raw_changes) and not messages.old_values,
        required_acks=_acks(options.get("required-acks", -1)),
        claim_check_uri=str(options.get("claim-check-storage-uri") or ""),
        archive=_archive(inputs),
        uri=display(sink_uri),
        passes_bad=inputs.passes_bad,
    )


def ticdc_document(sink_uri: str, changefeed_config: Path | None) -> Mapping[str, Any]:
    """Return TiCDC's changefeed TOML, {} for none and for a connector, whose configuration is another."""
    named = PROTOCOLS.get(parameters(sink_uri).get("protocol", "").lower())
    return {} if named is not None and named.by_connector else document(changefeed_config)


def _address(sink_uri: str, connector: ConnectorConfiguration | None, patterns: Sequence[str]) -> tuple[str, str]:
    """Return the brokers and the topic of a sink URI; of a connector, the prefix of its topics."""
    rest = sink_uri.partition("?")[0].partition("://")[2]
    brokers, _, path = rest.rpartition("@")[2].partition("/")
    topic, prefix = path.strip("/"), "" if connector is None else connector.prefix
    if not brokers or not (topic or prefix):
        expected = "kafka://host:port/topic?protocol=…. Give it exactly as TiCDC has it."
        if connector is not None:
            expected = (
                "kafka://host:port/PREFIX?protocol=debezium-json, with the connector's topic.prefix. Add it, or give "
                "the connector's configuration (--config, setting changefeed_config)."
            )
        raise BadSettings(
            f"the sink URI {display(sink_uri)} names no {'topic' if brokers else 'broker'}; expected {expected}"
        )
    if topic and prefix and topic != prefix and not patterns:
        raise BadSettings(
            f'the sink URI {display(sink_uri)} names the topics of "{topic}", and the connector\'s configuration '
            f'has topic.prefix "{prefix}". Correct one of them, or name the topics (--topics) if a '
            "transformation changes them."
        )
    return brokers, topic or prefix


def _scans(sink_uri: str) -> bool | None:
    """Return whether a changefeed of YDB has INITIAL_SCAN, None where the sink URI does not say."""
    value = parameters(sink_uri).get("initial-scan")
    return None if value is None else truth("initial_scan", value)


def _has_old_values(protocol: MessageProtocol, config: Mapping[str, Any], sink_uri: str) -> bool:
    """Return whether updates come with the row before them."""
    if protocol.old_values is None:
        return True
    below, name, default = protocol.old_values
    value = parameters(sink_uri).get(name) or table(config, "sink", *below).get(name, default)
    return truth(name, value)


def _acks(value: Any) -> int:
    try:
        return -1 if str(value).lower() == "all" else int(value)
    except ValueError:
        raise BadSettings(f'required-acks is "{value}"; expected a whole number. Correct it.') from None


def _rules(sink: Mapping[str, Any]) -> tuple[TopicRule, ...]:
    example = '[sink] dispatchers = [{matcher = ["db.*"], topic = "{schema}_{table}", partition = "table"}]'
    return tuple(
        TopicRule(
            tuple(rule["matcher"]),
            str(rule.get("topic") or ""),
            str(rule.get("partition") or rule.get("dispatcher") or ""),
            str(rule.get("index") or ""),
        )
        for rule in rules(sink, "dispatchers", example, ("matcher",))
    )


_IN_ORDER = frozenset(("", "default", "table", "index-value", "rowid"))
"""Rules by which all changes of a row are in one partition, `index-value` by the handle key."""


def _refuse_spread_rows(rules: Iterable[TopicRule], messages: MessageOptions) -> None:
    """Raise BadSettings where deletes have no commit-ts, and may be in another partition than their row's changes."""
    for rule in rules:
        by_key = rule.index.lower() in ("", "primary")
        if messages.has_bare_deletes and not (rule.partition.lower() in _IN_ORDER and by_key):
            by = f"{rule.partition} of the index {rule.index}" if rule.index else rule.partition
            raise BadSettings(
                f'the dispatcher of {", ".join(rule.matcher)} spreads rows over partitions by "{by}". A delete of the '
                f"protocol {messages.protocol} does not say when it was made, so all changes of a row have to be in "
                "one partition; expected the partition rule table, default, or index-value without an index (by the "
                "handle key). Change the dispatcher, or choose another protocol."
            )


def _archive(inputs: FeedInputs) -> ArchiveOptions | None:
    if inputs.archive is None:
        return None
    uri, layout = inputs.archive
    return ArchiveOptions(layout, location(uri), display(uri))


_SNAPSHOT_ROWS = "snapshot.mode.configuration.based.snapshot.data"
_INCLUDED, _EXCLUDED = ("snapshot.include.collection.list", "table.include.list"), "table.exclude.list"
_OF_DATABASES = ("database.include.list", "schema.include.list"), ("database.exclude.list", "schema.exclude.list")
"""Lists of databases, or of schemas of PostgreSQL."""
_FORMER = {
    "database.server.name": "topic.prefix",
    **{
        f"{kind}.{former}": f"{kind}.{now}"
        for kind in ("database", "schema", "table", "column")
        for former, now in (("whitelist", "include.list"), ("blacklist", "exclude.list"))
    },
}
"""The names that settings had before Debezium 2.0, or 1.3, and those that they have now."""
_OF_SNAPSHOTS = (
    "snapshot.mode",
    "snapshot.select.statement.overrides",
    _SNAPSHOT_ROWS,
    *_INCLUDED,
    _EXCLUDED,
    *(name for names in _OF_DATABASES for name in names),
)
_WITHOUT_ROWS = ("never", "no_data", "schema_only", "recovery", "schema_only_recovery")
"""Values of `snapshot.mode` with which a connector sends no rows from before it, but for what a person has it read."""

_CONVERTERS = ("key.converter", "value.converter")
_JSON_CONVERTERS = ("JsonConverter", "Json")
"""Names of Kafka Connect's own converter to JSON, whose package may be left out."""
_LOCKING = "snapshot.locking.mode"
_SKIPPED, _BINARY = "skipped.operations", "binary.handling.mode"
_HIDDEN = ("column.include.list", "column.exclude.list")
_CHANGED = ("column.mask.", "column.truncate.")
"""Prefixes of settings that change values; the rest of the name may be a salt, and is never shown."""
_CONVERTING = "event.converting.failure.handling.mode"
_DECIMALS = "decimal.handling.mode"
_PASSED_OVER = (
    *("event.processing.failure.handling.mode", "event.deserialization.failure.handling.mode"),
    _CONVERTING,
    *("inconsistent.schema.handling.mode", "errors.tolerance"),
    *("schema.history.internal.skip.unparseable.ddl", "database.history.skip.unparseable.ddl"),
)
_NAMES = ("field.name.adjustment.mode", "sanitize.field.names")
_BY_ROOT, _UNKNOWN_TYPES = "publish.via.partition.root", "include.unknown.datatypes"
_OTHERS = ("transforms", "converters", "slot.drop.on.stop", _BY_ROOT, _UNKNOWN_TYPES)
_HARMLESS = ("fail", "none", "false")
_HARMFUL = (
    (
        _PASSED_OVER,
        "the connector passes over what it cannot read or write, and no message says so: rows, values or DDL "
        "may be missing. Let it fail instead (fail, none for errors.tolerance, false for the DDL's).",
    ),
    (
        _NAMES,
        "the connector writes other names for columns, so the tables have those, and two of them may become "
        "one. Remove the setting, and let a new connector write to new topics.",
    ),
)
_KNOWN = (
    *("connector.class", "topic.prefix", "topic.delimiter", *_CONVERTERS, *CONNECTOR_MODES, *_OF_SNAPSHOTS),
    *(_LOCKING, _SKIPPED, *_HIDDEN, *_PASSED_OVER, *_NAMES, *_OTHERS),
)


@dataclass(frozen=True, slots=True)
class ConnectorConfiguration:
    """Settings of a connector that a reader needs: `modes` are (name, value) of those that were given, `prefix` is ""
    for none.

    `snapshots` says which rows of tables it sends that are older than its topics. `losses` are settings with which its
    messages lack something that they do not show, each with the sentence on it.
    """

    prefix: str = ""
    delimiter: str = "."
    modes: tuple[tuple[str, str], ...] = ()
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    losses: tuple[tuple[str, str], ...] = ()

    def topics(self, prefix: str) -> tuple[str, ...]:
        """Return the patterns of its topics: the one of schema changes, and one for each table."""
        return prefix, f"{prefix}{self.delimiter}*"


def connector_configuration(sink_uri: str, file: Path | None) -> ConnectorConfiguration:
    """Return the options by which a connector writes; raises BadSettings for unknown and unreadable ones."""
    configuration = {name: value for name, value in (_read(file) | parameters(sink_uri)).items() if value}
    configuration = {
        now: configuration[former] for former, now in _FORMER.items() if former in configuration
    } | configuration
    members = {
        name: value.strip().lower()
        if CONNECTOR_MODES.get(name)
        else value  # in any case, for Kafka Connect and Debezium
        for name, value in configuration.items()
        if name in _KNOWN or name.startswith(_CHANGED)
    }
    if other := other_connector(members.get("connector.class", "")):
        raise BadSettings(f"connector.class is {members['connector.class']}: {foreign_reason(other)}.")
    for name, value in members.items():
        if CONNECTOR_MODES.get(name) and value not in CONNECTOR_MODES[name]:
            raise BadSettings(
                f'{name} is "{value}"; known are {", ".join(CONNECTOR_MODES[name])}. Give the configuration of the '
                "connector as Kafka Connect has it."
            )
        if name in _CONVERTERS and value.rpartition(".")[2] not in _JSON_CONVERTERS:
            raise BadSettings(
                f"{name} is {value}, whose messages cannot be read; expected "
                "org.apache.kafka.connect.json.JsonConverter. Let the connector write with that one, to new topics."
            )
    return ConnectorConfiguration(
        members.get("topic.prefix", ""),
        members.get("topic.delimiter", "."),
        tuple(sorted((name, value) for name, value in members.items() if name in CONNECTOR_MODES)),
        _snapshots(members),
        tuple(_losses(members)),
    )


def _losses(members: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    kind = members.get("connector.class", "").lower()
    skipped = members.get(_SKIPPED, "t" if "connector.class" in members else "none").lower()
    if set(_listed(skipped)) & {"c", "u", "d"}:
        yield (
            f"{_SKIPPED} = {skipped}",
            "the connector leaves out inserts, updates or deletes, so no table can be equal to its source. Set "
            f"{_SKIPPED} to none, and let a new connector send a snapshot to new topics.",
        )
    elif "t" in _listed(skipped):
        yield (
            f"{_SKIPPED} = t" + ("" if _SKIPPED in members else ", Debezium's default"),
            "the connector leaves out every TRUNCATE, so a table that is truncated keeps its rows here. Set "
            f"{_SKIPPED} to none, and bring tables that were truncated by another snapshot.",
        )
    for name in _HIDDEN:
        if name in members:
            yield (
                f"{name} = {members[name]}",
                "the connector leaves out columns: they are missing in the tables, or NULL. Remove the setting, and "
                "let a new connector send a snapshot, if they are wanted.",
            )
    for name in sorted({begin for name in members for begin in _CHANGED if name.startswith(begin)}):
        yield (
            f"{name}…",
            "the connector masks or cuts values, and the tables have what is left of them. Remove the settings, and "
            "let a new connector send a snapshot, if they are wanted whole.",
        )
    for names, loss in _HARMFUL:
        for name in names:
            if members.get(name, "none").lower() not in _HARMLESS:
                yield f"{name} = {members[name]}", loss
    if "transforms" in members:
        yield (
            f"transforms = {members['transforms']}",
            "messages are transformed before they are in the topics, and what that changes or leaves out cannot be "
            "seen. Transformations of headers and of the names of topics do no harm; remove those that filter records "
            "or change their fields.",
        )
    if "converters" in members:
        yield (
            f"converters = {members['converters']}",
            "converters of its own write some of the connector's values: the tables have what these make of them. "
            "Compare such columns with the source.",
        )
    if members.get(_BINARY, "").startswith("base64") and "mysql" not in kind and "mariadb" not in kind:
        yield (
            f"{_BINARY} = {members[_BINARY]}",
            "PostgreSQL's connector sends NULL for a long bytea that a change of its row left as it was, where REPLICA "
            "IDENTITY is not FULL: the table has NULL then, as nothing tells it from a NULL of the source. Set it to "
            "bytes or hex, and let a new connector send a snapshot to new topics; or set REPLICA IDENTITY FULL for "
            "tables with such columns.",
        )
    if "postgres" in kind and members.get(_BY_ROOT, "false").lower() != "true":
        yield (
            _BY_ROOT + (" = false" if _BY_ROOT in members else " is not set"),
            "PostgreSQL's connector sends the rows of a partitioned table in a snapshot, and its changes as those of "
            f"its partitions: that table stays as the snapshot had it. Set {_BY_ROOT} to true, in the publication "
            "too (publish_via_partition_root), or leave partitioned tables out and use their partitions.",
        )
    if "postgres" in kind and _CONVERTING not in members:
        yield (
            f"{_CONVERTING} = warn, Debezium's default",
            "PostgreSQL's connector has no stand-in for long arrays of numbers, enums and moments, for numeric without "
            "scale, geometries and vectors that a change of their row leaves as they are: it passes over the error, "
            "and such a value comes as NULL. Set REPLICA IDENTITY FULL for tables with such columns, and "
            f"{_CONVERTING} to fail, so that the connector stops instead.",
        )
    if "postgres" in kind and members.get(_DECIMALS, "precise").lower() == "precise":
        yield (
            _DECIMALS + (" = precise" if _DECIMALS in members else " is not set"),
            "PostgreSQL's connector sends NULL for NaN and infinity in numeric, as its decimals have neither. Where "
            f"tables have these, set {_DECIMALS} to string, and let a new connector send a snapshot to new topics.",
        )
    if "postgres" in kind and members.get(_UNKNOWN_TYPES, "false").lower() != "true":
        yield (
            _UNKNOWN_TYPES + (" = false" if _UNKNOWN_TYPES in members else " is not set"),
            "PostgreSQL's connector leaves out columns of types that it does not know, such as composite ones, "
            f"multiranges and most geometric ones: they are missing in the tables. Set {_UNKNOWN_TYPES} to true, and "
            "let a new connector send a snapshot, if they are wanted.",
        )
    if members.get("slot.drop.on.stop", "false").lower() == "true":
        yield (
            "slot.drop.on.stop = true",
            "the connector drops its replication slot whenever it stops: what changes until it runs again never "
            "arrives. Set it to false, and bring the tables by another snapshot.",
        )


def _snapshots(members: Mapping[str, str]) -> SnapshotOptions:
    mode = members.get("snapshot.mode", "").lower()
    takes_rows = None if not mode else mode not in _WITHOUT_ROWS
    if mode == "configuration_based":
        takes_rows = members.get(_SNAPSHOT_ROWS, "false").lower() == "true"
    return SnapshotOptions(
        takes_rows,
        _listed(members.get("snapshot.select.statement.overrides", "")),
        tuple(_listed(members[name]) for name in _INCLUDED if name in members),
        _listed(members.get(_EXCLUDED, "")),
        "connector.class" in members or any(name in members for name in (*_INCLUDED, _EXCLUDED)),
        TableLists(
            _first_list(members, _OF_DATABASES[0]),
            _listed(members[_INCLUDED[1]]) if _INCLUDED[1] in members else None,
            _first_list(members, _OF_DATABASES[1]) or (),
            _listed(members.get(_EXCLUDED, "")),
        ),
        leaves_out_changes="transforms" in members or bool({"c", "u"} & {*_listed(members.get(_SKIPPED, "").lower())}),
        overlaps=members.get(_LOCKING, "").lower() == "none"
        and "postgres" not in members.get("connector.class", "").lower(),
    )


def _first_list(members: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...] | None:
    return next((_listed(members[name]) for name in names if name in members), None)


def _listed(text: str) -> tuple[str, ...]:
    r"""Return the items of a list, as Debezium's `RegExSplitter` parts them: `\,` is a comma in an item."""
    items = (item.strip().replace("\\,", ",") for item in re.split(r"(?<!\\),", text))
    return tuple(item for item in items if item)


def _read(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadSettings(
            f"the connector's configuration {file} cannot be read ({error.strerror}). Correct changefeed_config or "
            "--config."
        ) from None
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        try:
            document = json.loads(data.decode("utf-8-sig"))
        except ValueError as problem:
            place = (
                f"line {problem.lineno}, column {problem.colno}"
                if isinstance(problem, json.JSONDecodeError)
                else "no UTF-8"
            )
            raise BadSettings(
                f"the connector's configuration {file} begins with a brace and is not JSON ({place}). Give it as Kafka "
                "Connect has it."
            ) from None
        config = document.get("config")
        values: Mapping[str, Any] = config if isinstance(config, dict) else document
        members = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    else:
        members = parse_properties(data.decode("latin-1"))
    if not any(name in members for name in (*_KNOWN, *_FORMER)):
        raise BadSettings(
            f"{file} is no configuration of a connector: it has neither connector.class nor topic.prefix. Give the "
            "JSON that was posted to Kafka Connect, or the properties of its standalone worker."
        )
    return members


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the pairs of a Java properties file, as `java.util.Properties.load` reads them.

    A name ends at the first `=`, `:` or white space; a backslash at the end of a line continues it, `\uXXXX` is a
    character, and a line that begins with `#` or `!` is a comment. Of two pairs of a name the later counts. The text
    is ISO 8859-1. An escape `\u` that no four hexadecimal digits follow, which Java refuses, stays as it is.
    """
    pairs, begun = dict[str, str](), ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(" \t\f")
        if not begun and line[:1] in ("", "#", "!"):
            continue
        line = begun + line
        backslashes = len(line) - len(line.rstrip("\\"))
        begun = line[:-1] if backslashes % 2 else ""
        if not backslashes % 2:
            pairs.update([_pair(line)])
    return pairs | dict([_pair(begun)] if begun else ())


_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _pair(line: str) -> tuple[str, str]:
    match = _PAIR.fullmatch(line)
    assert match is not None
    name, value = (_ESCAPE.sub(_unescaped, part) for part in match.groups())
    return name, value


def _unescaped(escape: re.Match[str]) -> str:
    code, letter = escape.groups(default="")
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)
