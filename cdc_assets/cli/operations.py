"""Commands of operations, each built from its value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import HelpCommand, command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    confirm,
    decode_option,
    feed_options,
    feed_options_beside_name,
    lake_of,
    lake_options,
    opened,
    refuse_empty_value,
    run_name,
    show_grid,
    show_json,
    target_of,
    yes_option,
)
from cdc_assets.model.reports import Aside, Grid
from cdc_assets.operations.requests import REQUIRED, Operation, OperationRun, Request

if TYPE_CHECKING:
    from cdc_assets.operations.lake_pipeline import LakePipeline


def operation_command(operation: Operation[Any]) -> HelpCommand:
    """Return the command of an operation: its request as options, its text as help, and its report printed."""
    fields = {field.name: field for field in dataclasses.fields(operation.request)}
    described = {f"request_{name}": field for name, field in fields.items() if field.metadata["place"] != "form"}

    def run(as_json: bool, debug: bool, yes: bool = False, **arguments: Any) -> int:
        request = operation.request(**{field.name: arguments.pop(name) for name, field in described.items()})
        request.check()

        def say(sentence: str) -> None:
            if not as_json:
                click.echo(sentence, err=True)

        operation_run = OperationRun(run_name(), say, lambda question: confirm(question, yes), attended=True)
        code, documents, every_part = DONE, list[Any](), list[Any]()
        for opening in _opened(operation, request, arguments):
            parts_done = list[Any]()
            with opening as pipeline:
                for part in operation.carry_out(pipeline, operation_run, request):
                    parts_done.append(part)
                    for line in () if as_json else operation.lines(part):
                        click.echo(line)
            report = operation.report(pipeline.settings.name, request, parts_done)
            code = max(code, DONE if report.complete else HELD)
            for shown in () if as_json else report.lines:
                if isinstance(shown, Grid):
                    show_grid(shown.heads, shown.rows)
                else:
                    click.echo(shown, err=isinstance(shown, Aside))
            documents.append(report.document)
            every_part += parts_done
        request.check_done(every_part)
        if as_json:
            show_json(documents[0] if operation.concerns else [entry for document in documents for entry in document])
        return code

    run.__doc__ = operation.text
    wrapped: Any = lake_options(required=True)(common_options(run))
    wrapped = (feed_options_beside_name if "name" in fields else feed_options)(wrapped)
    wrapped = decode_option(wrapped) if operation.decodes else wrapped
    wrapped = yes_option(wrapped) if "confirmed" in fields else wrapped
    for name, field in reversed(described.items()):
        wrapped = _parameter(name, field)(wrapped)
    uses = ("name",) if "name" in fields else ()
    return command(operation.name, operation.summary, *operation.examples, uses=uses)(wrapped)


def _parameter(name: str, field: dataclasses.Field[Any]) -> Callable[[Any], Any]:
    """Return the decorator that adds the option, or the argument, of a request's field."""
    about, several, required = field.metadata, field.default == (), field.default is REQUIRED
    if about["argument"]:
        return click.argument(name, nargs=-1 if several else 1, metavar=about["metavar"] or field.name.upper())
    kinds: dict[type, Any] = {
        float: click.FloatRange(about["least"], about["most"]),
        int: click.IntRange(about["least"], about["most"]),
        Path: click.Path(exists=True, dir_okay=False),
        str: click.Choice(about["choices"]) if about["choices"] else None,
    }
    details: dict[str, Any] = {"help": about["description"], "metavar": about["metavar"], "required": required}
    details |= {"is_flag": True} if field.default is False else {"multiple": several, "type": kinds[about["value"]]}
    details |= {} if required or several else {"default": field.default}
    flag = about["flag"] or f"--{field.name.replace('_', '-')}"
    return click.option(flag, name, show_default=bool(about["choices"]), callback=refuse_empty_value, **details)


def _opened(
    operation: Operation[Any], request: Request, arguments: dict[str, Any]
) -> Iterator[AbstractContextManager[LakePipeline]]:
    """Yield an opener for each changefeed on which an operation is carried out. Raises BadSettings."""
    if operation.concerns:
        yield opened(operation.concerns, arguments, is_there=operation.in_lake)
        return
    from cdc_assets.operations.opening import open_pipeline, refuse_missing

    target = target_of(arguments)
    lake = lake_of(target)
    for settings in target.changefeeds:
        request.check_settings(settings)
        if operation.in_lake:
            refuse_missing(lake)
        yield open_pipeline(settings, lake)
