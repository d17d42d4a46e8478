"""Whole nights on a stand-in GPU machine: what a job had loaded belongs to the segment that it is compared in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.verdict import Status
from helpers.machine.environment import Environment
from helpers.plan.recorded import load_recorded
from helpers.session.outcome import CaseOutcome
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    SYNTHETIC,
    Bench,
    case_of,
    machine_with,
    record,
)

GPU_CASE = "paddle-resnet50v1.5-bf16-bs256-1x1-synthetic-static"
LOADED = {"cuda": "11.8", "cudnn": "8.9.7", "nccl": "2.18.5", "driver_cuda": "12.2"}
H200 = "NVIDIA H200"


def night(bench: Bench, loaded: Mapping[str, str], *, to_record: bool = False) -> CaseOutcome:
    """One session on the machine with the H200, whose jobs had loaded these."""
    suite = bench.suite(machine_with(H200), to_record=to_record)
    case = case_of(suite, GPU_CASE, "gpu")
    made = bench.runner.make_run

    def make_run(plan: Any, replicate: int = 0, **values: Any) -> Any:
        run = made(plan, replicate, **values)
        return replace(run, environment={**run.environment, "device": "gpu", "card_ids": "GPU-0", **loaded})

    bench.runner.make_run = make_run
    outcome = suite.measure(case)
    bench.runner.make_run = made
    bench.runner.asked.clear()
    if to_record:
        suite.write_baselines([outcome], suite.propose([outcome]))
    return outcome


def age(bench: Bench, *keys: str) -> None:
    """Make the recorded file one of before these facts were known."""
    (path,) = (bench.baselines / "recorded").rglob("*.json")
    entries = {}
    for case_id, recorded in load_recorded(path, path.stem).entries.items():
        entry = entries[case_id] = recorded.to_json()
        for key in keys:
            entry["segment"].pop(key, None)
        entry["environment"].pop("driver_cuda", None)
        entry["environment"].update(cudnn="", nccl="")
    document = {"schema_version": 2, "machine_key": path.stem, "unit": "images/s", "entries": entries}
    path.write_text(json.dumps(document), encoding="utf-8")


def test_the_same_libraries_are_compared_whatever_the_driver_could_serve(bench: Bench) -> None:
    night(bench, LOADED, to_record=True)
    assert night(bench, {**LOADED, "driver_cuda": "12.9"}).status is Status.PASS


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"cudnn": "9.10.2"}, "cuDNN: 8.9.7 → 9.10.2"),
        ({"nccl": "2.27.5"}, "NCCL: 2.18.5 → 2.27.5"),
        ({"cuda": "12.8"}, "CUDA: 11.8 → 12.8"),
        ({"cuda": "11.8 (runtime 11.7)"}, "CUDA: 11.8 → 11.8 (runtime 11.7)"),
        ({"cudnn": ""}, "cuDNN: 8.9.7 → none"),
    ],
)
def test_another_loaded_library_is_incomparable_and_named(bench: Bench, changed: dict[str, str], told: str) -> None:
    night(bench, LOADED, to_record=True)
    outcome = night(bench, {**LOADED, **changed})
    assert outcome.status is Status.INCOMPARABLE
    assert told in outcome.reason


def test_a_gpu_s_entry_from_before_the_libraries_were_known_is_not_compared_with_known_ones(bench: Bench) -> None:
    night(bench, LOADED, to_record=True)
    age(bench, "cuDNN", "NCCL")
    outcome = night(bench, LOADED)
    assert outcome.status is Status.INCOMPARABLE
    assert "cuDNN: not recorded → 8.9.7" in outcome.reason and "NCCL: not recorded → 2.18.5" in outcome.reason


def test_a_cpu_s_entry_from_before_them_is_compared_as_ever(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    age(bench)
    again = bench.suite(CPU_MACHINE)
    assert again.measure(case_of(again, SYNTHETIC)).status is Status.PASS


def test_an_environment_from_before_the_driver_s_cuda_had_a_name_is_read() -> None:
    known = Environment("h", "0" * 16, "Linux", "6.1", "EPYC", "4", "8", "gpu", "1 x H200", driver_cuda="12.2")
    old = {name: value for name, value in known.to_mapping().items() if name != "driver_cuda"}
    assert Environment.from_mapping(old) == replace(known, driver_cuda="")
