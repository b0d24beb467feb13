"""The help of commands: grouped by what they are for, with the options that a command uses, and examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import click

from cdc_assets.report.columns import Columns

FLAGS_HEAD = "A changefeed without a settings file"
"""Heading of the options that describe a changefeed."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Look": ("inspect", "plan", "status", "query", "explain", "verify", "journal", "files", "metrics"),
    "Run": ("apply", "rebuild", "maintain", "ui", "demo", "setup"),
    "Decide": ("release", "quarantine", "landing"),
    "Time": ("as-of", "cut", "extract"),
    "Erase": ("forget", "purge"),
}
"""The commands by what they are for, in the order of the help."""

_PLACES = (
    ("--sink-uri", "URI", "a feed"),
    ("--settings", "FILE", "a settings file"),
    ("--warehouse", "DIR", "a lake"),
    ("--directory", "DIR", "a demo's directory"),
)
"""Options that say where something is, each with its value and what it names."""

Flags = Literal["all", "named", "none"]
"""The options that describe a changefeed, as a command's help shows them: all, by the first of them, or none."""


class ChangefeedOption(click.Option):
    """An option that describes a changefeed, as a settings file does."""


class HelpCommand(click.Command):
    """A command with its options in sections and with examples.

    Args:
        examples: Command lines, without the program's name.
        flags: How the help shows the options that describe a changefeed.
        uses: Names of those that the command uses for itself: they are shown among its own.
        columns: Columns of the tables that it prints, by the heading of their section.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        flags: Flags = "named",
        uses: Sequence[str] = (),
        columns: Mapping[str, Columns] = {},
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = tuple(examples)
        self.flags = flags
        self.uses = frozenset(uses)
        self.columns = columns

    allow_extra_args = True
    """Words that belong to no option reach `parse_args`, which says where they belong."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of a command line.

        Raises UsageError for words that belong to no argument or option, and for a place that other commands take.
        """
        options = {spelling for param in self.params for spelling in param.opts}
        places = [f"{what} as {option} {value}" for option, value, what in _PLACES if option in options]
        ways = f"Give {', '.join(places) or 'options only'}."
        try:
            words = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in {option for option, _, _ in _PLACES}:
                raise
            raise click.UsageError(f"{error.option_name} is no option of {ctx.command_path}. {ways}", ctx) from None
        if words and not ctx.resilient_parsing:
            text = ", ".join(f'"{word}"' for word in words)
            raise click.UsageError(f"{text} belongs to no option. {ways}", ctx)
        return words

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options, and below them those that describe a changefeed."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        own = [option for option in options if not isinstance(option, ChangefeedOption) or option.name in self.uses]
        _write_options(ctx, formatter, "Options", own)
        described = [option for option in options if option not in own]
        if self.flags == "all":
            _write_options(ctx, formatter, FLAGS_HEAD, described)
        elif self.flags == "named" and described:
            with formatter.section(FLAGS_HEAD):
                text = "Its sink URI, with the other options that `cdc-assets apply --help` shows under this heading."
                formatter.write_dl([("--sink-uri URI", text)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the meaning of printed columns, and the examples."""
        for head, meanings in self.columns.items():
            with formatter.section(head):
                formatter.write_dl(list(meanings.items()))
        _write_examples(formatter, self.examples)


class HelpGroup(click.Group):
    """Commands by what they are for, each with one line, and examples.

    Args:
        examples: Command lines, without the program's name.
        groups: Names of commands by heading.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        groups: Mapping[str, Sequence[str]],
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.examples = tuple(examples)
        self.groups = groups

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of commands."""
        width = max(map(len, self.commands))
        for head, names in self.groups.items():
            with formatter.section(head):
                formatter.write_dl([(name.ljust(width), self.commands[name].get_short_help_str()) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(formatter, self.examples)


def command(
    name: str,
    summary: str,
    *examples: str,
    flags: Flags = "named",
    uses: Sequence[str] = (),
    columns: Mapping[str, Columns] = {},
) -> Callable[[Callable[..., Any]], HelpCommand]:
    """Return the decorator of a command; `summary` is its line in the list of commands."""
    return click.command(
        name, HelpCommand, short_help=summary, examples=examples, flags=flags, uses=uses, columns=columns
    )


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, head: str, options: Iterable[click.Option]
) -> None:
    records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(head):
            formatter.write_dl(records)


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':>{formatter.current_indent}}cdc-assets {example}\n")
