"""Reads the state of the machine from ``/proc``, ``/sys`` and the limits of this process. Also finds out whether the
kernel's OOM killer ended processes while a job ran.

All files are read under ``root``. A value that cannot be read is an Unknown, never a default.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.devices import control_groups, parse_cpu_list, siblings_of, tightest_quota
from helpers.machine.unknown import Unknown, ask

UNLIMITED = resource.RLIM_INFINITY
# Variables of NVIDIA's images. Only these are read, since the whole environment must never be printed.
_IMAGE_VARIABLES = (
    "NVIDIA_PADDLEPADDLE_VERSION",
    "NVIDIA_PYTORCH_VERSION",
    "NVIDIA_TENSORFLOW_VERSION",
    "NVIDIA_MXNET_VERSION",
)
_IMAGE_NAME = "PERFGATE_IMAGE"
_RUNTIMES = {"docker": "docker", "kubepods": "Kubernetes", "libpod": "podman", "containerd": "containerd", "lxc": "LXC"}


@dataclass(frozen=True)
class OomKills:
    """The kernel's counts of processes that it killed because memory ran out; None if a count cannot be read."""

    # In this process's memory control group, in which its jobs run too.
    group: int | None = None
    # On the whole machine, other containers included.
    machine: int | None = None
    # Whether the group's count includes the groups below it (version 2).
    inherits: bool = False


def read_oom_kills(root: Path = Path("/")) -> OomKills:
    """The counts at this moment."""
    machine = _count(root / "proc/vmstat")
    for folder in reversed(control_groups(root, "memory")):
        if (count := _count(folder / "memory.events")) is not None:
            return OomKills(count, machine, inherits=True)
        if (count := _count(folder / "memory.oom_control")) is not None:
            return OomKills(count, machine)
    return OomKills(None, machine)


def oom_evidence(before: OomKills, after: OomKills) -> tuple[bool, str]:
    """Whether the OOM killer ended processes between two readings, and a text about it for a process that ended by
    SIGKILL.

    The machine's count is used only if the group's is not known, since another container may have run out of memory.
    """
    group, machine = _grown(before.group, after.group), _grown(before.machine, after.machine)
    if group:
        return True, f"the kernel's OOM killer was at work (oom_kill +{group})"
    if group == 0 and after.inherits:
        return False, "not the kernel's OOM killer (oom_kill +0)"
    if machine:
        return True, f"the kernel's OOM killer was at work on this machine (oom_kill +{machine})"
    if machine == 0:
        return False, "not the kernel's OOM killer (oom_kill +0)"
    return False, "whether by the kernel's OOM killer cannot be read here"


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return None


@dataclass(frozen=True)
class Space:
    """The space of a mounted file system."""

    total_bytes: int
    # Free space for ordinary users.
    free_bytes: int
    # How many more files it can hold; None if it sets no limit.
    free_files: int | None = None


@dataclass(frozen=True)
class HostState:
    """The state of the machine at one moment."""

    # The logical CPUs that this process may use.
    allowed_cpus: frozenset[int]
    # By CPU, the logical CPUs that share its core.
    siblings: Mapping[int, frozenset[int]]
    numa_nodes: Mapping[int, frozenset[int]] | Unknown
    governors: frozenset[str] | Unknown
    boost: bool | Unknown
    load_1m: float | Unknown
    # The share of all CPU time since boot that the hypervisor gave to others.
    steal_share: float | Unknown
    # The CPU quota of the container; None without one.
    quota_cores: float | Unknown | None
    # In how many periods the quota stopped this container.
    throttled_periods: int | Unknown
    # How often a core was slowed by heat since boot.
    core_throttles: int | Unknown
    clock_source: str | Unknown
    hypervisor: bool | Unknown
    container: str
    image: str
    memory_available_bytes: int | Unknown
    memory_limit_bytes: int | Unknown | None
    swap_used_bytes: int | Unknown
    huge_pages: str | Unknown
    huge_pages_defrag: str | Unknown
    numa_balancing: bool | Unknown
    shared_memory: Space | Unknown
    # The next four are soft limits of this process; UNLIMITED if there is none.
    open_files: int
    locked_bytes: int
    processes: int
    core_bytes: int
    # The kernel's pattern of the file for the memory of a crashed process.
    core_pattern: str | Unknown
    # How many more processes the container may have; None if it has no limit.
    free_processes: int | Unknown | None
    # How many ports are free for connections and ranks.
    free_ports: int | Unknown
    # For each core that may not run at the hardware's top frequency: (allowed, top) in MHz.
    capped_cores: Mapping[int, tuple[float, float]] | Unknown

    @property
    def physical_cores(self) -> int:
        """How many physical cores this process may use."""
        return len({min(self.siblings.get(cpu, frozenset({cpu}))) for cpu in self.allowed_cpus})


def probe_host_state(
    root: Path = Path("/"),
    *,
    variables: Mapping[str, str] | None = None,
    allowed_cpus: Callable[[], Collection[int]] = lambda: os.sched_getaffinity(0),
    space_of: Callable[[Path], Space] | None = None,
    limit_of: Callable[[int], int] = lambda which: resource.getrlimit(which)[0],
) -> HostState:
    """Look at this machine. It takes milliseconds, starts no process, and never raises for a file that is missing."""
    variables = os.environ if variables is None else variables
    sizes = space_of or space
    allowed = frozenset(allowed_cpus())
    cpu_folder = root / "sys/devices/system/cpu"
    kind = _container(root, variables)
    return HostState(
        allowed_cpus=allowed,
        siblings={cpu: frozenset(siblings_of(cpu, root)) for cpu in sorted(allowed)},
        numa_nodes=ask(lambda: _numa_nodes(root / "sys/devices/system/node")),
        governors=ask(lambda: _governors(cpu_folder)),
        boost=ask(lambda: _boost(cpu_folder)),
        load_1m=ask(lambda: float(_read(root / "proc/loadavg").split()[0])),
        steal_share=ask(lambda: _steal_share(_read(root / "proc/stat"))),
        quota_cores=ask(lambda: tightest_quota(root)),
        throttled_periods=ask(lambda: _throttled(root)),
        core_throttles=ask(lambda: _core_throttles(cpu_folder)),
        clock_source=ask(
            lambda: _read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        ),
        hypervisor=ask(lambda: _hypervisor(_read(root / "proc/cpuinfo"))),
        container=kind,
        image=_image(root, variables, kind),
        memory_available_bytes=ask(lambda: _memory(root, "MemAvailable")),
        memory_limit_bytes=ask(lambda: _memory_limit(root)),
        swap_used_bytes=ask(lambda: _memory(root, "SwapTotal") - _memory(root, "SwapFree")),
        huge_pages=ask(lambda: _chosen(_read(root / "sys/kernel/mm/transparent_hugepage/enabled"))),
        huge_pages_defrag=ask(lambda: _chosen(_read(root / "sys/kernel/mm/transparent_hugepage/defrag"))),
        numa_balancing=ask(lambda: _read(root / "proc/sys/kernel/numa_balancing").strip() != "0"),
        shared_memory=ask(lambda: sizes(root / "dev/shm")),
        open_files=limit_of(resource.RLIMIT_NOFILE),
        locked_bytes=limit_of(resource.RLIMIT_MEMLOCK),
        processes=limit_of(resource.RLIMIT_NPROC),
        core_bytes=limit_of(resource.RLIMIT_CORE),
        core_pattern=ask(lambda: _read(root / "proc/sys/kernel/core_pattern").strip()),
        free_processes=ask(lambda: _free_processes(root)),
        free_ports=ask(lambda: _free_ports(root)),
        capped_cores=ask(lambda: _capped(cpu_folder, allowed)),
    )


def space(path: Path) -> Space:
    """The file system that holds ``path``. Raises OSError."""
    found = os.statvfs(path)
    files = found.f_favail if found.f_files else None
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, files)


def _numa_nodes(folder: Path) -> dict[int, frozenset[int]]:
    found = {}
    for path in folder.glob("node[0-9]*/cpulist"):
        text = _read(path).strip()
        if text:
            found[int(path.parent.name[4:])] = frozenset(parse_cpu_list(text))
    if not found:
        raise ValueError(f"no node under {folder}")
    return dict(sorted(found.items()))


def _governors(cpu_folder: Path) -> frozenset[str]:
    found = frozenset(_read(path).strip() for path in cpu_folder.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    if not found:
        raise ValueError("no frequency control is visible here")
    return found


def _boost(cpu_folder: Path) -> bool:
    for name, on in (("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")):
        path = cpu_folder / name
        if path.exists():
            return _read(path).strip() == on
    raise ValueError("no frequency control is visible here")


def _steal_share(stat: str) -> float:
    line = next((line for line in stat.splitlines() if line.startswith("cpu ")), "")
    ticks = [int(word) for word in line.split()[1:9]]
    if len(ticks) < 8 or not sum(ticks):
        raise ValueError("/proc/stat has no steal time")
    return ticks[7] / sum(ticks)


def _throttled(root: Path) -> int:
    counts = []
    for folder in control_groups(root, "cpu"):
        if (folder / "cpu.stat").exists():
            counts += re.findall(r"^nr_throttled (\d+)$", _read(folder / "cpu.stat"), re.MULTILINE)
    return max(map(int, counts), default=0)


def _memory_limit(root: Path) -> int | None:
    """The tightest memory limit above this process; None without one."""
    names = ("memory.max", "memory.limit_in_bytes")
    files = [folder / name for folder in control_groups(root, "memory") for name in names]
    texts = [_read(path).strip() for path in files if path.exists()]
    # Version 1 writes "no limit" as the largest number of whole pages.
    return min((int(text) for text in texts if text != "max" and int(text) < 1 << 60), default=None)


def _free_processes(root: Path) -> int | None:
    """How many more processes and threads the tightest control group allows; None without a limit."""
    left = []
    for folder in control_groups(root, "pids"):
        if (folder / "pids.max").exists() and (most := _read(folder / "pids.max").strip()) != "max":
            left.append(int(most) - int(_read(folder / "pids.current")))
    return min(left, default=None)


def _free_ports(root: Path) -> int:
    """How many ports of the kernel's range are not used by a TCP socket; a closing socket still uses its port."""
    first, last = map(int, _read(root / "proc/sys/net/ipv4/ip_local_port_range").split())
    found = re.search(r"^TCP: inuse (\d{1,20}).{0,200}? tw (\d{1,20})", _read(root / "proc/net/sockstat"), re.MULTILINE)
    if found is None:
        raise ValueError("/proc/net/sockstat has no TCP")
    return last - first + 1 - int(found.group(1)) - int(found.group(2))


def _capped(cpu_folder: Path, cpus: Collection[int]) -> dict[int, tuple[float, float]]:
    found = {}
    for cpu in sorted(cpus):
        most, top = frequency_bounds(cpu_folder / f"cpu{cpu}/cpufreq")
        if most < top:
            found[cpu] = (most, top)
    return found


def frequency_bounds(cpufreq: Path) -> tuple[float, float]:
    """In MHz: the highest frequency that the core's governor may choose, and the highest of the hardware."""
    most, top = (int(_read(cpufreq / f"{name}_max_freq")) / 1000 for name in ("scaling", "cpuinfo"))
    return most, top


def _core_throttles(cpu_folder: Path) -> int:
    counts = [int(_read(path)) for path in cpu_folder.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    if not counts:
        raise ValueError("no thermal counters are visible here")
    return sum(counts)


def _hypervisor(cpuinfo: str) -> bool:
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if flags is None:
        raise ValueError("/proc/cpuinfo has no flags")
    return "hypervisor" in flags.group(1).split()


def _memory(root: Path, name: str) -> int:
    for line in _read(root / "proc/meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/meminfo has no {name}")


def _chosen(text: str) -> str:
    """The word in brackets: ``always [madvise] never``."""
    match = re.search(r"\[([^\[\]]+)\]", text)
    return match.group(1) if match else text.strip()


def _container(root: Path, variables: Mapping[str, str]) -> str:
    """The kind of this container; empty if nothing shows that this is one."""
    if variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    if variables.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    groups = ask(lambda: _read(root / "proc/1/cgroup"))
    return next((kind for word, kind in _RUNTIMES.items() if word in str(groups)), "")


def _image(root: Path, variables: Mapping[str, str], container: str) -> str:
    """The container image's name, as far as it is known inside the container."""
    if named := variables.get(_IMAGE_NAME):
        return named
    described = ask(lambda: _read(root / "run/.containerenv"))
    if match := re.search(r'^image="(.+)"$', str(described), re.MULTILINE):
        return match.group(1)
    path = variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER")
    if path:
        return Path(path).name
    versions = [f"{name}={variables[name]}" for name in _IMAGE_VARIABLES if variables.get(name)]
    if product := variables.get("NVIDIA_PRODUCT_NAME"):
        return " ".join([f"NVIDIA {product}", *versions])
    if not container:
        return "no container"
    return f"unknown: {container} does not say its name inside; set {_IMAGE_NAME} to it"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
