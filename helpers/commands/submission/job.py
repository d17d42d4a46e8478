"""Waits for a job of Slurm: shows what its command prints, and finds how it ended."""

from __future__ import annotations

import codecs
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from helpers.commands.submission.script import NOTICE_SECONDS
from helpers.launch.nodes.slurm import ask_slurm
from helpers.machine.files import open_regular
from helpers.session.gate import EXIT_NOT_JUDGED
from helpers.trainers.contract.errors import LaunchError

_POLL_SECONDS = 1.0
# Slurm's controller may be restarted meanwhile; the job runs on without it.
_ANSWER_SECONDS = 15.0
# The most bytes of output that are shown at once.
_MOST_BYTES = 4 * 1024 * 1024
# States of a job that may still change.
_WAITING = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "RESIZING",
    "SUSPENDED",
)
_RUNNING = ("RUNNING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT")
_FIELD = re.compile(r"(?:^| )(\w+)=(\S*)")

Ask = Callable[..., str]
Say = Callable[[str], None]


class Cancellable(Protocol):
    """A job that was submitted."""

    job: str

    @property
    def name(self) -> str: ...

    def cancel(self) -> None: ...


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
        return self.state not in (*_WAITING, *_RUNNING)

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
        how = f"{self.state}, signal {self.signal}" if self.signal else self.state
        return EXIT_NOT_JUDGED, f"Slurm ended the job: {how}{f' ({self.reason})' if self.reason else ''}"


def seconds_of(text: str) -> int | None:
    """A time such as ``2-03:04:05`` in seconds; None for other texts, such as UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(each or 0) for each in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def submit(script: str, ask: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """The id of the job that Slurm makes of the script. Raises LaunchError if it refuses it."""
    try:
        done = ask(["sbatch", "--parsable"], input=script, capture_output=True, text=True, timeout=4 * _ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError("sbatch", got=str(error), expected="Slurm's commands on PATH, and an answer") from error
    if done.returncode:
        got = " ".join(done.stderr.split())
        raise LaunchError(
            "sbatch", got=got, expected="a job", remedy="Correct clusters in perf.yaml; --dry-run shows the script"
        )
    return done.stdout.strip().partition(";")[0]


@dataclass
class FollowedFile:
    """A file that another process appends to, maybe on another machine."""

    path: Path
    _offset: int = 0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

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

    job: str
    log: FollowedFile
    # The name of the job among several, such as ``4x8``.
    label: str = ""
    state: JobState | None = None
    _rest: str = ""

    @property
    def name(self) -> str:
        return f"job {self.job} ({self.label})" if self.label else f"job {self.job}"

    def printed(self) -> str:
        """What the command has printed since the last call; of one of several jobs, whole lines with its label."""
        text = self.log.read()
        if not self.label:
            return text
        *lines, self._rest = (self._rest + text).split("\n")
        if self.is_over and self._rest:
            lines, self._rest = [*lines, self._rest], ""
        return "".join(f"{self.label} | {line}\n" for line in lines)

    def look(self, ask: Ask = ask_slurm) -> str:
        """Ask Slurm; returns a line on what has changed, empty if nothing has.

        If Slurm does not answer, the last state is kept. A job that Slurm has forgotten counts as lost.
        """
        before = self.state
        try:
            shown = ask("scontrol", "--oneliner", "show", "job", self.job, seconds=_ANSWER_SECONDS)
            self.state = JobState.of(shown)
        except LaunchError as error:
            if "Invalid job id" not in str(error):
                return f"{self.name}: Slurm does not answer ({error.got}); the job may go on without it"
            self.state = JobState("FORGOTTEN", "Slurm knows it no more")
        if before is not None and before.text == self.state.text and before.restarts == self.state.restarts:
            return ""
        again = f", start {self.state.restarts + 1}" if self.state.restarts else ""
        return f"{self.name}: {self.state.text}{again}"

    @property
    def is_over(self) -> bool:
        return self.state is not None and self.state.is_over

    def cancel(self, ask: Ask = ask_slurm) -> None:
        ask("scancel", self.job, seconds=_ANSWER_SECONDS)


def cancel_each(jobs: Iterable[Cancellable], say: Say) -> None:
    """Cancel all of them, and say of which Slurm did not allow it."""
    for job in jobs:
        try:
            job.cancel()
        except LaunchError as error:
            say(f"{job.name}: NOT cancelled ({error.got}); when Slurm answers: scancel {job.job}")
        else:
            say(f"{job.name}: cancelled; its command ends what runs")


def wait_for(jobs: Sequence[WatchedJob], show: Say, say: Say, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until all jobs are over. ``show`` is called with the output of their commands, ``say`` with lines on their
    states."""
    told: dict[str, str] = {}
    while True:
        over = all(job.is_over for job in jobs)
        for job in jobs:
            if text := job.printed():
                show(text)
            if not job.is_over and (line := job.look()) and told.get(job.job) != line:
                told[job.job] = line
                say(line)
        if over:
            return
        sleep(_POLL_SECONDS)
