"""Row 5: Ctrl-C, a stopped CI job, a closed terminal or a timeout of pytest comes, at every stage of a session."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.host import probe_host
from helpers.machine.leases import Leases, default_folder
from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import EXIT_INTERRUPTED, EXIT_NOT_JUDGED, EXIT_OK
from tests.faults.traces import leases_of, one_card, uuids, with_cases
from tests.faults.workshop import Finished, Running, Workshop

_BOTH_CASES = "test_cpu"
# Room for a disturbance: a step takes that long, and still shows life. xdist waits up to 10 s for its workers: a run
# that nobody ended would take longer.
_PAUSE_SECONDS = {False: 0.25, True: 1.5}
_CRAWLS = """
import time

def at_step(spec, rank, phase, number):
    time.sleep({pause} if spec.replicate else 0)
"""
_DEAF = """
import signal, time

def at_step(spec, rank, phase, number):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep({pause} if spec.replicate else 0)
"""
# The moment between two runs is too short to be met from outside, so it is made longer.
_PAUSES = """
import time
from pathlib import Path
from helpers.history.run_folders import ResultStore

new_run_folder = ResultStore.new_run_folder

def after_a_pause(store, case_id, replicate):
    if replicate == 1:
        Path({reached!r}).touch()
        time.sleep({seconds})
    return new_run_folder(store, case_id, replicate)

ResultStore.new_run_folder = after_a_pause
"""
_HELD_SECONDS, _SECOND_AFTER_SECONDS = 6, 0.3
# A job that does not heed SIGTERM may take so long for its end, unless somebody asks twice.
_LONG_GRACE_SECONDS = 20
_AT_ONCE_SECONDS = 5.0
_TIMEOUT_SECONDS = 4
_TIMEOUT_PLUGIN = "pytest_timeout"
_GONE_SECONDS = 60.0


@dataclass(frozen=True)
class _Way:
    """One way to end a session: signals, one after another, or options under which pytest itself ends it.

    ``exit_codes`` are those with which the session may end, ``expected`` is a text of its output, and with ``reported``
    its results must be written.
    """

    name: str
    what: str
    numbers: tuple[int, ...] = ()
    group: bool = False
    options: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (EXIT_INTERRUPTED,)
    expected: str = ""
    reported: bool = True
    needs: Callable[[], str] = lambda: ""

    @property
    def at_once(self) -> bool:
        return len(self.numbers) > 1


def _no_timeout() -> str:
    return "" if importlib.util.find_spec(_TIMEOUT_PLUGIN) else "pytest-timeout is not installed"


def _timeout(method: str) -> tuple[str, ...]:
    return (f"--timeout={_TIMEOUT_SECONDS}", f"--timeout-method={method}")


# Who asks twice gets the end at once: in good order where there is time for it, else by the signal itself.
_ENDED_BY_SIGNAL = (EXIT_INTERRUPTED, -signal.SIGINT)
_CTRL_C = _Way("Ctrl-C", "SIGINT", (signal.SIGINT,))
_TERMINAL = _Way("Ctrl-C in a terminal", "SIGINT to the whole process group", (signal.SIGINT,), group=True)
_TWICE = _Way(
    "Ctrl-C twice", "SIGINT twice", (signal.SIGINT, signal.SIGINT), exit_codes=_ENDED_BY_SIGNAL, reported=False
)
_SIGHUP = _Way("SIGHUP", "SIGHUP", (signal.SIGHUP,))
_ALARM = _Way(
    "pytest-timeout by signal", "pytest-timeout's alarm", options=_timeout("signal"), exit_codes=(EXIT_NOT_JUDGED,),
    expected="Timeout", needs=_no_timeout,
)  # fmt: skip


class _Disturbance:
    """Waits for its moment, sends the signals, and sees the suite end ``suite_seconds`` after the last one.

    ``seconds`` is the time until its last process is gone. Nobody outside knows the moment of pytest's own timeout;
    there the time runs from the end of the suite.
    """

    def __init__(self, way: _Way, workshop: Workshop) -> None:
        self.suite_seconds = 0.0
        self.seconds: float | None = None
        self.kept: dict[Path, str] = {}
        self._way = way
        self._workshop = workshop

    def strike(self, running: Running) -> None:
        for number, each in enumerate(self._way.numbers):
            if number:
                time.sleep(_SECOND_AFTER_SECONDS)
            # It may be over already.
            with contextlib.suppress(ProcessLookupError):
                running.send(each, self._way.group)
        at = time.monotonic()
        running.process.wait(_GONE_SECONDS)
        ended = time.monotonic()
        while self._workshop.processes() and time.monotonic() < ended + _GONE_SECONDS:
            time.sleep(0.02)
        if self._way.numbers:
            self.suite_seconds = ended - at
        self.seconds = time.monotonic() - (at if self._way.numbers else ended)
        self.kept = uuids(self._workshop)

    def training(self, running: Running) -> None:
        if self._way.numbers:
            running.wait_for(lambda: len(running.run_folders()) > 1 and running.steps() > 2)
        self.strike(running)

    def between(self, running: Running) -> None:
        running.wait_for((self._workshop.folder / "between").exists)
        self.strike(running)

    def waiting(self, running: Running) -> None:
        """Our own request is the next after the first case's, so the second case waits for us."""
        running.wait_for(running.steps)
        with _machine_held(self._workshop):
            running.wait_for(lambda: "waiting: " in (self._workshop.folder / "output.txt").read_text(errors="replace"))
            self.strike(running)


@contextlib.contextmanager
def _machine_held(workshop: Workshop) -> Generator[None, None, None]:
    """This process has the machine, as another suite would."""

    class Card:
        id = "cpu0"

    folder = default_folder(probe_host().host_id, workshop.environment)
    with Leases(folder).lease([Card()], 1, "somebody else's case", timeout_seconds=_GONE_SECONDS):
        yield


def _disturbed(way: _Way, moment: str, workers: int = 0) -> Fault:
    def make(workshop: Workshop) -> Seen:
        _heed_ctrl_c()
        two_cases = moment == "waiting"
        cases = with_cases([1, 2] if two_cases else [1], runs=1 if moment == "waiting" else 2)
        grace = {"stop_grace_seconds": _LONG_GRACE_SECONDS} if way.at_once else {}
        workshop.configure(lambda config: cases(config) or config["limits"].update(grace))
        case = _BOTH_CASES if two_cases else one_card()
        disturbance = _Disturbance(way, workshop)
        done = workshop.run(
            *way.options, *(("-n", str(workers)) if workers else ()),
            *(_pause(workshop) if moment == "between" else ()),
            fault=(_DEAF if way.at_once else _CRAWLS).format(pause=_PAUSE_SECONDS[bool(workers)]),
            case=case, environment={"PYTHONPATH": f"{workshop.folder}:{os.environ.get('PYTHONPATH', '')}"},
            during=getattr(disturbance, moment),
        )  # fmt: skip
        return _seen(workshop, way, done, disturbance, case)

    name = f"{way.name}, {moment}" + (f", -n {workers}" if workers else "")
    stage = {"training": "in a run", "waiting": "waiting for a lease", "between": "between two runs"}[moment]
    what = f"{way.what} while the suite is {stage}" + (f", with {workers} workers" if workers else "")
    return Fault(5, name, f"{what}; then --resume", make, way.needs)


def _seen(workshop: Workshop, way: _Way, done: Finished, disturbance: _Disturbance, case: str) -> Seen:
    held, reported, at_once = leases_of(workshop), bool(done.document), disturbance.suite_seconds < _AT_ONCE_SECONDS
    then = workshop.run("--resume=night", case=case, session="")
    after, kept = uuids(workshop), disturbance.kept
    gone = [f"{folder.parent.name}/{folder.name}" for folder, uuid in kept.items() if after.get(folder) != uuid]
    statuses = [str(each["status"]) for each in then.cases]
    wrong = expect(
        (done.exit_code in way.exit_codes, f"exit code {done.exit_code}: {done.output[-800:]}"),
        (way.expected in done.output, f"{way.expected!r} is missing: {done.output[-800:]}"),
        (not way.reported or reported, f"no results were written: {done.output[-800:]}"),
        (not held, f"leases are held: {held}"),
        (not gone, f"finished runs were made again or lost: {gone}"),
        (then.exit_code == EXIT_OK, f"--resume ended with {then.exit_code}: {then.output[-800:]}"),
        (set(statuses) == {"NO_BASELINE"}, f"--resume gave {statuses}"),
        (at_once or not way.at_once, f"not at once: {disturbance.suite_seconds:.1f} s after the last signal"),
    )
    message = f"{len(kept)} runs kept, then {', '.join(statuses)}"
    left = len(done.left) + len(then.left)
    return Seen("interrupted", done.exit_code, message, disturbance.seconds, left, workshop.lost() + len(gone), wrong)


def _pause(workshop: Workshop) -> tuple[str, ...]:
    text = _PAUSES.format(reached=str(workshop.folder / "between"), seconds=_HELD_SECONDS)
    (workshop.folder / "pause_between_runs.py").write_text(text, encoding="utf-8")
    return ("-p", "pause_between_runs")


def _heed_ctrl_c() -> None:
    """A shell has what it runs in the background ignore SIGINT, nohup SIGHUP, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


FAULTS = [
    _disturbed(_TERMINAL, "training"),
    _disturbed(_TWICE, "waiting"),
    _disturbed(_SIGHUP, "between"),
    _disturbed(_ALARM, "training"),
    _disturbed(_CTRL_C, "training", workers=2),
]
