"""Makes the script of a job for ``sbatch``, with the command that runs on the job's first node."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.commands.submission.needs import Shape
from helpers.plan.clusters import ClusterConfig
from helpers.trainers.contract.errors import ConfigError

# How long before the time limit the command is asked to end in order; Slurm may do it up to 60 s earlier.
NOTICE_SECONDS = 60
# When Slurm starts a job again, it sets this variable to the number of earlier starts.
_RESTARTS = "SLURM_RESTART_COUNT"


@dataclass(frozen=True)
class JobRequest:
    """One job that runs a command of perfgate."""

    name: str
    # The nodes and cards that its largest case needs.
    shape: Shape
    # Cards on each node; more than those of the shape if cases are measured at the same time.
    cards: int
    minutes: int
    # The command, from the Python on, without its options.
    command: tuple[str, ...]
    options: tuple[str, ...]
    # Whether Slurm may start the job again after a node was lost.
    requeue: bool
    # The folder of the session that the first start makes and a later start continues. None if the same options are
    # right for each start.
    session: Path | None
    # The working folder of the command.
    folder: Path
    # The file for the output of all starts.
    log: Path
    # How many tasks a job array has, which waits until it is released; 0 for a single job. A task's log has its number.
    tasks: int = 0


def script_of(request: JobRequest, cluster: ClusterConfig) -> str:
    """The script as text; every word of the user is quoted for the shell that reads it."""
    head = head_of(request, cluster)
    # The shell is replaced, so that the command itself gets Slurm's signals, and its exit status is the job's.
    start = f"exec {shlex.join(request.command)}"
    if request.session is None:
        return "\n".join([*head, f"{start} {shlex.join(request.options)}".rstrip(), ""])
    folder, name = shlex.quote(str(request.session)), request.session.name
    return "\n".join(
        [
            *head,
            f'if [ "${{{_RESTARTS}:-0}}" -gt 0 ] && [ -d {folder} ]; then',
            f"  set -- {shlex.quote(f'--resume={name}')}",
            "else",
            f"  set -- {shlex.quote(f'--session={name}')}",
            "fi",
            f'{start} "$@" {shlex.join(request.options)}'.rstrip(),
            "",
        ]
    )


def head_of(request: JobRequest, cluster: ClusterConfig) -> list[str]:
    """The lines of a script that state what is requested from Slurm."""
    return ["#!/bin/sh", *(f"#SBATCH {option}" for option in _options(request, cluster)), ""]


def _options(request: JobRequest, cluster: ClusterConfig) -> Sequence[str]:
    named = [("partition", cluster.partition), ("account", cluster.account), ("container", cluster.container)]
    return [
        f"--job-name={request.name}",
        f"--nodes={request.shape.nodes}",
        "--ntasks-per-node=1",
        *(f"--{name}={value}" for name, value in named if value is not None),
        *([f"--gres={cluster.gres}:{request.cards}"] if cluster.gres is not None else []),
        *(["--exclusive"] if cluster.exclusive else []),
        f"--time={request.minutes}",
        f"--signal=B:TERM@{NOTICE_SECONDS}",
        "--requeue" if request.requeue else "--no-requeue",
        "--open-mode=append",
        *([f"--array=0-{request.tasks - 1}", "--hold"] if request.tasks else []),
        f"--output={_path(request.log, '.%a' if request.tasks else '')}",
        f"--chdir={_path(request.folder)}",
        *cluster.options,
    ]


def _path(path: Path, ending: str = "") -> str:
    """A path as sbatch reads it in a script, where quotes group words and % begins a pattern. ``ending`` may be such
    a pattern."""
    text = str(path)
    if any(sign in text for sign in "'\"\\\n"):
        raise ConfigError("folder", got=text, expected="a path without quotes, backslashes and line breaks")
    return "'" + text.replace("%", "%%") + ending + "'"
