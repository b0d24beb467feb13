"""What goes wrong with the rows of one table concerns that table, whatever it is: the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_assets.errors import CdcError, StepFailed
from cdc_assets.model.steps import ApplyRows

__all__ = ["staging"]


@contextmanager
def staging(step: ApplyRows) -> Iterator[None]:
    """Raise StepFailed for what is foreseen nowhere; an installation that lacks something concerns all tables."""
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise StepFailed(
            f"{step.life}: its rows from {step.lo} to {step.hi} cannot be prepared ({type(error).__name__}: {error}). "
            "Nothing of them was written, and other tables go on. Try again; if it fails again, report it with this "
            "text.",
            table=str(step.life),
        ) from error
