"""The part that all trainers share: reads the job, prepares the process, and writes the step log's footer however the
run ends."""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, MutableMapping, Optional, Sequence, Tuple

from helpers.trainers.common.cuda import loaded_facts, mapped_facts
from helpers.trainers.common.loop import LoopIO, LoopPlan
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.errors import ConfigError, DeviceError, SuiteError
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, SLOWDOWN_FACT, SLOWDOWN_VARIABLE, JobSpec
from helpers.trainers.contract.steplog import COMPLETE, FAILED, REFUSED, Footer, Header, Heartbeat, Step, StepLogWriter

EXIT_COMPLETE = 0
EXIT_FAILED = 1
# The exit status of a refused case: this device or build cannot run it, and the footer says why. This is not a failure.
EXIT_REFUSED = 3

_MOST_SLOWDOWN = 10.0

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_REASON_LENGTH = 1000
# Variables of a launcher: rank, rank within the node, number of ranks. Paddle's has others.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
CPUINFO = Path("/proc/cpuinfo")


class Refused(Exception):
    """This device or this build of the framework cannot run the case. No other configuration is run instead."""


def refuse_tf32_on_cpu(precision: Precision) -> None:
    if precision is Precision.TF32:
        raise Refused("TF32 is arithmetic of NVIDIA GPUs from Ampere on; a CPU has none")


def not_imported(title: str, module: str, error: Exception) -> Refused:
    """The refusal of a framework, or of a package beside it, that is not installed, or that is and whose import raised
    ``error``."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return Refused(f"{title} is not installed in this interpreter ({error})")
    told = f"{type(error).__name__}: {one_line(str(error))}"
    return Refused(f"{title} is installed in this interpreter, and importing it failed: {told}. Install it again")


@dataclass(frozen=True)
class RankPlace:
    """The place of this process among the job's processes."""

    rank: int
    # Counts within the node.
    local_rank: int
    world_size: int

    @staticmethod
    def from_environment(environment: Mapping[str, str], names: Sequence[str]) -> RankPlace:
        """``names`` are the launcher's variables for rank, local rank and world size. Without a launcher this process
        is the only rank."""
        values = []
        for name, default in zip(names, ("0", "0", "1")):
            text = environment.get(name, default)
            if not text.isdigit():
                raise ConfigError("trainer", field=name, got=text, expected="a whole number from the launcher")
            values.append(int(text))
        return RankPlace(values[0], values[1], values[2])


@dataclass(frozen=True)
class CardPlace:
    """One of the cards that this process drives."""

    # Counted over the cards of all nodes: the rank that the card would have with one process for each card.
    number: int
    # Counted within this process. If the launcher shows a process only its own GPUs, it is the GPU's index.
    local: int
    # The CPU cores of the card, or those for its readers; empty if nothing is pinned.
    cores: Tuple[int, ...] = ()


def cards_of(spec: JobSpec, ranks: RankPlace) -> Tuple[CardPlace, ...]:
    """The cards of the process at ``ranks``, in the order of their numbers."""
    each = spec.cards_per_process
    cores = spec.cores[ranks.local_rank * each : (ranks.local_rank + 1) * each]
    return tuple(
        CardPlace(ranks.rank * each + local, local, cores[local] if local < len(cores) else ()) for local in range(each)
    )


@dataclass
class DeviceRecord:
    """The facts on framework and device for the header of the step log; filled in as they become known."""

    framework_version: str = "unknown"
    framework_commit: str = "unknown"
    name: str = "unknown"
    facts: Dict[str, str] = field(default_factory=dict)


class Trainer:
    """The run of one rank: its job, its place in the job, and its log. A framework's program fills in ``device``.

    The log is opened when the first steps are recorded, since all facts of the header are known then.
    """

    def __init__(self, spec: JobSpec, ranks: RankPlace) -> None:
        self.spec = spec
        self.ranks = ranks
        # The cards that this process drives.
        self.cards = cards_of(spec, ranks)
        self.device = DeviceRecord()
        self.slowdown = 0.0
        # The peak memory in bytes of that card of the process on which it is largest.
        self.peak_device_bytes: Callable[[], int] = lambda: 0
        self.loaded: Callable[[], Dict[str, str]] = loaded_facts if spec.device == "gpu" else dict
        # Called in turn when the log is complete; none may raise.
        self.afterwards: List[Callable[[], None]] = []
        self._heartbeat = Heartbeat(spec.heartbeat_path(ranks.rank))
        self._log: Optional[StepLogWriter] = None

    def beat(self, phase: str, step: int = 0) -> None:
        self._heartbeat.beat(phase, step, time.monotonic())

    def begin(self, step: int) -> None:
        """Write to the heartbeat that this rank begins a step; only if several ranks wait for each other."""
        if self.ranks.world_size > 1:
            self._heartbeat.begin(step)

    def record(self, steps: Sequence[Step]) -> None:
        self._open_log().steps(steps)

    def end(self, status: str, reason: str = "") -> None:
        if status == REFUSED and self.spec.device == "gpu":
            # It may be a library that was refused, and one that does not fit can end the process when it is asked.
            self.loaded = mapped_facts
        peak_device = self.peak_device_bytes() if status == COMPLETE else 0
        self._open_log().footer(Footer(status, reason, peak_host_bytes(), peak_device))

    def finish(self) -> None:
        """Do what is left when the log is complete. What it held is gone before the interpreter ends."""
        while self.afterwards:
            self.afterwards.pop(0)()

    def _open_log(self) -> StepLogWriter:
        if self._log is None:
            spec, ranks = self.spec, self.ranks
            header = Header(
                job_id=spec.job_id,
                case_id=spec.case.id,
                replicate=spec.replicate,
                rank=ranks.rank,
                world_size=ranks.world_size,
                host=socket.gethostname(),
                pid=os.getpid(),
                framework=spec.case.framework.value,
                framework_version=self.device.framework_version,
                framework_commit=self.device.framework_commit,
                device=spec.device,
                # The versions of the loaded libraries replace those with which the build was made.
                facts={**self.device.facts, **self.loaded(), "device_name": self.device.name},
                cards_per_process=spec.cards_per_process,
            )
            self._log = StepLogWriter(spec.step_log_path(ranks.rank), header)
        return self._log


def run(argv: List[str], rank_variables: Sequence[str], program: Callable[[Trainer], None]) -> int:
    """Run ``program`` as one rank of the job in ``argv[0]`` and return the exit status.

    The step log gets a footer whether the run completes, is refused or fails. The traceback of a failure goes to
    standard error.
    """
    try:
        spec, ranks = _read(argv, rank_variables)
        trainer = Trainer(spec, ranks)
    except (SuiteError, OSError, UnicodeDecodeError) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return EXIT_FAILED
    try:
        _check_place(spec, ranks)
        prepare(trainer, os.environ)
        program(trainer)
        trainer.end(COMPLETE)
    except Refused as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        trainer.end(REFUSED, one_line(str(refusal)))
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the log says so and the status is not 0
        trainer.end(FAILED, one_line(f"{type(error).__name__}: {error}"))
        traceback.print_exc()
        return EXIT_FAILED
    trainer.finish()
    return EXIT_COMPLETE


def prepare(trainer: Trainer, environment: MutableMapping[str, str]) -> None:
    """Set the job's variables and threads, and pin this process. Must be called before a framework is imported.

    A process that drives several cards is pinned to the cores of all of them. The number of threads is that of one
    card, since the cards are served at the same time, each with threads of its own.
    """
    spec, facts = trainer.spec, trainer.device.facts
    environment.update(spec.environment)
    cores = _pin(trainer)
    threads = str(max(1, len(cores) // len(trainer.cards)))
    # The frameworks' launchers set OMP_NUM_THREADS=1, whatever a rank's share of the machine is.
    environment.update(dict.fromkeys(THREAD_VARIABLES, threads))
    facts["cores"] = ",".join(map(str, cores))
    facts["pinned"] = "yes" if spec.cores else "no"
    facts["threads"] = threads
    if spec.cards_per_process > 1:
        facts[CARDS_PER_PROCESS_SETTING] = str(spec.cards_per_process)
    trainer.slowdown = slowdown_of(environment)
    if trainer.slowdown:
        facts[SLOWDOWN_FACT] = f"{trainer.slowdown:g}"


def set_environment(spec: JobSpec, settings: Settings, environment: MutableMapping[str, str]) -> None:
    """Set the variables of the settings and of the precision, which the framework and CUDA read when they are loaded.

    Variables of the job itself take precedence.
    """
    for name, value in settings.environment.items():
        environment[name] = spec.environment.get(name, str(value))
    if spec.device == "gpu" and spec.case.precision is Precision.FP32:
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    elif spec.case.precision is Precision.TF32:
        environment.pop("NVIDIA_TF32_OVERRIDE", None)


def import_framework(trainer: Trainer, settings: Settings, title: str, name: str) -> Any:
    """The framework's module, with the variables of the job set. Raises Refused if it cannot be imported."""
    set_environment(trainer.spec, settings, os.environ)
    try:
        module = import_module(name)
    # OSError: a library that MXNet loads is missing.
    except (ImportError, OSError) as error:
        raise not_imported(title, name, error) from error
    # The supervisor's SIGTERM must end the process, even if a library has installed a handler.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    trainer.device.framework_version = str(module.__version__)
    return module


def slowdown_of(environment: Mapping[str, str]) -> float:
    """The fraction by which a test makes every step longer; 0 without a test. Raises ConfigError on any other value."""
    text = environment.get(SLOWDOWN_VARIABLE, "")
    try:
        share = float(text or 0)
    except ValueError:
        share = -1.0
    # Written so that NaN fails.
    if not 0 <= share <= _MOST_SLOWDOWN:
        raise ConfigError(
            "trainer",
            field=SLOWDOWN_VARIABLE,
            got=text,
            expected=f"a share of a step's time from 0 to {_MOST_SLOWDOWN:g}, such as 0.05",
            remedy="It is for the suite's own tests: unset it",
        )
    return share


def _read(argv: List[str], rank_variables: Sequence[str]) -> "tuple[JobSpec, RankPlace]":
    if len(argv) != 1:
        raise ConfigError("trainer", got=" ".join(argv) or "no argument", expected="one argument: the job's spec.json")
    path = Path(argv[0])
    spec = JobSpec.from_json(path.read_text(encoding="utf-8"), about=str(path))
    return spec, RankPlace.from_environment(os.environ, rank_variables)


def _check_place(spec: JobSpec, ranks: RankPlace) -> None:
    if ranks.world_size != spec.ranks or ranks.rank >= ranks.world_size:
        each = f", {spec.cards_per_process} a process" if spec.cards_per_process > 1 else ""
        raise DeviceError(
            f"rank {ranks.rank}",
            field="world size",
            got=ranks.world_size,
            expected=f"{spec.ranks}, the cards of {spec.case.id}{each}",
            remedy="Start the job with the launcher of its case",
        )


def _pin(trainer: Trainer) -> List[int]:
    spec, cards = trainer.spec, trainer.cards
    if not spec.cores:
        return sorted(os.sched_getaffinity(0))
    cores = [core for card in cards for core in card.cores]
    try:
        if len({len(card.cores) for card in cards}) > 1:
            raise ValueError("each card of a process needs as many")
        os.sched_setaffinity(0, cores)
    except (OSError, ValueError) as error:
        raise DeviceError(
            f"rank {trainer.ranks.local_rank} of this node",
            field="cores",
            got=cores,
            expected=f"cores that this process may use ({error})",
            remedy=f"It may use {sorted(os.sched_getaffinity(0))}",
        ) from error
    return sorted(os.sched_getaffinity(0))


def peak_host_bytes() -> int:
    """The largest resident size of this process so far, in bytes; loader workers are other processes and not
    included."""
    # ru_maxrss is in KiB on Linux.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 3] + "..."


def cpu_name() -> str:
    """The processor's name, from the kernel."""
    return _cpu("model name") or "unknown CPU"


def cpu_flags() -> FrozenSet[str]:
    """The processor's instruction sets, by the kernel's names."""
    return frozenset(_cpu("flags").split())


def _cpu(wanted: str) -> str:
    for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == wanted:
            return value.strip()
    return ""


def seed_everything(framework: Callable[[int], Any], seed: int) -> None:
    """Seed all random numbers. Every rank gets the same weights; the readers add the rank to the seed of the data."""
    # Imported only here, when the variables that set its number of threads are set.
    import numpy

    framework(seed)
    numpy.random.seed(seed)
    random.seed(seed)


def plan_of(trainer: Trainer) -> LoopPlan:
    spec = trainer.spec
    return LoopPlan(
        spec.warmup_steps,
        spec.window_steps,
        # On a CPU the loss is known after every step; on a GPU fetching it would empty the queue of issued steps.
        spec.record_every_steps if spec.device == "gpu" else 1,
        spec.steady_window_steps,
        spec.most_warmup_steps,
        trainer.slowdown,
    )


def io_of(trainer: Trainer, barrier: Callable[[], object], agree: Callable[[bool], bool]) -> LoopIO:
    """The io of a rank's loop; ``barrier`` and ``agree`` are those of ``LoopIO``."""
    return LoopIO(trainer.record, trainer.beat, barrier, time.monotonic, agree, trainer.begin)
