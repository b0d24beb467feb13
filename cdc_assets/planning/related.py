"""The steps that a table's steps depend on. Pure."""

from __future__ import annotations

from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.planning.plan import Plan, step_order


def related(planned: Plan, life: Life, limit: Progress) -> tuple[Step, ...]:
    """The steps up to `limit` of a life and of every life whose names or rows it depends on, in TSO order."""
    lives = planned.history.lives
    group: set[Life] = set()
    border = [life]
    while border:
        one = border.pop()
        if one in group:
            continue
        group.add(one)
        names = {name.folded for name, _, _ in lives[one].names}
        others = {other for _, other in lives[one].exchanges}
        border += [
            other
            for other, table in lives.items()
            if other in others or names & {name.folded for name, _, _ in table.names}
        ]
    last = (limit.tso, int(limit.phase))
    return tuple(
        step
        for step in planned.steps
        if step.life in group
        and (
            step_order(step)[:2] <= last
            or (step.life == life and isinstance(step, ApplyRows) and step.lo < limit.tso and limit.phase)
        )
    )
