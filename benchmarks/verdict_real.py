"""Part two of ``benchmarks.verdicts``: the same procedure and its rivals on the real series of a folder, which is only
read.

``series/INDEX.md`` of that folder says where each file comes from. Their repeats (MLPerf, DLPerf) become machines on
which every run is drawn from a case's real runs.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.verdict_replay import DROPS_PERCENT, Future, Replay, Scores, add_world
from benchmarks.verdict_report import more_text, table_text
from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import Array, At, DrawnRun, drawn_run
from helpers.judging.case.evidence import Build
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import STEADY_WINDOWS
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.steplog import STEADY_SHARE

MLPERF = "mlperf_resnet_windows.csv.gz"
DLPERF = "dlperf_repeats.csv"
_SHARE_WITH_DROPS = 0.3
# A run is 5 windows of 20 steps, as the suite's 100.
_WINDOW_STEPS = 20
_RUN_WINDOWS = 5
_LEAST_PLACES = 10
_LEAST_RUNS = 5


@dataclass(frozen=True)
class Resampled:
    """Machines whose runs are drawn from real ones."""

    seed: int
    cases: tuple[Case, ...]
    # By case, for each real run, the places to measure at, and there the seconds of one image for every window.
    runs: tuple[tuple[tuple[Array, ...], ...], ...]
    published: tuple[float, ...] = ()

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        """A real run at random, measured at a random place of it; both builds and all nights draw alike."""
        generator = np.random.default_rng([self.seed, at.branch, at.night, case, int(build is Build.REFERENCE), number])
        places = self.runs[case][generator.integers(len(self.runs[case]))]
        return drawn_run(places[generator.integers(len(places))])


@dataclass(frozen=True)
class RealSize:
    """How much of the real series is replayed: machines, and futures of each."""

    machines: int
    quiet: int
    dropped: int


QUICK = RealSize(machines=1, quiet=4, dropped=2)
FULL = RealSize(machines=2, quiet=20, dropped=8)

Load = Callable[[Path, int], Resampled]
Map = Callable[[Callable[[int], Scores], Sequence[int]], Iterable[Scores]]


def real_series_text(folder: Path | None, seed: int, size: RealSize, spread: Map) -> str:
    """What the procedure and its rivals say of the real series; why they are left out where they are."""
    if folder is None or not folder.is_dir():
        return f"real series left out: {'no --series FOLDER' if folder is None else f'no folder {folder}'}"
    resampled: Mapping[str, tuple[Load, str]] = {
        MLPERF: (mlperf, "ResNet-50 systems of MLPerf, runs drawn from their own five"),
        DLPERF: (dlperf, "configurations of DLPerf, runs drawn from their own repeats"),
    }
    return "\n\n".join(
        _resampled_text(load, folder, name, what, seed, size, spread) for name, (load, what) in resampled.items()
    )


def replay_resampled(machine: int, *, load: Load, folder: Path, seed: int, size: RealSize) -> Scores:
    """One machine of a resampled series: its scores."""
    nights = load(folder, seed + machine)
    return Replay(Machine.of(nights)).run(_futures(nights, seed + machine, size))


def _futures(nights: Resampled, seed: int, size: RealSize) -> tuple[Future, ...]:
    generator = np.random.default_rng([seed, 8])
    count = max(round(_SHARE_WITH_DROPS * len(nights.cases)) // len(DROPS_PERCENT), 1) * len(DROPS_PERCENT)
    dropped = []
    for number in range(size.dropped):
        chosen = generator.permutation(len(nights.cases))[:count]
        drops = {int(case): DROPS_PERCENT[place % len(DROPS_PERCENT)] for place, case in enumerate(chosen)}
        dropped.append(Future(1001 + number, drops))
    return (*(Future(1 + number) for number in range(size.quiet)), *dropped)


def _resampled_text(load: Load, folder: Path, name: str, what: str, seed: int, size: RealSize, spread: Map) -> str:
    if not (folder / name).exists():
        return f"{name}: left out, the folder has none"
    cases = len(load(folder, seed).cases)
    total: Scores = {}
    task = partial(replay_resampled, load=load, folder=folder, seed=seed, size=size)
    for scores in spread(task, range(size.machines)):
        add_world(total, scores)
    return f"{name}: {cases} {what}\n\n{table_text(total)}\n\n{more_text(total)}"


def mlperf(folder: Path, seed: int) -> Resampled:
    """One case a system, every 20-step window of its runs; systems without steady windows enough are left out."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = {}
    for row in _rows(folder / MLPERF):
        # The first epoch warms up, the first window of an epoch holds what lies between two.
        if row["epoch"] in ("0", "1") or row["b0"] == "0" or int(row["b1"]) - int(row["b0"]) != _WINDOW_STEPS:
            continue
        system = found.setdefault((row["round"], row["submitter"], row["system"]), {})
        system.setdefault((row["run"], row["node"]), []).append(1 / float(row["samples_per_s"]))
    runs = [
        tuple(places for seconds in system.values() if len(places := _steady(np.array(seconds))) >= _LEAST_PLACES)
        for system in found.values()
    ]
    kept = tuple(each for each in runs if len(each) >= _LEAST_RUNS)
    return Resampled(seed, _cases([8] * len(kept)), kept)


def dlperf(folder: Path, seed: int) -> Resampled:
    """One case a configuration with 5 repeats or more, each repeat a run without steps of its own."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in _rows(folder / DLPERF):
        found.setdefault((row["file"], row["config"]), []).append(1 / float(row["samples_per_s"]))
    cards = [_cards(config) for _, config in found]
    runs = tuple(tuple((np.array([seconds]),) for seconds in repeats) for repeats in found.values())
    return Resampled(seed, _cases(cards), runs)


def _steady(seconds: Array) -> tuple[Array, ...]:
    """Every stretch of five windows before which three agree, so that the suite would begin to measure."""
    found = []
    for place in range(STEADY_WINDOWS, len(seconds) - _RUN_WINDOWS + 1):
        before = seconds[place - STEADY_WINDOWS : place]
        if before.max() <= before.min() * (1 + STEADY_SHARE):
            found.append(seconds[place : place + _RUN_WINDOWS])
    return tuple(found)


def _cards(config: str) -> int:
    """``…/2n8g/…`` is 16; 1 where the configuration does not say."""
    told = re.search(r"([0-9]+)n([0-9]+)g", config)
    return int(told[1]) * int(told[2]) if told else 1


def _cases(cards: Iterable[int]) -> tuple[Case, ...]:
    """Stand-ins with as many cards; the batch size tells them apart."""
    return tuple(
        Case(Framework.PADDLE, Model.RESNET50, Precision.FP32, 1 + number, 1, count, DataSource.DALI, Execution.STATIC)
        for number, count in enumerate(cards)
    )


def _rows(path: Path) -> Iterable[Mapping[str, str]]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            yield from csv.DictReader(lines)
    except (OSError, csv.Error) as error:
        remedy = "See --series in --help"
        raise SuiteError(f"series {path}", got=str(error), expected="a readable series", remedy=remedy) from error
