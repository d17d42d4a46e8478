"""Row 2: one of two ranks dies, hangs or never starts, under the real paddle.distributed.launch."""

from __future__ import annotations

import importlib.util

from tests.faults.fault import Fault, Seen
from tests.faults.handled import NO_PADDLE, infra_error, one_attempt
from tests.faults.workshop import TWO_CARDS, Workshop

# Long enough for the launcher and two ranks on a busy machine; a real framework takes longer.
START_UP_SECONDS = {False: 8, True: 40}
_GUILTY = """
import os, signal, sys, time

def at_step(spec, rank, phase, number):
    if rank == {guilty} and phase == {phase!r} and number >= {number}:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
_ABSENT = """
import os, signal, sys, time

def at_start(spec, rank):
    if rank == {guilty}:
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        {does}
"""
_KILL = "os.kill(os.getpid(), signal.SIGKILL)"
_KILLED = ("killed by a signal", "SIGKILL")
_STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
_SLEEP = "time.sleep(600)"


_STAYS = """
import atexit, os, signal, sys, time

def at_start(spec, rank):
    def stay():
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        time.sleep(600)
    if rank == {guilty}:
        atexit.register(stay)
"""


def no_launcher() -> str:
    return "" if importlib.util.find_spec("paddle") else NO_PADDLE


def _fault(name: str, what: str, text: str, guilty: int, *expected: str, limit: str = "") -> Fault:
    """A fault of one rank; ``limit`` names the watchdog that sees it."""

    def make(workshop: Workshop) -> Seen:
        limits = one_attempt(workshop, start_up_seconds=START_UP_SECONDS[workshop.real])
        done = workshop.run(fault=text, case=TWO_CARDS)
        # With the framework the other rank aborts at once, and of two dead ranks the launcher tells of one alone.
        dead = workshop.real and expected == _KILLED
        words = ("", f"rank {guilty} ended without a footer") if dead else expected
        return infra_error(workshop, done, *words, rank=guilty, limit_seconds=limits[limit] if limit else 0.0)

    return Fault(2, name, what, make, no_launcher)


def _of_rank(guilty: int) -> list[Fault]:
    which = f"rank {guilty} of two"

    def at_step(does: str, phase: str = "window", number: int = 2) -> str:
        return _GUILTY.format(guilty=guilty, phase=phase, number=number, does=does)

    def at_start(does: str) -> str:
        return _ABSENT.format(guilty=guilty, does=does)

    silent, unstarted = ("hung", "no sign of life"), ("never started", "no first step")
    return [
        _fault(f"{which}: SIGKILL", "kills itself", at_step(_KILL), guilty, *_KILLED),
        _fault(f"{which}: SIGKILL in warm-up", "kills itself", at_step(_KILL, "warm-up"), guilty, *_KILLED),
        _fault(
            f"{which}: exception", "raises a ValueError", at_step("raise ValueError('labels out of range')"), guilty,
            "Python exception", "labels out of range",
        ),
        _fault(
            f"{which}: sleeps in warm-up", "sleeps in a step", at_step(_SLEEP, "warm-up"), guilty, *silent,
            limit="no_progress_seconds",
        ),
        _fault(
            f"{which}: sleeps in the window", "sleeps in a step", at_step(_SLEEP), guilty, *silent,
            limit="no_progress_seconds",
        ),
        _fault(
            f"{which}: SIGSTOP", "is stopped in a step", at_step(_STOP), guilty, *silent, limit="no_progress_seconds",
        ),
        _fault(
            f"{which}: sleeps at its exit", "finishes, and does not exit", _STAYS.format(guilty=guilty), guilty, "hung",
            "did not exit", limit="no_progress_seconds",
        ),
        _fault(
            f"{which}: sleeps before its start", "never comes to its trainer", at_start(_SLEEP), guilty, *unstarted,
            limit="start_up_seconds",
        ),
        _fault(f"{which}: exits before its start", "exits with 1 before its trainer", at_start("os._exit(1)"), guilty,
            "non-zero exit", "exited with 1",
        ),
        _fault(
            f"{which}: exits with 0 before its start", "exits with 0 before its trainer", at_start("os._exit(0)"),
            guilty, "never started", limit="start_up_seconds",
        ),
    ]  # fmt: skip


FAULTS = [*_of_rank(0), *_of_rank(1)]
