"""Part two of ``benchmarks.verdicts``: the same procedure and its rivals on the real series of a folder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_replay import DROPS_PERCENT, Future, Replay, Scores, add_world
from benchmarks.verdict_report import more_text, table_text
from benchmarks.verdict_rivals import Detect, Seen, below_own, otava_steps, pytest_benchmark
from benchmarks.verdict_series import (
    DLPERF,
    KOKKOS,
    MLPERF,
    TIGERBEETLE,
    TIGERBEETLE_CHANGES,
    OneRunANight,
    Resampled,
    dlperf,
    kokkos,
    mlperf,
    tigerbeetle,
)
from benchmarks.verdict_session import RECORDED_RUNS, Machine
from benchmarks.verdict_worlds import At, Nights
from helpers.judging.case.evidence import Budget, Build
from helpers.judging.case.verdict import Status
from helpers.machine.facts import cpu_list

# A series has one run a night and no other build's.
_ONE_RUN = Budget(screen_runs=1, first_runs=1)
_SHARE_WITH_DROPS = 0.3
_CASES_OF_A_MATRIX = 60


@dataclass(frozen=True)
class RealSize:
    """How much of the real series is replayed: machines, futures of each, and nights of a long series."""

    machines: int
    quiet: int
    dropped: int
    nights: int


QUICK = RealSize(machines=1, quiet=4, dropped=2, nights=100)
FULL = RealSize(machines=2, quiet=20, dropped=8, nights=600)

Load = Callable[[Path, int], Resampled]
Map = Callable[[Callable[[int], Scores], Sequence[int]], Iterable[Scores]]


def real_series_text(folder: Path | None, seed: int, size: RealSize, detect: Detect | None, spread: Map) -> str:
    """What the procedure and its rivals say of the real series; why they are left out where they are."""
    if folder is None or not folder.is_dir():
        return f"real series left out: {'no --series FOLDER' if folder is None else f'no folder {folder}'}"
    parts = []
    resampled: Mapping[str, tuple[Load, str]] = {
        MLPERF: (mlperf, "ResNet-50 systems of MLPerf, runs drawn from their own five"),
        DLPERF: (dlperf, "configurations of DLPerf, runs drawn from their own repeats"),
    }
    for name, (load, what) in resampled.items():
        parts.append(_resampled_text(load, folder, name, what, seed, size, spread) or _absent(name))
    parts.append(_kokkos_text(folder, size, detect) if (folder / KOKKOS).exists() else _absent(KOKKOS))
    parts.append(_tigerbeetle_text(folder, detect) if (folder / TIGERBEETLE).exists() else _absent(TIGERBEETLE))
    return "\n\n".join(parts)


def replay_resampled(machine: int, *, load: Load, folder: Path, seed: int, size: RealSize) -> Scores:
    """One machine of a resampled series: its scores."""
    nights = load(folder, seed + machine)
    return Replay(Machine.of(nights)).run(_futures(nights, seed + machine, size))


def _futures(nights: Nights, seed: int, size: RealSize) -> tuple[Future, ...]:
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
        return ""
    cases = len(load(folder, seed).cases)
    total: Scores = {}
    task = partial(replay_resampled, load=load, folder=folder, seed=seed, size=size)
    for scores in spread(task, range(size.machines)):
        add_world(total, scores)
    return f"{name}: {cases} {what}\n\n{table_text(total)}\n\n{more_text(total)}"


def _absent(name: str) -> str:
    return f"{name}: left out, the folder has none"


def _kokkos_text(folder: Path, size: RealSize, detect: Detect | None) -> str:
    """One run a night and no other build: a false-alarm stress test. Nobody knows which changes are real."""
    nights = kokkos(folder, RECORDED_RUNS)
    count = min(size.nights, len(nights.log_rates[0]) - RECORDED_RUNS)
    said = Counter(status for night in _replayed(nights, count) for status in night)
    per_night = _CASES_OF_A_MATRIX / len(nights.cases) / count
    rivals = Counter[str]()
    machine = Machine.of(nights, _ONE_RUN, has_reference=False)
    for night in range(count):
        for case, first in enumerate(machine.first):
            seen = Seen(first, (nights.run(At(0, night), case, Build.CANDIDATE, 0),))
            rivals["-5% of own reference"] += below_own(seen)
            rivals["pytest-benchmark mean:5%"] += pytest_benchmark(seen)
    told = [
        f"{said[status] * per_night:.2g} {status.value}"
        for status in (Status.REGRESSION, Status.SLOWER, Status.INCONCLUSIVE)
    ]
    told += [f"{rule} {alarms * per_night:.2g}" for rule, alarms in rivals.items()]
    if detect is not None:
        steps = otava_steps(detect, [series[RECORDED_RUNS : RECORDED_RUNS + count] for series in nights.log_rates])
        told.append(f"Otava, asked once at the end, {sum(map(len, steps)) * per_night:.2g} steps")
    head = f"{KOKKOS}: {len(nights.cases)} series of shared runners, {count} nights, no other build"
    return f"{head}; alarms a night of {_CASES_OF_A_MATRIX} cases: {'; '.join(told)}"


def _tigerbeetle_text(folder: Path, detect: Detect | None) -> str:
    """Which nights are told to be slower, beside the agreed changes."""
    nights = tigerbeetle(folder, RECORDED_RUNS)
    rates = nights.log_rates[0]
    said = [night[0] for night in _replayed(nights, len(rates) - RECORDED_RUNS)]
    slower = [RECORDED_RUNS + night for night, status in enumerate(said) if status is Status.INCONCLUSIVE]
    agreed = []
    for change, until in zip(TIGERBEETLE_CHANGES, (*TIGERBEETLE_CHANGES[1:], len(rates)), strict=True):
        before = 0 if change == TIGERBEETLE_CHANGES[0] else TIGERBEETLE_CHANGES[0]
        size = math.expm1(float(np.median(rates[change:until]) - np.median(rates[before:change])))
        agreed.append(f"{change} ({size:+.0%})")
    told = [f"INCONCLUSIVE on {len(slower)} of {len(said)} nights: {_numbers(slower)}"]
    if detect is not None:
        (points,) = detect([[math.exp(rate) for rate in rates]])
        told.append(f"Otava: {_numbers(point.index for point in points)}")
    return f"{TIGERBEETLE}: agreed changes at {', '.join(agreed)}; {'; '.join(told)}"


def _replayed(nights: OneRunANight, count: int) -> list[list[Status]]:
    machine, memory = Machine.of(nights, _ONE_RUN, has_reference=False), HeldNights()
    return [machine.night(At(0, night), memory).statuses for night in range(count)]


def _numbers(numbers: Iterable[int]) -> str:
    """``3, 15-18, 71``"""
    return cpu_list(frozenset(numbers)).replace(",", ", ") or "none"
