"""What the ranks' profilers found in a run, read back; why, if one found nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.step_profile_reader import read_step_profiles
from helpers.trainers.contract.case import Case
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
    assert read_step_profiles(tmp_path) == (PROFILE, second)


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
    first, second = read_step_profiles(tmp_path)
    assert first == PROFILE
    assert isinstance(second, NoProfile) and reason in second.reason
