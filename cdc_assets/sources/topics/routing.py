"""Route the messages of a table to a topic, and find the topics of a feed.

TiCDC's rules (`cdc/sink/dmlsink/mq/dispatcher`): the first of the `dispatchers` whose matcher fits the table decides,
what none fits goes to the default topic. A rule's topic is a name or an expression with `{schema}` and `{table}`, for
which the names stand with `_` for each character that Kafka forbids; the result is cut at 249 characters.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property

from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_filter import decided, split_pattern
from cdc_assets.sources.topics.topic_options import TopicOptions, TopicRule

_EXPRESSION = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9._-]")
_PARTS = re.compile(r"(\{schema\}|\{table\})")
_EXPRESSED = {"{schema}": "[A-Za-z0-9._-]*", "{table}": "[A-Za-z0-9._-]*"}
_MOST_LETTERS = 249
_WHOLE_TABLES = ("", "default", "table")
"""Partition rules by which all rows of a table are in one partition."""
_NAMES = {".": "_", "..": "__"}
"""Names that Kafka does not take -> what TiCDC makes of them."""

_KAFKAS_OWN = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata")
)


class Routing:
    """The dispatchers of a changefeed. Raises BadSettings for a topic that TiCDC does not take."""

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        for rule in options.rules:
            for pattern in rule.matcher:
                try:
                    decided((pattern,), ("a", "a"))
                except re.error as error:
                    raise BadSettings(
                        f'the matcher "{pattern}" of a dispatcher is not a pattern ({error}); expected one like '
                        '"shop.*" or "/^shop_[0-9]+$/.*". Give the changefeed TOML exactly as TiCDC has it.'
                    ) from None
            if not _EXPRESSION.fullmatch(rule.topic):
                raise BadSettings(
                    f'the topic "{rule.topic}" of a dispatcher is neither a name nor an expression like '
                    "prefix_{schema}_{table}; TiCDC takes letters, digits, '.', '_' and '-' with {schema} before "
                    "{table}. Give the changefeed TOML exactly as TiCDC has it."
                )

    def topic_of(self, table: TableId) -> str:
        """Return the topic of a table's rows, and of TiCDC's DDL on a table that had this name before."""
        if self.options.messages.of_connector and table.table:
            return _FORBIDDEN.sub("_", f"{self.options.topic}.{table.schema}.{table.table}")
        rule = next(self._rules(table), None) if table.table else None
        return rule and _substituted(rule.topic, table) or self.options.topic

    def _rules(self, table: TableId) -> Iterator[TopicRule]:
        """Yield the rules that fit a table, of which the first decides."""
        for rule in self.options.rules:
            if decided(rule.matcher, (table.schema, table.table), self.options.case_sensitive):
                yield rule

    def partition_of(self, table: TableId, count: int) -> int | None:
        """Return the one of `count` partitions of its topic with a table's rows, None where a rule may spread them.

        TiCDC takes CRC-32 of schema and table modulo the count (`mq/dispatcher/partition/table.go`).
        """
        rule = next(self._rules(table), None)
        if rule is not None and rule.partition.lower() not in _WHOLE_TABLES:
            return None
        return zlib.crc32(f"{table.schema}{table.table}".encode()) % count

    def concerns(self, topic: str) -> bool:
        """Return whether a topic may be one of the feed's: the default one, or one that a rule can give.

        The patterns of the setting `topics`, where there are some, decide alone.
        """
        if self.options.topics:
            return any(fnmatchcase(topic, pattern) for pattern in self.options.topics)
        if topic == self.options.topic:
            return True
        if topic in _KAFKAS_OWN:
            return False
        if len(topic) >= _MOST_LETTERS:  # what was cut off could have been anything
            fixed = (rule.topic.partition("{")[0][:_MOST_LETTERS] for rule in self.options.rules if rule.topic)
            return any(map(topic.startswith, fixed))
        names = [topic, *(written for written, made in _NAMES.items() if made == topic)]
        return any(pattern.fullmatch(name) for pattern in self._expected for name in names)

    def rule_of_one_table(self, topic: str) -> str:
        """Return the rule by which a topic has rows of one table alone, in words; "" where it may have others' too.

        That is each of a connector's but the one of schema changes, and one that a dispatcher names after the table.
        """
        if self.options.messages.of_connector:
            own = topic != self.options.topic and topic.startswith(self.options.topic)
            return "a connector sends each table to a topic of its name" if own else ""
        fixed = {self.options.topic, *(rule.topic for rule in self.options.rules if "{" not in rule.topic)}
        for rule in self.options.rules if topic not in fixed else ():
            pattern = "".join(_EXPRESSED.get(part, re.escape(part)) for part in _PARTS.split(rule.topic))
            if re.fullmatch(pattern, topic):
                return f'the dispatcher with the topic "{rule.topic}" gives it' if "{table}" in rule.topic else ""
        return ""

    @cached_property
    def _expected(self) -> tuple[re.Pattern[str], ...]:
        """The forms of topics that the rules give: of a matcher `shop.*` with {schema} only those with `shop`."""
        patterns = set()
        for rule in self.options.rules:
            patterns |= {pattern for pattern in _topics_of(rule, self.options.case_sensitive) if rule.topic}
        return tuple(re.compile(pattern) for pattern in sorted(patterns))


def _substituted(expression: str, table: TableId) -> str:
    schema, name = (_FORBIDDEN.sub("_", part) for part in (table.schema, table.table))
    topic = expression.replace("{schema}", schema).replace("{table}", name)[:_MOST_LETTERS]
    return _NAMES.get(topic, topic)


def _topics_of(rule: TopicRule, case_sensitive: bool) -> set[str]:
    topic_patterns = set()
    for pattern in rule.matcher:
        text = pattern.strip()
        parts = split_pattern(text)
        if text.startswith("!") or len(parts) != 2:
            continue
        schema, table = ("".join(map(_letters, part)) for part in parts)
        if not case_sensitive:
            schema, table = f"(?i:{schema})", f"(?i:{table})"
        text = re.escape(rule.topic).replace(r"\{schema\}", schema).replace(r"\{table\}", table)
        topic_patterns.add(text)
    return topic_patterns


def _letters(piece: re.Match[str]) -> str:
    """Return the letters of a topic that a piece of a name's pattern can become."""
    kind = str(piece.lastgroup)
    if kind in ("any", "regex"):
        return "[A-Za-z0-9._-]*"
    if kind in ("one", "set"):
        return "[A-Za-z0-9._-]"
    quoted = {"double": '"', "back": "`"}.get(kind, "")
    text = piece[kind].replace(quoted * 2, quoted) if quoted else piece[kind]
    return re.escape(_FORBIDDEN.sub("_", text))
