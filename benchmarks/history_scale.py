"""How long a verdict and the adding of one result take over a large history: ``make bench``.

Fills a new SQLite history with as many results as asked for (10,800: 60 cases of one machine in turn, 90 nights of two
runs, 100 raw steps a run). Then: reading what a night is compared with and judging it, and adding a result and a night.
Prints medians and the worst; exit status 1 when a median misses its goal.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from helpers.history import default_url, open_history
from helpers.history.codec import utc
from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.judging.case.evidence import Evidence, RecordedReference, RunEvidence
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Standing, Verdict
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.machine.environment import Environment
from helpers.plan.overrides import segment_of
from helpers.report.unforeseen import ended

RESULTS = 10_800
CASES = 60
RUNS_A_NIGHT = 2
STEPS = 100
MEASURED = 50
VERDICT_GOAL_SECONDS = 1.0
ADDING_GOAL_SECONDS = 0.050
# Card counts of the matrix, so that a case has about 50 siblings.
CARDS = (1, 2, 4, 8)
FIRST_NIGHT = datetime(2000, 1, 1, tzinfo=UTC)
# Standard deviations of log rates between runs and between nights.
SIGMA, TAU = 0.003, 0.001
ENVIRONMENT = {
    **{item.name: item.name for item in fields(Environment)},
    "machine": "",
    "pool": "",
    "device": "gpu",
    "host_id": "0123456789abcdef",
}
SETTINGS = {
    "layout": "NHWC",
    "learning_rate": 0.1,
    "dali": {"threads": 4, "prefetch_queue_depth": 2, "seed": 42},
    "environment": {"FLAGS_cudnn_exhaustive_search": "1"},
}


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=RESULTS, help="Fill the history with N results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        last = fill(Path(folder), arguments.results)
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
        print(
            f"{arguments.results} results of {CASES} cases in {last} nights: {size:.0f} MB of SQLite, "
            f"made in {time.perf_counter() - started:.0f} s"
        )
        with open_history(default_url(Path(folder))) as history:
            rng = random.Random(1)
            # The first of a process prepares its statements.
            history.add_result(made_run(0, last, rng))
            verdicts = [_seconds(lambda: _verdict(history, rng.randrange(CASES), rng)) for _ in range(MEASURED)]
            added = [made_run(rng.randrange(CASES), last, rng) for _ in range(MEASURED)]
            adding = [_seconds(lambda each=each: history.add_result(each)) for each in added]  # type: ignore[misc]
            judged = [made_night(number, last, (1.0,), ("x",)) for number in range(MEASURED)]
            disk = [_seconds(lambda: _written_through(Path(folder))) for _ in range(MEASURED)]
            night = [_seconds(lambda each=each: history.add_night(each)) for each in judged]  # type: ignore[misc]
    reached = [
        _tell("a verdict: reading what it is held against, and judge()", verdicts, VERDICT_GOAL_SECONDS),
        _tell("adding one result", adding, ADDING_GOAL_SECONDS),
    ]
    _tell("adding one night", night)
    _tell("of adding, a plain write that waits for this disk takes", disk)
    return 0 if all(reached) else 1


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _written_through(folder: Path) -> None:
    """A page at a file's end, and the wait until the disk has it: the least that a durable write takes."""
    with (folder / "page").open("ab") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())


def _tell(what: str, seconds: Sequence[float], goal: float = math.inf) -> bool:
    median = statistics.median(seconds)
    reached = median < goal
    told = "" if math.isinf(goal) else f"; goal under {1000 * goal:.0f} ms{'' if reached else ': MISSED'}"
    print(f"{what}: median {1000 * median:.1f} ms, worst {1000 * max(seconds):.1f} ms, n={len(seconds)}{told}")
    return reached


def _verdict(history: History, number: int, rng: random.Random) -> Verdict:
    """A quiet night of one case, through judge() to its verdict."""
    case_id, cards = _case(number)
    known = history.past(case_id, "v100", _segment(number), cards, "tonight")
    if len(known.nights) < 15:
        raise SystemExit("history_scale: --results leaves fewer than 15 nights a case: give more")
    level = statistics.median(night.log_rates[0] for night in known.nights)
    recorded = RecordedReference(math.exp(level), MEDIAN_STEP, "recorded", 0.005)
    evidence = Evidence(case_id, MEDIAN_STEP, 1, recorded=recorded, past=known, cases_tonight=CASES)
    while isinstance(answer := judge(evidence), NeedRuns):
        rates = [level + rng.gauss(0, SIGMA) for _ in answer.order]
        runs = (
            RunEvidence({MEDIAN_STEP: math.exp(rate)}, build, answer.stage, rate)
            for rate, build in zip(rates, answer.order, strict=True)
        )
        evidence = replace(evidence, runs=(*evidence.runs, *runs))
    return answer


# ---- the history that is filled


def fill(folder: Path, results_wanted: int) -> int:
    """Write results and their nights; how many nights it took."""
    last = max(1, results_wanted // (CASES * RUNS_A_NIGHT))
    rng = random.Random(0)
    with open_history(default_url(folder)) as history:
        for day, number in itertools.product(range(last + 1), range(CASES)):
            runs = [made_run(number, day, rng) for _ in range(RUNS_A_NIGHT)]
            tau = rng.gauss(0, TAU)
            for run in runs:
                history.add_result(run)
            rates = tuple(_level(number) + tau + rng.gauss(0, SIGMA) for _ in runs)
            history.add_night(made_night(number, day, rates, tuple(run.uuid for run in runs)))
    return last


def made_run(number: int, day: int, rng: random.Random) -> RunResult:
    """A run as real ones are: its figures by several rules, 100 steps with losses, system tables."""
    case_id, _ = _case(number)
    step = math.exp(-_level(number)) * 64
    seconds = tuple(step * (1 + rng.gauss(0, 0.01)) for _ in range(STEPS))
    rate = 64 / statistics.median(seconds)
    return RunResult(
        uuid=uuid.UUID(int=rng.getrandbits(128)).hex,
        session=f"s{day}",
        case_id=case_id,
        target="v100",
        replicate=0,
        created=_created(day, number),
        build={"framework": "paddle", "version": "3.3.1", "commit": f"{day:040x}", "interpreter": "python"},
        settings={**SETTINGS, "batch": number},
        protocol={"warmup_steps": 20, "window_steps": STEPS},
        environment=ENVIRONMENT,
        system={part: {f"{part} {line}": "a value of some length" for line in range(12)} for part in ("CPU", "GPU")},
        figures={MEDIAN_STEP: rate, WALL_CLOCK: rate * 0.99, "dlperf-log": "needs 120 steps, has 100"},
        step_seconds=seconds,
        samples_per_step=(64,) * STEPS,
        losses=tuple(6.9 + rng.gauss(0, 0.01) for _ in range(STEPS // 10)),
        wall_seconds=70.0,
        training_seconds=50.0,
        window_seconds=40.0,
        log_tail="the last lines of what the trainer wrote\n" * 10,
    )


def made_night(number: int, day: int, rates: tuple[float, ...], run_uuids: tuple[str, ...]) -> NightRecord:
    case_id, cards = _case(number)
    return NightRecord(
        session=f"s{day}",
        case_id=case_id,
        target="v100",
        created=_created(day, number),
        date=_created(day, number)[:10],
        segment=_segment(number),
        status="PASS",
        code="steady",
        reason="no worse than before by the median step; " * 6,
        cards=cards,
        log_rates=rates,
        run_uuids=run_uuids,
        standing=Standing(rates[0], 1.0, 1.0, True, SIGMA, TAU, 40, len(rates)),
        build={"framework": "paddle", "version": "3.3.1", "commit": f"{day:040x}"},
        properties={"model": "resnet50v1.5", "precision": "fp32", "cards": str(cards)},
    )


def _case(number: int) -> tuple[str, int]:
    cards = CARDS[number % len(CARDS)]
    return f"paddle-resnet50v1.5-fp32-bs{number}-1x{cards}-dali-static", cards


def _segment(number: int) -> dict[str, str]:
    return segment_of(ENVIRONMENT, {**SETTINGS, "batch": number}, "benchmark")


def _level(number: int) -> float:
    return math.log(300.0 + number)


def _created(day: int, number: int) -> str:
    return utc((FIRST_NIGHT + timedelta(days=day, seconds=number)).isoformat(), "benchmark")


if __name__ == "__main__":
    sys.exit(ended(main, "history_scale"))
