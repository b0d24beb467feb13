"""Which rows of a table without key were delivered together.

Files come at least once: a writer that begins anew repeats rows in the order of their commit-ts. So within one sequence
of file numbers a commit-ts that steps back starts a new delivery. Rows that do not fit, and those of other windows,
tell that too, so all of them are looked at before any is left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.decoding import DELIVERY
from cdc_assets.decoding.read import Split
from cdc_assets.formats import COMMIT_TS, LINE
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso

__all__ = ["Deliveries", "sequence_of"]


def sequence_of(file: DataFile) -> tuple[object, ...]:
    """Return what files share whose numbers go on: the dates of one directory, not its versions and dispatchers."""
    return file.root, file.version, file.partition, file.dispatcher, len(file.path.rsplit("/", 1)[-1])


class Deliveries:
    """Numbers the deliveries of a step, whose files have to come in their order.

    Tables with a key need none, and without commit-ts there is nothing to go by: all rows are of delivery 0 then.
    `joints` are paths of files that begin with the very commit-ts of the window at which the one before them ended.
    """

    def __init__(self, step: ApplyRows) -> None:
        self._tell_apart = not step.schema.key and step.positions is None
        self._lo, self._hi = step.lo, step.hi
        self._last: dict[tuple[object, ...], tuple[Tso, int]] = {}
        self._count = 0
        self.joints: list[str] = []

    def number(self, split: Split) -> Split:
        """Add DELIVERY to the changes of a file."""
        size = split.changes.num_rows
        known = self._tell_apart and size
        numbers = pa.array(self._numbers(split)) if known else pa.repeat(pa.scalar(0, pa.int32()), size)
        return replace(split, changes=split.changes.append_column(DELIVERY, numbers))

    def _numbers(self, split: Split) -> npt.NDArray[np.int32]:
        sequence = sequence_of(split.file)
        order = np.argsort(split.changes.column(LINE).to_numpy(), kind="stable")
        ts = split.changes.column(COMMIT_TS).to_numpy()[order]
        before, current = self._last.get(sequence, (ts[0] + 1, 0))
        if ts[0] == before and self._lo < before <= self._hi:
            self.joints.append(split.file.path)
        back = np.diff(ts, prepend=before) < 0
        fresh = np.cumsum(back)
        numbers = np.where(fresh > 0, fresh + self._count, current)
        self._count += int(fresh[-1])
        self._last[sequence] = (int(ts[-1]), int(numbers[-1]))
        placed = np.empty(len(ts), np.int32)
        placed[order] = numbers
        return placed
