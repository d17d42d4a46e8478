"""A job of Slurm: its submission, what its command prints, and how it ended."""

from __future__ import annotations

import codecs
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.commands.submission.script import NOTICE_SECONDS
from helpers.launch.nodes.slurm import ask_slurm
from helpers.machine.files import open_regular
from helpers.session.gate import EXIT_NOT_JUDGED
from helpers.trainers.contract.errors import LaunchError

# Slurm's controller may be restarted meanwhile; the job runs on without it.
ANSWER_SECONDS = 15.0
# How long a controller that answers again may need to show a job that it took when it did not answer.
SETTLE_SECONDS = 10.0
# With these errors of sbatch it is certain that the controller took no job: it could not be reached at all.
_NOT_REACHED = ("connect failure", "Connection refused")
# With these the controller may have taken the job, and its answer was lost.
_LOST = (
    "timed out",
    "receive failure",
    "send failure",
    "Zero Bytes",
    "Connection reset",
    "Unexpected message received",
)
# The most bytes of output that are shown at once.
_MOST_BYTES = 4 * 1024 * 1024
# The states that Slurm does not change any more; an unknown one may still change.
_OVER = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
# States of a job that does not run yet, or not at present.
_WAITING = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "SUSPENDED",
)
_FIELD = re.compile(r"(?:^| )(\w+)=(\S*)")
FORGOTTEN = "FORGOTTEN"
# A job whose submission got no answer, and which Slurm does not have.
NOT_SUBMITTED = "NOT SUBMITTED"

Ask = Callable[..., str]
Clock = Callable[[], float]


@dataclass(frozen=True)
class JobState:
    """The state of a job, by Slurm."""

    state: str
    reason: str = ""
    nodes: str = ""
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    # Slurm's clock, in seconds; None for a job without a limit.
    run_seconds: int = 0
    limit_seconds: int | None = None

    @classmethod
    def of(cls, shown: str) -> JobState:
        """The state in a line of ``scontrol --oneliner show job``. Raises LaunchError."""
        fields = dict(_FIELD.findall(shown))
        try:
            code, _, number = fields["ExitCode"].partition(":")
            return cls(
                fields["JobState"],
                "" if fields.get("Reason") in (None, "None") else fields["Reason"],
                "" if fields.get("NodeList") in (None, "(null)") else fields["NodeList"],
                int(code),
                int(number or 0),
                int(fields.get("Restarts", 0)),
                seconds_of(fields.get("RunTime", "")) or 0,
                seconds_of(fields.get("TimeLimit", "")),
            )
        except (KeyError, ValueError) as error:
            raise LaunchError("scontrol show job", got=shown[:200], expected="JobState and ExitCode") from error

    @property
    def is_over(self) -> bool:
        return self.state in (*_OVER, FORGOTTEN, NOT_SUBMITTED)

    @property
    def is_waiting(self) -> bool:
        return self.state in _WAITING

    @property
    def text(self) -> str:
        """``PENDING (Resources)``, ``RUNNING on n[0-3]``."""
        more = f" ({self.reason})" if self.state in _WAITING and self.reason else ""
        return f"{self.state}{more}{f' on {self.nodes}' if self.nodes else ''}"

    @property
    def out_of_time(self) -> bool:
        """Whether the job was ended, or asked to end in order, because its time was over."""
        limit = self.limit_seconds
        near = limit is not None and self.run_seconds >= limit - 2 * NOTICE_SECONDS
        return self.state == "TIMEOUT" or (near and self.exit_code != 0)

    def exit_status(self) -> tuple[int, str]:
        """The exit status to return: the command's own, with an empty text; or if Slurm ended the job, EXIT_NOT_JUDGED
        and the reason."""
        if self.state == "COMPLETED":
            return 0, ""
        if self.state == "FAILED" and self.exit_code:
            return self.exit_code, ""
        if self.state == NOT_SUBMITTED:
            return EXIT_NOT_JUDGED, self.reason
        if self.state == FORGOTTEN:
            return EXIT_NOT_JUDGED, f"nobody knows how the job ended: {self.reason}"
        if self.state == "OUT_OF_MEMORY":
            # Also if the command went on and ended with a status of its own, which Slurm then does not report.
            why = "a process of the job was killed for want of memory, and Slurm does not say how the command ended"
            return EXIT_NOT_JUDGED, f"{why} ({self.state})"
        how = f"{self.state}, signal {self.signal}" if self.signal else self.state
        return EXIT_NOT_JUDGED, f"Slurm ended the job: {how}{f' ({self.reason})' if self.reason else ''}"


FORGOTTEN_JOB = JobState(FORGOTTEN, "Slurm knows it no more")


def seconds_of(text: str) -> int | None:
    """A time such as ``2-03:04:05`` in seconds; None for other texts, such as UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class NoAnswer(LaunchError):
    """Slurm may have taken a job, and its answer was lost."""


def submit(script: str, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """The id of the job that Slurm makes of the script. Raises LaunchError if it refuses it, and NoAnswer if it may
    have the job although sbatch does not know."""
    try:
        done = run(["sbatch", "--parsable"], input=script, capture_output=True, text=True, timeout=4 * ANSWER_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NoAnswer("sbatch", got=f"no answer within {error.timeout:g} s", expected="a job") from error
    except OSError as error:
        raise LaunchError("sbatch", got=str(error), expected="Slurm's commands on PATH") from error
    if done.returncode:
        got = " ".join(done.stderr.split())
        if any(text in got for text in _LOST) and not any(text in got for text in _NOT_REACHED):
            raise NoAnswer("sbatch", got=got, expected="a job")
        raise LaunchError(
            "sbatch", got=got, expected="a job", remedy="Correct clusters in perf.yaml; --dry-run shows the script"
        )
    return done.stdout.strip().partition(";")[0]


def job_named(name: str, ask: Ask = ask_slurm) -> str:
    """The id of this user's job of that name, which may have ended; empty if Slurm has none. Raises LaunchError."""
    words = ("squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", f"--name={name}", "--format=%F")
    return min(ask(*words, seconds=ANSWER_SECONDS).split(), key=int, default="")


def unfinished(names: Sequence[str], ask: Ask = ask_slurm) -> list[str]:
    """The ids of this user's jobs of these names that are not over. Raises LaunchError."""
    words = ("squeue", "--noheader", "--states=all", f"--user={os.geteuid()}", f"--name={','.join(names)}")
    shown = [line.split() for line in ask(*words, "--format=%F %T", seconds=ANSWER_SECONDS).splitlines()]
    return [job for job, state in shown if not JobState(state).is_over]


@dataclass
class FollowedFile:
    """A file that another process appends to, maybe on another machine."""

    path: Path
    _offset: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    @property
    def has_content(self) -> bool:
        return self.path.is_file() and self.path.stat().st_size > 0

    def read(self) -> str:
        """What was added since the last call; nothing if the file is not there yet."""
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                data = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return ""
        self._offset += len(data)
        return self._decoder.decode(data)


@dataclass
class WatchedJob:
    """A submitted job. Its state is None until Slurm has reported it."""

    # Its id; empty if the answer to its submission was lost. Then it is found by its name.
    job: str
    log: FollowedFile
    # The name of the job among several, such as ``4x8``.
    label: str = ""
    state: JobState | None = None
    slurm_name: str = ""
    # Whether Slurm answered when it was last asked.
    answered: bool = True
    cancelled: bool = False
    clock: Clock = time.monotonic
    # Called when the id is known at last, after a submission that got no answer.
    found: Callable[[], None] = lambda: None
    _rest: str = ""
    _missing_since: float | None = None

    @property
    def name(self) -> str:
        job = f"job {self.job or self.slurm_name}"
        return f"{job} ({self.label})" if self.label else job

    def printed(self) -> str:
        """What the command has printed since the last call; for a job among several, whole lines with its label."""
        return self._labelled(self.log.read())

    def last_printed(self) -> Iterator[str]:
        """All that is left to show when the job is over, including a last line without a line break."""
        while text := self.log.read():
            yield self._labelled(text)
        if self._rest:
            yield self._labelled("\n")

    def _labelled(self, text: str) -> str:
        if not self.label:
            return text
        *lines, self._rest = (self._rest + text).split("\n")
        return "".join(f"{self.label} | {line}\n" for line in lines)

    def look(self, ask: Ask = ask_slurm) -> str:
        """Ask Slurm; returns a line on what has changed, empty if nothing has.

        If Slurm does not answer, the last state is kept. A job that Slurm has forgotten counts as lost.
        """
        before = self.state
        self.answered = True
        try:
            if not self.job:
                return self._find(ask)
            shown = ask("scontrol", "--oneliner", "show", "job", self.job, seconds=ANSWER_SECONDS)
            self.state = JobState.of(shown)
        except LaunchError as error:
            if "Invalid job id" not in str(error):
                self.answered = False
                return f"{self.name}: Slurm does not answer ({error.got}); the job may go on without it"
            self.state = FORGOTTEN_JOB
        if before is not None and before.text == self.state.text and before.restarts == self.state.restarts:
            return ""
        again = f", start {self.state.restarts + 1}" if self.state.restarts else ""
        return f"{self.name}: {self.state.text}{again}"

    def _find(self, ask: Ask) -> str:
        """Look for a job whose id is not known."""
        name = self.name
        self.job = job_named(self.slurm_name, ask)
        if self.job:
            self.found()
            return f"{name}: Slurm has it, as job {self.job}"
        now = self.clock()
        self._missing_since = now if self._missing_since is None else self._missing_since
        if now - self._missing_since < SETTLE_SECONDS:
            return ""
        if self.log.has_content:
            # Its output says that Slurm had it, so that a second one would measure the same again.
            self.state = JobState(FORGOTTEN, "it has run, and Slurm knows it no more")
            return f"{name}: {self.state.text}"
        # It may have waited in a queue longer than anybody could foresee.
        late = f"if it comes later: scancel --name={self.slurm_name}"
        self.state = JobState(NOT_SUBMITTED, f"Slurm did not take the job; submit it again ({late})")
        return f"{name}: Slurm does not have it"

    @property
    def is_over(self) -> bool:
        return self.state is not None and self.state.is_over

    def cancel(self, ask: Ask = ask_slurm) -> None:
        """Raises LaunchError if Slurm does not do it. A job without an id is cancelled again when it is found."""
        ask("scancel", self.for_scancel, seconds=ANSWER_SECONDS)
        self.cancelled = bool(self.job)

    @property
    def for_scancel(self) -> str:
        return self.job or f"--name={self.slurm_name}"
