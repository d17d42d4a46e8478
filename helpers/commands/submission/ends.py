"""How jobs ended, by Slurm's accounting where it keeps one, else by its controller alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from helpers.commands.submission.job import FORGOTTEN, NOT_SUBMITTED, Ask, Clock, JobState, WatchedJob
from helpers.launch.nodes.accounting import (
    NO_ACCOUNTING,
    Accounted,
    Start,
    keeps_accounting,
    starts_of,
    wait_for_end,
)
from helpers.launch.nodes.slurm import ask_slurm
from helpers.trainers.contract.errors import LaunchError


@dataclass
class JobEnds:
    """The ends of the jobs of one command."""

    ask: Ask = ask_slurm
    sleep: Callable[[float], None] = time.sleep
    clock: Clock = time.monotonic
    # None until Slurm was asked.
    _kept: bool | None = None

    def of(self, job: WatchedJob) -> tuple[JobState, str]:
        """The state with which a job ended, and what accounting says besides; empty if nothing, or if the job simply
        ended. That Slurm keeps no accounting is said once."""
        state = job.state
        assert state is not None
        simple = state.state in ("COMPLETED", NOT_SUBMITTED) and not state.restarts
        # A job without an id was found by its name only, which accounting is not asked for.
        if simple or self._kept is False or not job.job:
            return state, ""
        try:
            if self._kept is None:
                self._kept = keeps_accounting(self.ask)
            if not self._kept:
                return state, NO_ACCOUNTING if state.exit_status()[1] or state.restarts else ""
            starts = self._starts(job)
        except LaunchError as error:
            return state, f"Slurm's accounting cannot be read ({error})"
        if not starts:
            return state, "Slurm's accounting does not have its end yet"
        if state.state == FORGOTTEN:
            state = _state_of(starts)
        text = "; ".join(_texts(starts, state))
        return state, f"Slurm's accounting: {text}" if text else ""

    def _starts(self, job: WatchedJob) -> tuple[Start, ...]:
        """The starts of the job; none if the last one's end is not in the database in time."""
        found: tuple[Start, ...] = ()

        def last() -> Accounted | None:
            nonlocal found
            found = starts_of(job.job, job.slurm_name, self.ask)
            return found[-1].job if found else None

        return () if wait_for_end(last, self.sleep, self.clock) is None else found


def _state_of(starts: tuple[Start, ...]) -> JobState:
    """The state of a job that the controller has forgotten, as it forgets every job some minutes after its end."""
    last = starts[-1].job
    return JobState(
        last.state,
        nodes=last.nodes,
        exit_code=last.exit_code,
        signal=last.signal,
        restarts=len(starts) - 1,
    )


def _texts(starts: tuple[Start, ...], state: JobState) -> list[str]:
    """What accounting says besides the state, which the user sees anyway."""
    *earlier, last = starts
    found = [f"start {number} ended with {each.job.text}" for number, each in enumerate(earlier, 1)]
    steps = [f"step {each.id} ended with {each.text}" for each in last.steps if each.is_telling]
    # The controller does not say who cancelled a job.
    says_more = last.job.state != state.state or last.job.cancelled_by is not None
    whole = [f"the job ended with {last.job.text}"] if last.job.is_telling and says_more and not steps else []
    return [*found, *steps, *whole]
