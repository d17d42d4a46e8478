"""Gathers once what the environment tables and the doctor's checks are about; reads which disks, network adapters and
graphics cards the kernel lists."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from helpers.machine.devices import Machine
from helpers.machine.facts.host import HostState, probe_host_state
from helpers.machine.facts.topology import Adapter, Topology, topology_of
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.machine.nvml_details import DetailedNvml, GpuDetails
from helpers.machine.unknown import Unknown, ask
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.paths import ROOT

# File systems that are reached over a network, so that every image comes through it.
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NVIDIA = "0x10de"
# PCI classes of display and 3D controllers: a data centre card is 0x0302.
_GPU_CLASSES = ("0x0300", "0x0302")
_GIT_SECONDS = 10
# Where the dynamic linker finds a machine's own cuDNN and NCCL.
_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local/lib", "usr/local/cuda/lib64")


@dataclass(frozen=True)
class Storage:
    """The disk of a folder."""

    file_system: str
    device: str
    # Whether the kernel calls it a spinning disk; of a virtual disk, what its host says.
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
    """The InfiniBand (and RoCE) adapters, by name."""
    folders = sorted((root / "sys/class/infiniband").glob("*"))
    return tuple(adapter_at(folder.name, folder / "device") for folder in folders)


def adapter_at(name: str, device: Path) -> Adapter:
    """A device's place in the tree, from its folder or the link to it."""
    node = ask(lambda: int((device / "numa_node").read_text()))
    return Adapter(name, device.resolve(), -1 if isinstance(node, Unknown) else node)


def interconnect(root: Path = Path("/")) -> str:
    """How nodes would be connected: ``InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)``, or else the network interfaces."""
    found = []
    for adapter in sorted((root / "sys/class/infiniband").glob("*")):
        for port in sorted((adapter / "ports").glob("*")):
            found.append(f"{_word(port / 'link_layer')} {_word(port / 'rate')} ({adapter.name})")
    if found:
        return "; ".join(found)
    # Interfaces with a device behind them; bridges and loopback have none.
    cards = [path.name for path in sorted((root / "sys/class/net").glob("*")) if (path / "device").exists()]
    return "no InfiniBand; " + (", ".join(_with_speed(root, name) for name in cards) or "no network card")


def nvidia_cards_on_bus(root: Path = Path("/")) -> int:
    """NVIDIA graphics cards on the PCI bus, whether or not a driver runs them."""
    count = 0
    for device in (root / "sys/bus/pci/devices").glob("*"):
        count += _word(device / "vendor") == _NVIDIA and str(_word(device / "class"))[:6] in _GPU_CLASSES
    return count


def library_versions(name: str, folders: list[Path]) -> tuple[str, ...]:
    """Versions of ``lib<name>.so`` in ``folders``, by file name: ``libcudnn.so.8.9.7`` is 8.9.7."""
    pattern = re.compile(rf"lib{re.escape(name)}\.so\.(\d+\.\d+(?:\.\d+)*)")
    found = {match.group(1) for folder in folders for path in folder.glob(f"lib{name}.so.*")
             if (match := pattern.fullmatch(path.name))}  # fmt: skip
    return tuple(sorted(found))


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
