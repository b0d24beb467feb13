"""Which files of the package an engineer opens who follows something on its way: those whose functions run."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import cdc_assets

__all__ = ["files_of"]

_T = TypeVar("_T")
_PACKAGE = f"{Path(cdc_assets.__file__).parent}/"
_NOT_COUNTED = re.compile(r"model/|errors\.py|types/|formats/(?:.*/)?(?:(?:\w+_)?records|words)\.py")


def files_of(work: Callable[[], _T]) -> tuple[set[str], _T]:
    """Return the files whose functions ran, in any thread that `work` began too, and what `work` returns.

    Values that cross a stage, errors and tables of types are not counted, nor is what an import runs. What a protocol
    reads is such a value too: records, and what makes them of bytes, of which a protocol knows no more than of these.
    """
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            seen.add(frame.f_code.co_filename)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    inside = {name.removeprefix(_PACKAGE) for name in seen if name.startswith(_PACKAGE)}
    return {name for name in inside if not _NOT_COUNTED.match(name)}, result
