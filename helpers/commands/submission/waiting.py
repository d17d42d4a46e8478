"""Waits for jobs of Slurm until they are over, or until Slurm has been away for too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from helpers.commands.submission.job import Ask, Clock, FollowedFile, WatchedJob
from helpers.launch.nodes.slurm import ask_slurm
from helpers.trainers.contract.errors import LaunchError

_POLL_SECONDS = 1.0

Say = Callable[[str], None]


class Cancellable(Protocol):
    """A job that was submitted."""

    @property
    def name(self) -> str: ...

    @property
    def for_scancel(self) -> str: ...

    def cancel(self) -> None: ...


@dataclass
class Patience:
    """How long Slurm's controller may leave all questions without an answer."""

    minutes: float
    clock: Clock = time.monotonic
    _since: float | None = None

    def note(self, answered: bool, asked: float) -> None:
        """Keep in mind whether Slurm answered a question; ``asked`` is when it was asked, by ``clock``."""
        if answered:
            self._since = None
        elif self._since is None:
            self._since = asked

    @property
    def is_over(self) -> bool:
        return self._since is not None and self.clock() - self._since >= 60.0 * self.minutes

    @property
    def text(self) -> str:
        return f"Slurm has not answered for {self.minutes:g} min (clusters.NAME.away_minutes in perf.yaml)"


def cancel_each(jobs: Iterable[Cancellable], say: Say) -> None:
    """Cancel the jobs, and say for each whether Slurm did it."""
    for job in jobs:
        try:
            job.cancel()
        except LaunchError as error:
            say(f"{job.name}: NOT cancelled ({error.got}); when Slurm answers: scancel {job.for_scancel}")
        else:
            say(f"{job.name}: cancelled; its command ends what runs")


def find_lost(
    name: str,
    say: Say,
    patience: Patience,
    *,
    ask: Ask = ask_slurm,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The id of a job whose submission got no answer. Raises LaunchError if Slurm does not have it, or stays away."""
    remedy = f"If it comes later, cancel it: scancel --name={name}"
    job = WatchedJob("", FollowedFile(Path()), slurm_name=name, clock=patience.clock)
    while not job.job and not job.is_over:
        asked = patience.clock()
        if line := job.look(ask):
            say(line)
        patience.note(job.answered, asked)
        if patience.is_over:
            raise LaunchError("sbatch", got=patience.text, expected="an answer", remedy=remedy)
        if not job.job:
            sleep(_POLL_SECONDS)
    if not job.job:
        raise LaunchError("sbatch", got="no answer, and Slurm does not have the job", expected="a job", remedy=remedy)
    return job.job


def wait_for(
    jobs: Sequence[WatchedJob],
    show: Say,
    say: Say,
    patience: Patience,
    *,
    cancelling: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until all jobs are over; False if Slurm stayed away. ``show`` is called with the output of their commands,
    ``say`` with lines on their states. With ``cancelling`` a job that could not be cancelled is cancelled as soon as
    Slurm answers."""
    told: dict[int, str] = {}
    while True:
        over = all(job.is_over for job in jobs)
        for place, job in enumerate(jobs):
            for text in job.last_printed() if job.is_over else (job.printed(),):
                if text:
                    show(text)
            if job.is_over:
                continue
            asked = patience.clock()
            if (line := job.look()) and told.get(place) != line:
                told[place] = line
                say(line)
            patience.note(job.answered, asked)
            if cancelling and job.answered and job.job and not job.cancelled and not job.is_over:
                cancel_each([job], say)
        if over:
            return True
        if patience.is_over:
            return False
        sleep(_POLL_SECONDS)
