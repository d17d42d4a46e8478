"""A node's agent in this process, with GPUs that it does not have: what it makes of the first node's orders."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes import agent
from helpers.launch.nodes.stream import Hangup
from helpers.launch.nodes.wire import NodeOrder
from helpers.machine.devices import Machine
from helpers.machine.frameworks import FrameworkBuild
from helpers.machine.near_cores import cores_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch import norm_of
from helpers.machine.watch.meters import GpuMeter, meter_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.agent_stand_in import MACHINE
from tests.helpers.machine.watch.test_gpu_health import USUAL as USUAL_LIMITS
from tests.helpers.machine.watch.test_gpu_health import StandInNvml, state
from tests.helpers.machines import v100s

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs96-2x2-synthetic-static")
CARDS = v100s()[:2]
ENTRY = {"card_ids": "GPU-x GPU-y GPU-0 GPU-1", "power_limit_watts": "300", "sm_clock_mhz": "1290 1290 1290 1290"}


class Nvml(StandInNvml):
    """Two cards near two CPUs each; the second runs at a lower clock, and the first under a lower power cap."""

    def gpus(self) -> tuple[Gpu, ...]:
        return CARDS

    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        return frozenset({2, 3}) if gpu.index == 0 else frozenset({0, 1})

    def state(self, gpu: Gpu) -> Any:
        return state(mhz=1290 if gpu.index == 0 else 1000)

    def settings(self, gpu: Gpu) -> Any:
        return replace(USUAL_LIMITS, power_limit_watts=250 if gpu.index == 0 else 300)


class Stream:
    """Says what the first node says, then hangs up; keeps what the agent says."""

    def __init__(self, *frames: Mapping[str, Any]) -> None:
        self._frames = [dict(frame) for frame in frames]
        self.said: list[tuple[str, dict[str, Any]]] = []

    def send(self, kind: str, **values: Any) -> None:
        self.said.append((kind, values))

    def next(self, seconds: float) -> dict[str, Any]:
        if not self._frames:
            raise Hangup("the end")
        return self._frames.pop(0)

    def expect_frames(self) -> None:
        return

    def check_silence(self, silences: float = 1.0) -> None:
        return


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[JobSpec, GpuMeter]]:
    """The jobs that the agent would have run, with their meters."""
    started: list[tuple[JobSpec, GpuMeter]] = []

    class Job:
        def __init__(self, spec: JobSpec, command: object, node: int, meter: GpuMeter, *rest: object) -> None:
            started.append((spec, meter))

        def look(self) -> bool:
            return False

        def end(self, at_once: object) -> None:
            return

    class Builds:
        def find_build(self, framework: Framework) -> FrameworkBuild:
            return FrameworkBuild(sys.executable, framework, "paddlepaddle-gpu", "2.6.2")

    machine: Machine = replace(MACHINE, gpus=CARDS, driver="535.1", cuda_driver="12.2")
    monkeypatch.setattr(agent, "NodeJob", Job)
    monkeypatch.setattr(agent, "BuildFinder", Builds)
    monkeypatch.setattr(agent, "discover", lambda cpu_cards: machine)
    near = partial(cores_of, nvml=Nvml, allowed=lambda: range(4), root=Path("/nowhere"))
    monkeypatch.setattr(agent, "cores_of", near)
    monkeypatch.setattr(agent, "meter_for", partial(meter_for, nvml=Nvml))
    return started


def served(norm: dict[str, Any] | None) -> None:
    spec = JobSpec("j", CASE, 0, "elsewhere", "gpu", 1, 2, cards=("5", "6"), cores=((7,), (8,)))
    order = NodeOrder(CASE.id, "paddle", "gpu", "127.0.0.1", 2, 1.0, assigned=("GPU-0", "GPU-1"))
    place = asdict(Place(1, 2, "127.0.0.1", "127.0.0.1:1"))
    stream = Stream(
        {"kind": "prepare", **order.to_mapping()},
        {"kind": "job", "spec": spec.to_json(), "place": place, "grace_seconds": 0.1, "norm": norm},
    )
    with pytest.raises(Hangup):
        agent.Agent(stream).serve()  # type: ignore[arg-type]
    assert [kind for kind, _ in stream.said] == ["hello", "ready"], stream.said


def test_the_ranks_of_another_node_are_pinned_by_its_own_nvml(jobs: list[tuple[JobSpec, GpuMeter]]) -> None:
    served(None)
    ((spec, _),) = jobs
    assert (spec.cards, spec.cores) == (("GPU-0", "GPU-1"), ((2, 3), (0, 1)))


def test_another_nodes_cards_are_held_against_the_recorded_clocks_and_power_caps(
    jobs: list[tuple[JobSpec, GpuMeter]],
) -> None:
    norm = norm_of(ENTRY, ["GPU-0", "GPU-1"], to_record=False, first=2)
    assert norm is not None
    served(norm.to_mapping())
    served(None)
    (_, compared), (_, while_recorded) = jobs
    for meter in (compared, while_recorded):
        for at in (1.0, 11.0, 12.0):
            meter.sample(at, (), [])
    cards = [reason for reason in compared.unhealthy((10.0, 13.0)) if reason.startswith("GPU-")]
    assert [reason.partition(" (")[0] for reason in cards] == [
        "GPU-0: power cap 250 W, recorded at 300 W",
        "GPU-1: median SM clock 1000 MHz, recorded at 1290 MHz",
    ]
    assert not any(reason.startswith("GPU-") for reason in while_recorded.unhealthy((10.0, 13.0)))
