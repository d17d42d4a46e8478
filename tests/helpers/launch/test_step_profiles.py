"""What the ranks' profilers found in a run, read back; why, if one found nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.step_profiles import device_time_facts, step_profiles
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, Phase, StepProfile

PROFILE = StepProfile("paddle", 0, 2, 0.1, 0.1, {Phase.FORWARD: 0.1}, 0.0, (), 1, "a profiler")


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job of two ranks, of which the first has a profile."""
    case = Case.parse("paddle-resnet50v1.5-fp32-bs1-1x2-synthetic-dynamic")
    spec = JobSpec("job", case, 0, str(tmp_path), "cpu", 0, 1, explained_steps=2)
    spec.spec_path.write_text(spec.to_json())
    spec.step_profile_path(0).write_text(PROFILE.to_json())
    return spec


def test_the_profiles_of_all_ranks_are_read(job: JobSpec, tmp_path: Path) -> None:
    second = replace(PROFILE, rank=1)
    job.step_profile_path(1).write_text(second.to_json())
    assert step_profiles(tmp_path) == (PROFILE, second)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "the process ended, or was ended, before its profiler had answered"),
        ("", "its file is empty, as on a full disk"),
        ("{", "expected a JSON object"),
        # Another rank's file.
        (PROFILE.to_json(), "field 'rank': got 0, expected 1"),
        (NoProfile("paddle", 1, "a profiler", "it named nothing").to_json(), "it named nothing"),
    ],
)
def test_a_rank_without_a_profile_says_why(job: JobSpec, tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        job.step_profile_path(1).write_text(text)
    first, second = step_profiles(tmp_path)
    assert first == PROFILE
    assert isinstance(second, NoProfile) and reason in second.reason


def _timed_job(folder: Path, profiled_steps: int = 5) -> JobSpec:
    case = Case.parse("tensorflow-resnet50v1.5-fp32-bs1-1x2-synthetic")
    return JobSpec("job", case, 0, str(folder), "gpu", 0, 1, profiled_steps=profiled_steps)


def _answer(spec: JobSpec, *answers: DeviceTime) -> None:
    for rank, answer in enumerate(answers):
        spec.device_time_path(rank).write_text(answer.to_json())


def test_the_rank_whose_card_computes_longest_is_the_job_s(tmp_path: Path) -> None:
    spec = _timed_job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, 0.5))
    assert device_time_facts(spec, 1.0)["device_seconds_per_step"] == "0.5"


def test_it_is_unknown_where_one_rank_does_not_know_it(tmp_path: Path) -> None:
    spec = _timed_job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, None, "events dropped"))
    assert device_time_facts(spec, 1.0) == {"device_time": "unknown: rank 1: events dropped (m)"}


def test_a_rank_that_died_under_the_profiler_is_named(tmp_path: Path) -> None:
    spec = _timed_job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25))
    told = device_time_facts(spec, 1.0)["device_time"]
    assert told.startswith("unknown: rank 1: it ended before its profiler had answered")
    spec.device_time_path(1).write_text('{"method":')
    assert "expected a JSON object" in device_time_facts(spec, 1.0)["device_time"]


def test_a_job_without_profiled_steps_says_nothing(tmp_path: Path) -> None:
    spec = _timed_job(tmp_path, profiled_steps=0)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, 0.5))
    assert device_time_facts(spec, 1.0) == {}
