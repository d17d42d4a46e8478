"""Finds all processes of a job. Its guard (helpers/launch/guard.py) ends them.

A job's processes cannot be found by their process group, since launchers put ranks into sessions of their own, nor by
their parents, since an orphan has lost its parent. But every descendant keeps its environment, which holds the job id
and can be read in ``/proc/<pid>/environ``. Processes that cleared their environment are still descendants of the job's
guard (``guard``).

Anybody can give a process such an environment. So only processes of this user are believed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.trainers.contract.errors import LaunchError

JOB_VARIABLE = "PERFGATE_JOB_ID"
GUARD_VARIABLE = "PERFGATE_GUARD_OF"
SUPERVISOR_VARIABLE = "PERFGATE_SUPERVISOR"

_MARK = re.compile(r"(?P<namespace>pid:\[\d+\])/(?P<pid>\d+)/(?P<started>\d+)")
_GUARD_PREFIX = GUARD_VARIABLE.encode() + b"="
# PF_KTHREAD of include/linux/sched.h.
_KERNEL_THREAD = 0x00200000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process as it was at one look."""

    pid: int
    parent: int
    name: str
    # The letter of proc(5).
    state: str
    # The time of all its threads, without its children's.
    cpu_seconds: float
    # When it started, in clock ticks since boot; tells apart two processes that had the same id.
    started_ticks: int
    # The logical CPU on which it ran last.
    processor: int
    # Page faults that had to wait for a disk.
    major_faults: int = 0
    # A thread of the kernel.
    of_kernel: bool = False

    @property
    def alive(self) -> bool:
        """False for a zombie, which holds no resources and only waits for its parent."""
        return self.state not in ("Z", "X")


class Processes:
    """Reads ``/proc``. A process that ends while it is read is left out.

    ``supervisor_variable`` is the name of the variable that marks processes with the job's supervisor. A test uses
    another name, so that a suite on the same machine does not end the test's orphans.
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

    def marked(self, job_id: str) -> tuple[list[Process], list[Process]]:
        """The processes (except zombies) whose environment marks them as the job's; and the job's guards."""
        own_mark, guard_mark = (f"{name}={job_id}".encode() for name in (JOB_VARIABLE, GUARD_VARIABLE))
        own: list[Process] = []
        guards: list[Process] = []
        for pid in self._pids():
            variables = self._read(pid, "environ").split(b"\0")
            found = own if own_mark in variables else guards if guard_mark in variables else None
            if found is not None and self._is_of_this_user(pid):
                process = self.look(pid)
                if process is not None and process.alive:
                    found.append(process)
        return own, guards

    def orphans(self) -> list[Process]:
        """The processes of any job whose supervisor was killed before it could end them, and their descendants.

        Guards are returned only when nothing else is left: until then other processes are found through them.
        """
        marked, guards = self._orphans()
        below = family({process.pid for process in (*marked, *guards)}, self.all()) if marked or guards else ()
        others = [process for process in below if process.pid not in {guard.pid for guard in guards}]
        return others or guards

    def _orphans(self) -> tuple[list[Process], list[Process]]:
        namespace, name = self._namespace(), self._supervisor_variable.encode() + b"="
        found: list[Process] = []
        guards: list[Process] = []
        for pid in self._pids():
            variables = self._read(pid, "environ").split(b"\0")
            owner = next((v for v in variables if v.startswith(name)), None)
            if owner is None or not self._is_of_this_user(pid):
                continue
            mark = _MARK.fullmatch(owner.decode(errors="replace").partition("=")[2])
            # Process ids of another container have no meaning here.
            if mark is None or mark["namespace"] != namespace:
                continue
            parent = self.look(int(mark["pid"]))
            if parent is not None and parent.alive and parent.started_ticks == int(mark["started"]):
                continue
            process = self.look(pid)
            if process is not None and process.alive:
                is_guard = any(variable.startswith(_GUARD_PREFIX) for variable in variables)
                (guards if is_guard else found).append(process)
        return found, guards

    def marks(self, job_id: str) -> Mapping[str, str]:
        """The environment variables that mark all processes of a job that this process supervises."""
        this = self.look(os.getpid())
        if this is None:
            raise LaunchError("supervisor", got=f"nothing in {self._proc}", expected="this process in /proc")
        return {JOB_VARIABLE: job_id, self._supervisor_variable: f"{self._namespace()}/{this.pid}/{this.started_ticks}"}

    def _is_of_this_user(self, pid: int) -> bool:
        """Whether all user ids of the process are this one's. Root can read everybody's environment, and a process that
        hides from debuggers has a folder in /proc that is root's."""
        ids = re.search(rb"^Uid:(.*)$", self._read(pid, "status"), re.MULTILINE)
        return ids is not None and {int(each) for each in ids[1].split()} <= set(os.getresuid())

    def _namespace(self) -> str:
        return str((self._proc / "self/ns/pid").readlink())

    def _pids(self) -> list[int]:
        with os.scandir(self._proc) as entries:
            return [int(entry.name) for entry in entries if entry.name.isdigit()]

    def _read(self, pid: int, name: str) -> bytes:
        # Plain system calls, since this runs for every process several times a minute during a measurement.
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
        major_faults=int(rest[9]),
        of_kernel=bool(int(rest[6]) & _KERNEL_THREAD),
    )


def family(roots: Collection[int], everyone: Collection[Process]) -> list[Process]:
    """The living processes among ``everyone`` that are ``roots`` or their descendants."""
    found = set(roots)
    grew = True
    while grew:
        children = {process.pid for process in everyone if process.parent in found and process.pid not in found}
        found |= children
        grew = bool(children)
    return [process for process in everyone if process.pid in found and process.alive]


class JobProcesses:
    """All processes of one job, including those that cleared their environment or lost their parent."""

    def __init__(self, processes: Processes, job_id: str) -> None:
        self._processes = processes
        self._job_id = job_id
        self._known: dict[int, int] = {}

    def find(self) -> tuple[Process, ...]:
        """Search for the job's living processes: those that are marked or were found before, their descendants, and the
        guard's descendants. The guard itself is not included, since it ends by itself when its work is done."""
        return self._look()[0]

    def survey(self) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """The job's living processes with its guard, and all other processes."""
        mine, guards, everyone = self._look()
        own = {process.pid for process in (*mine, *guards)}
        return (*mine, *guards), tuple(process for process in everyone if process.pid not in own)

    def _look(self) -> tuple[tuple[Process, ...], tuple[Process, ...], list[Process]]:
        # Marked processes are searched for first; a process that one of them starts meanwhile is then found as its
        # child.
        marked, guards = self._processes.marked(self._job_id)
        everyone = self._processes.all()
        known = {process.pid for process in everyone if self._known.get(process.pid) == process.started_ticks}
        guarding = {guard.pid for guard in guards}
        found = family({process.pid for process in marked} | known | guarding, everyone)
        mine = tuple(process for process in found if process.pid not in guarding)
        self._known.update({process.pid: process.started_ticks for process in mine})
        return mine, tuple(process for process in found if process.pid in guarding), everyone
