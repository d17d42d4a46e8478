"""Reads the state of the machine from ``/proc``, ``/sys`` and the limits of this process. Also finds out whether the
kernel's OOM killer ended processes while a job ran.

All files are read under ``root``. A value that cannot be read is an Unknown, never a default.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.common.unknown import Unknown, ask

UNLIMITED = resource.RLIM_INFINITY
_IMAGE_NAME = "PERFGATE_IMAGE"
_RUNTIMES = {"docker": "docker", "kubepods": "Kubernetes", "libpod": "podman", "containerd": "containerd", "lxc": "LXC"}
# systemd writes "uninitialized" into images; an id is 32 hexadecimal digits.
_MACHINE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
# The name that container engines give to a container without a name; it differs at every start.
_MADE_UP_NAME = re.compile(r"[0-9a-f]{12}", re.ASCII)
_PRODUCT = Path("sys/class/dmi/id/product_uuid")


@dataclass(frozen=True)
class Host:
    """The machine itself, without its cards."""

    host: str
    # 16 hexadecimal digits.
    host_id: str
    os: str
    kernel: str
    cpu_model: str
    logical_cores: int
    memory_bytes: int
    # The source of the id, in words.
    id_by: str = "its machine id"


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
    found = re.search(r"^oom_kill (\d+)$", _text(path), re.MULTILINE)
    return int(found[1]) if found else None


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
    load_1m: float | Unknown
    # The CPU quota of the container; None without one.
    quota_cores: float | Unknown | None
    clock_source: str | Unknown
    hypervisor: bool | Unknown
    # Its kind, and the name of its image if that is known; empty outside.
    container: str
    memory_available_bytes: int | Unknown
    memory_limit_bytes: int | Unknown | None
    swap_used_bytes: int | Unknown
    huge_pages: str | Unknown
    numa_balancing: bool | Unknown
    shared_memory: Space | Unknown
    # The next three are soft limits of this process; UNLIMITED if there is none.
    open_files: int
    locked_bytes: int
    processes: int
    # How many more processes the container may have; None if it has no limit.
    free_processes: int | Unknown | None
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
) -> HostState:
    """Look at this machine. It takes milliseconds, starts no process, and never raises for a file that is missing."""
    variables = os.environ if variables is None else variables
    allowed = frozenset(allowed_cpus())
    cpu_folder = root / "sys/devices/system/cpu"
    return HostState(
        allowed_cpus=allowed,
        siblings={cpu: frozenset(siblings_of(cpu, root)) for cpu in sorted(allowed)},
        numa_nodes=ask(lambda: _numa_nodes(root / "sys/devices/system/node")),
        governors=ask(lambda: _governors(cpu_folder)),
        load_1m=ask(lambda: float(_read(root / "proc/loadavg").split()[0])),
        quota_cores=ask(lambda: tightest_quota(root)),
        clock_source=ask(
            lambda: _read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        ),
        hypervisor=ask(lambda: _hypervisor(_read(root / "proc/cpuinfo"))),
        container=_container(root, variables),
        memory_available_bytes=ask(lambda: _memory(root, "MemAvailable")),
        memory_limit_bytes=ask(lambda: _memory_limit(root)),
        swap_used_bytes=ask(lambda: _memory(root, "SwapTotal") - _memory(root, "SwapFree")),
        huge_pages=ask(lambda: _chosen(_read(root / "sys/kernel/mm/transparent_hugepage/enabled"))),
        numa_balancing=ask(lambda: _read(root / "proc/sys/kernel/numa_balancing").strip() != "0"),
        shared_memory=ask(lambda: space(root / "dev/shm")),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        processes=resource.getrlimit(resource.RLIMIT_NPROC)[0],
        free_processes=ask(lambda: _free_processes(root)),
        capped_cores=ask(lambda: _capped(cpu_folder, allowed)),
    )


def probe_host(
    root: Path = Path("/"),
    node: Callable[[], str] = platform.node,
    logical_cores: Callable[[], int | None] = os.cpu_count,
    card_ids: Sequence[str] = (),
) -> Host:
    """This machine's facts and identity, from ``/proc`` and ``/etc`` under ``root``; ``card_ids`` are the UUIDs of all
    its GPUs."""
    name, cpu_model, cores = node(), _cpu_model(root), logical_cores() or 1
    memory = ask(lambda: _memory(root, "MemTotal"))
    memory_bytes = 0 if isinstance(memory, Unknown) else memory
    hardware = f"{cpu_model}, {cores} cores, {memory_bytes / 1024**3:.0f} GiB"
    host_id, id_by = identify(root, name, card_ids, hardware)
    return Host(
        host=name,
        host_id=host_id,
        os=_os_name(root),
        kernel=platform.release(),
        cpu_model=cpu_model,
        logical_cores=cores,
        memory_bytes=memory_bytes,
        id_by=id_by,
    )


def identify(root: Path, name: str, card_ids: Sequence[str], hardware: str) -> tuple[str, str]:
    """The machine's id, and its source in words.

    It is made of the machine id in ``/etc`` under ``root``; if there is none, as in a container, of the cards' UUIDs,
    else of the mainboard's UUID, else of the host's ``name``, else of its ``hardware`` (a text).
    """
    machine_id = _text(root / "etc/machine-id").strip().lower()
    if _MACHINE_ID.fullmatch(machine_id):
        return _digits(machine_id), "its machine id"
    if card_ids:
        return _digits("cards:" + " ".join(sorted(card_ids))), "its cards' UUIDs"
    if product := _text(root / _PRODUCT).strip().lower():
        return _digits(f"product:{product}"), "its mainboard's UUID"
    if not _MADE_UP_NAME.fullmatch(name):
        return _digits(f"name:{name}"), "its host name"
    return _digits(f"hardware:{hardware}"), "its hardware alone, as equal machines have it"


def _digits(source: str) -> str:
    # Hashed, since systemd asks programs not to show the id itself.
    return hashlib.sha256(f"perfgate:{source}".encode()).hexdigest()[:16]


def _os_name(root: Path) -> str:
    for line in _text(root / "etc/os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip('"')
    return platform.system()


def _cpu_model(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model") and value.strip():
            return " ".join(value.split())
    return f"{platform.machine()} CPU"


def physical_cores(allowed: Collection[int], root: Path = Path("/")) -> tuple[int, ...]:
    """One logical CPU for each physical core that this process may use, within its control groups' CPU quotas."""
    chosen: list[int] = []
    taken: set[int] = set()
    for cpu in sorted(allowed):
        if cpu not in taken:
            chosen.append(cpu)
            taken.update(siblings_of(cpu, root))
    quota = tightest_quota(root)
    return tuple(chosen if quota is None else chosen[: max(1, int(quota))])


def control_groups(root: Path, controller: str) -> list[Path]:
    """The folders of this process's control group and of those above it, for both versions of control groups.

    Some may not exist: a container often sees only its own root.
    """
    own: list[tuple[Path, str]] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            own.append((root / "sys/fs/cgroup", path))
        elif controller in names.split(","):
            own.append((root / f"sys/fs/cgroup/{controller}", path))
    found = [root / "sys/fs/cgroup", root / f"sys/fs/cgroup/{controller}"]
    for mount, path in own:
        parts = [part for part in path.split("/") if part not in ("", "..")]
        found += [mount.joinpath(*parts[: count + 1]) for count in range(len(parts))]
    return list(dict.fromkeys(found))


def tightest_quota(root: Path) -> float | None:
    """The cores of the tightest CPU quota above this process; None without one."""
    quotas = []
    for folder in control_groups(root, "cpu"):
        if (folder / "cpu.max").exists():
            quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
            quotas += [] if quota == "max" else [int(quota) / int(period or 100_000)]
        elif (folder / "cpu.cfs_quota_us").exists():
            microseconds = int(_read(folder / "cpu.cfs_quota_us"))
            quotas += [] if microseconds < 0 else [microseconds / int(_read(folder / "cpu.cfs_period_us"))]
    return min(quotas, default=None)


def siblings_of(cpu: int, root: Path) -> set[int]:
    """The logical CPUs that share a core with ``cpu``, itself among them."""
    path = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    return parse_cpu_list(_read(path)) if path.exists() else {cpu}


def parse_cpu_list(text: str) -> set[int]:
    """The kernel's list format: ``0-3,8``."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


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
    """The kind of this container, with the image that it was started from; empty if nothing shows that this is one."""
    path = variables.get("APPTAINER_CONTAINER") or variables.get("SINGULARITY_CONTAINER") or ""
    marks = {
        "Apptainer": bool(path),
        "Kubernetes": bool(variables.get("KUBERNETES_SERVICE_HOST")),
        "podman": (root / "run/.containerenv").exists(),
        "docker": (root / ".dockerenv").exists(),
    }
    groups = _text(root / "proc/1/cgroup")
    kinds = [kind for kind, found in marks.items() if found]
    kinds += [kind for word, kind in _RUNTIMES.items() if word in groups]
    image = variables.get(_IMAGE_NAME) or Path(path).name or f"unknown: set {_IMAGE_NAME} to it"
    return f"{kinds[0]}, image {image}" if kinds else ""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _text(path: Path) -> str:
    """The file's text; empty if it is not there or this user may not read it."""
    try:
        return _read(path)
    except OSError:
        return ""
