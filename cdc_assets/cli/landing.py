"""Commands about messages of topics: what waits for a decision, and the decisions."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import HelpGroup, command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    feed_options,
    lake_and_names,
    lake_options,
    opened,
    run_name,
    show_grid,
    show_json,
)

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline

_WHO = click.option("--who", default="", help="Who decides, for the record.")


@click.group(
    cls=HelpGroup,
    groups={"Commands": ("list", "release", "accept-loss", "declare-dead")},
    short_help="Messages of topics that cannot be landed, and decisions.",
    examples=("landing list --warehouse ./lake", "landing release shop.orders 0 1234 --who ann"),
)
def landing() -> None:
    """Decide what stops the landing of topics, or holds a table for one message. Then run apply again.

    Errors and holds name the command. Every decision is kept in the landing, with who and when.
    """


@command(
    "list",
    "Messages that cannot be read, and every decision.",
    "landing list --warehouse ./lake",
    flags="none",
    uses=("name",),
)
@feed_options
@lake_options(required=True)
@common_options
def list_(as_json: bool, debug: bool, **arguments: Any) -> int:
    """Show messages that cannot be read, with their bytes, and every decision.

    Needs the lake only (--warehouse; --name for one changefeed of it).
    """
    from cdc_assets.operations.decide_landed import decided

    done, unread = decided(*lake_and_names(arguments))
    if as_json:
        show_json(
            {"unread": [dataclasses.asdict(o) for o in unread], "decisions": [dataclasses.asdict(o) for o in done]}
        )
    else:
        for message in unread:
            click.echo(f"{message.changefeed}: {message.place}: {message.reason}")
            click.echo(f"    key {message.key}, value {message.value}")
            for way in message.ways:
                click.echo(f"  way out: {way}")
        heads = ("changefeed", "place", "decision", "who", "when")
        rows = [(o.changefeed, o.place, o.what, o.who, o.when) for o in done]
        show_grid(heads, rows) if rows else click.echo("No decisions are recorded.")
    return HELD if unread else DONE


@command(
    "release",
    "Skip a message that cannot be read, or read it again.",
    "landing release shop.orders 0 1234 --who ann",
    "landing release shop.orders 0 1234 --again",
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--again", is_flag=True, help="Read the message again, once its cause is fixed.")
@_WHO
@feed_options
@lake_options(required=True)
@common_options
def release(as_json: bool, debug: bool, topic: str, partition: int, offset: int, again: bool, **arguments: Any) -> int:
    """Skip a message that cannot be read, so that it holds nothing any more.

    With --again it is read again instead. A table that is applied beyond its rows is held until it is rebuilt.
    """
    from cdc_assets.model.offsets import Partition
    from cdc_assets.operations.decide_landed import release_message

    with _opened(arguments) as (pipeline, run):
        place = Partition(topic, partition)
        late = release_message(pipeline, place, offset, again=again, who=arguments["who"], run=run)
    names = [str(table) for table in late]
    decision_text = "read again" if again else "passed over"
    _say(
        as_json, f"{place} offset {offset} is {decision_text}.", {"place": f"{place} offset {offset}", "rebuild": names}
    )
    if names and not as_json:
        click.echo(f"Applied beyond its rows already; rebuild: cdc-assets rebuild {shlex.join(names)}")
    return HELD if names else DONE


@command(
    "accept-loss",
    "Accept that messages are lost, and land those behind them.",
    "landing accept-loss shop.orders 0 100 199 --who ann",
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("first", type=click.IntRange(min=0))
@click.argument("last", type=click.IntRange(min=0))
@_WHO
@feed_options
@lake_options(required=True)
@common_options
def accept_loss(as_json: bool, debug: bool, topic: str, partition: int, first: int, last: int, **arguments: Any) -> int:
    """Accept that the messages from offset FIRST to LAST are lost, and land those behind them.

    Tables of the topic may lack changes from then on, and every listing says so. Import them anew from a dump.
    """
    from cdc_assets.model.offsets import OffsetRange, Partition
    from cdc_assets.operations.decide_landed import accept_loss as decide

    lost = OffsetRange(Partition(topic, partition), first, max(first, last + 1))
    with _opened(arguments, is_there=False) as (pipeline, run):  # the first landing may have stopped at it
        decide(pipeline, lost, arguments["who"], run)
    _say(as_json, f"The loss of {first}..{last} of {lost.partition} is accepted.", {"lost": str(lost)})
    return DONE


@command(
    "declare-dead",
    "Declare that a partition gets no more messages.",
    "landing declare-dead shop.orders 3 --who ann",
)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@_WHO
@feed_options
@lake_options(required=True)
@common_options
def declare_dead(as_json: bool, debug: bool, topic: str, partition: int, **arguments: Any) -> int:
    """Declare that a PARTITION of a TOPIC gets no more messages: the checkpoint does not wait for it.

    Ends by itself if a message comes after all.
    """
    from cdc_assets.model.offsets import Partition
    from cdc_assets.operations.decide_landed import declare_dead as decide

    place = Partition(topic, partition)
    with _opened(arguments) as (pipeline, run):
        decide(pipeline, place, arguments["who"], run)
    _say(as_json, f"{place} is declared dead.", {"dead": str(place)})
    return DONE


@contextmanager
def _opened(arguments: dict[str, Any], *, is_there: bool = True) -> Iterator[tuple[Pipeline, str]]:
    """Open the one changefeed that a decision concerns, with the name of this run."""
    with opened("A decision concerns", arguments, is_there=is_there) as pipeline:
        yield pipeline, run_name()


def _say(as_json: bool, sentence: str, value: dict[str, Any]) -> None:
    show_json(value) if as_json else click.echo(f"{sentence} The next `apply` goes on.")


for each in (list_, release, accept_loss, declare_dead):
    landing.add_command(each)
