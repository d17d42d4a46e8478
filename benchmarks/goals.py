"""What a simulation has to reach. Few nights or searches may miss a goal by chance, so each value has an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import betaincinv


@dataclass(frozen=True)
class Goal:
    """``value``, with its 95% interval, has to be at least ``limit``, or at most; NaN, of nothing, never is."""

    name: str
    value: float
    interval: tuple[float, float]
    limit: float
    at_most: bool = False
    # Of a share that is told in percent: what was counted, as ``298 of 299``.
    counted: str = ""

    @property
    def reached(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    @property
    def ruled_out(self) -> bool:
        """Whether the whole interval misses the goal; that of nothing does."""
        low, high = self.interval
        return not (low <= self.limit if self.at_most else high >= self.limit)

    @property
    def text(self) -> str:
        shown, limit = ("{:.2%}", f"{self.limit:.0%}") if self.counted else ("{:.3g}", f"{self.limit:g}")
        value, low, high = map(shown.format, (self.value, *self.interval))
        answer, how = "reached    " if self.reached else "NOT reached", "at most" if self.at_most else "at least"
        counted = f"{self.counted}, " if self.counted else ""
        between = f" (95% {low} to {high})" if self.interval[0] < self.interval[1] else ""
        chance = "" if self.reached or self.ruled_out else ", which may be chance"
        return f"{answer}  {self.name}: {counted}{value}{between}, {how} {limit}{chance}"


def share_goal(name: str, count: int, of: int, limit: float, *, told: bool = False) -> Goal:
    """At least ``limit`` of ``of`` have to be so; with ``told`` the text has both numbers."""
    return Goal(name, share(count, of), share_95(count, of), limit, counted=f"{count} of {of}" if told else "")


def missed(goals: Iterable[Goal], clearly: bool) -> bool:
    """Whether any goal is missed; ``clearly``: only where its whole interval lies beyond it."""
    return any(goal.ruled_out if clearly else not goal.reached for goal in goals)


def share(count: float, of: float) -> float:
    return count / of if of else math.nan


def share_95(count: int, of: int) -> tuple[float, float]:
    """The exact 95% interval of a share (Clopper and Pearson); NaN of nothing."""
    if not of:
        return math.nan, math.nan
    low = float(betaincinv(count, of - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 0.975)) if count < of else 1.0
    return low, high
