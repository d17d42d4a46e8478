"""Row 14: the wall clock is set back by an hour while a case is measured.

Only the clock of a whole machine can be set back for real (no namespace has one of its own), and that would hit
everybody on it. So every process of the suite and of its jobs has a clock that jumps where Python asks for the wall
clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from helpers.history import open_history
from tests.faults.fault import Fault, Seen
from tests.faults.handled import measured
from tests.faults.workshop import ONE_CARD, ROOT, Workshop

# A process that imports it reads so many seconds less on the wall clock.
_CLOCK = """
import datetime, os, time

_wall, _datetime = time.time, datetime.datetime

def _back():
    return {seconds}

class _Jumping(_datetime):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) - datetime.timedelta(seconds=_back())

    @classmethod
    def utcnow(cls):
        return _datetime.utcnow() - datetime.timedelta(seconds=_back())

time.time = lambda: _wall() - _back()
time.time_ns = lambda: int(time.time() * 1e9)
datetime.datetime = _Jumping
"""
_JUMP = "3600.0 if os.path.exists({file!r}) else 0.0"
_FAULT = """
import sys
sys.path.insert(0, {folder!r})
import jumping_clock

def at_step(spec, rank, phase, number):
    if phase == "window" and spec.replicate == 1:
        open({file!r}, "a").close()
        mark()
"""


def _set_back(workshop: Workshop) -> Seen:
    """Measures one undisturbed night, and one in whose second run the clock jumps, with the same history."""
    workshop.configure(lambda config: config["protocols"]["cpu"].update(runs=2))
    folder, jumped = workshop.folder / "clock", workshop.folder / "jumped"
    folder.mkdir()
    (folder / "jumping_clock.py").write_text(_CLOCK.format(seconds=_JUMP.format(file=str(jumped))), encoding="utf-8")
    (folder / "sitecustomize.py").write_text("import jumping_clock\n", encoding="utf-8")
    times: dict[str, Any] = {}
    before = workshop.run(session="before")
    done = workshop.run(
        session="set-back",
        fault=_FAULT.format(folder=str(folder), file=str(jumped)),
        environment={"PYTHONPATH": f"{folder}:{ROOT}"},
    )
    results = [json.loads(path.read_text(encoding="utf-8")) for path in _paths(workshop, "result.json")]
    with open_history(f"sqlite:///{workshop.folder / 'runs' / 'history.sqlite'}") as history:
        nights = [night.record.session for night in history.series(ONE_CARD)]
        attempts = [each.result.replicate for each in history.results_of(session="set-back")]
    times = {name: value for each in results for name, value in _times(each)}
    return measured(
        workshop,
        done,
        (jumped.exists() and len(done.marks) > 0, "the clock was not set back"),
        (before.exit_code == 0, f"exit code before {before.exit_code}"),
        (len(results) == 2, f"{len(results)} runs"),
        (nights == ["before", "set-back"], f"nights in the order {nights}"),
        (attempts == [0, 1], f"runs in the order {attempts}"),
        *((0 <= value < 300, f"{name} is {value} s") for name, value in times.items()),
        *((_rises(log), f"steps of {log.parent.name} go back in time") for log in _paths(workshop, "rank0.jsonl")),
        (not re.search(r"(?<!\w)-\d", done.output), "a negative time is shown"),
    )


def _paths(workshop: Workshop, name: str) -> list[Any]:
    return sorted((workshop.folder / "runs" / "set-back").glob(f"*/r*/{name}"))


def _times(result: dict[str, Any]) -> Iterable[tuple[str, float]]:
    for name in ("wall_seconds", "start_up_seconds", "training_seconds", "window_seconds"):
        yield f"{name} of run {result['replicate']}", result[name]
    for number, seconds in enumerate(result["step_seconds"]):
        yield f"step {number} of run {result['replicate']}", seconds


def _rises(log: Any) -> bool:
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    ends = [record["end"] for record in records if "end" in record]
    return len(ends) > 1 and all(earlier < later for earlier, later in pairwise(ends))


FAULTS = [
    Fault(
        14,
        "wall clock set back",
        "every process's wall clock goes back an hour in the second run's window",
        _set_back,
    ),
]
