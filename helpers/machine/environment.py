"""The environment of a result: everything besides the case on which the result depends (host, cards, driver, framework
build, flags). It decides which results can be compared.

Two recorded results are compared only within one *segment* (docs/verdicts.md, "Environment changed"): host, cards,
driver, CUDA, power cap and framework line must be the same. Everything else is only shown with a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from helpers.common.inherited import LIBRARY_FLAGS, may_pass
from helpers.common.records import WrongRecord, read_as
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

CPU = "cpu"
GPU = "gpu"


def device_of(target: str) -> str:
    """The kind of device that a target is: CPU, or GPU for every other target."""
    return CPU if target == CPU else GPU


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
LOADED_FACTS = ("cuda_runtime", "cublas", "cudnn", "nccl")

# How the host of a segment begins if it is a pool.
POOL = "pool "


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
    # The CUDA that the build was made for.
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
    # The loaded one, as ``cudnn``.
    cublas: str = ""
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
        try:
            return read_as(dict(record), Environment)
        except WrongRecord as error:
            raise ConfigError(about, field=error.field, got=error.got, expected=error.expected) from error


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
        **({"nodes": environment.nodes} if environment.nodes else {}),
    }
    if environment.device == GPU:
        return {
            **common,
            # Nothing but Paddle's static execution makes one.
            **({"program": environment.program} if environment.program else {}),
            # In a pool the cards change from night to night; the noise from it is learned.
            **({} if environment.pool else {"card ids": environment.card_ids}),
            "driver": environment.driver,
            "CUDA": environment.cuda,
            "cuDNN": environment.cudnn,
            "NCCL": environment.nccl,
            "cuBLAS": environment.cublas,
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
    wanted = (*LIBRARY_FLAGS, *Framework(framework).spec.flags)
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(wanted) and may_pass(name) and name not in _NOT_FLAGS and not name.endswith(_PLACES)
    }


def _without_folders(value: str) -> str:
    return re.sub(r"(?<![^\s:;,=])[^\s:;,=]*/(?=[^\s:;,=])", "", value)


def _shown(value: str | None) -> str:
    if value is None:
        return "not recorded"
    return value or "none"
