"""What Slurm's accounting (``sacct``) says of the end of a job and of its steps.

It is imported only where a job of Slurm has ended badly. Where Slurm keeps no accounting, nothing is asked of it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from helpers.judging.failure_class import FailureClass
from helpers.launch.nodes.slurm import ask_slurm
from helpers.trainers.contract.errors import LaunchError

# Values of AccountingStorageType without which nothing is kept.
_NONE = ("", "(null)", "accounting_storage/none")
NO_ACCOUNTING = "Slurm keeps no accounting here, which would say more (AccountingStorageType)"
# The name comes last, since it is the only field in which a user may have written the separator.
_FIELDS = ("JobIDRaw", "State", "ExitCode", "MaxRSS", "NodeList", "JobName")
# sacct(1), "Job state codes".
_OPEN = ("PENDING", "RUNNING", "RESIZING", "SUSPENDED")
_OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REQUEUED", "REVOKED", "TIMEOUT"),
)
# States that say more than an exit code; CANCELLED does so only with somebody else's name.
_TELLING = ("BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
_ID = re.compile(r"(?P<job>\d+)(?:\.(?P<step>\d+|batch|extern|interactive))?", re.ASCII)
_STATE = re.compile(rf"(?P<state>{'|'.join((*_OPEN, *_OVER))})(?: by (?P<user>\d+))?", re.ASCII)
_EXIT = re.compile(r"(?P<code>\d{1,5}):(?P<signal>\d{1,5})|", re.ASCII)
_MEMORY = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,6})?)(?P<unit>[KMGTP]?)|", re.ASCII)
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}
_ANSWER_SECONDS = 15.0
# Slurm's controller tells its database of an end within this time.
_LATE_SECONDS = 10.0
_POLL_SECONDS = 0.5

Ask = Callable[..., str]


@dataclass(frozen=True)
class Accounted:
    """One start of a job, or one of its steps."""

    # ``7``, ``7.batch``, ``7.0``.
    id: str
    state: str
    # Who cancelled it, by the number of the user; None if nobody did.
    cancelled_by: int | None
    exit_code: int
    signal: int
    # The largest memory that one process had; None if nothing was measured.
    most_bytes: int | None
    nodes: str

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def is_telling(self) -> bool:
        """Whether the state says more than the exit code. What this user cancelled, this suite may have cancelled."""
        return self.state in _TELLING or self.cancelled_by not in (None, os.geteuid())

    @property
    def text(self) -> str:
        """``OUT_OF_MEMORY on n1, its largest process 1.2 GiB``."""
        by = "" if self.cancelled_by is None else f" by user {self.cancelled_by}"
        where = f" on {self.nodes}" if self.nodes and self.nodes != "None assigned" else ""
        # A process that was killed before the first sample has none.
        memory = f", its largest process {self.most_bytes / 2**30:.2g} GiB" if self.most_bytes else ""
        return f"{self.state}{by}{where}{memory}"


@dataclass(frozen=True)
class Start:
    """One start of a job, with its steps."""

    job: Accounted
    steps: tuple[Accounted, ...] = ()


def keeps_accounting(ask: Ask = ask_slurm) -> bool:
    """Whether this Slurm keeps accounting. Raises LaunchError."""
    shown = ask("scontrol", "show", "config", seconds=_ANSWER_SECONDS)
    found = re.search(r"^AccountingStorageType[ \t]*=[ \t]*(.*?)[ \t]*$", shown, re.MULTILINE)
    if found is None:
        raise LaunchError("scontrol show config", got="no AccountingStorageType", expected="one")
    return found[1] not in _NONE


def starts_of(job: str, name: str = "", ask: Ask = ask_slurm) -> tuple[Start, ...]:
    """The starts of a job in their order, more than one if Slurm started it again. Raises LaunchError.

    Jobs of another ``name``, which had its number before Slurm began to count anew, are left out.
    """
    shown = ask(
        "sacct", f"--jobs={job}", "--duplicates", "--noconvert", "--noheader", "--parsable2",
        f"--format={','.join(_FIELDS)}", seconds=_ANSWER_SECONDS,
    )  # fmt: skip
    return read_starts(shown, job, name)


def read_starts(shown: str, job: str, name: str = "") -> tuple[Start, ...]:
    """The starts in what sacct printed. Raises LaunchError if any line is not as sacct(1) describes it."""
    found: list[tuple[str, list[Accounted]]] = []
    for line in filter(None, shown.splitlines()):
        entry, of_name = _entry(line, job)
        if entry.id == job:
            found.append((of_name, [entry]))
        elif found:
            found[-1][1].append(entry)
        else:
            raise _refused(line, f"a line of job {job} before those of its steps")
    return tuple(Start(first, tuple(steps)) for of_name, (first, *steps) in found if name in ("", of_name))


def _entry(line: str, job: str) -> tuple[Accounted, str]:
    words = line.split("|", len(_FIELDS) - 1)
    if len(words) != len(_FIELDS):
        raise _refused(line, f"{len(_FIELDS)} fields: {'|'.join(_FIELDS)}")
    number, state, ended, memory, nodes, name = words
    matches = [
        pattern.fullmatch(word)
        for pattern, word in zip((_ID, _STATE, _EXIT, _MEMORY), (number, state, ended, memory), strict=True)
    ]
    for match, field, word in zip(matches, _FIELDS, words, strict=False):
        if match is None:
            raise _refused(line, f"another {field} than {word!r}")
    of_id, of_state, of_exit, of_memory = (match for match in matches if match is not None)
    if of_id["job"] != job:
        raise _refused(line, f"job {job}")
    return Accounted(
        id=number,
        state=of_state["state"],
        cancelled_by=None if of_state["user"] is None else int(of_state["user"]),
        exit_code=int(of_exit["code"] or 0),
        signal=int(of_exit["signal"] or 0),
        most_bytes=None if not memory else round(float(of_memory["number"]) * _UNITS[of_memory["unit"]]),
        nodes=nodes,
    ), name


def _refused(line: str, expected: str) -> LaunchError:
    return LaunchError("sacct", got=line[:200], expected=expected)


def wait_for_end(
    read: Callable[[], Accounted | None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Accounted | None:
    """What ``read`` finds as soon as it is over; None if the database does not have its end in time."""
    deadline = clock() + _LATE_SECONDS
    while (found := read()) is None or not found.is_over:
        if clock() >= deadline:
            return None
        sleep(_POLL_SECONDS)
    return found


def end_of_step(step: str, ask: Ask = ask_slurm) -> tuple[FailureClass | None, str]:
    """The class of a lost step's end, and a text on it. The class is None if accounting says no more than the exit code
    does. Never raises: the loss itself is what is reported."""
    job, _, number = step.partition(".")

    def read() -> Accounted | None:
        starts = starts_of(job, ask=ask)
        return next((each for each in starts[-1].steps if each.id == step), None) if starts else None

    try:
        if not number:
            return None, ""
        if not keeps_accounting(ask):
            return None, NO_ACCOUNTING
        found = wait_for_end(read)
    except LaunchError as error:
        return None, f"Slurm's accounting cannot be read ({error})"
    if found is None:
        return None, f"Slurm's accounting does not have the end of step {step} yet"
    cause = FailureClass.OOM_KILLED if found.state == "OUT_OF_MEMORY" else None
    return cause, f"Slurm's accounting of step {step}: {found.text}" if found.is_telling else ""
