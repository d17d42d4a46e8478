"""Row 12: a foreign process on the leased core, or on the card, while a case is timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from helpers.machine.devices import discover
from helpers.machine.watch.contention import core_seconds
from tests.faults import gpu_shop
from tests.faults.fault import Fault, Seen, expect
from tests.faults.gpu_shop import STAND_IN, furnish, state_file
from tests.faults.handled import ended_as
from tests.faults.stand_in_nvml import Card
from tests.faults.traces import results, with_cases
from tests.faults.workshop import Finished, Running, Workshop

_REPEATS = 2
_WINDOW_STEPS = 30
# The first is perf.yaml's limit for a quiet machine; the other allows a machine's usual guests, and no busy loop.
_STRICT_SHARE, _GUESTS_SHARE = 0.05, 0.5
_QUIET_SHARE = 0.25
_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True:\n    pass\n"


@contextmanager
def _busy_loop(core: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _BUSY, str(core)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _quietest() -> tuple[int, float]:
    """The core that others use least just now, and their share of it."""
    stat = Path("/proc/stat")
    before, began = core_seconds(stat.read_text()), time.monotonic()
    time.sleep(0.5)
    after, seconds = core_seconds(stat.read_text()), time.monotonic() - began
    shares = {core: (after[core][0] - before[core][0]) / seconds for core in os.sched_getaffinity(0)}
    core = min(shares, key=lambda each: shares[each])
    return core, shares[core]


def _why_not_quiet() -> str:
    core, share = _quietest()
    return (
        "" if share < _QUIET_SHARE else f"every core is busy with others already, core {core} the least ({share:.0%})"
    )


def _only(core: int) -> tuple[str, ...]:
    """Words before a suite's command line that leave it only this core."""
    return ("taskset", "-c", str(core))


def _configure(workshop: Workshop, share: float, repeats: int) -> None:
    workshop.allow_contention = False

    def change(config: dict[str, Any]) -> None:
        with_cases([1], contention={"max_foreign_share": share}, budgets={"repeats": repeats})(config)
        # Long enough for the busy loop to stand out among processes that come and go.
        config["protocols"]["cpu"] |= {"window_steps": _WINDOW_STEPS}

    workshop.configure(change)


def _stays(workshop: Workshop) -> Seen:
    """The run is made again as often as the budget allows; then the case is INVALID and names the process."""
    _configure(workshop, _STRICT_SHARE, _REPEATS)
    core = discover().cpu_cards[0].cores[0]
    with ExitStack() as loops:
        pids: list[int] = []

        def during(running: Running) -> None:
            running.wait_for(running.run_folders)
            pids.append(loops.enter_context(_busy_loop(core)).pid)

        done = workshop.run(prefix=_only(core), during=during)
    return _invalid(workshop, done, pids[0], 1 + _REPEATS)


def _is_there_before(workshop: Workshop) -> Seen:
    """The session ends before its first run, and names the process and the way on."""
    _configure(workshop, _STRICT_SHARE, _REPEATS)
    core = discover().cpu_cards[0].cores[0]
    with _busy_loop(core) as busy:
        done = workshop.run(prefix=_only(core))
    return _stopped(workshop, done, busy.pid)


def _stopped(workshop: Workshop, done: Finished, pid: int) -> Seen:
    output = " ".join(done.output.split())
    wrong = expect(
        (done.exit_code == 6, f"exit code {done.exit_code}"),
        ("The machine is busy, nothing was measured" in output, f"the message is missing: {output[-300:]}"),
        (f"pid {pid}" in output, f"pid {pid} not named: {output[-300:]}"),
        ("--allow-contention" in output, "the way on is missing"),
        (not results(workshop), "something was run"),
    )
    return Seen("not begun", done.exit_code, output[output.find("The machine is busy") :], None, len(done.left),
                workshop.lost(), wrong)  # fmt: skip


def _invalid(workshop: Workshop, done: Finished, pid: int, runs: int) -> Seen:
    found = list(results(workshop).values())
    return ended_as(
        workshop,
        done,
        "INVALID",
        6,
        (len(found) == runs, f"{len(found)} runs, the budget allows {runs}"),
        (all(f"pid {pid}" in str(each["invalid"]) for each in found), f"pid {pid} is not named in every run: {found}"),
        (f"pid {pid}" in done.reason, f"pid {pid} not named: {done.reason}"),
        (f"{runs} invalid runs in a row" in done.reason, f"the repeats are missing: {done.reason}"),
    )


@contextmanager
def _beside_the_card(workshop: Workshop) -> Iterator[subprocess.Popen[bytes]]:
    """A process that NVML may show on the workshop's card."""
    process = subprocess.Popen(["sleep", "300"])
    try:
        workshop.allow_contention = False
        # The cores are watched too, and on them may be the usual guests.
        furnish(workshop, Card(), contention={"max_foreign_share": _GUESTS_SHARE})
        yield process
    finally:
        process.kill()
        process.wait()


def _stays_on_the_card(workshop: Workshop) -> Seen:
    with _beside_the_card(workshop) as stranger:
        done = gpu_shop.run(workshop, during=_comes(workshop, stranger.pid))
    return _invalid(workshop, done, stranger.pid, 2)


def _comes(workshop: Workshop, pid: int) -> Callable[[Running], None]:
    """Puts the process onto the card once a run has begun."""

    def during(running: Running) -> None:
        running.wait_for(running.run_folders)
        Card(processes=(pid,)).write(state_file(workshop))

    return during


FAULTS = [
    Fault(12, "busy loop before the session", "a busy loop is pinned to the only core already", _is_there_before,
          needs=_why_not_quiet),
    Fault(12, "busy loop on the leased core", "a busy loop is pinned to the case's core once its first run has begun",
          _stays, needs=_why_not_quiet),
    Fault(12, "foreign process on the card", f"another process comes onto the card and stays; {STAND_IN}",
          _stays_on_the_card),
]  # fmt: skip
