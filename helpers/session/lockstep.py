"""Compares two ways to do the same work. Their processes take turns: each runs its block of steps while the others are
stopped.

A stopped process reads no data ahead and uses no core, so none of its work is hidden in another's turn. Other users of
a machine change its speed from second to second, and chance decides how well a process is placed in memory. So the
median of the rounds' ratios is the figure of one pair of processes, and the interval is over pairs of fresh processes.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from helpers.judging.statistics import mean_interval
from helpers.machine.libraries import with_libraries
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.session.suite import SMALL_DATASET
from helpers.trainers.contract.blocks import BARE, FOR, MARK, TRAIN, StepBlock, block_of, request_line
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError, LaunchError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model

_STOP_SECONDS = 30.0

# The blocks of each arm, by the arm's name, from one set of processes.
Blocks = Mapping[str, Sequence[StepBlock]]


@dataclass(frozen=True)
class Arm:
    """One of the ways that are compared: how its process is started, and which of the process's loops is timed."""

    name: str
    argv: tuple[str, ...]
    loop: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def process(self) -> tuple[object, ...]:
        """Arms with equal values of this share one process."""
        return self.argv, tuple(sorted(self.environment.items()))


@dataclass(frozen=True)
class Turns:
    """Every round gives each arm one block of ``steps_per_block``, after one block of ``warmup_steps``."""

    rounds: int
    steps_per_block: int = 1
    warmup_steps: int = 2


class Worker:
    """A process that serves blocks (``helpers/trainers/contract/blocks.py``). It is stopped while no block is
    requested."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = " ".join(argv)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=with_libraries({**os.environ, **environment}, argv[0]),
            # A group of its own, so that its children stop with it; in this session, so that the kernel ends a stopped
            # group that lost its parent.
            preexec_fn=os.setpgrp,
        )
        self._ended = False
        self.facts: dict[str, str] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Raises LaunchError, with the last line of the worker's errors, if it ends instead."""
        self.facts = self._reply()["facts"]
        self._signal(signal.SIGSTOP)

    def run(self, loop: str, steps: int) -> StepBlock:
        self._signal(signal.SIGCONT)
        self._input.write(request_line(loop, steps))
        self._input.flush()
        done = block_of(self._reply())
        self._signal(signal.SIGSTOP)
        return done

    def end(self) -> None:
        """Ask it to finish, and kill its process group if it does not."""
        if self._ended:
            return
        self._ended = True
        self._signal(signal.SIGCONT)
        self._input.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._output.close()
        self._errors.close()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _reply(self) -> dict[str, Any]:
        for line in self._output:
            if line.startswith(MARK):
                found: dict[str, Any] = json.loads(line[len(MARK) :])
                return found
        status = self._process.wait()
        self._errors.seek(0)
        words = (self._errors.read().decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise LaunchError(self._argv, got=f"exit status {status}: {words}", expected="a worker that serves its blocks")

    def _signal(self, number: int) -> None:
        # Its id, and so its group's, cannot be reused before it has been waited for.
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)


def take_turns(arms: Sequence[Arm], turns: Turns) -> dict[str, list[StepBlock]]:
    """The blocks of each arm, round by round, from one set of fresh processes. Raises LaunchError.

    Every round reverses the order (A B, B A, …), so that a drift affects all alike.
    """
    with ExitStack() as running:
        workers: dict[tuple[object, ...], Worker] = {}
        for arm in arms:
            if arm.process not in workers:
                worker = Worker(arm.argv, arm.environment)
                running.callback(worker.end)
                workers[arm.process] = worker
        for worker in workers.values():
            worker.wait_until_ready()
        for arm in arms:
            workers[arm.process].run(arm.loop, turns.warmup_steps)
        blocks: dict[str, list[StepBlock]] = {arm.name: [] for arm in arms}
        for number in range(turns.rounds):
            for arm in arms if number % 2 == 0 else reversed(arms):
                blocks[arm.name].append(workers[arm.process].run(arm.loop, turns.steps_per_block))
        return blocks


@dataclass(frozen=True)
class PairedRatio:
    """Geometric mean of n pairs' ratios and its 95% interval (Student's t over the logarithms)."""

    centre: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.centre:.4f} ({self.low:.4f} to {self.high:.4f}, n={self.n})"

    def lies_below(self, limit: float) -> bool:
        """Whether the whole interval is under ``limit``."""
        return self.high < limit


def pair_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the rounds' ratios of one pair of processes. Raises SuiteError unless all are finite and above
    0."""
    if len(numerators) != len(denominators) or not numerators:
        raise SuiteError(
            "rounds of a pair",
            got=f"{len(numerators)} and {len(denominators)}",
            expected="as many of the one as of the other, at least one",
        )
    for value in (*numerators, *denominators):
        _check("a round's measure", value)
    return math.exp(
        statistics.median(math.log(over / under) for over, under in zip(numerators, denominators, strict=True))
    )


def ratio_of(pairs: Iterable[float]) -> PairedRatio:
    """The geometric mean of the pairs' ratios. Raises SuiteError for fewer than 2 pairs, and unless all are finite and
    above 0."""
    values = tuple(pairs)
    if len(values) < 2:
        raise SuiteError("pairs of processes", got=len(values), expected="2 or more: one pair has no interval")
    for value in values:
        _check("the ratio of a pair", value)
    found = mean_interval(list(map(math.log, values)))
    return PairedRatio(math.exp(found.mean), math.exp(found.low), math.exp(found.high), len(values))


def _check(what: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise SuiteError(what, got=value, expected="a finite number above 0")


# ---- a trainer beside a bare training loop


# The trainer fails if it is known to be below this share of the bare loop's speed.
SPEED_LIMIT = 0.99
OTHER_PROCESS = "another process, wall clock"


@dataclass(frozen=True)
class Seat:
    """Where arms run: pinned to ``cores``, or on the GPU that ``cards`` names (CUDA_VISIBLE_DEVICES)."""

    cores: tuple[int, ...] = ()
    cards: tuple[str, ...] = ()
    interpreter: str = sys.executable

    @property
    def device(self) -> str:
        return "gpu" if self.cards else "cpu"

    @property
    def variables(self) -> dict[str, str]:
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(self.cards)}


def trainer_arm(
    name: str,
    case: Case,
    folder: Path,
    seat: Seat,
    *,
    loop: str = TRAIN,
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Arm:
    """The trainer of a one-card case; its job is written to a new file in ``folder``.

    ``environment`` and ``settings`` replace the recipe's. The process starts with the environment, as in the suite.
    """
    wanted = {**settings_for(case, seat.device), **(settings or {})}
    if environment is not None:
        wanted["environment"] = dict(environment)
    job_id = uuid.uuid4().hex
    spec = JobSpec(
        job_id=job_id,
        case=case,
        replicate=0,
        run_folder=str(folder / job_id),
        device=seat.device,
        warmup_steps=0,
        window_steps=1,
        data_root=None if case.data is DataSource.SYNTHETIC else str(make_small_dataset(SMALL_DATASET).root),
        settings=wanted,
        environment=wanted["environment"],
        cores=(seat.cores,) if seat.cores else (),
        cards=seat.cards,
    )
    path = folder / f"{job_id}.json"
    path.write_text(spec.to_json(), encoding="utf-8")
    argv = (seat.interpreter, "-m", "helpers.trainers.common.block_worker", str(path))
    return Arm(name, argv, loop, {**wanted["environment"], **seat.variables})


def bare_arm(name: str, case: Case, seat: Seat, settings: Mapping[str, Any]) -> Arm:
    """The bare loop over the same model, batch and precision. Raises ConfigError if there is no such loop."""
    if case.model is not Model.RESNET50 or case.data is not DataSource.SYNTHETIC or case.framework not in _BARE:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="ResNet50 on synthetic data")
    module, options = _BARE[case.framework]
    argv = [seat.interpreter, "-m", module, "--batch-size", str(case.batch_size_per_card)]
    argv += ["--learning-rate", str(settings["learning_rate"]), *options(case, seat, settings)]
    return Arm(name, tuple(argv), BARE, {**settings["environment"], **seat.variables})


def _paddle_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    if seat.device != "cpu" or len(seat.cores) != 1:
        raise ConfigError(f"case {case.id}", got="no bare loop there", expected="one core of a CPU")
    return ["--cores", str(seat.cores[0]), *(["--bf16"] if case.precision.is_amp else [])]


def _pytorch_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    if settings["amp_level"] == "O2" or settings["layout"] != "NCHW" or case.compile or case.graphs:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="NCHW, eager, float32 or autocast")
    argv = _where_and_how(case, seat, settings, "cuda")
    return argv + (["--cudnn-benchmark"] if settings["cudnn_benchmark"] else [])


def _tensorflow_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    static = not settings["loss_scaling"] or settings["loss_scaling_rule"]["decr_every_n_nan_or_inf"] >= 10**9
    if settings["label_smoothing"] or not settings["decay_norms"] or not static or settings["momentum"] != 0.9:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="Paddle's optimizer, and hard labels")
    argv = _where_and_how(case, seat, settings, "gpu")
    return argv + (["--xla"] if settings["xla_mode"] == "jit_compile" else [])


def _where_and_how(case: Case, seat: Seat, settings: Mapping[str, Any], gpu: str) -> list[str]:
    """Device, precision and loss scale; the framework calls its GPU ``gpu``."""
    argv = ["--device", gpu] if seat.device == "gpu" else ["--cores", *map(str, seat.cores)]
    if settings["amp_dtype"] is not None:
        argv += ["--amp-dtype", settings["amp_dtype"]]
    if settings["loss_scaling"] is not None:
        argv += ["--loss-scaling", str(settings["loss_scaling"])]
    if case.precision in (Precision.FP32, Precision.TF32):
        argv += ["--tf32", "on" if case.precision is Precision.TF32 else "off"]
    return argv


def _mxnet_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    if seat.device != "cpu" or settings["label_smoothing"] or settings["layout"] != "NCHW":
        raise ConfigError(f"case {case.id}", got="no bare loop there", expected="a CPU, NCHW and no label smoothing")
    return ["--cores", *map(str, seat.cores), *(["--bf16"] if settings["amp_dtype"] == "bfloat16" else [])]


_BARE: Mapping[Framework, tuple[str, Callable[[Case, Seat, Mapping[str, Any]], list[str]]]] = {
    Framework.PADDLE: ("helpers.trainers.paddle.bare_loop", _paddle_options),
    Framework.PYTORCH: ("helpers.trainers.pytorch.bare_loop", _pytorch_options),
    Framework.TENSORFLOW: ("helpers.trainers.tensorflow.bare_loop", _tensorflow_options),
    Framework.MXNET: ("helpers.trainers.mxnet.bare_loop", _mxnet_options),
}


def measure_beside_bare_loop(case: Case, pairs: int, turns: Turns, seat: Seat) -> list[Blocks]:
    """The blocks of the trainer, of its bare steps and of the bare loop, from ``pairs`` pairs of fresh processes.

    Raises LaunchError.
    """
    with tempfile.TemporaryDirectory() as folder:
        train = trainer_arm(TRAIN, case, Path(folder), seat)
        bare = bare_arm(BARE, case, seat, settings_for(case, seat.device))
        arms = (train, replace(train, name=FOR, loop=FOR), bare)
        return [take_turns(arms if number % 2 == 0 else arms[::-1], turns) for number in range(pairs)]


def speeds(sets: Sequence[Blocks]) -> dict[str, PairedRatio]:
    """The trainer's speed over the two bare loops', by both clocks."""
    return {
        OTHER_PROCESS: _speed(sets, BARE, cpu=False),
        "another process, time on the core": _speed(sets, BARE, cpu=True),
        "its own process, wall clock": _speed(sets, FOR, cpu=False),
        "its own process, time on the core": _speed(sets, FOR, cpu=True),
    }


def _speed(sets: Sequence[Blocks], other: str, *, cpu: bool) -> PairedRatio:
    def seconds(block: StepBlock) -> float:
        return block.step_cpu_seconds if cpu else block.step_seconds

    return ratio_of(
        pair_ratio([seconds(block) for block in blocks[other]], [seconds(block) for block in blocks[TRAIN]])
        for blocks in sets
    )
