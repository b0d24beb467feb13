"""Types of the settings about layouts: lists of transforms, values of Iceberg's properties, what a delete does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer

from cdc_assets.model.layout import EVERY_TABLE, Transform, parse_transforms


def _transforms(given: Any) -> Any:
    """Return the transforms of a list, or of a text with commas between. YAML cuts `[bucket(16, id)]` at its comma."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list | tuple) or not all(isinstance(part, str | Transform) for part in given):
        raise ValueError("expected a list of columns and transforms of columns, such as [day(created_at), id]")
    transforms = parse_transforms(", ".join(map(str, given)))
    if not transforms:
        raise ValueError("an empty list asks for nothing; take the pattern out")
    return transforms


def _value(given: Any) -> Any:
    if isinstance(given, bool):
        return str(given).lower()
    return str(given) if isinstance(given, int | float) else given


Transforms = Annotated[
    tuple[Transform, ...],
    BeforeValidator(_transforms),
    PlainSerializer(lambda transforms: [str(transform) for transform in transforms]),
]
"""Transforms of columns, as a list or as one text."""

PropertyValue = Annotated[str, BeforeValidator(_value)]
"""A property's value as text; numbers, true and false are taken as Iceberg writes them."""

Deletes = Annotated[
    dict[str, Literal["soft", "hard"]],
    BeforeValidator(lambda given: {EVERY_TABLE: given} if isinstance(given, str) else given),
]
"""What a delete does to rows of mirrors, by pattern; one word counts for all."""
