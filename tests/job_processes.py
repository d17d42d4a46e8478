"""The processes of a job, for tests that see to it that none is left."""

from __future__ import annotations

from helpers.machine.watch.processes import Process, Processes


def processes_of_job(job_id: str) -> list[Process]:
    """The processes, except zombies, whose environment names the job: its own and its guard."""
    own, guards = Processes().marked(job_id)
    return own + guards
