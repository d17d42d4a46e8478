"""Finds the cards of this machine (GPUs by NVML, CPU cards by core topology), and says why a case cannot run on them.

A CPU card is a set of physical cores, to which the process that drives the card is pinned. No two cards share a core.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.machine.environment import CPU, GPU, Environment, flags_of, place_of
from helpers.machine.host import Host, physical_cores, probe_host
from helpers.machine.nvml import Gpu, Nvml, open_nvml
from helpers.machine.surroundings import home_problem, loopback_problem, shared_memory_problem
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.program import PROGRAM_FACT

GIB = 1024**3
VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class CpuCard:
    """A CPU card: the cores to which one rank is pinned."""

    index: int
    # Logical CPUs, one for each physical core of the card.
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
    """This machine and its cards."""

    facts: Host
    cpu_cards: tuple[CpuCard, ...]
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    # The newest CUDA that the driver serves.
    cuda_driver: str = ""
    # Why there are no GPUs; empty if there are some.
    gpu_note: str = ""
    # The GPUs among the visible ones that have a fault.
    faulty: tuple[Gpu, ...] = ()
    # What CUDA does not read of CUDA_VISIBLE_DEVICES; empty if it reads all.
    unread: str = ""
    # The UUIDs of all GPUs, also of those that CUDA_VISIBLE_DEVICES hides.
    card_ids: tuple[str, ...] = ()
    # Why processes cannot share memory through /dev/shm; empty if they can.
    shared_memory_problem: str = ""
    # Why Paddle cannot make its folder in the home; empty if it can.
    home_problem: str = ""
    # Why two processes of this machine cannot connect through a port, as ranks do; empty if they can.
    loopback_problem: str = ""
    # The name that perf.yaml gives this machine.
    name: str = ""
    # The pool of perf.yaml to which this machine belongs.
    pool: str = ""

    @property
    def host(self) -> str:
        return self.facts.host

    @property
    def host_id(self) -> str:
        return self.facts.host_id

    def cards_of(self, target: str) -> tuple[Card, ...]:
        """The cards of a target: ``cpu``, ``gpu`` (any), or a model by NVML's name (``v100``, ``a100``)."""
        if target == CPU:
            return self.cpu_cards
        return self.gpus if target == GPU else tuple(gpu for gpu in self.gpus if gpu.is_model(target))

    @property
    def place(self) -> str:
        """The machine's name in the segments of its results."""
        return place_of(self.host_id, self.name, self.pool)

    @property
    def former_ids(self) -> tuple[str, ...]:
        """The machine's own id if perf.yaml gave it a name since; empty for a pool."""
        return (self.host_id,) if self.name and not self.pool else ()

    @property
    def known_by(self) -> str:
        """In words, how the machine is named in its baselines."""
        if self.pool:
            return f"by the pool {self.pool} of perf.yaml, whose nodes count as equal"
        return f"by its name in perf.yaml, {self.name}" if self.name else f"by {self.facts.id_by}"

    def machine_key(self, device: str, host_id: str | None = None) -> str:
        """The name of this machine's recorded baselines, usable as a file name: the machine's name in perf.yaml or its
        host id, its device models and their count. ``host_id`` may be an earlier id of the machine."""
        # A fault of one card is no reason to look for the baselines of the others elsewhere.
        cards: Sequence[Card] = self.cpu_cards if device == CPU else (*self.gpus, *self.faulty)
        models = sorted({card.name for card in cards} - {""}) if device == GPU else [self.facts.cpu_model]
        if device == CPU:
            models.append(f"{self.facts.logical_cores}c")
        called = self.pool or self.name
        known = _slug(called) if called and host_id is None else (host_id or self.host_id)[:8]
        return "-".join([known, *(_slug(model) for model in models), f"x{len(cards)}"])

    def device_name(self, device: str) -> str:
        """The device's name for readers: the CPU's model, or the GPUs' models."""
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
        return by_model(self.gpus) + self.left_out

    @property
    def left_out(self) -> str:
        """``; left out: GPU3 (nvmlDeviceGetHandleByIndex: GPU is lost)``: the visible GPUs that do not count as cards,
        and what was not read of CUDA_VISIBLE_DEVICES."""
        named = ", ".join(f"GPU{gpu.index} ({gpu.fault})" for gpu in self.faulty)
        return (f"; left out: {named}" if named else "") + (f"; {self.unread}" if self.unread else "")


def by_model(cards: Sequence[Card], between: str = ", ") -> str:
    """``7 x NVIDIA A100-SXM4-40GB, 1 x NVIDIA H100``."""
    names = [card.name for card in cards]
    return between.join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def hides_all_gpus(variables: Mapping[str, str]) -> bool:
    """Whether CUDA_VISIBLE_DEVICES is set and empty: then no GPU is used, also where the driver does not answer."""
    visible = variables.get(VISIBLE)
    return visible is not None and not visible.strip()


def discover(
    nvml: Nvml | str | None = None,
    cpu_cards: int | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
    allowed_cores: Callable[[], Collection[int]] | None = None,
    host: Host | None = None,
) -> Machine:
    """Find what this machine has.

    If ``nvml`` is None, NVML is opened; a text is the reason why there is no NVML. ``cpu_cards`` is the number of CPU
    cards (by default 2 if there are at least 2 cores, else 1). A GPU with a fault is left out. Raises DeviceError if
    NVML fails, if all visible GPUs have a fault, if there are fewer cores than CPU cards, and on other systems than
    Linux.
    """
    if not sys.platform.startswith("linux"):
        raise DeviceError(
            "machine", got=sys.platform, expected="Linux", remedy="Cores, leases and processes need /proc"
        )
    variables = os.environ if variables is None else variables
    hidden = hides_all_gpus(variables)
    cores = (allowed_cores or (lambda: os.sched_getaffinity(0)))()
    found, every = _found(nvml, may_fail=hidden)
    ids = tuple(gpu.uuid for gpu in every if gpu.uuid)
    facts = host if host is not None else probe_host(root, card_ids=ids)
    cards = split_cores(physical_cores(cores, root), cpu_cards)
    machine = Machine(
        facts,
        cards,
        card_ids=ids,
        shared_memory_problem=shared_memory_problem(root),
        home_problem=home_problem(variables, root),
        loopback_problem=loopback_problem(),
    )
    if hidden:
        return replace(machine, gpu_note="CUDA_VISIBLE_DEVICES is empty")
    if isinstance(found, str):
        return replace(machine, gpu_note=found)
    visible = variables.get(VISIBLE)
    chosen, stop = visible_gpus(every, visible)
    gpus, faulty = (tuple(gpu for gpu in chosen if bool(gpu.fault) is bad) for bad in (False, True))
    if faulty and not gpus:
        raise DeviceError(
            "GPUs",
            got="; ".join(f"GPU{gpu.index}: {gpu.fault}" for gpu in faulty),
            expected="one at least that answers",
            remedy=f"{faulty[0].remedy}. {VISIBLE} chooses other cards; empty, it runs without GPUs",
        )
    return replace(
        machine,
        gpus=gpus,
        driver=found.driver(),
        cuda_driver=found.cuda_driver(),
        gpu_note="" if gpus else "NVML finds none" if visible is None else f"{VISIBLE}={visible} names no whole card",
        faulty=faulty,
        unread=f"{VISIBLE}={visible}: CUDA stops at {stop!r}, which names no card" if gpus and stop is not None else "",
    )


def _found(nvml: Nvml | str | None, *, may_fail: bool) -> tuple[Nvml | str, tuple[Gpu, ...]]:
    """NVML and all GPUs, or why there is none. With ``may_fail`` an error of NVML counts as a reason too: without GPUs
    in use, only facts about the cards are missing then."""
    try:
        found = open_nvml() if nvml is None else nvml
        return found, () if isinstance(found, str) else found.gpus()
    except DeviceError as error:
        if not may_fail:
            raise
        return str(error), ()


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that CUDA_VISIBLE_DEVICES (``visible``) selects, by index in PCI bus order or by UUID prefix, all if it
    is None; and the word that names no card or several, at which CUDA stops reading; None if it reads all."""
    if visible is None:
        return tuple(gpus), None
    chosen: set[Gpu] = set()
    stop = None
    for word in (word.strip() for word in visible.split(",")):
        is_uuid = word.startswith("GPU-")
        match = [gpu for gpu in gpus if str(gpu.index) == word or (is_uuid and gpu.uuid.startswith(word))]
        if not match and is_uuid:
            # A lost card may not tell its UUID. A word that no other card answers to is its.
            match = [gpu for gpu in gpus if not gpu.uuid]
        if len(match) != 1:
            stop = word
            break
        chosen.update(match)
    return tuple(sorted(chosen, key=lambda gpu: gpu.index)), stop


def split_cores(cores: Sequence[int], cards: int | None) -> tuple[CpuCard, ...]:
    """``cards`` CPU cards, each of the same number of neighbouring cores; remaining cores are not used."""
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


def why_not_run(
    case: Case, target: str, machine: Machine, hosts: int = 0, named: str = "no others are known"
) -> str | None:
    """Why this machine cannot run the case on the target, in one line; None when it can.

    ``hosts`` is how many hosts there are for cases of several nodes, this machine among them; ``named`` says so in
    words.
    """
    cards = machine.cards_of(target)
    left_out = "" if target == CPU else machine.left_out
    if not cards:
        return f"looked for {_wanted(target)}, found {machine.describe()}"
    if case.nodes > max(1, hosts):
        each = f"{case.cards_per_node} card{'s' if case.cards_per_node > 1 else ''}"
        return f"needs {case.nodes} nodes of {each}, and {named}"
    if case.cards_per_node > len(cards):
        found = f"{len(cards)} ({cards[0].name} each)" if target == CPU else by_model(cards)
        return f"needs {case.cards_per_node} cards of {target}, this machine has {found}{left_out}"
    return next((why for card in cards if isinstance(card, Gpu) and (why := _why_not_on(case, card))), None)


def _why_not_on(case: Case, gpu: Gpu) -> str:
    """Why the case cannot run on this model of GPU; empty if it can, or if it is not known."""
    if gpu.compute_capability < case.least_capability:
        needed, has = (".".join(map(str, each)) for each in (case.least_capability, gpu.compute_capability))
        what = " with compile" if case.compile else ""
        return f"{case.precision.value}{what} needs compute capability {needed}, {gpu.name} has {has}"
    if gpu.memory_bytes < case.least_device_bytes:
        return (
            f"{case.batch_size_per_card} images in {case.precision.value} need more than "
            f"{case.least_device_bytes / GIB:.1f} GiB for what the backward pass reads, {gpu.name} has "
            f"{gpu.memory_bytes / GIB:.1f} GiB"
        )
    return ""


def _wanted(target: str) -> str:
    if target == GPU:
        return "an NVIDIA GPU"
    model = target.upper()
    # The names of these letters begin with a vowel sound: an A100, an H100, but a V100.
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

    ``facts`` are those in the header of rank 0's step log, of which ``threads``, ``cuda`` (the build's),
    ``cuda_runtime``, ``cublas``, ``cudnn`` and ``nccl`` (the loaded ones) and ``program`` are used. ``data`` names the
    images.
    ``variables`` are the caller's (default: this process's).
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
        cuda=_cuda_of(facts) if gpus else "",
        cudnn=facts.get("cudnn", ""),
        nccl=facts.get("nccl", ""),
        cublas=facts.get("cublas", ""),
        driver_cuda=machine.cuda_driver if gpus else "",
        power_limit_watts=" ".join(str(watts) for watts in sorted({gpu.power_limit_watts for gpu in gpus})),
        framework=framework,
        framework_version=framework_version,
        framework_commit=framework_commit,
        threads=facts.get("threads", ""),
        flags=flags_of(os.environ if variables is None else variables, framework),
        data=data,
        machine=machine.name,
        pool=machine.pool,
        program=facts.get(PROGRAM_FACT, "") if gpus else "",
    )


def _cuda_of(facts: Mapping[str, str]) -> str:
    """The CUDA for which the build was made, and the loaded runtime if its version differs; empty if neither is
    known."""
    build, runtime = facts.get("cuda", ""), facts.get("cuda_runtime", "")
    return f"{build or 'unknown'} (runtime {runtime})" if runtime not in ("", build) else build


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"
