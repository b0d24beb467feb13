"""The page `docs/settings.md`: every setting of `changefeeds.yaml` with its default and meaning.

`python -m cdc_assets.report.settings_page > docs/settings.md` writes the page anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from cdc_assets.settings.config import Settings
from cdc_assets.settings.model import Model
from cdc_assets.settings.sections import HistorySettings

_PAGE = """\
# Settings

All settings of `changefeeds.yaml`, the file that the environment variable `CDC_ASSETS_CONFIG` names. The function
`build_changefeed_defs` and the component take those of a changefeed by the same names. Paths are relative to the file,
those of the function to the working directory. This page is generated from the code
(`python -m cdc_assets.report.settings_page`); a test compares the two.

```yaml
lake:
  warehouse: ./lake
changefeeds:
  - name: shop
    sink_uri: "s3://bucket/prefix?protocol=csv"
    changefeed_config: changefeed.toml
```
"""

_UNDER_PATTERNS = {"changefeeds[].history": HistorySettings}
"""Settings whose values are checked by pattern, so that their field does not name the section's class."""


def settings_page() -> str:
    """Return the page as Markdown: for each section a heading, its purpose, and a table of its settings."""
    places: dict[type[Model], str] = {}
    for place, section in _sections("", Settings):
        places.setdefault(section, place)  # a section that is used twice is listed where it comes first
    return _PAGE + "".join(_section(place, section) for section, place in places.items())


def _sections(place: str, section: type[Model]) -> Iterator[tuple[str, type[Model]]]:
    """Yield a section and those inside it, each with its path in the file, such as `changefeeds[].cuts`."""
    yield place, section
    for name, field in section.model_fields.items():
        path = f"{place}.{name}".removeprefix(".")
        for inner, suffix in _models(field.annotation):
            yield from _sections(path + suffix, inner)
        if path in _UNDER_PATTERNS:
            yield f"{path}.PATTERN", _UNDER_PATTERNS[path]


def _models(annotation: Any, suffix: str = "") -> Iterator[tuple[type[Model], str]]:
    """Yield the classes of settings in a type, with the path suffix of items of a list or values of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        if annotation.__name__ != "MaskSettings":  # one line of `privacy`, which that field describes
            yield annotation, suffix
        return
    origin = get_origin(annotation)
    inside = "[]" if origin is tuple else ".NAME" if origin is dict else ""
    for part in get_args(annotation):
        yield from _models(part, suffix + inside)


def _section(place: str, section: type[Model]) -> str:
    lines = [
        "",
        f"## {f'`{place}`' if place else 'The file'}",
        "",
        section.__doc__ or "",
        "",
        "| setting | default | meaning |",
        "| --- | --- | --- |",
    ]
    for name, field in section.model_fields.items():
        default = "required" if field.is_required() else _shown(field.get_default(call_default_factory=True))
        lines.append(f"| `{name}` | {default} | {(field.description or '').replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def _shown(default: Any) -> str:
    if default is None or isinstance(default, Model) or default in ((), {}, ""):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
