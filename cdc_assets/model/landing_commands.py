"""The commands with which a person decides about messages of topics."""

from __future__ import annotations

from cdc_assets.model.offsets import OffsetRange, Partition

_COMMAND = "cdc-assets landing"


def release_command(partition: Partition, offset: int, *, again: bool = False) -> str:
    """Return the command that skips a message that cannot be read, or with `again` reads it once more."""
    return f"{_COMMAND} release {partition.topic} {partition.number} {offset}{' --again' if again else ''}"


def accept_loss_command(lost: OffsetRange) -> str:
    """Return the command that accepts lost messages, so that landing goes on behind them."""
    return f"{_COMMAND} accept-loss {lost.partition.topic} {lost.partition.number} {lost.start} {lost.stop - 1}"


def declare_dead_command(partition: Partition) -> str:
    """Return the command by which the fence stops waiting for a partition that gets no more messages."""
    return f"{_COMMAND} declare-dead {partition.topic} {partition.number}"
