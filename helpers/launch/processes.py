"""The processes of a job, found wherever they have gone, and ended to the last one.

Launchers put their ranks into sessions of their own, so a process group does not hold a job together,
and an orphan has lost its parent. What every descendant keeps is its environment: the job id stands in
it, and ``/proc/<pid>/environ`` tells it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import LaunchError

JOB_VARIABLE = "PERFGATE_JOB_ID"
SUPERVISOR_VARIABLE = "PERFGATE_SUPERVISOR"

_MARK = re.compile(r"(?P<namespace>pid:\[\d+\])/(?P<pid>\d+)/(?P<started>\d+)")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One look at one process.

    ``cpu_seconds`` is its own time, all threads, without its children's; ``started_ticks`` tells a
    reused process id; ``processor`` is the logical CPU it ran on last.
    """

    pid: int
    parent: int
    name: str
    state: str
    cpu_seconds: float
    started_ticks: int
    processor: int

    @property
    def alive(self) -> bool:
        """Not a zombie, which holds no resource and only waits for its parent."""
        return self.state not in ("Z", "X")


class Processes:
    """Reads ``/proc``; a process that ends while it is looked at is simply not there.

    ``supervisor_variable`` names the mark of a job's supervisor; a test has its own, so that no suite
    that runs beside it takes its orphans away.
    """

    def __init__(self, proc: Path = Path("/proc"), supervisor_variable: str = SUPERVISOR_VARIABLE) -> None:
        self._proc = proc
        self._supervisor_variable = supervisor_variable

    def look(self, pid: int) -> Process | None:
        text = self._read(pid, "stat")
        return parse_stat(text.decode(errors="replace")) if text else None

    def all(self) -> list[Process]:
        found = (self.look(pid) for pid in self._pids())
        return [process for process in found if process is not None]

    def of_job(self, job_id: str) -> list[Process]:
        """Processes, zombies aside, whose environment names the job."""
        wanted = f"{JOB_VARIABLE}={job_id}".encode()
        found = []
        for pid in self._pids():
            if wanted in self._read(pid, "environ").split(b"\0"):
                process = self.look(pid)
                if process is not None and process.alive:
                    found.append(process)
        return found

    def orphans(self) -> list[Process]:
        """Processes of any job whose supervisor is gone (killed before it could end them)."""
        namespace, name = self._namespace(), self._supervisor_variable.encode() + b"="
        found = []
        for pid in self._pids():
            variables = self._read(pid, "environ").split(b"\0")
            owner = next((v for v in variables if v.startswith(name)), None)
            if owner is None:
                continue
            mark = _MARK.fullmatch(owner.decode(errors="replace").partition("=")[2])
            # Process ids of another container mean nothing here.
            if mark is None or mark["namespace"] != namespace:
                continue
            parent = self.look(int(mark["pid"]))
            if parent is not None and parent.alive and parent.started_ticks == int(mark["started"]):
                continue
            process = self.look(pid)
            if process is not None and process.alive:
                found.append(process)
        return found

    def marks(self, job_id: str) -> Mapping[str, str]:
        """The variables that mark every process of a job supervised by this process."""
        this = self.look(os.getpid())
        if this is None:
            raise LaunchError("supervisor", got=f"nothing in {self._proc}", expected="this process in /proc")
        return {JOB_VARIABLE: job_id, self._supervisor_variable: f"{self._namespace()}/{this.pid}/{this.started_ticks}"}

    def _namespace(self) -> str:
        return str((self._proc / "self/ns/pid").readlink())

    def _pids(self) -> list[int]:
        return [int(path.name) for path in self._proc.iterdir() if path.name.isdigit()]

    def _read(self, pid: int, name: str) -> bytes:
        # Plain calls: this runs for every process several times a minute while a case is timed.
        try:
            descriptor = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return b""
        try:
            parts = []
            while part := os.read(descriptor, 65536):
                parts.append(part)
            return b"".join(parts)
        except (ProcessLookupError, PermissionError):
            return b""
        finally:
            os.close(descriptor)


def parse_stat(text: str) -> Process:
    """A process from ``/proc/<pid>/stat`` (proc(5)); its name may hold spaces and brackets."""
    opening, closing = text.index("("), text.rindex(")")
    rest = text[closing + 2 :].split()
    return Process(
        pid=int(text[:opening]),
        parent=int(rest[1]),
        name=text[opening + 1 : closing],
        state=rest[0],
        cpu_seconds=sum(int(ticks) for ticks in rest[11:13]) / _TICKS_PER_SECOND,
        started_ticks=int(rest[19]),
        processor=int(rest[36]),
    )


class JobProcesses:
    """All processes of one job, also those that cleared their environment or lost their parent."""

    def __init__(self, processes: Processes, job_id: str) -> None:
        self._processes = processes
        self._job_id = job_id
        self._known: dict[int, int] = {}

    def find(self) -> tuple[Process, ...]:
        """The job's living processes, sought anew: marked ones, ones known before, and all their children."""
        return self.survey()[0]

    def survey(self) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """The job's living processes, and everyone else's."""
        # Marked ones first: what they start meanwhile is then found as their child.
        own = {process.pid for process in self._processes.of_job(self._job_id)}
        everyone = self._processes.all()
        own |= {process.pid for process in everyone if self._known.get(process.pid) == process.started_ticks}
        grew = True
        while grew:
            children = {process.pid for process in everyone if process.parent in own and process.pid not in own}
            own |= children
            grew = bool(children)
        mine = tuple(process for process in everyone if process.pid in own and process.alive)
        self._known.update({process.pid: process.started_ticks for process in mine})
        return mine, tuple(process for process in everyone if process.pid not in own)


def end_processes(
    find: Callable[[], Collection[Process]],
    grace_seconds: float,
    *,
    about: str,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    send: Callable[[int, int], None] = os.kill,
) -> tuple[int, ...]:
    """End all processes that ``find`` gives: SIGTERM, SIGKILL after the grace, until it gives none.

    Returns the ids of those that needed SIGKILL. Raises LaunchError when some are left 10 s after it
    (a process in the kernel's hands cannot be killed, and holds its card).
    """
    _send_all(find(), signal.SIGTERM, send)
    grace_ends = clock() + grace_seconds
    while find() and clock() < grace_ends:
        sleep(0.05)
    killed: set[int] = set()
    deadline = clock() + 10.0
    # Twice empty: a process that was being born during the first search is in the second.
    while left := find() or find():
        if clock() >= deadline:
            names = ", ".join(f"{process.name} ({process.pid}, state {process.state})" for process in left)
            raise LaunchError(
                about,
                got=f"{names} alive after SIGKILL",
                expected="no process of the job left",
                remedy="Its cards are not free: look at the processes, or restart the machine",
            )
        killed.update(process.pid for process in left)
        _send_all(left, signal.SIGKILL, send)
        sleep(0.02)
    return tuple(sorted(killed))


def _send_all(processes: Iterable[Process], number: int, send: Callable[[int, int], None]) -> None:
    for process in processes:
        try:
            send(process.pid, number)
        except ProcessLookupError:
            continue
