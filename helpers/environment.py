"""What a result depends on besides the case: host, cards, driver, framework build, flags; and what is comparable.

Two recorded results are compared only within one *segment* (VERDICT.md, "Environment changed"):
same host, cards, driver, CUDA, power cap and framework line. The rest is shown beside a result.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from helpers.errors import ConfigError

CPU = "cpu"
GPU = "gpu"

# Variables of the caller's shell that reach the trainer and change what it measures: of the libraries
# that every framework uses, and of each framework alone.
_LIBRARY_FLAGS = (
    "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "GLOO_", "NVIDIA_TF32_OVERRIDE", "DALI_", "DNNL_", "ONEDNN_",
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_TUNABLES", "TCMALLOC_", "LD_PRELOAD",
)  # fmt: skip
FRAMEWORK_FLAGS = {
    "paddle": ("FLAGS_", "GLOG_v"),
    # Of Triton's (its knobs.py), which torch.compile calls on a GPU, those that change the code: the others say where
    # it is kept and what is printed.
    "pytorch": (
        "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_F32_DEFAULT", "TRITON_DEFAULT_FP_FUSION",
        "TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_ENABLE_", "TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_ARCH",
        "TRITON_MOCK_PTX_VERSION", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS",
    ),
    # By name: Terraform's variables start with TF_ too.
    "tensorflow": (
        "TF_XLA_FLAGS", "XLA_FLAGS", "TF_ENABLE_", "TF_DISABLE_", "TF_CUDNN_", "TF_GPU_", "TF_FORCE_GPU_",
        "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_AUTOTUNE_THRESHOLD", "TF_AUTO_MIXED_PRECISION_",
        "TF_DETERMINISTIC_OPS", "TF_USE_CUDNN_", "TF_FP16_", "TF_MKL_",
    ),
    "mxnet": ("MXNET_",),
}  # fmt: skip
# Every trainer sets them from its own cores (helpers/trainers/process.py), whatever the caller's shell says.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Which cards are visible is recorded as the cards themselves; a log's detail is not a setting.
_NOT_FLAGS = (
    *THREAD_VARIABLES, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "FLAGS_selected_gpus",
    "CUDA_MPS_LOG_DIRECTORY", "NCCL_DEBUG", "NCCL_DEBUG_FILE",
)  # fmt: skip
# Images and shells say with them what is installed where; nothing is measured differently.
_PLACES = ("VERSION", "_HOME", "_PATH", "_ROOT", "_DIR")

# Median clocks of the measured window as a result's facts and a recorded entry's environment hold them, in MHz: of
# each GPU, of the leased cores, and the cap that a core's governor has. They are no part of the segment.
SM_MHZ, MEMORY_MHZ, CPU_MHZ, CPU_MOST_MHZ = "sm_clock_mhz", "memory_clock_mhz", "cpu_mhz", "cpu_most_mhz"
CLOCK_FACTS = (SM_MHZ, MEMORY_MHZ, CPU_MHZ, CPU_MOST_MHZ)


@dataclass(frozen=True)
class Host:
    """The machine itself, without its cards; ``host_id`` is 16 hexadecimal digits that survive a new name."""

    host: str
    host_id: str
    os: str
    kernel: str
    cpu_model: str
    logical_cores: int
    memory_bytes: int


@dataclass(frozen=True)
class Environment:
    """What one result was measured in, as text fit for a file. A field that does not apply is empty.

    ``cards`` names models and count (``8 x NVIDIA A100-SXM4-40GB``, ``2 x 1 core``), ``card_ids`` the
    very cards (NVML UUIDs). ``flags`` are the caller's own variables (``NCCL_P2P_DISABLE=1``), not the
    settings of the case, which stand in the result. ``threads`` is per rank, as the trainer states it.
    ``data`` names the images that were trained on. Of a case of several nodes ``cards`` are one node's, which
    all have alike, ``card_ids`` those of all, and ``nodes`` are the hosts in rank order: each one's id, its
    network interface and the variables that hold there alone.
    """

    host: str
    host_id: str
    os: str
    kernel: str
    cpu_model: str
    logical_cores: str
    memory_gib: str
    device: str
    cards: str
    card_ids: str = ""
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    nccl: str = ""
    power_limit_watts: str = ""
    framework: str = ""
    framework_version: str = ""
    framework_commit: str = ""
    threads: str = ""
    flags: str = ""
    data: str = ""
    nodes: str = ""

    @property
    def framework_line(self) -> str:
        """Framework and the first two numbers of its version: a commit under test stays on its line."""
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
            if name not in record:
                raise ConfigError(
                    about, field=name, expected="a value", remedy="Measure again: what is missing is not guessed"
                )
        return Environment(**{name: str(record[name]) for name in known})


def segment(environment: Environment) -> dict[str, str]:
    """The facts within which recorded results are compared; in another segment they are INCOMPARABLE.

    Source: DESIGN.md "Recorded", VERDICT.md "Environment changed". On a GPU the very cards belong to
    it (the same model varies by 8% from card to card); CPU cards are cores of one package and do not. Of
    several nodes each host belongs to it, with its interface and its own variables.
    """
    common = {
        "host": environment.host_id,
        "cards": environment.cards,
        "framework line": environment.framework_line,
        "flags": environment.flags,
        "data": environment.data,
        # Only where there are several: what was recorded before there were any stays comparable.
        **({"nodes": environment.nodes} if environment.nodes else {}),
    }
    if environment.device == GPU:
        return {
            **common,
            "card ids": environment.card_ids,
            "driver": environment.driver,
            "CUDA": environment.cuda,
            "power cap (W)": environment.power_limit_watts,
        }
    return {
        **common,
        "cpu": environment.cpu_model,
        "logical cores": environment.logical_cores,
        "threads": environment.threads,
    }


def clocks_of(facts: Mapping[str, str]) -> dict[str, str]:
    """The clocks among a result's facts, for the entry that is recorded from it."""
    return {name: facts[name] for name in CLOCK_FACTS if facts.get(name)}


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """In what two segments differ, one ``driver: 525.60 → 535.1`` each; a key that one side lacks differs."""
    keys = [*before, *(key for key in after if key not in before)]
    return tuple(
        f"{key}: {_shown(before.get(key))} → {_shown(after.get(key))}"
        for key in keys
        if before.get(key) != after.get(key)
    )


def flags_of(variables: Mapping[str, str], framework: str) -> str:
    """The caller's variables that change what this framework measures, sorted, ``NAME=value`` with spaces between.

    Of a path only its last part is kept: the text goes into files that are committed.
    """
    chosen = flag_variables(variables, framework)
    return " ".join(f"{name}={_without_folders(value)}" for name, value in sorted(chosen.items()))


def flag_variables(variables: Mapping[str, str], framework: str) -> dict[str, str]:
    """The variables that ``flags_of`` tells, with their values as they are."""
    wanted = (*_LIBRARY_FLAGS, *FRAMEWORK_FLAGS[framework])
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(wanted) and name not in _NOT_FLAGS and not name.endswith(_PLACES)
    }


def _without_folders(value: str) -> str:
    return re.sub(r"[^\s:;,=]*/(?=[^\s:;,=])", "", value)


def probe_host(
    root: Path = Path("/"),
    node: Callable[[], str] = platform.node,
    logical_cores: Callable[[], int | None] = os.cpu_count,
) -> Host:
    """What this machine is, from ``/proc`` and ``/etc`` under ``root``."""
    name = node()
    return Host(
        host=name,
        host_id=_host_id(root, name),
        os=_os_name(root),
        kernel=platform.release(),
        cpu_model=_cpu_model(root),
        logical_cores=logical_cores() or 1,
        memory_bytes=_memory_bytes(root),
    )


def _host_id(root: Path, name: str) -> str:
    machine_id = _text(root / "etc/machine-id").strip()
    # systemd asks that the id itself is not shown, and writes "uninitialized" into images.
    source = machine_id if len(machine_id) == 32 else f"name:{name}"
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
