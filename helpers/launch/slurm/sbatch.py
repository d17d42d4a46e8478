"""Runs jobs of Slurm: ``sbatch --wait``, a job's output meanwhile, and how it ended."""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.common.files import make_folder, open_regular
from helpers.common.words import counted
from helpers.launch.nodes.slurm import ask_slurm
from helpers.launch.signals import signals_interrupt
from helpers.launch.slurm.script import EARLIEST_NOTICE_SECONDS, JobRequest, variables_of_job, write_for_owner
from helpers.plan.clusters import ClusterConfig
from helpers.trainers.contract.errors import LaunchError

_POLL_SECONDS = 0.5
# A job that has waited so long is said to wait.
_QUEUE_SECONDS = 10.0
# Slurm kills a cancelled job after KillWait (30 s), and sbatch looks at a job every 32 s.
_CANCEL_SECONDS = 75.0
_COMPLETING_SECONDS = 60.0
_ANSWER_SECONDS = 15.0
_COMPLETING, _COMPLETED, _FAILED, _TIMEOUT = "COMPLETING", "COMPLETED", "FAILED", "TIMEOUT"
# Fields of squeue, each with a separator behind it. The exit code is that of wait(2).
_FIELDS = "State:|,exit_code:|,Reason:|,TimeUsed:|,TimeLimit:|"
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
# How a command ends that SIGTERM interrupted, as wait(2) says it: pytest and gate with 2, other commands with 130, or
# by the signal before they handle it.
_INTERRUPTED = (2 << 8, 130 << 8, signal.SIGTERM, signal.SIGINT)
_MOST_BYTES = 4 * 1024 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True)
class End:
    """How a job ended, by Slurm."""

    state: str
    # As wait(2) says it.
    code: int = 0
    reason: str = ""
    # Seconds that it ran, and those that it was granted.
    used: float = 0.0
    limit: float = math.inf

    @property
    def _time_was_over(self) -> bool:
        noticed = self.limit - self.used <= EARLIEST_NOTICE_SECONDS
        return self.state == _TIMEOUT or (self.state == _FAILED and noticed and self.code in _INTERRUPTED)

    @property
    def status(self) -> int | None:
        """The exit status of the command; None if Slurm ended the job."""
        ended = os.waitstatus_to_exitcode(self.code) if os.WIFEXITED(self.code) else None
        if self._time_was_over:
            return None
        if self.state == _COMPLETED or (self.state == _FAILED and ended):
            return ended
        return None

    @property
    def why(self) -> str:
        """Why there is no exit status of the command; empty if there is."""
        if self.status is not None:
            return ""
        if self._time_was_over:
            limit = "" if math.isinf(self.limit) else f" (limit: {counted(round(self.limit / 60), 'minute')})"
            return f"Slurm ended the job: its time was over{limit}. --time gives it more; --resume keeps finished runs"
        details = [f"signal {self.code & 0x7F}" if self.code & 0x7F else "", self.reason]
        shown = ", ".join(each for each in details if each not in ("", "None"))
        return f"Slurm ended the job: {self.state}{f' ({shown})' if shown else ''}"


UNKNOWN = End("UNKNOWN", 0, "Slurm does not say how it ended")


@dataclass
class GrowingFile:
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


def run_jobs(requests: Sequence[JobRequest], cluster: ClusterConfig, show: Say, say: Say) -> list[End]:
    """Submit jobs of one name and wait until all have ended. Returns how each of them ended.

    ``show`` is called with the output of a job that is alone. An interrupt cancels all jobs, and so does a LaunchError,
    which is Slurm's refusal of one of them.
    """
    log = GrowingFile(requests[0].log)
    processes: list[subprocess.Popen[str]] = []
    jobs: list[str] = []
    try:
        with signals_interrupt():
            for request in requests:
                make_folder(request.files)
                write_for_owner(request.command_file, request.command)
                processes.append(_sbatch(request.batch_script(cluster)))
                jobs.append(_submitted(processes[-1]))
                say(f"job {jobs[-1]} of Slurm ({request.name}); its output: {request.log}")
            ends: dict[str, End] = {}
            asks_at = time.monotonic() + _QUEUE_SECONDS if len(jobs) == 1 else math.inf
            while len(ends) < len(jobs):
                # At once: Slurm forgets a job some minutes after its end.
                for job, process in zip(jobs, processes, strict=True):
                    if job not in ends and process.poll() is not None:
                        ends[job] = _end_of(job)
                if len(jobs) == 1:
                    show(log.read())
                if time.monotonic() >= asks_at and not ends:
                    asks_at = math.inf
                    if why := _why_it_waits(jobs[0]):
                        say(f"waiting in the queue: {why}")
                time.sleep(_POLL_SECONDS)
            return [ends[job] for job in jobs]
    except BaseException:
        _cancel(processes, requests[0].name, say, submitted=bool(jobs))
        raise
    finally:
        while len(requests) == 1 and (text := log.read()):
            show(text)
        if all(process.poll() is not None for process in processes):
            for request in requests:
                request.command_file.unlink(missing_ok=True)


def _sbatch(script: str) -> subprocess.Popen[str]:
    """sbatch itself says on standard error what it refuses, and what it waits for."""
    # Named here, so that no site's SBATCH_EXPORT counts. With a list of names Slurm would run a login shell.
    words = ["sbatch", "--wait", "--parsable", "--export=ALL"]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables_of_job(os.environ),
            # Ctrl-C is for this process, which cancels the job.
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError("sbatch", got=str(error), expected="Slurm's commands on PATH") from error
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(script)
    return process


def _submitted(process: subprocess.Popen[str]) -> str:
    """The id that sbatch prints before it waits."""
    assert process.stdout is not None
    job = process.stdout.readline().strip().partition(";")[0]
    if not job.isdecimal():
        raise LaunchError(
            "sbatch",
            got=job or f"exit status {process.wait()}",
            expected="a job",
            remedy="Its own lines stand above. Correct clusters in perf.yaml; --dry-run shows the script",
        )
    return job


def _why_it_waits(job: str) -> str:
    """Slurm's reason why a job is pending; empty if it is not, or Slurm does not answer."""
    try:
        words = ("squeue", "--noheader", "--states=PENDING", f"--jobs={job}", "--format=%r")
        return ask_slurm(*words, seconds=_ANSWER_SECONDS).strip()
    except LaunchError:
        return ""


def _end_of(job: str) -> End:
    deadline = time.monotonic() + _COMPLETING_SECONDS
    while True:
        try:
            words = ("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--Format={_FIELDS}")
            shown = ask_slurm(*words, seconds=_ANSWER_SECONDS)
            state, code, reason, used, limit, _ = shown.strip().split("|")
            end = End(state, int(code), reason, _seconds(used, 0.0), _seconds(limit, math.inf))
        except (LaunchError, ValueError):
            return UNKNOWN
        if end.state != _COMPLETING or time.monotonic() >= deadline:
            return end
        time.sleep(_POLL_SECONDS)


def _seconds(shown: str, otherwise: float) -> float:
    """The seconds of Slurm's ``DAYS-HOURS:MINUTES:SECONDS``; ``otherwise`` for a word such as UNLIMITED."""
    found = _DURATION.fullmatch(shown)
    if found is None:
        return otherwise
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
    return 60.0 * (60 * (24 * days + hours) + minutes) + seconds


def _cancel(processes: Sequence[subprocess.Popen[str]], name: str, say: Say, *, submitted: bool) -> None:
    """Cancel all jobs of the name, which is known before their ids, and wait for their end. An sbatch that failed
    without an id may have submitted one nevertheless."""
    if not processes:
        return
    submitted = submitted or any(process.poll() is None for process in processes)
    try:
        ask_slurm("scancel", f"--name={name}", seconds=_ANSWER_SECONDS)
        if submitted:
            say(f"cancelled: scancel --name={name}")
        deadline = time.monotonic() + _CANCEL_SECONDS
        for process in processes:
            process.wait(max(0.0, deadline - time.monotonic()))
    except (LaunchError, subprocess.TimeoutExpired) as error:
        say(f"not cancelled, it may still run; when Slurm answers: scancel --name={name} ({error})")
