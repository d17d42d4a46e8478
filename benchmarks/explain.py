"""Whether planted causes are named: ``python -m benchmarks.explain``; hours on an idle core.

Something in a framework's training is made slower on purpose, by a share of a step. Runs of the unchanged build and of
the changed one are made in turn with the framework's profiler, and helpers.judging.explanation says which part of the
step it is. Counted is how often the right part is named first, and how often a wrong one is named. A part that was not
planted may differ all the same: what is planted takes memory, and other operators then find theirs in another place.
Such a part is a side effect, and not wrong, if it also differs in the rounds of all other repeats and is small beside
what was planted: a larger one may be an error of the reader or of the method, which is there in all rounds, too.

A round is one run of the unchanged build and one of each change; a repeat takes the next ``--pairs`` rounds, which no
other repeat has. The unchanged build's runs are compared with each other, too, two rounds a pair. The runs stay in
``--folder``, and the next call goes on from them; ``--count`` only counts them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from scipy.special import bdtrc

from benchmarks.explain_changes import CAST_LAYER, LAYER
from helpers.judging.beyond_chance import LEAST_PAIRS, MOST_PAIRS
from helpers.judging.explanation import Difference, Explanation, Kind, explain
from helpers.judging.profile_parts import Level, Part, ProfiledPair, ProfiledRun
from helpers.judging.rank_parts import parts_and_ranks
from helpers.judging.shared_speed import beside_speed, speeds_beside
from helpers.machine.environment import CPU, GPU
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.report.table import Align, Column, Table
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import Phase, StepProfile, from_json
from helpers.trainers.contract.steplog import WINDOW

FRAMEWORKS = {"pytorch": ROOT / ".venv-pytorch/bin/python", "paddle": ROOT / ".venv/bin/python"}
# Its backward pass is the next after that of CAST_LAYER.
CAST_READER = "blocks.0.expand.convolution"
PAIRS = 6
# The gradients of ResNet50 that a rank of two sends in a step, in megabytes.
_SENT_MEGABYTES = 102.2
# The first runs set how long a step takes.
_CALIBRATION_RUNS = 2
# A part that was not planted differs if so clear a majority of other pairs has the probability of this by chance: 7 or
# more pairs can show it.
_SIDE_EFFECT = 0.01
# A part that was not planted and differs by as much of the plant, or more, is wrong in any case.
_MOST_SIDE_EFFECT = 0.1
REFERENCE, SAME = "reference", "same-build"
# Memory in large pages, kept for the process's life. In small ones some processes are 5 to 10% slower than others from
# the first step to the last, whichever core they are on, by where in the machine's memory their pages lie.
_LARGE_PAGES = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_threshold": 1 << 30, "trim_threshold": 1 << 32, "top_pad": 64 << 20}.items()
)
# How long a run's ranks used a core, in its folder.
_COST = "core_seconds.json"


@dataclass(frozen=True)
class Setup:
    """The kind of job in which a cause is planted."""

    data: str = "synthetic"
    cards: int = 1
    threads: int = 1
    batch: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    warmup_steps: int = 2
    window_steps: int = 3
    explained_steps: int = 3
    # Whether the ranks are joined by a link that sends gradients not faster than a step is computed. Else what is sent
    # slowly is sent beside the backward pass, and no step is longer.
    link: bool = False

    @property
    def folder(self) -> str:
        place = "" if self.device == CPU else f"-{self.device}"
        return f"{self.data}-{self.cards}x{self.threads}" + ("-link" if self.link else "") + place

    def case_id(self, framework: str) -> str:
        dynamic = "-dynamic" if framework == "paddle" else ""
        return f"{framework}-resnet50v1.5-{self.precision}-bs{self.batch}-1x{self.cards}-{self.data}{dynamic}"


@dataclass(frozen=True)
class Cause:
    """Something that is made slower. ``right`` says whether a named part is it, ``follows`` whether a part is a
    consequence that may be named after it."""

    setup: Setup
    right: Callable[[Difference], bool]
    follows: Callable[[Difference], bool] = lambda difference: False
    # Whether its size can be chosen.
    sized: bool = True
    # The facts of which one must be told apart, if the answer is no part.
    facts: tuple[str, ...] = ()


def _in_layer(layer: str, phase: Phase, operator: str) -> Callable[[Difference], bool]:
    def right(difference: Difference) -> bool:
        part = difference.part
        return part.level is Level.ROW and part.layer == layer and part.phase is phase and operator in part.operator

    return right


def _cast(difference: Difference) -> bool:
    part = difference.part
    names = (part.operator, *part.came)
    return (part.layer == CAST_LAYER or CAST_LAYER in part.layers or part.level is Level.OPERATOR) and any(
        word in name for word in ("::to", "cast") for name in names
    )


def _beside_cast(difference: Difference) -> bool:
    """What takes the values that the cast wrote, in another place of the memory than without it."""
    part = difference.part
    return part.level is Level.ROW and part.layer in (CAST_LAYER, CAST_READER)


def _norm_parts(difference: Difference) -> bool:
    part = difference.part
    layers = (part.layer, *part.layers)
    in_norms = any(layer.endswith(".norm") for layer in layers)
    return part.level in (Level.ROW, Level.CHANGE, Level.OPERATOR) and (in_norms or part.level is Level.OPERATOR)


def _follows_norm_parts(difference: Difference) -> bool:
    """What is called more or less often, as autograd's nodes that belong to no layer: nothing else changes how often
    something is called. And the host's code that calls operators, of which there are more."""
    in_model = difference.part.phase in (Phase.FORWARD, Phase.BACKWARD)
    return in_model and difference.kind in (Kind.HOST, Kind.NEW, Kind.GONE, Kind.MORE_CALLS, Kind.FEWER_CALLS)


def _of_phase(phase: Phase) -> Callable[[Difference], bool]:
    return lambda difference: difference.part.phase is phase and not difference.part.level.is_of_a_rank


def _last_rank(difference: Difference) -> bool:
    """As a whole, or one of its phases."""
    return difference.part.level.is_of_a_rank and difference.part.rank == 1


def _host(difference: Difference) -> bool:
    """Between the parts of a step, as a phase or as a row."""
    return difference.kind is Kind.HOST and difference.part.phase in (Phase.HOST_GAP, Phase.OTHER)


# Two ranks differ from each other by what happens beside them, which more steps make up for; the product profiles 10.
ONE, TWO, LINKED = Setup(), Setup(cards=2, explained_steps=8), Setup(cards=2, explained_steps=8, link=True)
# During warm-up cuDNN chooses its algorithms, and a card reaches its clock.
ON_A_CARD = Setup(batch=128, precision="tf32", device=GPU, warmup_steps=10, window_steps=8, explained_steps=4)
# What makes the card's own work longer: the host's is hidden behind it.
CAUSES_ON_A_CARD = ("slow-backward", "called-twice", "cast", "norm-parts")
THREADS = ("threads", "torch_threads")
CAUSES: Mapping[str, Cause] = {
    "slow-backward": Cause(ONE, _in_layer(LAYER, Phase.BACKWARD, "conv")),
    "called-twice": Cause(ONE, _in_layer(LAYER, Phase.FORWARD, "conv")),
    "cast": Cause(ONE, _cast, _beside_cast),
    "norm-parts": Cause(ONE, _norm_parts, _follows_norm_parts),
    "python-work": Cause(ONE, _host),
    "slow-network": Cause(LINKED, _of_phase(Phase.ALL_REDUCE)),
    "slow-rank": Cause(TWO, _last_rank, lambda each: each.part.phase is Phase.RANK_WAIT),
    "slow-decoder": Cause(Setup(data="native", batch=2), _of_phase(Phase.DATA_WAIT)),
    "half-threads": Cause(Setup(threads=2), lambda each: True, lambda each: True, sized=False, facts=THREADS),
}


@dataclass(frozen=True)
class Repeat:
    """One answer, and the pairs that no part of it comes from."""

    explanation: Explanation
    others: tuple[ProfiledPair, ...] = ()

    def differs_elsewhere(self, difference: Difference) -> bool:
        """Whether this part differs in the same direction in the other pairs, beyond chance by their signs."""
        alike = [each * difference.seconds.mean > 0 for each in self._elsewhere.get(difference.part, ())]
        return bool(alike) and float(bdtrc(sum(alike) - 1, len(alike), 0.5)) <= _SIDE_EFFECT

    @cached_property
    def _elsewhere(self) -> Mapping[Part, Sequence[float]]:
        """The differences of each part in the other pairs."""
        if not self.others:
            return {}
        parts = parts_and_ranks(self.others)
        speeds = speeds_beside(parts, [0.0] * len(self.others))
        return {each.part: beside_speed(each, around) for each, around in zip(parts, speeds, strict=True)}


@dataclass(frozen=True)
class Tally:
    """The repeats of one cause."""

    cause: str
    framework: str
    percent: float
    repeats: tuple[Repeat, ...]
    # The median of the seconds for which a run used cores, which other work beside it does not change much.
    core_seconds: float | None = None

    @property
    def explanations(self) -> list[Explanation]:
        return [each.explanation for each in self.repeats]

    @property
    def right(self) -> int:
        return sum(self._is_right(each) for each in self.explanations)

    @property
    def wrong(self) -> int:
        return sum(any(self.is_wrong(one, each) for one in each.explanation.named) for each in self.repeats)

    @property
    def side_effects(self) -> int:
        return sum(
            any(self._is_other(one) and not self.is_wrong(one, each) for one in each.explanation.named)
            for each in self.repeats
        )

    @property
    def named_nothing(self) -> int:
        return sum(not each.named for each in self.explanations)

    @property
    def drop(self) -> float:
        """The median over the repeats of the unprofiled drop, as a fraction of the step."""
        drops = [each.drop.mean / each.step_seconds for each in self.explanations]
        return statistics.median(drops) if drops else 0.0

    def _is_right(self, explanation: Explanation) -> bool:
        if self.cause == SAME:
            return not explanation.named
        cause = CAUSES[self.cause]
        if cause.facts:
            return any(name in cause.facts for name, _, _ in explanation.facts)
        return bool(explanation.named) and cause.right(explanation.named[0])

    def is_wrong(self, difference: Difference, repeat: Repeat) -> bool:
        if not self._is_other(difference):
            return False
        planted = self.percent / 100 * repeat.explanation.step_seconds
        is_small = abs(difference.seconds.mean) < _MOST_SIDE_EFFECT * planted
        return self.cause == SAME or not (is_small and repeat.differs_elsewhere(difference))

    def _is_other(self, difference: Difference) -> bool:
        """Whether this is neither what was planted nor what follows from it."""
        if self.cause == SAME:
            return True
        cause = CAUSES[self.cause]
        return not cause.right(difference) and not cause.follows(difference)


class Worker:
    """A framework's Python that makes runs, one after the other."""

    def __init__(
        self, framework: str, folder: Path, pixels: int, threads: int, preload: Path, python: Path | None = None
    ) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": str(threads),
            "GLIBC_TUNABLES": _LARGE_PAGES,
            "LD_PRELOAD": str(preload),
            "PERFGATE_EXPLAIN_IMAGE_SIZE": str(pixels),
            "PERFGATE_EXPLAIN_BUILT": str(folder),
            # Without it PyTorch opens CUDA when it is imported, and no fork could use the card.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        command = [str(python or FRAMEWORKS[framework]), "-m", "benchmarks.explain_worker", framework]
        with (folder / f"{framework}.worker").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answer()

    def run(self, spec: JobSpec, plant: Mapping[str, Any] | None) -> ProfiledRun:
        """Train it. Raises LaunchError unless every rank trained to its end and has a profile."""
        folder = Path(spec.run_folder)
        folder.mkdir(parents=True)
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"spec": str(spec.spec_path), "plant": plant}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if any(answer["statuses"]):
            got = f"exit statuses {answer['statuses']}"
            raise LaunchError(f"a run in {folder}", got=got, expected="0 of every rank")
        (folder / _COST).write_text(json.dumps(answer["core_seconds"]))
        for rank in range(spec.ranks):
            spec.trace_path(rank).unlink(missing_ok=True)
        return run_in(folder)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise LaunchError("benchmarks.explain_worker", got="it ended", expected="an answer")
        return json.loads(line)


def run_in(folder: Path) -> ProfiledRun:
    """A run that was made in ``folder``. Raises LaunchError if it has no profile."""
    spec = JobSpec.from_json((folder / "spec.json").read_text(encoding="utf-8"), str(folder))
    profiles, seconds, facts = [], [], {}
    for rank in range(spec.ranks):
        profile = from_json(spec.step_profile_path(rank).read_text(encoding="utf-8"), str(folder))
        if not isinstance(profile, StepProfile):
            raise LaunchError(f"the profile of rank {rank} in {folder}", got=profile.reason, expected="a profile")
        profiles.append(profile)
        lines = [json.loads(line) for line in spec.step_log_path(rank).read_text(encoding="utf-8").splitlines()]
        facts = lines[0]["facts"]
        seconds.append(statistics.median(each["end"] - each["start"] for each in lines if each.get("phase") == WINDOW))
    return ProfiledRun(max(seconds), tuple(profiles), facts)


@dataclass(frozen=True)
class Recorder:
    """Makes the rounds of one framework and setup in ``folder``."""

    framework: str
    setup: Setup
    folder: Path
    data: Path
    cores: Sequence[int]
    percents: Sequence[float]

    def rounds(self, worker: Worker, causes: Sequence[str], until: Callable[[], bool], most: int) -> None:
        """Make rounds up to ``most``, as long as ``until`` is false."""
        kinds = [(cause, percent) for cause in causes for percent in self._percents(cause)]
        for number in range(most):
            if until():
                return
            order = [(REFERENCE, 0.0), *kinds]
            for cause, percent in order if number % 2 else reversed(order):
                folder = self._folder(number, cause, percent)
                if not (folder / "done").exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    worker.run(self._spec(folder), self._plant(cause, percent, worker))
                    (folder / "done").touch()

    def tallies(self, pairs: int) -> Iterator[Tally]:
        for path in sorted(self.folder.glob("000.*")):
            _, cause, percent = path.name.split(".", 2)
            name, of = (SAME, self._same_build()) if cause == REFERENCE else (cause, self._pairs(cause, float(percent)))
            costs = [float(each.read_text()) for each in self.folder.glob(f"*.{cause}.{percent}/{_COST}")]
            cost = statistics.median(costs) if costs else None
            yield Tally(name, self.framework, float(percent), tuple(_repeats(list(of), pairs)), cost)

    def _percents(self, cause: str) -> Sequence[float]:
        return self.percents if CAUSES[cause].sized else (0.0,)

    def _pairs(self, cause: str, percent: float) -> Iterator[ProfiledPair]:
        for number in itertools.count():
            both = self._folder(number, REFERENCE, 0.0), self._folder(number, cause, percent)
            if not all((folder / "done").exists() for folder in both):
                return
            yield ProfiledPair(run_in(both[0]), run_in(both[1]))

    def _same_build(self) -> Iterator[ProfiledPair]:
        """The unchanged build's runs of two rounds that follow each other, which are made one after the other."""
        for number in itertools.count():
            both = [self._folder(each, REFERENCE, 0.0) for each in (2 * number, 2 * number + 1)]
            if not all((folder / "done").exists() for folder in both):
                return
            first, second = map(run_in, both)
            yield ProfiledPair(second, first) if number % 2 else ProfiledPair(first, second)

    def _folder(self, number: int, cause: str, percent: float) -> Path:
        return self.folder / f"{number:03d}.{cause}.{percent:g}"

    def _plant(self, cause: str, percent: float, worker: Worker) -> Mapping[str, Any] | None:
        if cause == REFERENCE:
            return self._link(0.0, worker)
        step_seconds = self._step_seconds(worker)
        if self.setup.link:
            return self._link(step_seconds * percent / 100, worker)
        seconds = step_seconds * percent / 100
        return {"cause": cause, "percent": percent, "seconds": seconds, "batch": self.setup.batch}

    def _link(self, more_seconds: float, worker: Worker) -> Mapping[str, Any] | None:
        """The link of this setup, on which a step's gradients take so much longer; None without one."""
        if not self.setup.link:
            return None
        link = {"cause": "slow-network", "seconds": 0.0, "megabytes": _SENT_MEGABYTES}
        seconds = self._calibrated("link_seconds", worker, link, _wall_seconds)
        return {**link, "seconds": seconds + more_seconds}

    def _step_seconds(self, worker: Worker) -> float:
        """How long a step of the unchanged build computes, by its process's own clock. With a link, which does not
        compute, and on a card, how long the step takes."""
        if self.setup.link or self.setup.device == GPU:
            return self._calibrated("step_seconds", worker, self._link(0.0, worker), _wall_seconds)
        return self._calibrated("step_seconds", worker, {"cause": "step-cost"}, _own_seconds)

    def _calibrated(
        self, name: str, worker: Worker, plant: Mapping[str, Any] | None, seconds_in: Callable[[Path], float]
    ) -> float:
        """The least of some runs before the first round."""
        known = self.folder / f"{name}.json"
        if not known.exists():
            folders = [self.folder / f"calibration-{name}-{number}" for number in range(_CALIBRATION_RUNS)]
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
                worker.run(self._spec(folder), plant)
            known.write_text(json.dumps(min(map(seconds_in, folders))))
        return float(json.loads(known.read_text(encoding="utf-8")))

    def _spec(self, folder: Path) -> JobSpec:
        case = Case.parse(self.setup.case_id(self.framework))
        cores: tuple[tuple[int, ...], ...] = tuple((core,) for core in self.cores[: self.setup.cards])
        if self.setup.threads > 1:
            cores = (tuple(self.cores[: self.setup.threads]),)
        if self.setup.device == GPU:
            cores = (tuple(self.cores),)
        # Images are read in the rank's own process.
        settings = settings_for(case, self.setup.device)
        settings = {**settings, "native": {**settings["native"], "workers": 0}}
        return JobSpec(
            job_id=uuid.uuid4().hex, case=case, replicate=0, run_folder=str(folder), device=self.setup.device,
            cores=cores, data_root=str(self.data), settings=settings, warmup_steps=self.setup.warmup_steps,
            window_steps=self.setup.window_steps, explained_steps=self.setup.explained_steps,
        )  # fmt: skip


def _repeats(made: Sequence[ProfiledPair], pairs: int) -> Iterator[Repeat]:
    """So many pairs each, none of them twice; what is left at the end is no repeat."""
    for first in range(0, len(made) - pairs + 1, pairs):
        yield Repeat(explain(made[first : first + pairs], is_slower=True), (*made[:first], *made[first + pairs :]))


def _own_seconds(folder: Path) -> float:
    return float(json.loads((folder / "cost-rank0.json").read_text(encoding="utf-8")))


def _wall_seconds(folder: Path) -> float:
    return run_in(folder).step_seconds


@contextmanager
def working(framework: str, folder: Path, pixels: int, threads: int, python: Path | None = None) -> Iterator[Worker]:
    """A worker, which ends with the block."""
    worker = Worker(framework, folder, pixels, threads, built(folder), python)
    try:
        yield worker
    finally:
        worker.end()


def built(folder: Path) -> Path:
    """The library that makes a network or a core slow."""
    library = folder / "explain_slow_parts.so"
    if not library.exists():
        source = Path(__file__).with_name("explain_slow_parts.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
    return library


_COLUMNS = [
    Column[Tally]("framework", lambda each: each.framework),
    Column[Tally]("cause", lambda each: each.cause),
    Column[Tally]("planted", lambda each: f"{each.percent:g}%" if each.percent else "", Align.RIGHT),
    Column[Tally]("step longer by", lambda each: f"{each.drop:+.1%}", Align.RIGHT),
    Column[Tally]("repeats", lambda each: str(len(each.explanations)), Align.RIGHT),
    Column[Tally]("right part first", lambda each: str(each.right), Align.RIGHT),
    Column[Tally]("nothing named", lambda each: str(each.named_nothing), Align.RIGHT),
    Column[Tally]("a side effect named", lambda each: str(each.side_effects), Align.RIGHT),
    Column[Tally]("a wrong part named", lambda each: str(each.wrong), Align.RIGHT),
    Column[Tally](
        "core seconds a run", lambda each: f"{each.core_seconds:.1f}" if each.core_seconds else "", Align.RIGHT
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    given = _options(arguments)
    if not LEAST_PAIRS <= given.pairs <= MOST_PAIRS:
        raise ConfigError("explain", field="--pairs", got=given.pairs, expected=f"from {LEAST_PAIRS} to {MOST_PAIRS}")
    end = time.monotonic() + 3600 * given.hours

    def time_is_over() -> bool:
        return time.monotonic() > end

    setups: dict[Setup, list[str]] = {}
    for name in given.cause or (CAUSES if given.device == CPU else CAUSES_ON_A_CARD):
        setup = CAUSES[name].setup if given.device == CPU else ON_A_CARD
        setups.setdefault(setup, []).append(name)
    given.folder.mkdir(parents=True, exist_ok=True)
    data = given.folder / "data"
    if not data.exists() and any(setup.data != "synthetic" for setup in setups):
        make_small_dataset(data, images_per_class=4)
    tallies: list[Tally] = []
    for framework in given.framework or (FRAMEWORKS if given.device == CPU else ["pytorch"]):
        for setup, causes in setups.items():
            folder = given.folder / f"{framework}-{setup.folder}"
            folder.mkdir(exist_ok=True)
            recorder = Recorder(framework, setup, folder, data, given.cores, given.percent)
            if not given.count:
                with working(framework, given.folder, given.image_size, setup.threads, given.python) as worker:
                    recorder.rounds(worker, causes, time_is_over, given.repeats * given.pairs)
            tallies += recorder.tallies(given.pairs)
    print("\n".join(Table.of(_COLUMNS, tallies).markdown(padded=True)))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cause", action="append", choices=CAUSES, help="Plant this; may be given several times (all)")
    parser.add_argument("--framework", action="append", choices=FRAMEWORKS, help="Train in it (all)")
    parser.add_argument("--percent", type=float, nargs="+", default=[5.0], help="Make a step so much longer (5)")
    parser.add_argument("--repeats", type=int, default=1, help="Explain so often, each time with other runs (1)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"Explain from so many pairs of runs ({PAIRS})")
    parser.add_argument("--hours", type=float, default=24.0, help="Begin no round after so many hours (24)")
    parser.add_argument("--image-size", type=int, default=224, help="Train on images of so many pixels (224)")
    parser.add_argument("--device", choices=(CPU, GPU), default=CPU, help="Train there; on a gpu only PyTorch (cpu)")
    parser.add_argument("--python", type=Path, help="Train with this Python (that of the framework's environment)")
    parser.add_argument("--cores", type=int, nargs="+", default=[0, 1], help="Use these cores (0 1)")
    parser.add_argument("--folder", type=Path, required=True, help="Keep the runs there, and go on from them")
    parser.add_argument("--count", action="store_true", help="Make no runs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(ended(main, "explain"))
