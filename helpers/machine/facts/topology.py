"""Finds how the GPUs and network adapters of a machine are connected, in the terms of ``nvidia-smi topo -m``.

Between GPUs NVML says it (by NVLinks, or else by the common ancestor on PCI Express). NVML does not know InfiniBand
adapters; for them it follows from the places in the kernel's device tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.machine.nvml import Gpu
from helpers.machine.nvml_details import TO_GPU, TO_SWITCH, TO_UNTOLD, GpuDetails
from helpers.machine.unknown import Unknown

SELF = "X"
UNKNOWN = "?"
# nvml.h, nvmlGpuTopologyLevel_t; the words are nvidia-smi's.
_LEVELS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# As `nvidia-smi topo -m` prints it. PSB and "?" are explained only where they occur.
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


@dataclass(frozen=True)
class Adapter:
    """A device's place in the kernel's device tree."""

    # For a network adapter, such as ``mlx5_0``.
    name: str
    # Under ``/sys/devices``, with links resolved.
    path: Path
    # -1 where it has none.
    numa_node: int = -1


@dataclass(frozen=True)
class Topology:
    """The matrix of connections."""

    names: tuple[str, ...] = ()
    # Rows and columns are in the order of ``names``.
    cells: tuple[tuple[str, ...], ...] = ()
    # By row name: the CPUs and the NUMA node that are near.
    affinity: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def legend(self) -> dict[str, str]:
        """The meaning of the symbols: those that nvidia-smi always explains, and others that occur."""
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
    """The matrix. ``details`` and ``places`` (a GPU's own place in the device tree) are by UUID."""
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
    """How many NVLinks connect two GPUs: direct ones, or else those that both have to a switch."""
    if isinstance(one.links, Unknown):
        return one.links
    if isinstance(other.links, Unknown):
        return other.links
    direct = sum(link.remote in (TO_GPU, TO_UNTOLD) and link.bus_id == other.bus_id for link in one.links)
    if direct:
        return direct
    # A link whose end is not known may lead to a switch, and then PCI Express would be a false answer.
    untold = [any(link.remote == TO_UNTOLD for link in links) for links in (one.links, other.links)]
    switched = min(sum(link.remote == TO_SWITCH for link in links) for links in (one.links, other.links))
    return switched or (Unknown("NVML does not say where the NVLinks end") if all(untold) else 0)


def pci_relation(one: Adapter, other: Adapter) -> str:
    """SYS, NODE, PHB, PXB or PIX from two places in the device tree.

    A path is host bridge, then bridges, then the device:
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
    # Below the last shared bridge, each side's way to its device: one bridge of a common switch at most, or more.
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
