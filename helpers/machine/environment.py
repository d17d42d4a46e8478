"""The environment of a result: everything besides the case on which the result depends (host, cards, driver, framework
build, flags). It decides which results can be compared.

Two recorded results are compared only within one *segment* (docs/verdicts.md, "Environment changed"): host, cards,
driver, CUDA, power cap and framework line must be the same. Everything else is only shown with a result.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

CPU = "cpu"
GPU = "gpu"


def device_of(target: str) -> str:
    """The kind of device that a target is: CPU, or GPU for every other target."""
    return CPU if target == CPU else GPU


# Variables of the caller's shell that change what a trainer measures. These belong to libraries that every framework
# uses; a framework's own variables are in its entry (contract/frameworks.py).
_LIBRARY_FLAGS = (
    "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "GLOO_", "NVIDIA_TF32_OVERRIDE", "DALI_", "DNNL_", "ONEDNN_",
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_TUNABLES", "TCMALLOC_", "LD_PRELOAD",
)  # fmt: skip
# Every trainer sets these from its own cores (helpers/trainers/common/process.py), whatever the caller's shell says.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# These variables change no figure: the visible cards are recorded in another field, and logging is not a setting.
_NOT_FLAGS = (
    *THREAD_VARIABLES, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "FLAGS_selected_gpus",
    "CUDA_MPS_LOG_DIRECTORY", "NCCL_DEBUG", "NCCL_DEBUG_FILE",
)  # fmt: skip
# Variables with these endings say what is installed where, in container images and shells; they change no figure.
_PLACES = ("VERSION", "_HOME", "_PATH", "_ROOT", "_DIR")

# Names of the facts that hold median clocks of the measured window in MHz: of each GPU, of its memory, of the leased
# cores, and the cap of the cores' governor. A recorded entry's environment has them too; the segment does not.
SM_MHZ, MEMORY_MHZ, CPU_MHZ, CPU_MOST_MHZ = "sm_clock_mhz", "memory_clock_mhz", "cpu_mhz", "cpu_most_mhz"
CLOCK_FACTS = (SM_MHZ, MEMORY_MHZ, CPU_MHZ, CPU_MOST_MHZ)

# Facts of a step log's header: the versions that the rank's process had loaded (helpers/trainers/common/cuda.py).
LOADED_FACTS = ("cuda_runtime", "cudnn", "nccl")

# systemd writes "uninitialized" into images; an id is 32 hexadecimal digits.
_MACHINE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
# The name that container engines give to a container without a name; it differs at every start.
_MADE_UP_NAME = re.compile(r"[0-9a-f]{12}", re.ASCII)
_PRODUCT = Path("sys/class/dmi/id/product_uuid")

# How the host of a segment begins if it is a pool.
POOL = "pool "
# Fields that older files do not have; they are read as empty.
_ADDED = ("driver_cuda", "machine", "pool", "program")


@dataclass(frozen=True)
class HostIdentity:
    """The identity of a machine."""

    # 16 hexadecimal digits.
    host_id: str
    # The source of the id, in words.
    by: str
    # Earlier ids of the same machine; baselines may be kept under them.
    former: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """The machine itself, without its cards."""

    host: str
    # This and the fields ``id_by`` and ``former_ids`` are those of HostIdentity.
    host_id: str
    os: str
    kernel: str
    cpu_model: str
    logical_cores: int
    memory_bytes: int
    id_by: str = "its machine id"
    former_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """The environment of one result, as texts. A field that does not apply is empty."""

    host: str
    host_id: str
    os: str
    kernel: str
    cpu_model: str
    logical_cores: str
    memory_gib: str
    device: str
    # Models and count: ``8 x NVIDIA A100-SXM4-40GB``, ``2 x 1 core``. All nodes of a case have the same; they are
    # counted on one.
    cards: str
    # The individual cards, by NVML's UUIDs, on all nodes of the case.
    card_ids: str = ""
    driver: str = ""
    # The CUDA that the build was made for; in files without ``driver_cuda`` it may be the driver's.
    cuda: str = ""
    # The libraries that the job had loaded after its first step.
    cudnn: str = ""
    nccl: str = ""
    power_limit_watts: str = ""
    framework: str = ""
    framework_version: str = ""
    framework_commit: str = ""
    # The threads of one rank, as stated by the trainer.
    threads: str = ""
    # The caller's own variables (``NCCL_P2P_DISABLE=1``); the settings of the case are in the result.
    flags: str = ""
    # Names the images that were trained on.
    data: str = ""
    # The hosts of a case of several nodes, in rank order: each one's id, its network interface, and the variables that
    # only it has.
    nodes: str = ""
    # The newest CUDA that the driver serves.
    driver_cuda: str = ""
    # The name that perf.yaml gives this machine.
    machine: str = ""
    # The pool of equal nodes in perf.yaml to which this machine belongs.
    pool: str = ""
    # The kind of static program on a GPU (contract.program.ProgramKind).
    program: str = ""

    @property
    def framework_line(self) -> str:
        """The framework and the first two numbers of its version, which a commit under test does not change."""
        return f"{self.framework} {'.'.join(self.framework_version.split('.')[:2])}".strip()

    def to_mapping(self) -> dict[str, str]:
        return asdict(self)

    @staticmethod
    def from_mapping(record: Mapping[str, object], about: str = "environment") -> Environment:
        """Raises ConfigError on an unknown or missing key and on a value that is not text."""
        known = [item.name for item in fields(Environment)]
        for name, value in record.items():
            if name not in known:
                raise ConfigError(about, field=name, got=value, expected="a known key of an environment")
            if not isinstance(value, str):
                raise ConfigError(about, field=name, got=value, expected="text")
        for name in known:
            if name not in record and name not in _ADDED:
                raise ConfigError(
                    about, field=name, expected="a value", remedy="Measure again: what is missing is not guessed"
                )
        return Environment(**{name: str(record[name]) for name in known if name in record})


def segment(environment: Environment) -> dict[str, str]:
    """The facts that must be equal for recorded results to be compared; otherwise they are INCOMPARABLE
    (docs/verdicts.md, "Environment changed").

    For GPUs the individual cards are part of the segment, since cards of one model differ by up to 8%; CPU cards are
    cores of one package and are not part of it. With several nodes each host is part of it, with its network interface
    and its own variables. In a pool of equal nodes neither the host nor the individual cards are.
    """
    common = {
        "host": place_of(environment.host_id, environment.machine, environment.pool),
        "cards": environment.cards,
        "framework line": environment.framework_line,
        "flags": environment.flags,
        "data": environment.data,
        # Only with several nodes, so that results from before cases had nodes stay comparable.
        **({"nodes": environment.nodes} if environment.nodes else {}),
    }
    if environment.device == GPU:
        return {
            **common,
            # Only where a program is stated: nothing but Paddle's static execution makes one.
            **({"program": environment.program} if environment.program else {}),
            # In a pool the cards change from night to night; the noise from it is learned.
            **({} if environment.pool else {"card ids": environment.card_ids}),
            "driver": environment.driver,
            "CUDA": environment.cuda,
            # Older files have neither of the two; results that may differ in them are not compared.
            "cuDNN": environment.cudnn,
            "NCCL": environment.nccl,
            "power cap (W)": environment.power_limit_watts,
        }
    return {
        **common,
        "cpu": environment.cpu_model,
        "logical cores": environment.logical_cores,
        "threads": environment.threads,
    }


def place_of(host_id: str, machine: str, pool: str) -> str:
    """The machine's name in a segment: a name that perf.yaml gives comes before the machine's own id."""
    return f"{POOL}{pool}" if pool else machine or host_id


def clocks_of(facts: Mapping[str, str]) -> dict[str, str]:
    """The clocks among the facts of a result, to be kept in the entry that is recorded from it."""
    return {name: facts[name] for name in CLOCK_FACTS if facts.get(name)}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """The differences of two segments, each as ``driver: 525.60 → 535.1``. A key that one side lacks is a
    difference."""
    keys = [*before, *(key for key in after if key not in before)]
    return tuple(
        f"{key}: {_shown(before.get(key))} → {_shown(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    )


def flags_of(variables: Mapping[str, str], framework: str) -> str:
    """The caller's variables that change what this framework measures: ``NAME=value``, sorted, with spaces between.

    Only the last part of a path is kept, because the text goes into files that are committed.
    """
    chosen = flag_variables(variables, framework)
    return " ".join(f"{name}={_without_folders(value)}" for name, value in sorted(chosen.items()))


def flag_variables(variables: Mapping[str, str], framework: str) -> dict[str, str]:
    """The variables that ``flags_of`` shows, with their values unchanged."""
    wanted = (*_LIBRARY_FLAGS, *Framework(framework).spec.flags)
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(wanted) and name not in _NOT_FLAGS and not name.endswith(_PLACES)
    }


def _without_folders(value: str) -> str:
    return re.sub(r"(?<![^\s:;,=])[^\s:;,=]*/(?=[^\s:;,=])", "", value)


def probe_host(
    root: Path = Path("/"),
    node: Callable[[], str] = platform.node,
    logical_cores: Callable[[], int | None] = os.cpu_count,
    card_ids: Sequence[str] = (),
) -> Host:
    """This machine's facts and identity, from ``/proc`` and ``/etc`` under ``root``; ``card_ids`` are the UUIDs of all
    its GPUs."""
    name, cpu_model, cores, memory_bytes = node(), _cpu_model(root), logical_cores() or 1, _memory_bytes(root)
    hardware = f"{cpu_model}, {cores} cores, {memory_bytes / 1024**3:.0f} GiB"
    identity = identify(root, name, card_ids, hardware)
    return Host(
        host=name,
        host_id=identity.host_id,
        os=_os_name(root),
        kernel=platform.release(),
        cpu_model=cpu_model,
        logical_cores=cores,
        memory_bytes=memory_bytes,
        id_by=identity.by,
        former_ids=identity.former,
    )


def identify(root: Path, name: str, card_ids: Sequence[str], hardware: str) -> HostIdentity:
    """The machine's identity: by the machine id in ``/etc`` under ``root``. If there is none, as in a container: by the
    cards' UUIDs, else the mainboard's UUID, else the host's ``name``, else its ``hardware`` (a text)."""
    machine_id = _word(root / "etc/machine-id")
    if _MACHINE_ID.fullmatch(machine_id):
        return HostIdentity(_digits(machine_id), "its machine id")
    by_name = _digits(f"name:{name}")
    if card_ids:
        return HostIdentity(_digits("cards:" + " ".join(sorted(card_ids))), "its cards' UUIDs", (by_name,))
    if product := _word(root / _PRODUCT):
        return HostIdentity(_digits(f"product:{product}"), "its mainboard's UUID", (by_name,))
    if not _MADE_UP_NAME.fullmatch(name):
        return HostIdentity(by_name, "its host name")
    return HostIdentity(_digits(f"hardware:{hardware}"), "its hardware alone, as equal machines have it", (by_name,))


def _digits(source: str) -> str:
    # Hashed, since systemd asks programs not to show the id itself.
    return hashlib.sha256(f"perfgate:{source}".encode()).hexdigest()[:16]


def _word(path: Path) -> str:
    """The file's text in lower case; empty if this user may not read it (only root may read the mainboard's UUID)."""
    try:
        return _text(path).strip().lower()
    except OSError:
        return ""


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


def _memory_bytes(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _shown(value: str | None) -> str:
    if value is None:
        return "not recorded"
    return value or "none"
