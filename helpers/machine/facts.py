"""Gathers the facts for the environment tables and the doctor's checks: the disks, network adapters and cards that the
kernel lists, and how cards and adapters are connected, by ``nvidia-smi topo -m``."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from helpers.common.inherited import passed_on
from helpers.common.own_folder import is_installed
from helpers.common.unknown import Unknown, ask
from helpers.machine.devices import Machine
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.machine.host import HostState, probe_host_state
from helpers.machine.libraries import LibraryFile, find_library, library_versions
from helpers.machine.nvml import GpuDetails, Nvml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.frameworks import PIP_LIBRARIES, Framework

# File systems that are reached over a network.
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NVIDIA = "0x10de"
# PCI classes of display and 3D controllers: a data centre card is 0x0302.
_GPU_CLASSES = ("0x0300", "0x0302")
_GIT_SECONDS = 10
# nvidia-smi takes seconds where it has to load the driver first.
_TOPOLOGY_SECONDS = 60


def cpu_list(cpus: frozenset[int]) -> str:
    """``0-19,40-59``, as the kernel and nvidia-smi write it."""
    parts: list[str] = []
    ordered = sorted(cpus)
    start = 0
    for place, cpu in enumerate(ordered):
        if place + 1 == len(ordered) or ordered[place + 1] != cpu + 1:
            first = ordered[start]
            parts.append(str(first) if first == cpu else f"{first}-{cpu}")
            start = place + 1
    return ",".join(parts)


@dataclass(frozen=True)
class Storage:
    """The disk of a folder."""

    file_system: str
    device: str

    @property
    def over_network(self) -> bool:
        return self.file_system in NETWORK_FILE_SYSTEMS or self.file_system.startswith("fuse.")

    def describe(self) -> str:
        return f"{self.file_system} over the network" if self.over_network else f"{self.file_system} on {self.device}"


def storage_of(folder: Path, root: Path = Path("/")) -> Storage:
    """The disk of ``folder``, or of its nearest parent that exists. Raises OSError, ValueError."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    number = existing.stat().st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return Storage(*after.split()[:2])
    raise ValueError(f"no mount with the number {wanted}")


def interconnect(root: Path = Path("/")) -> str:
    """How this machine would be connected to other nodes: ``InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)``, else its network
    interfaces."""
    found = []
    for adapter in sorted((root / "sys/class/infiniband").glob("*")):
        for port in sorted((adapter / "ports").glob("*")):
            found.append(f"{_word(port / 'link_layer')} {_word(port / 'rate')} ({adapter.name})")
    if found:
        return "; ".join(found)
    # Only interfaces of a device; bridges and loopback have none.
    cards = [path.name for path in sorted((root / "sys/class/net").glob("*")) if (path / "device").exists()]
    return "no InfiniBand; " + (", ".join(_with_speed(root, name) for name in cards) or "no network card")


def nvidia_cards_on_bus(root: Path = Path("/")) -> int:
    """How many NVIDIA graphics cards are on the PCI bus, with or without a driver."""
    count = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        count += _word(device / "vendor") == _NVIDIA and str(_word(device / "class"))[:6] in _GPU_CLASSES
    return count


def _word(path: Path) -> str | Unknown:
    return ask(lambda: path.read_text().strip())


def _with_speed(root: Path, name: str) -> str:
    speed = ask(lambda: int((root / f"sys/class/net/{name}/speed").read_text()))
    return name if isinstance(speed, Unknown) or speed <= 0 else f"{name} {speed} Mb/s"


@dataclass(frozen=True)
class FrameworkFacts:
    """A build and its libraries."""

    build: FrameworkBuild
    # Versions by the names of framework_probe; a text says why they are not known.
    libraries: Mapping[str, str] | str
    # The files that a rank loads by names without a version (``cudnn``, ``cublas``, ``nccl``), where the build opens
    # them so.
    opened: Mapping[str, LibraryFile] = field(default_factory=dict)

    def stated(self, name: str) -> str:
        """The version of ``cuda``, ``cudnn``, ``nccl`` …; empty if the build does not state it."""
        return "" if isinstance(self.libraries, str) else self.libraries.get(name, "")


@dataclass(frozen=True)
class SystemFacts:
    """All facts for the tables and the checks, gathered at one time."""

    machine: Machine
    host: HostState
    # By UUID of the GPU.
    details: Mapping[str, GpuDetails] = field(default_factory=dict)
    # The output of ``nvidia-smi topo -m``; empty without GPUs.
    topology: str | Unknown = ""
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
    nvml: Nvml | str,
    builds: BuildFinder,
    *,
    interpreters: Mapping[Framework, str | None],
    data: str,
    folders: Mapping[str, Path],
    root: Path = Path("/"),
    host: HostState | None = None,
    variables: Mapping[str, str] | None = None,
) -> SystemFacts:
    """Gather the facts of the machine. ``nvml`` is a text if there is no NVML; ``folders`` are the folders, by name,
    whose disks are looked up.

    It imports no framework. It takes about 0.1 s, or longer if a framework has an interpreter of its own.
    """
    variables = os.environ if variables is None else variables
    found = [builds.find_build(framework, interpreter) for framework, interpreter in interpreters.items()]
    frameworks = tuple(
        _framework_facts(build, builds.find_libraries(build), variables, root)
        for build in found
        if isinstance(build, FrameworkBuild)
    )
    details = {} if isinstance(nvml, str) else {gpu.uuid: nvml.details(gpu) for gpu in machine.gpus}
    return SystemFacts(
        machine=machine,
        host=host or probe_host_state(root, variables=variables),
        details=details,
        topology=ask(topology_text) if details else "",
        interconnect=ask(lambda: interconnect(root)),
        storage={name: ask(partial(storage_of, folder, root)) for name, folder in folders.items()},
        frameworks=frameworks,
        machine_libraries={name: library_versions(name, variables, root) for name in ("cudnn", "nccl")},
        data=data,
        suite=ask(suite_version),
    )


def _framework_facts(
    build: FrameworkBuild, stated: Mapping[str, str] | str, variables: Mapping[str, str], root: Path
) -> FrameworkFacts:
    by_name = not isinstance(stated, str) and "cuda" in stated and stated.get(PIP_LIBRARIES) != "ON"
    names = build.framework.spec.opens if by_name else ()
    return FrameworkFacts(
        build, stated, {name: find_library(name, build.interpreter, variables, root) for name in names}
    )


def topology_text() -> str:
    """The matrix of connections as ``nvidia-smi topo -m`` prints it. Raises OSError and ValueError."""
    return _COLOUR.sub("", _output(("nvidia-smi", "topo", "-m"), passed_on(), _TOPOLOGY_SECONDS))


def suite_version() -> str:
    """The suite's version, such as ``1.0.0 (e94319a0c2d1)``; without the commit if a wheel installed it or git does not
    know it."""
    stated = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    if is_installed():
        # A work tree around it is another project's.
        return stated
    try:
        return f"{stated} ({suite_commit(ROOT)})"
    except (OSError, ValueError):
        return stated


def suite_commit(checkout: Path) -> str:
    """The suite's commit, such as ``e94319a0c2d1``, with ``-dirty`` behind it if tracked files were changed.

    Raises OSError if git is missing, and ValueError if ``checkout`` is not a work tree.
    """
    argv = ("git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    # In a hook of git they name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return _output(argv, variables, _GIT_SECONDS).strip()


def _output(argv: tuple[str, ...], variables: Mapping[str, str], seconds: float) -> str:
    """What a program prints. Raises OSError if it cannot be started, and ValueError with its own words if it fails."""
    try:
        done = subprocess.run(
            argv, env=variables, capture_output=True, text=True, errors="replace", timeout=seconds, check=True
        )
    except subprocess.CalledProcessError as error:
        raise ValueError(" ".join(error.stderr.split()) or str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise ValueError(str(error)) from error
    return done.stdout
