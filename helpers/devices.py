"""The cards of this machine: GPUs by NVML, CPU cards by core topology; and why a case cannot run on them.

A CPU card is one process pinned to its own physical cores, so that "2 cards" is two ranks that do not
share a core.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.case import Case
from helpers.environment import CPU, GPU, Environment, Host, flags_of, probe_host
from helpers.errors import DeviceError
from helpers.nvml import Gpu, Nvml, open_nvml

GIB = 1024**3


@dataclass(frozen=True)
class CpuCard:
    """A CPU card: the logical CPUs one rank is pinned to, one for each of its physical cores."""

    index: int
    cores: tuple[int, ...]

    @property
    def id(self) -> str:
        return f"cpu{self.index}"

    @property
    def name(self) -> str:
        return f"{len(self.cores)} core{'s' if len(self.cores) > 1 else ''}"


Card = Gpu | CpuCard


@dataclass(frozen=True)
class Machine:
    """What this machine has. ``gpu_note`` says why there are no GPUs, where there are none."""

    facts: Host
    cpu_cards: tuple[CpuCard, ...]
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    cuda_driver: str = ""
    gpu_note: str = ""

    @property
    def host(self) -> str:
        return self.facts.host

    @property
    def host_id(self) -> str:
        return self.facts.host_id

    def cards_of(self, target: str) -> tuple[Card, ...]:
        """Cards that a target means: ``cpu``, ``gpu`` (any), or a model by NVML's name (``v100``, ``a100``).

        A GPU split by MIG is no card: a slice is not what a figure was measured on.
        """
        if target == CPU:
            return self.cpu_cards
        whole = tuple(gpu for gpu in self.gpus if not gpu.mig_enabled)
        return whole if target == GPU else tuple(gpu for gpu in whole if gpu.is_model(target))

    def machine_key(self, device: str) -> str:
        """Name of this machine's recorded baselines: host id, device models and count; fit as a file name."""
        cards: Sequence[Card] = self.cpu_cards if device == CPU else self.gpus
        models = sorted({gpu.name for gpu in self.gpus}) if device == GPU else [self.facts.cpu_model]
        if device == CPU:
            models.append(f"{self.facts.logical_cores}c")
        return "-".join([self.host_id[:8], *(_slug(model) for model in models), f"x{len(cards)}"])

    def device_name(self, device: str) -> str:
        """What a reader calls the device: the CPU's model, or the GPUs' models."""
        if device == CPU:
            return self.facts.cpu_model
        return " + ".join(sorted({gpu.name for gpu in self.gpus})) or "no GPU"

    def describe(self) -> str:
        """One line: ``no NVIDIA GPU (no libnvidia-ml.so.1); CPU: AMD EPYC, 2 cores, 2 cards of 1 core``."""
        cores = f"{self.facts.logical_cores} core{'s' if self.facts.logical_cores > 1 else ''}"
        cards = f"{len(self.cpu_cards)} card{'s' if len(self.cpu_cards) > 1 else ''} of {self.cpu_cards[0].name}"
        return f"{self._gpus_text()}; CPU: {self.facts.cpu_model}, {cores}, {cards}"

    def _gpus_text(self) -> str:
        if not self.gpus:
            return f"no NVIDIA GPU ({self.gpu_note})" if self.gpu_note else "no NVIDIA GPU"
        return by_model(self.gpus) + (" (split by MIG)" if any(gpu.mig_enabled for gpu in self.gpus) else "")


def by_model(cards: Sequence[Card], between: str = ", ") -> str:
    """``7 x NVIDIA A100-SXM4-40GB, 1 x NVIDIA H100``."""
    names = [card.name for card in cards]
    return between.join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def discover(
    nvml: Nvml | str | None = None,
    cpu_cards: int | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    allowed_cores: Callable[[], Collection[int]] | None = None,
    host: Host | None = None,
) -> Machine:
    """This machine.

    ``nvml`` None opens NVML, a text is the reason there is none. ``cpu_cards`` is the number of CPU
    cards (default 2 where there are 2 cores, else 1). Raises DeviceError when NVML fails, when there
    are fewer cores than CPU cards, and outside Linux.
    """
    if not sys.platform.startswith("linux"):
        raise DeviceError(
            "machine", got=sys.platform, expected="Linux", remedy="Cores, leases and processes need /proc"
        )
    variables = os.environ if variables is None else variables
    facts = host if host is not None else probe_host(root)
    allowed = (allowed_cores or (lambda: os.sched_getaffinity(0)))()
    cards = split_cores(physical_cores(allowed, root), cpu_cards)
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return Machine(facts, cards, gpu_note="CUDA_VISIBLE_DEVICES is empty")
    found = open_nvml() if nvml is None else nvml
    if isinstance(found, str):
        return Machine(facts, cards, gpu_note=found)
    gpus = visible_gpus(found.gpus(), visible)
    note = "" if gpus else "NVML finds none" if visible is None else f"CUDA_VISIBLE_DEVICES={visible} names none"
    return Machine(facts, cards, gpus, found.driver(), found.cuda_driver(), note)


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, by index (PCI bus order) or UUID prefix; None leaves all."""
    if visible is None:
        return tuple(gpus)
    words = [word.strip() for word in visible.split(",")]
    chosen = []
    for word in words:
        match = [g for g in gpus if str(g.index) == word or (word.startswith("GPU-") and g.uuid.startswith(word))]
        # CUDA shows the devices before the first word that names none.
        if len(match) != 1:
            break
        chosen += match
    return tuple(sorted(set(chosen), key=lambda gpu: gpu.index))


def physical_cores(allowed: Collection[int], root: Path = Path("/")) -> tuple[int, ...]:
    """One logical CPU for each physical core this process may use, within its cgroup's CPU quota."""
    chosen: list[int] = []
    taken: set[int] = set()
    for cpu in sorted(allowed):
        if cpu not in taken:
            chosen.append(cpu)
            taken.update(_siblings(cpu, root))
    quota = _quota_cores(root)
    return tuple(chosen if quota is None else chosen[: max(1, quota)])


def split_cores(cores: Sequence[int], cards: int | None) -> tuple[CpuCard, ...]:
    """``cards`` CPU cards of equally many neighbouring cores; cores left over stay unused."""
    count = cards if cards is not None else min(2, len(cores))
    if not 1 <= count <= len(cores):
        raise DeviceError(
            "CPU cards",
            got=count,
            expected=f"1 to {len(cores)}, as many as this process may use physical cores",
            remedy="Set the number of CPU cards in perf.yaml, or give the process more cores",
        )
    each = len(cores) // count
    return tuple(CpuCard(index, tuple(cores[index * each : (index + 1) * each])) for index in range(count))


def why_not_run(case: Case, target: str, machine: Machine, hosts: int = 0) -> str | None:
    """Why this machine cannot run the case on the target, in one line; None when it can.

    ``hosts`` of multi-node cases are configured, this machine among them.
    """
    cards = machine.cards_of(target)
    if not cards:
        return f"looked for {_wanted(target)}, found {machine.describe()}"
    if case.nodes > max(1, hosts):
        each = f"{case.cards_per_node} card{'s' if case.cards_per_node > 1 else ''}"
        named = f"{hosts} host{'' if hosts == 1 else 's'}" if hosts else "none"
        return f"needs {case.nodes} nodes of {each}, and perf.yaml names {named} (nodes.hosts; docs/multi-node.md)"
    if case.cards_per_node > len(cards):
        found = f"{len(cards)} ({cards[0].name} each)" if target == CPU else by_model(cards)
        return f"needs {case.cards_per_node} cards of {target}, this machine has {found}"
    return None


def _wanted(target: str) -> str:
    if target == GPU:
        return "an NVIDIA GPU"
    model = target.upper()
    # The letters whose names begin with a vowel: an A100, an H100, a V100.
    article = "an" if model[0] in "AEFHILMNORSX" else "a"
    return f"{article} {model} (NVML name with {model!r})"


def environment_of(
    machine: Machine,
    cards: Sequence[Card],
    *,
    framework: str,
    framework_version: str,
    framework_commit: str = "",
    data: str = "",
    facts: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Environment:
    """The environment of a result measured on ``cards``.

    ``facts`` are those of rank 0's step log header: ``threads``, ``cuda``, ``cudnn`` and ``nccl`` are
    taken over. ``data`` names the images. ``variables`` are the caller's (default: this process's).
    """
    facts = facts or {}
    host = machine.facts
    gpus = [card for card in cards if isinstance(card, Gpu)]
    return Environment(
        host=host.host,
        host_id=host.host_id,
        os=host.os,
        kernel=host.kernel,
        cpu_model=host.cpu_model,
        logical_cores=str(host.logical_cores),
        memory_gib=f"{host.memory_bytes / GIB:.0f}",
        device=GPU if gpus else CPU,
        cards=by_model(cards, " + "),
        card_ids=" ".join(gpu.uuid for gpu in gpus),
        driver=machine.driver if gpus else "",
        cuda=facts.get("cuda", machine.cuda_driver) if gpus else "",
        cudnn=facts.get("cudnn", ""),
        nccl=facts.get("nccl", ""),
        power_limit_watts=" ".join(str(watts) for watts in sorted({gpu.power_limit_watts for gpu in gpus})),
        framework=framework,
        framework_version=framework_version,
        framework_commit=framework_commit,
        threads=facts.get("threads", ""),
        flags=flags_of(os.environ if variables is None else variables, framework),
        data=data,
    )


def _siblings(cpu: int, root: Path) -> set[int]:
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    return parse_cpu_list(path.read_text()) if path.exists() else {cpu}


def parse_cpu_list(text: str) -> set[int]:
    """The kernel's list format: ``0-3,8``."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _quota_cores(root: Path) -> int | None:
    """Whole cores of the CPU quota a container sees at its cgroup root (version 2, then 1); None without one."""
    unified = root / "sys/fs/cgroup/cpu.max"
    if unified.exists():
        quota, _, period = unified.read_text().strip().partition(" ")
        return None if quota == "max" else int(quota) // int(period or 100_000)
    legacy = root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    if legacy.exists():
        microseconds = int(legacy.read_text())
        return None if microseconds < 0 else microseconds // int(legacy.with_name("cpu.cfs_period_us").read_text())
    return None


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"
