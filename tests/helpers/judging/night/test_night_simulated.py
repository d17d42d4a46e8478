"""How good the verdict on a night is: nights of 60 cases, no reference build."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from helpers.judging.night.verdict import NightVerdict, judge_night
from tests.helpers.judging.night.night_world import Effect, night

pytestmark = pytest.mark.slow


def nights(count: int, effect: Effect = lambda each: 0.0, drift: float = 0.0, machine: float = 0.0) -> Counter[str]:
    """How often which group was told (``quiet`` for none), over ``count`` nights from one seed."""
    rng = random.Random(20240506)
    told: Counter[str] = Counter()
    for _ in range(count):
        found = judge_night(night(rng, effect, machine + rng.gauss(0.0, drift)), {})
        assert isinstance(found, NightVerdict)
        told[found.groups[0].alarm.label if found.groups else found.reason.code] += 1
    return told


def test_nights_on_which_nothing_moved_are_quiet() -> None:
    assert nights(200) == {"quiet": 200}


def test_the_drift_of_a_machine_is_rarely_told() -> None:
    assert nights(150, drift=0.002)["quiet"] >= 0.98 * 150


# A larger drop is easier to find and harder to name, and it takes longer to.
@pytest.mark.parametrize(("drop", "share", "count"), [(0.007, 0.85, 40), (0.02, 0.99, 15)])
def test_all_amp_cases_slower_are_found_under_their_name(drop: float, share: float, count: int) -> None:
    told = nights(count, lambda each: -drop * each.precision.is_amp)
    assert told["amp_o1"] >= share * count


def test_all_multi_card_cases_slower_are_found_under_their_name() -> None:
    assert nights(15, lambda each: -0.02 * (each.cards > 1))["multi-card"] >= 14


def test_one_model_slower_is_found_under_its_name() -> None:
    assert nights(30, lambda each: -0.01 * (each.model.value == "vgg16"))["vgg16"] >= 29


def test_a_slow_machine_is_all_cases() -> None:
    assert nights(20, machine=-0.01) == {"": 20}


def test_a_fast_machine_is_told_too() -> None:
    assert nights(30, machine=0.02) == {"machine-suspect": 30}
