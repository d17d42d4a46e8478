"""What a measuring rule gives for a run: images/s, and which records it is of."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.logs.record import Field, LogRun


@dataclass(frozen=True)
class Used:
    """``samples_per_s`` of all cards from ``records`` (or steps, epochs, printed lines); ``left_out`` says which others
    were not used and why."""

    samples_per_s: float
    records: int
    left_out: tuple[str, ...] = ()


def leading(run: LogRun, field: Field, below: float) -> int:
    """How many records stand before the first one whose ``field`` is ``below`` or above; all where there is none."""
    if field not in run.columns:
        return 0
    count = 0
    for block in run.column(field).blocks():
        reached = (block >= below).nonzero()[0]
        if len(reached):
            return count + int(reached[0])
        count += len(block)
    return count


def told(count: int, what: str) -> tuple[str, ...]:
    """``("10 of warm-up",)``, nothing for none."""
    return (f"{count} {what}",) if count else ()
