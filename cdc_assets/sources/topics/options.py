"""TiCDC's settings of its Kafka sink: sink URI and changefeed TOML -> TopicOptions.

TiCDC's own names and precedence (`pkg/config/sink.go`, `pkg/sink/codec/common/config.go`): a parameter of the sink URI
wins over the TOML, but for those that TiCDC takes from the TOML alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cdc_assets.errors import BadSettings
from cdc_assets.formats import OTHER_NAMES, PROTOCOLS, MessageOptions, MessageProtocol
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
from cdc_assets.sources.topics.connector import ConnectorConfiguration, connector_configuration
from cdc_assets.sources.topics.topic_options import ArchiveOptions, SnapshotOptions, TopicOptions, TopicRule

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


def topic_options(sink_uri: str, changefeed_config: Path | None, tz: str, given: FeedInputs) -> TopicOptions:
    """Return how TiCDC writes its topics; raises BadSettings for what it refuses and for what is not known."""
    config = ticdc_document(sink_uri, changefeed_config)
    options = _found(config, sink_uri)
    given_name = str(options.get("protocol") or "").lower()
    name = OTHER_NAMES.get(given_name, given_name)
    protocol = known_protocol(name, PROTOCOLS, "topics", "kafka://…/topic?protocol=canal-json")
    connector = connector_configuration(sink_uri, changefeed_config) if PROTOCOLS[protocol].by_connector else None
    brokers, topic = _address(sink_uri, connector, given.topics)
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
        patch_without_row=given.patch_without_row,
        column_selectors=column_selectors(config),
        case_sensitive=truth("case-sensitive", config.get("case-sensitive", False)),
        old_values=_has_old_values(PROTOCOLS[protocol], config, sink_uri),
        masked=given.masked,
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
        topics=given.topics or (connector.topics(topic) if connector is not None else ()),
        schemas=str(given.schemas) if given.schemas is not None else "",
        snapshots=SnapshotOptions(_scans(sink_uri)) if connector is None else connector.snapshots,
        losses=() if connector is None else connector.losses,
        event_filters=event_filters(config),
        misspelt=tuple(misspelt(parameters(sink_uri), _FROM_URI)) if connector is None and messages.sends_again else (),
        leaves_old_keys=truth("output-raw-change-event", raw_changes) and not messages.old_values,
        required_acks=_acks(options.get("required-acks", -1)),
        claim_check_uri=str(options.get("claim-check-storage-uri") or ""),
        archive=_archive(given),
        uri=display(sink_uri),
        passes_bad=given.passes_bad,
    )


def ticdc_document(sink_uri: str, changefeed_config: Path | None) -> Mapping[str, Any]:
    """Return TiCDC's changefeed TOML, {} for none and for a connector, whose configuration is another."""
    named = PROTOCOLS.get(parameters(sink_uri).get("protocol", "").lower())
    return {} if named is not None and named.by_connector else document(changefeed_config)


def _found(config: Mapping[str, Any], sink_uri: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, paths in _TOML.items():
        for section in (table(config, "sink", *path) for path in paths):
            if name in section:
                options.setdefault(name, section[name])
    given = parameters(sink_uri)
    options.update({name: given[name] for name in _FROM_URI if given.get(name)})
    return {name: truth(name, value) if name in _FLAGS else value for name, value in options.items()}


def _address(sink_uri: str, connector: ConnectorConfiguration | None, patterns: Sequence[str]) -> tuple[str, str]:
    """Return the brokers and the topic of a sink URI; of a connector, the prefix of its topics."""
    rest = sink_uri.partition("?")[0].partition("://")[2]
    brokers, _, path = rest.rpartition("@")[2].partition("/")
    topic, prefix = path.strip("/"), "" if connector is None else connector.prefix
    if not brokers or not (topic or prefix):
        expected = "kafka://host:port/topic?protocol=…. Give it exactly as TiCDC has it."
        if connector is not None:
            expected = "kafka://host:port/PREFIX?protocol=debezium-json, with the connector's topic.prefix. Add it."
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
    given = parameters(sink_uri).get("initial-scan")
    return None if given is None else truth("initial_scan", given)


def _has_old_values(protocol: MessageProtocol, config: Mapping[str, Any], sink_uri: str) -> bool:
    """Return whether updates come with the row before them."""
    if protocol.old_values is None:
        return True
    below, name, default = protocol.old_values
    given = parameters(sink_uri).get(name) or table(config, "sink", *below).get(name, default)
    return truth(name, given)


def _acks(given: Any) -> int:
    try:
        return -1 if str(given).lower() == "all" else int(given)
    except ValueError:
        raise BadSettings(f'required-acks is "{given}"; expected a whole number. Correct it.') from None


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


def _archive(given: FeedInputs) -> ArchiveOptions | None:
    if given.archive is None:
        return None
    uri, layout = given.archive
    return ArchiveOptions(layout, location(uri), display(uri))
