"""Gathers once what the environment tables and the doctor's checks are about."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.machine.devices import Machine
from helpers.machine.facts.host import HostState, probe_host_state
from helpers.machine.facts.io import (
    Storage,
    adapter_at,
    infiniband_adapters,
    interconnect,
    library_versions,
    storage_of,
)
from helpers.machine.facts.topology import Topology, topology_of
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.machine.nvml_details import DetailedNvml, GpuDetails
from helpers.machine.unknown import Unknown, ask
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.paths import ROOT

_GIT_SECONDS = 10
# Where the dynamic linker finds a machine's own cuDNN and NCCL.
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib", "usr/local/cuda/lib64")


@dataclass(frozen=True)
class FrameworkFacts:
    """A build and its libraries."""

    build: FrameworkBuild
    # By framework_probe's names; a text says why they are not known.
    libraries: Mapping[str, str] | str

    def stated(self, name: str) -> str:
        """The version of ``cuda``, ``cudnn``, ``nccl`` …; empty when the build does not state it."""
        return "" if isinstance(self.libraries, str) else self.libraries.get(name, "")


@dataclass(frozen=True)
class SystemFacts:
    """One look at everything that the tables and the checks are about."""

    machine: Machine
    host: HostState
    # By the GPU's UUID.
    details: Mapping[str, GpuDetails] = field(default_factory=dict)
    topology: Topology = field(default_factory=Topology)
    interconnect: str | Unknown = ""
    storage: Mapping[str, Storage | Unknown] = field(default_factory=dict)
    frameworks: tuple[FrameworkFacts, ...] = ()
    machine_libraries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: str = ""
    suite: str | Unknown = ""

    @property
    def has_infiniband(self) -> bool:
        return str(self.interconnect).startswith("InfiniBand")


def gather(
    machine: Machine,
    nvml: DetailedNvml | str,
    builds: BuildFinder,
    *,
    interpreters: Mapping[Framework, str | None],
    data: str,
    folders: Mapping[str, Path],
    root: Path = Path("/"),
    host: HostState | None = None,
    variables: Mapping[str, str] | None = None,
) -> SystemFacts:
    """Gather the facts of the machine. ``nvml`` is a text where there is none; ``folders`` are those whose disks are
    looked up, by name.

    It takes about 0.1 s and imports no framework; it takes longer where a framework has an interpreter of its own.
    """
    variables = os.environ if variables is None else variables
    found = [builds.find_build(framework, interpreter) for framework, interpreter in interpreters.items()]
    frameworks = tuple(
        FrameworkFacts(build, builds.find_libraries(build)) for build in found if isinstance(build, FrameworkBuild)
    )
    details = {} if isinstance(nvml, str) else {gpu.uuid: nvml.details(gpu) for gpu in machine.gpus}
    return SystemFacts(
        machine=machine,
        host=host or probe_host_state(root, variables=variables),
        details=details,
        topology=Topology() if isinstance(nvml, str) else _topology(machine, nvml, details, root),
        interconnect=ask(lambda: interconnect(root)),
        storage={name: _storage(folder, root) for name, folder in folders.items()},
        frameworks=frameworks,
        machine_libraries={
            name: library_versions(name, _library_folders(root, variables)) for name in ("cudnn", "nccl")
        },
        data=data,
        suite=ask(lambda: suite_commit(ROOT)),
    )


def _storage(folder: Path, root: Path) -> Storage | Unknown:
    return ask(lambda: storage_of(folder, root))


def _topology(machine: Machine, nvml: DetailedNvml, details: Mapping[str, GpuDetails], root: Path) -> Topology:
    places = {}
    for uuid, each in details.items():
        folder = root / "sys/bus/pci/devices" / str(each.bus_id)
        if folder.exists():
            places[uuid] = adapter_at(uuid, folder)
    adapters = infiniband_adapters(root)
    return topology_of(machine.gpus, details, nvml.common_ancestor, places=places, adapters=adapters)


def _library_folders(root: Path, variables: Mapping[str, str]) -> list[Path]:
    named = [Path(word) for word in variables.get("LD_LIBRARY_PATH", "").split(":") if word.startswith("/")]
    return [*named, *(root / folder for folder in _LIBRARY_FOLDERS)]


def suite_commit(checkout: Path) -> str:
    """The suite's commit, ``e94319a0c2d1``, with ``-dirty`` where tracked files were changed.

    Raises OSError where git is missing, ValueError where ``checkout`` is no work tree of it.
    """
    argv = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"git does not answer within {_GIT_SECONDS} s") from error
    if done.returncode != 0:
        raise ValueError("git: " + (done.stderr.strip().splitlines() or ["no answer"])[-1])
    return done.stdout.strip()
