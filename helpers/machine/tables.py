"""Makes the environment tables, as the published documents have them: system, GPU, CPU, memory, software, interconnect
and storage, and the topology matrix with its legend.

All values are texts. They are stored with every result and printed by ``perfgate doctor``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from helpers.common.unknown import Unknown, ask
from helpers.machine.devices import GIB, Machine
from helpers.machine.facts import FrameworkFacts, SystemFacts, cpu_list, gather
from helpers.machine.framework_builds import BuildFinder
from helpers.machine.nvml import GpuDetails, open_nvml
from helpers.trainers.contract.frameworks import Framework

T = TypeVar("T")

TOPOLOGY = "topology"
COLUMNS = "columns"
_STORAGE = "interconnect and storage"
_LEGEND = "legend"
# A line of the legend: ``  NV#  = Connection traversing …``.
_EXPLAINED = re.compile(r"^ *(\S+) *[=:] *(\S.*)$", re.MULTILINE)
_CPU_BUILD = "none: a build for CPUs"


# By title, in the order of printing: the rows of a table, values by name.
Tables = dict[str, dict[str, str]]


def session_tables(
    machine: Machine,
    builds: BuildFinder,
    *,
    interpreters: Mapping[Framework, str | None],
    data: str,
    folders: Mapping[str, Path],
) -> Tables:
    """The tables for a result. NVML is opened only if the machine has GPUs."""
    nvml = ask(open_nvml) if machine.gpus else "no GPU"
    found = str(nvml) if isinstance(nvml, Unknown) else nvml
    facts = gather(machine, found, builds, interpreters=interpreters, data=data, folders=folders)
    return tables_of(facts)


def tables_of(facts: SystemFacts) -> Tables:
    """Makes the tables. In place of an unknown value they say why it is unknown."""
    sections: Tables = {"system": _system(facts), "GPU": _gpus(facts), "CPU": _cpu(facts), "memory": _memory(facts)}
    for framework in facts.frameworks:
        sections[framework.build.framework.value] = _framework(framework, facts)
    sections[_STORAGE] = {
        "interconnect": str(facts.interconnect),
        **{f"disk of {name}": _text(where, lambda disk: disk.describe()) for name, where in facts.storage.items()},
        "dataset": facts.data,
    }
    if facts.topology and not isinstance(facts.topology, Unknown):
        matrix, _, legend = facts.topology.partition("Legend:")
        sections[TOPOLOGY] = _matrix(matrix)
        sections[_LEGEND] = dict(_EXPLAINED.findall(legend))
    return sections


def _system(facts: SystemFacts) -> dict[str, str]:
    host, state = facts.machine.facts, facts.host
    virtual = _text(state.hypervisor, lambda yes: "yes (the CPU says that a hypervisor runs it)" if yes else "no")
    return {
        "host": f"{host.host} ({host.host_id[:8]})",
        "operating system": host.os,
        "kernel": host.kernel,
        "virtual machine": virtual,
        "container": state.container or "no",
        "clock": _text(state.clock_source, str),
        "suite": _text(facts.suite, lambda version: f"perfgate {version}"),
    }


def _gpus(facts: SystemFacts) -> dict[str, str]:
    machine = facts.machine
    if not machine.gpus:
        return {"GPU": f"none ({machine.gpu_note or 'NVML finds none'})"}
    details = [(gpu, facts.details[gpu.uuid]) for gpu in machine.gpus if gpu.uuid in facts.details]

    def each(value: Callable[[GpuDetails], str]) -> str:
        return _each({gpu.index: value(detail) for gpu, detail in details})

    return {
        "GPU": _counted(machine),
        "memory of a GPU": _each({g.index: f"{g.memory_bytes / GIB:.1f} GiB" for g in machine.gpus}),
        "driver version": machine.driver,
        "driver CUDA": machine.cuda_driver,
        "compute capability": _each({g.index: ".".join(map(str, g.compute_capability)) for g in machine.gpus}),
        "power limit": each(lambda d: f"{_text(d.power_limit_watts, _watts)} (default "
                                      f"{_text(d.default_power_limit_watts, _watts)})"),
        "SM clock": each(lambda d: f"applications {_text(d.applications_clock_mhz, _mhz)}, "
                                   f"most {_text(d.max_sm_clock_mhz, _mhz)}"),
        "persistence mode": each(lambda d: _text(d.persistence, _on)),
        "ECC": each(lambda d: _text(d.ecc, _on)),
        "PCI Express": each(lambda d: f"generation {_text(d.max_pcie_generation, str)}, "
                                      f"x{_text(d.pcie_width, str)} of x{_text(d.max_pcie_width, str)}"),
    }  # fmt: skip


def _cpu(facts: SystemFacts) -> dict[str, str]:
    host, state = facts.machine.facts, facts.host
    threads = max((len(each) for each in state.siblings.values()), default=1)
    cards = " + ".join(f"{card.id}: {_cores(card.cores)}" for card in facts.machine.cpu_cards)
    return {
        # As in the published documents: model, then logical CPUs.
        "CPU": f"{host.cpu_model} * {host.logical_cores}",
        "physical cores of this process": f"{state.physical_cores} (threads a core: {threads})",
        "CPU cards": cards,
        "NUMA nodes": _text(state.numa_nodes, lambda nodes: str(len(nodes))),
        "CPU quota": _text(state.quota_cores, lambda cores: "none" if cores is None else f"{cores:g} cores"),
        "governor": _text(state.governors, lambda names: ", ".join(sorted(names))),
    }


def _memory(facts: SystemFacts) -> dict[str, str]:
    state = facts.host
    return {
        "memory": f"{facts.machine.facts.memory_bytes / GIB:.0f} GiB",
        "limit of the container": _text(state.memory_limit_bytes, lambda most: "none" if most is None else _gib(most)),
        "swap in use": _text(state.swap_used_bytes, lambda used: _gib(used) if used else "none"),
        "transparent huge pages": _text(state.huge_pages, str),
        "automatic NUMA balancing": _text(state.numa_balancing, _on),
        "/dev/shm": _text(state.shared_memory, lambda size: _gib(size.total_bytes)),
    }


def _framework(framework: FrameworkFacts, facts: SystemFacts) -> dict[str, str]:
    build = framework.build
    rows = {
        "version": f"{build.version} ({build.distribution})",
        "commit": build.commit or "the build does not say",
    }
    if isinstance(framework.libraries, str):
        return {**rows, **dict.fromkeys(("CUDA", "cuDNN", "NCCL", "DALI", "Python"), f"unknown: {framework.libraries}")}
    cuda = framework.stated("cuda")
    return {
        **rows,
        "CUDA": cuda or _CPU_BUILD,
        "cuDNN": _library(framework, "cudnn", facts) if cuda else _CPU_BUILD,
        "NCCL": _library(framework, "nccl", facts) if cuda else _CPU_BUILD,
        "DALI": framework.stated("dali_wheel") or "not installed",
        "Python": framework.stated("python") or "unknown",
    }


def _library(framework: FrameworkFacts, name: str, facts: SystemFacts) -> str:
    """The version for which the build was made, and the version that it finds: the interpreter's wheel, else the
    machine's files."""
    parts = [f"built for {framework.stated(name)}"] if framework.stated(name) else []
    if wheel := framework.stated(f"{name}_wheel"):
        parts.append(wheel)
    elif on_machine := facts.machine_libraries.get(name):
        parts.append(f"on this machine {', '.join(on_machine)}")
    else:
        parts.append("none found")
    return "; ".join(parts)


def _matrix(text: str) -> dict[str, str]:
    """The matrix as rows whose cells are separated by tabs, as nvidia-smi writes them."""
    first, *others = [line.split("\t") for line in text.splitlines() if line.strip()]
    rows = {COLUMNS: first, **{line[0].strip(): line[1:] for line in others}}
    return {name: "\t".join(cell.strip() for cell in cells if cell.strip()) for name, cells in rows.items()}


def _counted(machine: Machine) -> str:
    names = sorted({gpu.name for gpu in machine.gpus})
    return " + ".join(f"{name} * {sum(gpu.name == name for gpu in machine.gpus)}" for name in names)


def _each(values: Mapping[int, str]) -> str:
    """The value that all cards have; if they differ, each value with its cards: ``GPU0-2,4-7: on; GPU3: off``."""
    cards: dict[str, list[int]] = {}
    for index, value in values.items():
        cards.setdefault(value, []).append(index)
    if len(cards) == 1:
        return next(iter(cards))
    return "; ".join(f"GPU{cpu_list(frozenset(found))}: {value}" for value, found in cards.items()) or "unknown"


def _text(value: T | Unknown, shown: Callable[[T], str]) -> str:
    return str(value) if isinstance(value, Unknown) else shown(value)


def _on(value: bool) -> str:
    return "on" if value else "off"


def _watts(value: int) -> str:
    return f"{value} W"


def _mhz(value: int) -> str:
    return f"{value} MHz"


def _gib(value: int) -> str:
    return f"{value / GIB:.1f} GiB"


def _cores(cores: Sequence[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {','.join(map(str, cores))}"
