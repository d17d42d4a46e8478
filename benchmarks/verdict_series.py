"""Real series as nights: resampled repeats, and long series with one run a night. Only read, from a folder given.

``series/INDEX.md`` of that folder says where each file comes from. Repeats (MLPerf, DLPerf) become machines on which
every run is drawn from a case's real runs. Long series (Kokkos, TigerBeetle) are replayed as they are: there is one
run a night and no other build, so the procedure can say PASS or INCONCLUSIVE and nothing else.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
KOKKOS = "kokkos/kokkos_ci_2023_2026.csv.gz"
TIGERBEETLE = "otava/tigerbeetle_series.txt"
# Where people agreed that this series changes (INDEX.md).
TIGERBEETLE_CHANGES = (15, 71)

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
class OneRunANight:
    """Long series as they are."""

    cases: tuple[Case, ...]
    # By case.
    log_rates: tuple[tuple[float, ...], ...]
    # How many first values were recorded; night 0 is the one after them.
    recorded: int
    published: tuple[float, ...] = ()

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        """The night's run; of the good build, the first values of the series."""
        recorded = build is Build.REFERENCE
        rate = self.log_rates[case][number % self.recorded if recorded else at.night + self.recorded]
        return drawn_run(np.array([math.exp(-rate)]))


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


def kokkos(folder: Path, recorded: int) -> OneRunANight:
    """One case a build and benchmark, in the order of its dates, as long as the shortest of the long ones."""
    found: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for row in _rows(folder / KOKKOS):
        seconds = float(row["real_time"])
        if seconds > 0:
            found.setdefault((row["build"], row["benchmark"]), []).append((row["date"], -math.log(seconds)))
    most = max(len(values) for values in found.values())
    series = [tuple(value for _, value in sorted(values)) for values in found.values() if len(values) > most / 2]
    shortest = min(map(len, series))
    return OneRunANight(_cases([1] * len(series)), tuple(values[:shortest] for values in series), recorded)


def tigerbeetle(folder: Path, recorded: int) -> OneRunANight:
    rates = [math.log(float(row["rate"])) for row in _rows(folder / TIGERBEETLE, ["rate"])]
    return OneRunANight(_cases([1]), (tuple(rates),), recorded)


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


def _rows(path: Path, names: Sequence[str] | None = None) -> Iterable[Mapping[str, str]]:
    """The rows of a CSV file; ``names`` are those of its columns where its first line has none."""
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            yield from csv.DictReader(lines, names)
    except (OSError, csv.Error) as error:
        remedy = "See --series in --help"
        raise SuiteError(f"series {path}", got=str(error), expected="a readable series", remedy=remedy) from error
