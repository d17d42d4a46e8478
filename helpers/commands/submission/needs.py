"""Computes what the cases of a command need from a cluster: nodes, cards and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from helpers.history.results import RunResult
from helpers.plan.case_plan import SuiteCase
from helpers.plan.night_budget import NightBudget
from helpers.plan.perf_yaml import Config
from helpers.plan.run_time import published_run_seconds
from helpers.trainers.contract.errors import ConfigError

# The factor by which a night may exceed the estimate: a slow node, a repeated run.
_MARGIN = 1.5
_LEAST_MINUTES = 10
# A suspect is mostly settled by 2 to 6 pairs (perf.yaml, budgets.pairs).
_PAIRS_OF_A_SUSPECT = 6
# The share of cases that are suspected in a night.
_SUSPECTED = 0.1

RunBefore = Callable[[SuiteCase], "RunResult | None"]


@dataclass(frozen=True, order=True)
class Shape:
    """Nodes and cards on each of them."""

    nodes: int
    cards: int

    def __str__(self) -> str:
        return f"{self.nodes}x{self.cards}"

    @classmethod
    def of(cls, case: SuiteCase) -> Shape:
        return cls(case.case.nodes, case.case.cards_per_node)

    @classmethod
    def for_all(cls, cases: Iterable[SuiteCase]) -> Shape:
        """The smallest shape in which each of the cases can run."""
        shapes = [cls.of(case) for case in cases]
        return cls(max(each.nodes for each in shapes), max(each.cards for each in shapes))


def by_shape(cases: Iterable[SuiteCase]) -> dict[Shape, tuple[SuiteCase, ...]]:
    """The cases of each shape, the smallest shape first."""
    found: dict[Shape, list[SuiteCase]] = {}
    for case in cases:
        found.setdefault(Shape.of(case), []).append(case)
    return {shape: tuple(found[shape]) for shape in sorted(found)}


def minutes_for(cases: Iterable[SuiteCase], config: Config, before: RunBefore) -> int:
    """The time limit of a job that measures the cases one after the other."""
    return _with_margin(sum(case_seconds(case, config, before(case)) for case in cases))


def minutes_for_runs(
    cases: Iterable[SuiteCase], runs: Callable[[SuiteCase], int], config: Config, before: RunBefore
) -> int:
    """The time limit of a job that makes so many runs of each case, one after the other."""
    return _with_margin(sum(runs(case) * run_seconds(case, config, before(case)) for case in cases))


def _with_margin(seconds: float) -> int:
    return max(_LEAST_MINUTES, math.ceil(_MARGIN * seconds / 60))


def minutes_of_night(night: NightBudget) -> int:
    """The time limit of a job that measures a night of limited time, with its last confirmation and its reports."""
    return math.ceil(night.minutes) + _LEAST_MINUTES


def case_seconds(case: SuiteCase, config: Config, before: RunResult | None) -> float:
    """How long a case takes in a night: all screening runs that it may have, and the pairs of one suspect in ten."""
    budget = config.budgets.of(case.case.id)
    runs = max(case.protocol.runs, budget.screen_runs) + _SUSPECTED * 2 * _PAIRS_OF_A_SUSPECT
    return runs * run_seconds(case, config, before)


def run_seconds(case: SuiteCase, config: Config, before: RunResult | None) -> float:
    """The estimated time of one run: that of the earlier run, else by the published figure. Raises ConfigError without
    either."""
    if before is not None and before.wall_seconds > 0:
        return before.wall_seconds
    if (estimate := published_run_seconds(case, config.limits)) is None:
        raise ConfigError(
            f"case {case.case.id}",
            got="no earlier run in the history and no published figure",
            expected="one of them, by which its time is known",
            remedy="State the job's time: --time",
        )
    return estimate


def parse_shape(text: str) -> Shape:
    """Parse a shape such as ``4x8``. Raises ValueError."""
    nodes, _, cards = text.partition("x")
    if not (nodes.isdecimal() and cards.isdecimal() and 1 <= int(nodes) <= 1024 and 1 <= int(cards) <= 1024):
        raise ValueError(f"{text!r}: expected NODESxCARDS, as 4x8")
    return Shape(int(nodes), int(cards))


def parse_minutes(text: str) -> int:
    """Parse minutes or ``H:MM``. Raises ValueError."""
    hours, colon, minutes = text.rpartition(":")
    if not minutes.isdecimal() or (colon and not hours.isdecimal()):
        raise ValueError(f"{text!r}: expected minutes, or H:MM")
    total = 60 * int(hours or 0) + int(minutes)
    if not 1 <= total <= 60 * 24 * 30:
        raise ValueError(f"{text!r}: expected 1 minute to 30 days")
    return total
