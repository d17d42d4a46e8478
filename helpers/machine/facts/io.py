"""Reads which disks, network adapters and graphics cards the kernel lists."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from helpers.machine.facts.topology import Adapter
from helpers.machine.unknown import Unknown, ask

# File systems that are reached over a network, so that every image comes through it.
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "9p", "afs")
_NVIDIA = "0x10de"
# PCI classes of display and 3D controllers: a data centre card is 0x0302.
_GPU_CLASSES = ("0x0300", "0x0302")


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
