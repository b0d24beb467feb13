"""The base of all settings: frozen, with one message for all errors; values from the environment, merged mappings."""

from __future__ import annotations

import os
import zoneinfo
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from cdc_assets.errors import BadSettings
from cdc_assets.types.zones import zone_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


class Model(BaseModel):
    """Frozen settings that refuse unknown names; all errors are one BadSettings. `inside` is where they stand."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    inside: ClassVar[str] = ""

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _bad_settings(error, type(self)) from None


_SECRET_FIELDS = {
    "sink_uri",
    "storage_options",
    "catalog",
    "dump",
    "uri",
    "password",
    "privacy",
    "privacy_key",
    "kafka",
    "schema_registry",
    "ledger",
}


def _bad_settings(error: ValidationError, kind: type[Model]) -> BadSettings:
    """Return one message for all errors. Values that may hold secrets, as URIs may, are not repeated, nor long ones."""
    sentences, errors = [], error.errors(include_url=False)
    inner = {problem["loc"][:end] for problem in errors for end in range(len(problem["loc"]))}
    for problem in errors:
        if problem["loc"] and problem["loc"] in inner:
            continue  # of a list whose parts are wrong, only these are told
        place = [part for part in problem["loc"] if isinstance(part, (str, int))]
        where = ".".join([*([kind.inside] if kind.inside else []), *map(str, place)]) or "settings"
        if problem["type"] == "extra_forbidden":
            alike = get_close_matches(str(place[-1]), kind.model_fields, n=1, cutoff=0.8)
            meant = f" (did you mean {alike[0]}?)" if alike else ""
            sentences.append(f'unknown setting "{where}"{meant}; known are {", ".join(sorted(kind.model_fields))}')
        elif problem["type"] == "missing":
            sentences.append(f'setting "{where}" is missing')
        else:
            secret = _SECRET_FIELDS & {str(part) for part in place} or not _is_plain(problem["input"])
            came = "" if secret else f" is {problem['input']!r}"
            sentences.append(f'setting "{where}"{came}: {_expected(problem).rstrip(".")}')
    return BadSettings(". ".join(sentences) + ". Correct the settings.")


_SHAPES = {"tuple_type": "a list", "dict_type": "names with values", "model_type": "names with values"}


def _expected(error: ErrorDetails) -> str:
    """Return the fault of a value, in the words of YAML."""
    shape = _SHAPES.get(error["type"])
    return error["msg"].removeprefix("Value error, ") if shape is None else f"expected {shape}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (str, int, float, bool, type(None))) and "://" not in str(value)


def _known_zone(tz: str) -> str:
    try:
        zone_of(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("no time zone of that name; expected one like UTC, Asia/Shanghai or +08:00") from None
    return tz


Zone = Annotated[str, AfterValidator(_known_zone)]
"""The name of a time zone that is known."""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged, `over` first; nested mappings are merged too."""
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def resolved(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the mapping with every `{env: NAME}` replaced by that variable; raises BadSettings for an unset one."""
    return {name: _resolve(value, f"{where}.{name}") for name, value in section.items()}


def _resolve(value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"env"}:
        return resolved(value, where)
    return from_environment(str(value["env"]), where)


def from_environment(variable: str, where: str) -> str:
    """Return the value of a variable for the setting `where`; raises BadSettings if it is not set."""
    if variable not in os.environ:
        raise BadSettings(f"{where} is to come from the environment variable {variable}, which is not set. Set it.")
    return os.environ[variable]
