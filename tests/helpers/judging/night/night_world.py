"""Synthetic nights of 60 cases with the two-level noise of docs/verdicts.md, as the verdict on a night takes them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import lru_cache
from itertools import product

import numpy as np

from helpers.judging.case.evalue import evalue
from helpers.judging.case.verdict import Standing, Status
from helpers.judging.night.groups import NightCase, labels_of
from helpers.judging.statistics import EffectSize
from helpers.trainers.contract.case import Case

# Run to run coefficient of variation by the number of cards (docs/verdicts.md, "How much speeds vary").
SIGMA = {"1x1": 0.0007, "1x4": 0.0010, "1x8": 0.0052, "2x8": 0.0076, "4x8": 0.0115}
CASES = tuple(
    Case.parse(f"paddle-{model}-{precision}-bs{batch}-{nodes}-dali-static")
    for model, precision, batch, nodes in product(("resnet50v1.5", "vgg16"), ("fp32", "amp_o1"), (64, 128, 256), SIGMA)
)
BAD_RUN_SHARE = 0.02
GRID = np.linspace(-0.15, 0.15, 241)

Effect = Callable[[Case], float]


def sigma_of(case: Case) -> float:
    return SIGMA[f"{case.nodes}x{case.cards_per_node}"]


def tau_of(sigma: float) -> float:
    """As ``learn`` bounds it from below: the nights' own share, and 0.07% for what it does not know."""
    return math.hypot(0.4 * sigma, 0.0007)


@lru_cache
def _log_e(sigma: float) -> tuple[float, ...]:
    return tuple(math.log(evalue([x], sigma, tau_of(sigma))) for x in GRID)


def e_drop(x: float, sigma: float) -> float:
    return float(np.exp(np.interp(x, GRID, _log_e(sigma))))


def night(rng: random.Random, effect: Effect = lambda case: 0.0, machine: float = 0.0) -> list[NightCase]:
    """One night without a reference build: ``effect`` of the build on a case and ``machine`` on all, as fractions."""
    return [_case(case, rng, effect(case) + machine) for case in CASES]


def _case(case: Case, rng: random.Random, moved: float) -> NightCase:
    sigma = sigma_of(case)
    x = math.log1p(moved) + rng.gauss(0.0, 0.4 * sigma) + rng.gauss(0.0, sigma)
    if rng.random() < BAD_RUN_SHARE:
        x -= rng.expovariate(1 / (3 * sigma + 0.005))
    e_value = e_drop(x, sigma)
    standing = Standing(x, e_value, e_value, True, sigma, tau_of(sigma), 40, 1, effect=EffectSize(*[math.expm1(x)] * 3))
    return NightCase(case.id, "v100", labels_of(case, "v100"), Status.PASS, standing)
