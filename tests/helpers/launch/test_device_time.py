"""The time on the device of a job, from what each of its ranks says."""

from __future__ import annotations

from pathlib import Path

from helpers.launch.device_time import device_time_facts
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.device_time import DeviceTime
from helpers.trainers.contract.job import JobSpec


def _job(folder: Path, profiled_steps: int = 5) -> JobSpec:
    case = Case.parse("tensorflow-resnet50v1.5-fp32-bs1-1x2-synthetic")
    return JobSpec("job", case, 0, str(folder), "gpu", 0, 1, profiled_steps=profiled_steps)


def _answer(spec: JobSpec, *answers: DeviceTime) -> None:
    for rank, answer in enumerate(answers):
        spec.device_time_path(rank).write_text(answer.to_json())


def test_the_rank_whose_card_computes_longest_is_the_job_s(tmp_path: Path) -> None:
    spec = _job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, 0.5))
    assert device_time_facts(spec, 1.0)["device_seconds_per_step"] == "0.5"


def test_it_is_unknown_where_one_rank_does_not_know_it(tmp_path: Path) -> None:
    spec = _job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, None, "events dropped"))
    assert device_time_facts(spec, 1.0) == {"device_time": "unknown: rank 1: events dropped (m)"}


def test_a_rank_that_died_under_the_profiler_is_named(tmp_path: Path) -> None:
    spec = _job(tmp_path)
    _answer(spec, DeviceTime("m", 5, 0.25))
    told = device_time_facts(spec, 1.0)["device_time"]
    assert told.startswith("unknown: rank 1: it ended before its profiler had answered")
    spec.device_time_path(1).write_text('{"method":')
    assert "expected a JSON object" in device_time_facts(spec, 1.0)["device_time"]


def test_a_job_without_profiled_steps_says_nothing(tmp_path: Path) -> None:
    spec = _job(tmp_path, profiled_steps=0)
    _answer(spec, DeviceTime("m", 5, 0.25), DeviceTime("m", 5, 0.5))
    assert device_time_facts(spec, 1.0) == {}
