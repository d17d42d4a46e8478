"""A machine in order, for tests that break one thing of it."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from helpers.machine.doctor.issue import Context
from helpers.machine.facts import FrameworkFacts, Storage, SystemFacts
from helpers.machine.framework_builds import FrameworkBuild
from helpers.machine.host import Space
from helpers.machine.nvml import GpuDetails, GpuState
from helpers.machine.watch.contention import ContentionSample
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.machines import GIB, HEALTHY_STATE, TOPOLOGY, details_of_all, gpu_machine, host_state, v100s

BUILD = FrameworkBuild("/opt/python", Framework.PADDLE, "paddlepaddle-gpu", "2.6.2", "8ce0de58")
LIBRARIES = {"python": "3.11.7", "cuda": "11.8", "cudnn": "8.6.0", "dali_wheel": "nvidia-dali-cuda110 1.50.0"}
PADDLE = FrameworkFacts(BUILD, LIBRARIES)
DISK = Storage("ext4", "/dev/nvme0n1p1")


def context(**values: Any) -> Context:
    """Eight healthy V100 cards on a quiet machine, with images of one's own."""
    usual: dict[str, Any] = {
        "facts": facts(),
        "contention": ContentionSample(0.0, window_seconds=1.0),
        "max_foreign_share": 0.05,
        "variables": {},
        "gpus_on_bus": 8,
        "runs": Space(100 * GIB, 50 * GIB),
        "data_root": Path("/data/imagenet"),
    }
    return Context(**{**usual, **values})


def facts(**values: Any) -> SystemFacts:
    usual: dict[str, Any] = {
        "machine": gpu_machine(v100s()),
        "host": host_state(),
        "details": details_of_all(),
        "topology": TOPOLOGY,
        "interconnect": "InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)",
        "storage": {"runs": DISK, "data": DISK},
        "frameworks": (PADDLE,),
        "machine_libraries": {"cudnn": ("8.9.7",), "nccl": ("2.18.5",)},
        "data": "/data/imagenet",
    }
    return SystemFacts(**{**usual, **values})


def with_host(**values: Any) -> Context:
    return context(facts=facts(host=host_state(**values)))


def with_card(index: int = 3, **values: Any) -> Context:
    """The machine with one card in another state."""
    details: dict[str, GpuDetails] = details_of_all()
    uuid = f"GPU-{index}"
    of_state = {item.name for item in fields(GpuState)}
    state = replace(HEALTHY_STATE, **{name: value for name, value in values.items() if name in of_state})
    rest = {name: value for name, value in values.items() if name not in of_state}
    details[uuid] = replace(details[uuid], state=state, **rest)
    return context(facts=facts(details=details))


def without_gpus(**values: Any) -> Context:
    machine = replace(gpu_machine(()), gpu_note="no libnvidia-ml.so.1", driver="", cuda_driver="")
    bare = facts(machine=machine, details={}, topology="", **values)
    return context(facts=bare, gpus_on_bus=0)
