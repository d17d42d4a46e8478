"""Gathers the facts for the environment tables and the doctor's checks: the disks, network adapters and cards that the
kernel lists, and how cards and adapters are connected, in the terms of ``nvidia-smi topo -m``.

NVML states the connection of two GPUs (NVLinks, else the common ancestor on PCI Express). It does not know InfiniBand
adapters; their connections follow from the places in the kernel's device tree.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from helpers.common.own_folder import is_installed
from helpers.common.unknown import Unknown, ask
from helpers.machine.devices import Machine
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.machine.host import HostState, probe_host_state
from helpers.machine.libraries import LibraryFile, find_library, library_versions
from helpers.machine.nvml import TO_GPU, TO_SWITCH, TO_UNKNOWN, Gpu, GpuDetails, Nvml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.frameworks import PIP_LIBRARIES, Framework

SELF = "X"
UNKNOWN = "?"
# nvml.h, nvmlGpuTopologyLevel_t; the words are nvidia-smi's.
_LEVELS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# The legend that `nvidia-smi topo -m` prints. PSB and "?" are explained only if they occur.
LEGEND = {
    SELF: "Self",
    "SYS": "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)",
    "NODE": "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node",
    "PHB": "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)",
    "PXB": "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)",
    "PIX": "Connection traversing at most a single PCIe bridge",
    "PSB": "Connection traversing a single on-board PCIe switch",
    "NV#": "Connection traversing a bonded set of # NVLinks",
    UNKNOWN: "Not known: this driver or container does not say",
}
_ONLY_WHERE_USED = ("PSB", UNKNOWN)
# File systems that are reached over a network.
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NVIDIA = "0x10de"
# PCI classes of display and 3D controllers: a data centre card is 0x0302.
_GPU_CLASSES = ("0x0300", "0x0302")
_GIT_SECONDS = 10


@dataclass(frozen=True)
class Adapter:
    """A device's place in the kernel's device tree."""

    # Such as ``mlx5_0`` for a network adapter.
    name: str
    # The device's path under ``/sys/devices``, with links resolved.
    path: Path
    # -1 if it has none.
    numa_node: int = -1


@dataclass(frozen=True)
class Topology:
    """The matrix of connections."""

    names: tuple[str, ...] = ()
    # Rows and columns are in the order of ``names``.
    cells: tuple[tuple[str, ...], ...] = ()
    # By row name: the nearest CPUs and NUMA node.
    affinity: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def legend(self) -> dict[str, str]:
        """The meaning of the symbols: those that nvidia-smi always explains, and the others that occur."""
        used = {cell for row in (*self.cells, *self.affinity.values()) for cell in row}
        return {symbol: text for symbol, text in LEGEND.items() if symbol not in _ONLY_WHERE_USED or symbol in used}


def topology_of(
    gpus: Sequence[Gpu],
    details: Mapping[str, GpuDetails],
    ancestor: Callable[[Gpu, Gpu], int | Unknown],
    *,
    places: Mapping[str, Adapter] | None = None,
    adapters: Sequence[Adapter] = (),
) -> Topology:
    """Makes the matrix. ``details`` and ``places`` (each GPU's place in the device tree) are by UUID."""
    places = places or {}
    names = (*(f"GPU{gpu.index}" for gpu in gpus), *(adapter.name for adapter in adapters))

    def cell(row: int, column: int) -> str:
        if row == column:
            return SELF
        if row < len(gpus) and column < len(gpus):
            return _between_gpus(gpus[row], gpus[column], details, ancestor)
        ends = [places.get(gpus[n].uuid) if n < len(gpus) else adapters[n - len(gpus)] for n in (row, column)]
        if ends[0] is None or ends[1] is None:
            return UNKNOWN
        return pci_relation(ends[0], ends[1])

    cells = tuple(tuple(cell(row, column) for column in range(len(names))) for row in range(len(names)))
    affinity = {}
    for gpu in gpus:
        cpus = details[gpu.uuid].cpus
        place = places.get(gpu.uuid)
        affinity[f"GPU{gpu.index}"] = (
            UNKNOWN if isinstance(cpus, Unknown) else cpu_list(cpus),
            UNKNOWN if place is None else "N/A" if place.numa_node < 0 else str(place.numa_node),
        )
    return Topology(names, cells, affinity)


def nvlinks_between(one: GpuDetails, other: GpuDetails) -> int | Unknown:
    """How many NVLinks connect two GPUs directly; if none do, how many both have to a switch."""
    if isinstance(one.links, Unknown):
        return one.links
    if isinstance(other.links, Unknown):
        return other.links
    direct = sum(link.remote in (TO_GPU, TO_UNKNOWN) and link.bus_id == other.bus_id for link in one.links)
    if direct:
        return direct
    # A link with an unknown end may lead to a switch; then PCI Express would be a wrong answer.
    unknown = [any(link.remote == TO_UNKNOWN for link in links) for links in (one.links, other.links)]
    switched = min(sum(link.remote == TO_SWITCH for link in links) for links in (one.links, other.links))
    return switched or (Unknown("NVML does not say where the NVLinks end") if all(unknown) else 0)


def pci_relation(one: Adapter, other: Adapter) -> str:
    """The connection (SYS, NODE, PHB, PXB or PIX) of two devices by their places in the device tree.

    A path holds the host bridge, then bridges, then the device:
    ``/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:04.0/0000:3d:00.0``.
    """
    ways = [_pci_way(each.path) for each in (one, other)]
    if not ways[0] or not ways[1]:
        return UNKNOWN
    if ways[0][0] != ways[1][0]:
        return "NODE" if one.numa_node == other.numa_node else "SYS"
    shared = 0
    for left, right in zip(ways[0], ways[1], strict=False):
        if left != right:
            break
        shared += 1
    if shared == 1:
        return "PHB"
    # The length of the longer way from the last shared bridge to a device. PIX allows one bridge of a common switch.
    below = max(len(way) - shared - 1 for way in ways)
    return "PIX" if below <= 1 else "PXB"


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


def _between_gpus(
    one: Gpu, other: Gpu, details: Mapping[str, GpuDetails], ancestor: Callable[[Gpu, Gpu], int | Unknown]
) -> str:
    links = nvlinks_between(details[one.uuid], details[other.uuid])
    if isinstance(links, Unknown):
        return UNKNOWN
    if links:
        return f"NV{links}"
    level = ancestor(one, other)
    return UNKNOWN if isinstance(level, Unknown) else _LEVELS.get(level, UNKNOWN)


def _pci_way(path: Path) -> list[str]:
    parts = list(path.parts)
    start = next((place for place, part in enumerate(parts) if part.startswith("pci")), None)
    return [] if start is None else parts[start:]


@dataclass(frozen=True)
class Storage:
    """The disk of a folder."""

    file_system: str
    device: str
    # Whether the kernel reports a spinning disk; for a virtual disk this depends on its host.
    spinning: bool | Unknown

    @property
    def over_network(self) -> bool:
        return self.file_system in NETWORK_FILE_SYSTEMS or self.file_system.startswith("fuse.")

    def describe(self) -> str:
        kinds = {True: "hard disk", False: "no hard disk (SSD, or what the host calls one)"}
        if self.over_network:
            return f"{self.file_system} over the network"
        if isinstance(self.spinning, Unknown):
            return f"{self.file_system} on {self.device} ({self.spinning.reason})"
        return f"{self.file_system} on {self.device}, {kinds[self.spinning]}"


def storage_of(folder: Path, root: Path = Path("/")) -> Storage:
    """The disk of ``folder``, or of its nearest parent that exists. Raises OSError, ValueError."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    number = existing.stat().st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            kind, device = after.split()[:2]
            return Storage(kind, device, ask(partial(_spinning, root, wanted, device)))
    raise ValueError(f"no mount with the number {wanted}")


def infiniband_adapters(root: Path = Path("/")) -> tuple[Adapter, ...]:
    """The InfiniBand (and RoCE) adapters, sorted by name."""
    folders = sorted((root / "sys/class/infiniband").glob("*"))
    return tuple(adapter_at(folder.name, folder / "device") for folder in folders)


def adapter_at(name: str, device: Path) -> Adapter:
    """A device's place in the tree, by its folder or a link to it."""
    node = ask(lambda: int((device / "numa_node").read_text()))
    return Adapter(name, device.resolve(), -1 if isinstance(node, Unknown) else node)


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


def _spinning(root: Path, number: str, device: str) -> bool:
    if re.match(r"/dev/(vd|xvd)", device):
        raise ValueError("a virtual disk does not say")
    place = (root / "sys/dev/block" / number).resolve()
    for folder in (place, place.parent):
        path = folder / "queue/rotational"
        if path.exists():
            return path.read_text().strip() == "1"
    raise ValueError("not a disk of this kernel")


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
        topology=Topology() if isinstance(nvml, str) else _topology(machine, nvml, details, root),
        interconnect=ask(lambda: interconnect(root)),
        storage={name: _storage(folder, root) for name, folder in folders.items()},
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


def _storage(folder: Path, root: Path) -> Storage | Unknown:
    return ask(lambda: storage_of(folder, root))


def _topology(machine: Machine, nvml: Nvml, details: Mapping[str, GpuDetails], root: Path) -> Topology:
    places = {}
    for uuid, each in details.items():
        folder = root / "sys/bus/pci/devices" / str(each.bus_id)
        if folder.exists():
            places[uuid] = adapter_at(uuid, folder)
    adapters = infiniband_adapters(root)
    return topology_of(machine.gpus, details, nvml.common_ancestor, places=places, adapters=adapters)


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
    argv = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    # In a hook of git they name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"git does not answer within {_GIT_SECONDS} s") from error
    if done.returncode != 0:
        reason, *advice = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no answer"]
        raise ValueError(". ".join(filter(None, [f"git: {reason.removeprefix('fatal: ')}", " ".join(advice)])))
    return done.stdout.strip()
