"""The help: every command in one group with one line, only options that the command uses, examples that parse."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from cdc_assets.cli import commands
from cdc_assets.cli.help import FLAGS_HEAD, GROUPS, HelpCommand, HelpGroup
from cdc_assets.model.window_metrics import LAG_HEADS, LANDED_LAG_HEADS
from cdc_assets.report import columns

WIDTH = 80
"""Columns of a plain terminal."""


def leaves(group: HelpGroup, before: str = "") -> dict[str, HelpCommand]:
    leaf_commands: dict[str, HelpCommand] = {}
    for name, command in group.commands.items():
        if isinstance(command, HelpGroup):
            leaf_commands |= leaves(command, f"{before}{name} ")
        else:
            assert isinstance(command, HelpCommand)
            leaf_commands[f"{before}{name}"] = command
    return leaf_commands


LEAVES = leaves(commands)


def help_of(*names: str) -> str:
    return CliRunner().invoke(commands, [*names, "--help"], prog_name="cdc-assets").output


def test_every_column_of_the_lag_is_explained() -> None:
    assert {*LAG_HEADS, *LANDED_LAG_HEADS} < columns.LAG.keys()
    assert all(head in help_of("status") for head in (*columns.STATUS, *columns.LAG, *columns.LANDED))
    assert all(head in help_of("apply") for head in columns.OUTCOME)


def options_in(text: str) -> set[str]:
    return {word for word in text.replace(",", " ").split() if word.startswith("--")}


def test_every_command_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(commands.commands)


@pytest.mark.parametrize("names", [(), ("landing",)])
def test_the_list_has_one_line_for_each_command(names: tuple[str, ...]) -> None:
    group = commands.commands[names[0]] if names else commands
    assert isinstance(group, HelpGroup)
    lines = help_of(*names).partition("Examples:")[0].splitlines()
    for name, command in group.commands.items():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert line.endswith(command.short_help or "?")
        assert len(line) <= WIDTH


def takes_more(command: HelpCommand) -> bool:
    """Return whether a command takes any number of words, or needs an option."""
    return any(param.nargs != 1 or (isinstance(param, click.Option) and param.required) for param in command.params)


@pytest.mark.parametrize("name", [name for name in LEAVES if not takes_more(LEAVES[name])])
def test_a_word_that_belongs_to_no_option_is_refused_with_the_options_of_places(name: str) -> None:
    words = [param.metavar or "1" for param in LEAVES[name].params if isinstance(param, click.Argument)]
    result = CliRunner().invoke(commands, [*name.split(), *("1" for _ in words), "s3://feed"])
    assert (result.exit_code, '"s3://feed" belongs to no option' in result.output) == (2, True), result.output
    spellings = {spelling for param in LEAVES[name].params for spelling in param.opts}
    assert all(option in result.output for option in ("--sink-uri", "--settings", "--warehouse") if option in spellings)


def test_a_place_that_only_other_commands_take_is_refused_with_those_of_this_one() -> None:
    result = CliRunner().invoke(commands, ["inspect", "--warehouse", "lake"])
    assert (result.exit_code, "--sink-uri" in result.output, "--settings" in result.output) == (2, True, True)
    assert "--archive" not in result.output


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_the_examples_of_a_command_are_commands(name: str) -> None:
    command, words = LEAVES[name], name.split()
    assert command.examples
    for example in command.examples:
        assert shlex.split(example)[: len(words)] == words
        context = click.Context(command, info_name=name, resilient_parsing=True)
        command.parse_args(context, shlex.split(example)[len(words) :])
        assert context.args == []


def test_options_that_a_command_does_not_use_are_not_shown() -> None:
    assert not options_in(help_of("as-of")) & {"--sink-uri", "--config", "--key", "--decode"}
    assert "--decode" not in options_in(help_of("inspect"))
    assert "--decode" in options_in(help_of("apply"))
    assert not options_in(help_of("release").partition("Examples:")[0]) & {"--kafka", "--tz", "--history"}


def test_what_describes_a_changefeed_is_shown_apart() -> None:
    before, head, behind = help_of("apply").partition(FLAGS_HEAD)
    assert head
    assert {"--settings", "--warehouse", "--quarantine"} <= options_in(before)
    assert {"--sink-uri", "--config", "--kafka", "--initial"} <= options_in(behind)
