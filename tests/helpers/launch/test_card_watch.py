from __future__ import annotations

from collections.abc import Collection

import pytest

from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.meters import CHEAP_SURVEY_SECONDS, CardWatch
from helpers.machine.watch.processes import JobProcesses, Process, Processes

NOT_MEASURED = ContentionSample(None)


class Surveys(JobProcesses):
    """Takes ``cost_seconds`` of CPU time for each survey."""

    def __init__(self, cost_seconds: float) -> None:
        super().__init__(Processes(), "job")
        self.cost_seconds = cost_seconds
        self.spent_seconds = 0.0

    def survey(self) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        self.spent_seconds += self.cost_seconds
        return (), ()


class Meter:
    def __init__(self) -> None:
        self.surveyed_at: list[float] = []

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        if everyone is not None:
            self.surveyed_at.append(at)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        return NOT_MEASURED

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def surveys(cost_seconds: float, seconds: int) -> list[float]:
    now = [0.0]
    meter, job = Meter(), Surveys(cost_seconds)
    watch = CardWatch(meter, job, lambda: now[0], survey_seconds=2.0, spent=lambda: job.spent_seconds)
    for second in range(seconds):
        now[0] = float(second)
        watch.look(survey=False)
    return meter.surveyed_at


@pytest.mark.parametrize("cost_seconds", [0.0, CHEAP_SURVEY_SECONDS])
def test_a_cheap_survey_is_made_every_two_seconds(cost_seconds: float) -> None:
    assert surveys(cost_seconds, 9) == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_dear_survey_is_made_as_much_more_seldom() -> None:
    assert surveys(10 * CHEAP_SURVEY_SECONDS, 50) == [0.0, 20.0, 40.0]


def test_a_survey_that_is_asked_for_is_made_whatever_it_costs() -> None:
    meter, job = Meter(), Surveys(1.0)
    watch = CardWatch(meter, job, lambda: 1.0, survey_seconds=2.0, spent=lambda: job.spent_seconds)
    for _ in range(3):
        watch.look(survey=True)
    assert meter.surveyed_at == [1.0, 1.0, 1.0]
