"""The setting `privacy`: by pattern over schema.table.column, how values are masked.

"shop.users.email": {hash: {key: {env: NAME}}}      "shop.cards.number": {redact: last4}
"*.*.phone": null                                    "shop.users.notes": drop
"shop.users.name": {constant: "***"}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cdc_assets.errors import BadSettings
from cdc_assets.model.masks import PARTS, Mask, MaskLine
from cdc_assets.settings.model import Model, from_environment

if TYPE_CHECKING:
    from cdc_assets.model.setting_patterns import SettingPattern
    from cdc_assets.model.table_history import TableHistory

_EXPECTED = (
    "expected null, drop, {hash: {key: {env: NAME}}}, {redact: last4}, {redact: domain}, {redact: length} or "
    "{constant: TEXT}"
)


class MaskSettings(Model):
    """One mask. The key of `hash` is only in the environment, never in a file of settings."""

    way: Literal["hash", "null", "redact", "drop", "constant"] = Field(description="How a value is masked.")
    detail: str = Field(default="", description="What `redact` keeps, or the text of `constant`.")
    variable: str = Field(default="", description="Environment variable with the key of `hash`.")

    def mask(self, pattern: str) -> Mask:
        """Return the mask with its key; raises BadSettings where the variable is not set, or empty."""
        if self.way != "hash":
            return Mask(self.way, self.detail, pattern=pattern)
        return Mask(self.way, key=key_of(self.variable, f'privacy."{pattern}".hash.key'), pattern=pattern)


def key_of(variable: str, where: str) -> bytes:
    """Return the key in an environment variable; raises BadSettings where it is not set, blank, or no text."""
    key = from_environment(variable, where)
    if not key.strip():
        raise BadSettings(f"{where}: the environment variable {variable} is empty. Set it to a key.")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise BadSettings(
            f"{where}: the environment variable {variable} is no UTF-8. Set it to a text, such as the bytes in hex."
        ) from None


def mask_of(pattern: object, value: Any) -> MaskSettings:
    """Return the mask of a line of the setting; raises ValueError with the forms that it may have."""
    line = MaskLine(str(pattern), Mask("null"))
    assert line.parts
    match value:
        case MaskSettings():
            return value
        case None | "null":
            return MaskSettings(way="null")
        case "drop":
            return MaskSettings(way="drop")
        case {"redact": part, **rest} if part in PARTS and not rest:
            return MaskSettings(way="redact", detail=part)
        case {"constant": str(text), **rest} if not rest:
            return MaskSettings(way="constant", detail=text)
        case {"hash": {"key": {"env": str(variable), **more}, **most}, **rest} if variable and not (
            rest or most or more
        ):
            return MaskSettings(way="hash", variable=variable)
        case {"hash": _}:
            raise ValueError(f'"{pattern}": the key of hash comes from the environment; {_EXPECTED}')
    raise ValueError(f'"{pattern}": {_EXPECTED}')


def mask_patterns(lines: Iterable[MaskLine]) -> Iterator[SettingPattern]:
    """Yield the lines as patterns: one fits a column that has its name, or that was renamed with its mask."""
    from cdc_assets.model.setting_patterns import SettingPattern  # loads what histories need

    for line in lines:
        yield SettingPattern("privacy", line.pattern, partial(_has_column, line), _columns)


def _has_column(line: MaskLine, table: TableHistory) -> bool:
    name = table.last_name or table.life.born_as
    return any(
        line.matches(name.schema, name.table, column.name)
        or (column.mask is not None and column.mask.pattern == line.pattern)
        for column in table.schema.columns
    )


def _columns(table: TableHistory) -> list[str]:
    return [f"{table.last_name or table.life.born_as}.{column.name}" for column in table.schema.columns]
