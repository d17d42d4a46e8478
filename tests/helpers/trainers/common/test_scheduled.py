"""The rate of each step, the smoothed labels."""

from __future__ import annotations

import math
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.scheduled import ScheduledSettings
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

COSINE = Case.parse("tensorflow-resnet50v1.5-fp32-bs128-1x1-dali")
STEPS = Case.parse("tensorflow-resnet50v1.5-fp32-bs128-1x1-native")


def read(case: Case = COSINE, **changed: Any) -> ScheduledSettings:
    return ScheduledSettings.of(
        JobSpec("j", case, 0, "r", "gpu", 0, 1, settings={**settings_for(case, "gpu"), **changed})
    )


def test_the_rate_rises_from_zero_in_equal_steps_and_follows_half_a_cosine() -> None:
    settings = read(learning_rate=0.8, learning_rate_warmup_steps=4, learning_rate_decay_steps=100)
    assert [settings.rate(step, 0) for step in range(4)] == pytest.approx([0.0, 0.2, 0.4, 0.6])
    assert settings.rate(4, 0) == pytest.approx(0.4 * (1 + math.cos(math.pi * 0.04)))
    assert settings.rate(50, 3) == pytest.approx(0.4)
    assert settings.rate(100, 9) == settings.rate(5000, 9) == pytest.approx(0.0)


def test_without_a_cosine_the_rate_falls_at_the_epochs() -> None:
    settings = read(STEPS, learning_rate=0.1, learning_rate_boundaries=[2, 5], learning_rate_decay=0.1)
    assert [settings.rate(10**6, epoch) for epoch in (0, 1, 2, 4, 5, 90)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


def test_the_targets_of_all_classes_sum_to_one() -> None:
    right, other = read(label_smoothing=0.1).label_targets
    assert (right, other) == pytest.approx((0.9001, 0.0001))
    assert right + 999 * other == pytest.approx(1.0)
    assert read(label_smoothing=0.0).label_targets == (1.0, 0.0)
