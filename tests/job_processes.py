"""The processes of a job, for tests that see to it that none is left."""

from __future__ import annotations

from helpers.machine.watch.processes import Process, Processes


def processes_of_job(job_id: str) -> list[Process]:
    """The processes, except zombies, whose environment names the job: its own and its guard."""
    own, guards = Processes().marked(job_id)
    return own + guards


def is_alive(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    process = Processes().look(pid)
    return process is not None and process.alive
