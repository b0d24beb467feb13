"""The commands with which a person decides about messages of topics."""

from __future__ import annotations

from cdc_assets.model.offsets import OffsetRange, Partition

__all__ = ["accept_loss_command", "declare_dead_command", "release_command"]

_COMMAND = "cdc-assets landing"


def release_command(partition: Partition, offset: int, *, again: bool = False) -> str:
    """Return what goes past a message that cannot be read, or reads it once more."""
    return f"{_COMMAND} release {partition.topic} {partition.number} {offset}{' --again' if again else ''}"


def accept_loss_command(lost: OffsetRange) -> str:
    """Return what lands the messages behind some that are gone."""
    return f"{_COMMAND} accept-loss {lost.partition.topic} {lost.partition.number} {lost.start} {lost.stop - 1}"


def declare_dead_command(partition: Partition) -> str:
    """Return what lets the fence go past a partition of an archive to which nothing comes any more."""
    return f"{_COMMAND} declare-dead {partition.topic} {partition.number}"
