"""The runs of benchmarks.explain: makes them in a framework's own Python, keeps them in a folder, and reads them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helpers.judging.parts.step_parts import ProfiledPair, ProfiledRun
from helpers.machine.environment import CPU, GPU
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import StepProfile, from_json
from helpers.trainers.contract.steplog import WINDOW

FRAMEWORKS = {
    "pytorch": ROOT / ".venv-pytorch/bin/python",
    "paddle": ROOT / ".venv/bin/python",
}
REFERENCE = "reference"
# The gradients of ResNet50 that a rank of two sends in a step, in megabytes.
_SENT_MEGABYTES = 102.2
# The first runs set how long a step takes.
_CALIBRATION_RUNS = 2
# Memory in large pages, kept for the process's life. In small ones some processes are 5 to 10% slower than others from
# the first step to the last, whichever core they are on, by where in the machine's memory their pages lie.
_LARGE_PAGES = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {"hugetlb": 1, "mmap_threshold": 1 << 30, "trim_threshold": 1 << 32, "top_pad": 64 << 20}.items()
)


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
        if any(statuses := self._answer()["statuses"]):
            got = f"exit statuses {statuses}"
            raise LaunchError(f"a run in {folder}", got=got, expected="0 of every rank")
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
    # The folder may have been moved since.
    spec = replace(spec, run_folder=str(folder))
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

    def rounds(
        self, worker: Worker, changes: Sequence[tuple[str, float]], until: Callable[[], bool], most: int
    ) -> None:
        """Make rounds up to ``most``, as long as ``until`` is false. ``changes`` are causes with their sizes in
        percent."""
        for number in range(most):
            if until():
                return
            order = [(REFERENCE, 0.0), *changes]
            for cause, percent in order if number % 2 else reversed(order):
                folder = self._folder(number, cause, percent)
                if not (folder / "done").exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    worker.run(self._spec(folder), self._plant(cause, percent, worker))
                    (folder / "done").touch()

    def check(self) -> None:
        """Raises ConfigError if the folder has runs with another number of profiled steps."""
        for done in sorted(self.folder.glob("[0-9]*/done")):
            self._check(done.parent)

    def _check(self, folder: Path) -> None:
        path = folder / "spec.json"
        steps = JobSpec.from_json(path.read_text(encoding="utf-8"), str(path)).explained_steps
        if steps != self.setup.explained_steps:
            expected = f"{self.setup.explained_steps}, as these runs would be made"
            raise ConfigError(
                str(folder), field="profiled steps", got=steps, expected=expected, remedy="Name another folder"
            )

    def changes(self) -> list[tuple[str, float]]:
        """What has been recorded, the unchanged build included."""
        names = (path.name.split(".", 2) for path in sorted(self.folder.glob("000.*")))
        return [(cause, float(percent)) for _, cause, percent in names]

    def pairs(self, cause: str, percent: float) -> Iterator[ProfiledPair]:
        """The unchanged build's run and the changed one's of each round."""
        for number in itertools.count():
            both = self._folder(number, REFERENCE, 0.0), self._folder(number, cause, percent)
            if not all((folder / "done").exists() for folder in both):
                return
            yield ProfiledPair(run_in(both[0]), run_in(both[1]))

    def same_build(self) -> Iterator[ProfiledPair]:
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
