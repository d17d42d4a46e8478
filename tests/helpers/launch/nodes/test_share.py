"""Another node's program in this process, with GPUs that it does not have: what it makes of the first node's orders."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.launch.launchers.launcher import Place
from helpers.launch.nodes import share
from helpers.launch.nodes.link import Lost
from helpers.machine.framework_builds import FrameworkBuild
from helpers.machine.near_cores import cores_of
from helpers.machine.nvml import Gpu
from helpers.machine.watch.meters import GpuMeter, meter_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from tests.helpers.launch.share_stand_in import MACHINE
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


class Told:
    """Says what the first node says, then hangs up; keeps what the node says."""

    def __init__(self, *messages: Mapping[str, Any]) -> None:
        self._messages = [dict(message) for message in messages]
        self.said: list[str] = []

    def send(self, kind: str, **values: Any) -> None:
        self.said.append(kind)

    def receive(self, seconds: float) -> list[dict[str, Any]]:
        if not self._messages:
            raise Lost("the end")
        return [self._messages.pop(0)]


class Builds:
    def find_build(self, framework: Framework, interpreter: str) -> FrameworkBuild:
        return FrameworkBuild(interpreter, framework, "paddlepaddle-gpu", "2.6.2")


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, to_record: bool = False) -> tuple[JobSpec, GpuMeter]:
    """The job that the node would have run, with its meter."""
    meters: list[GpuMeter] = []

    def meter(*given: Any, **options: Any) -> Any:
        meters.append(meter_for(*given, nvml=Nvml, **options))  # type: ignore[arg-type]
        return meters[0]

    def start(*given: object) -> None:
        raise Lost("as far as this")

    machine = replace(MACHINE, gpus=CARDS, driver="535.1", cuda_driver="12.2")
    monkeypatch.setattr(share, "start_guarded", start)
    monkeypatch.setattr(share, "BuildFinder", Builds)
    monkeypatch.setattr(share, "discover", lambda cpu_cards: machine)
    near = partial(cores_of, nvml=Nvml, allowed=lambda: range(4), root=Path("/nowhere"))
    monkeypatch.setattr(share, "cores_of", near)
    monkeypatch.setattr(share, "meter_for", meter)
    spec = JobSpec("j", CASE, 0, str(tmp_path), "gpu", 1, 2, cards=("5", "6"), cores=((7,), (8,)))
    spec.spec_path.write_text(spec.to_json())
    order = share.NodeOrder(CASE.id, "paddle", sys.executable, "gpu", 2, 1.0, assigned=("GPU-0", "GPU-1"))
    place = asdict(Place(1, 2, "127.0.0.1", "127.0.0.1:1"))
    told = Told(
        {"kind": "prepare", **asdict(order)},
        {"kind": "job", "spec": spec.to_json(), "interpreter": sys.executable, "place": place, "grace_seconds": 0.1,
         "recorded": ENTRY, "to_record": to_record},
    )  # fmt: skip
    with pytest.raises(Lost, match="as far as this"):
        share.serve(told)  # type: ignore[arg-type]
    assert told.said == ["hello", "ready"]
    return JobSpec.from_json((tmp_path / "node1" / "spec.json").read_text()), meters[0]


def test_the_ranks_of_another_node_are_pinned_by_its_own_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, _ = served(tmp_path, monkeypatch)
    assert (spec.cards, spec.cores) == (("GPU-0", "GPU-1"), ((2, 3), (0, 1)))


@pytest.mark.parametrize(
    ("to_record", "reasons"),
    [
        (False, ["GPU-0: power cap 250 W, recorded at 300 W", "GPU-1: median SM clock 1000 MHz, recorded at 1290 MHz"]),
        (True, []),
    ],
)
def test_another_nodes_cards_are_held_against_the_recorded_clocks_and_power_caps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to_record: bool, reasons: list[str]
) -> None:
    _, meter = served(tmp_path, monkeypatch, to_record=to_record)
    for at in (1.0, 11.0, 12.0):
        meter.sample(at, (), [])
    found = [reason for reason in meter.unhealthy((10.0, 13.0)) if reason.startswith("GPU-")]
    assert [reason.partition(" (")[0] for reason in found] == reasons
