"""One session of the suite under observation: the CPU seconds of all that is not the job, and the job's own recording.

All times are seconds of the monotonic clock, which the step log has too.
"""

from __future__ import annotations

import bisect
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.launch.steplog_reader import read_step_log
from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from tests.faults.workshop import Running, Workshop

WARMUP_STEPS = 3
_SPANS = "spans.json"
_PYTEST = "pytest"
_LOOK_SECONDS = 0.5
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
# Of a real trainer on a busy machine.
_LIMITS = {"start_up_seconds": 300, "no_progress_seconds": 200, "run_seconds": 1800, "stop_grace_seconds": 5}
# In the trainer: when each record and each life sign began and ended.
_TIMED = """
import json, time
from pathlib import Path
from helpers.trainers.common.process import Trainer

_spans = []

def _timed(call):
    def timed(*given):
        began = time.monotonic()
        try:
            return call(*given)
        finally:
            _spans.append((began, time.monotonic()))
    return timed

def at_start(spec, rank):
    end = Trainer.end
    Trainer.beat, Trainer.record = _timed(Trainer.beat), _timed(Trainer.record)

    def ended(trainer, *given):
        (Path(spec.run_folder) / "{spans}").write_text(json.dumps(_spans))
        end(trainer, *given)

    Trainer.end = ended
"""

Span = tuple[float, float]


@dataclass(frozen=True)
class Observed:
    """Within the measured window: CPU seconds of the suite by kind of process (pytest, guard), and the seconds that
    ``in_loop_calls`` records and life signs kept the training loop."""

    window_seconds: float
    window_steps: int
    cores: int
    cpu_seconds: Mapping[str, float]
    in_loop_seconds: float
    in_loop_calls: int


@dataclass
class Sampler:
    """CPU seconds so far of a workshop's processes that are not the job's, by kind and process id."""

    workshop: Workshop
    proc: Path = Path("/proc")
    samples: dict[tuple[str, int], list[Span]] = field(default_factory=dict)

    def look(self) -> None:
        for process in self.workshop.processes():
            try:
                variables = (self.proc / str(process.pid) / "environ").read_bytes()
                seconds = cpu_seconds((self.proc / str(process.pid) / "stat").read_text())
            except OSError:
                continue
            at = time.monotonic()
            if (kind := kind_of(variables)) is not None:
                self.samples.setdefault((kind, process.pid), []).append((at, seconds))

    def until_end(self, running: Running) -> None:
        while running.process.poll() is None:
            self.look()
            time.sleep(_LOOK_SECONDS)

    def within(self, start: float, end: float) -> dict[str, float]:
        """CPU seconds between two moments by kind. Raises LaunchError where pytest was not seen before and after."""
        found: dict[str, float] = {}
        for (kind, _), samples in self.samples.items():
            found[kind] = found.get(kind, 0.0) + value_at(samples, end) - value_at(samples, start)
        seen = [at for (kind, _), samples in self.samples.items() if kind == _PYTEST for at, _ in samples]
        if not seen or min(seen) > start or max(seen) < end:
            raise LaunchError(
                "the suite's processes",
                got=f"pytest seen {len(seen)} times",
                expected="looks before and after the window",
            )
        return found


def kind_of(variables: bytes) -> str | None:
    """What a process of the suite is by its environment; None for the job's own."""
    names = {each.partition(b"=")[0] for each in variables.split(b"\0")}
    if JOB_VARIABLE.encode() in names:
        return None
    return "guard" if GUARD_VARIABLE.encode() in names else _PYTEST


def cpu_seconds(stat: str) -> float:
    """User and system seconds of a process by its ``/proc/PID/stat``, without its children's."""
    # The name, in brackets, may hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS


def value_at(samples: Sequence[Span], at: float) -> float:
    """A counter that only grows, between its two samples around ``at``; 0 before the first, the last after it."""
    times = [each[0] for each in samples]
    after = bisect.bisect_right(times, at)
    if after == 0:
        return 0.0
    if after == len(samples):
        return samples[-1][1]
    (before_at, before), (after_at, value) = samples[after - 1], samples[after]
    return before + (value - before) * (at - before_at) / (after_at - before_at)


def spent_within(spans: Sequence[Span], start: float, end: float) -> tuple[float, int]:
    """Seconds of the spans that lie between two moments, and how many spans do."""
    inside = [(max(start, began), min(end, ended)) for began, ended in spans if ended > start and began < end]
    return sum(ended - began for began, ended in inside), len(inside)


def observe(workshop: Workshop, case: Case, window_steps: int) -> Observed:
    """Measure ``case`` once with the suite in ``workshop``, and watch the suite. Raises LaunchError where it fails."""
    workshop.configure(lambda config: _one_case(config, case, window_steps))
    sampler = Sampler(workshop)
    done = workshop.run(case=case.id, fault=_TIMED.replace("{spans}", _SPANS), during=sampler.until_end)
    if done.exit_code != 0:
        raise LaunchError(
            f"a session of {case.id}",
            got=f"exit code {done.exit_code}: {done.output[-500:]}",
            expected="a measured case",
        )
    folder = workshop.folder / "runs" / "night" / case.id / "r0"
    window = read_step_log(folder / "rank0.jsonl").window
    start, end = window[0].start, window[-1].end
    spans = [(began, ended) for began, ended in json.loads((folder / _SPANS).read_text(encoding="utf-8"))]
    seconds, calls = spent_within(spans, start, end)
    cores = json.loads((folder / "spec.json").read_text(encoding="utf-8"))["cores"]
    leased = sum(len(each) for each in cores)
    return Observed(end - start, len(window), leased, sampler.within(start, end), seconds, calls)


def _one_case(config: dict[str, Any], case: Case, window_steps: int) -> None:
    block = config["matrix"]["cpu"][0]
    block.update(
        model=case.model.value, precision=case.precision.value, batch_size_per_card=case.batch_size_per_card,
        cards=case.cards, data=case.data.value, execution=case.execution.value if case.execution else None,
    )  # fmt: skip
    config["short"] = [case.id]
    config["limits"].update(_LIMITS)
    protocol = config["protocols"]["cpu"]
    # How long it takes to be steady says nothing of what watching costs.
    for name in ("steady_window_steps", "most_warmup_steps"):
        protocol.pop(name, None)
    protocol.update(warmup_steps=WARMUP_STEPS, window_steps=window_steps, runs=1)
