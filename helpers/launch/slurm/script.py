"""The script of a job of Slurm, and the variables that reach the job.

Slurm keeps a batch script and the submitter's variables, and operators can read both. So the batch script only starts a
second script, which holds the command and which its owner alone can read, and variables with a secret stay behind.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.common.inherited import SECRET, may_pass, passed_to_installer
from helpers.common.masking import passwords_in
from helpers.plan.clusters import ClusterConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

# How long before the time limit Slurm asks the command to end (SIGTERM), and how much earlier it may do so.
_NOTICE_SECONDS, _EARLIER_SECONDS = 60, 60
EARLIEST_NOTICE_SECONDS = _NOTICE_SECONDS + _EARLIER_SECONDS
# With less, a command would be asked to end in its first minute.
_LEAST_LIMIT_MINUTES = EARLIEST_NOTICE_SECONDS // 60 + 1
# Slurm's own variables (its configuration, a site's defaults for sbatch), and those of the database's client.
_PASSED = ("SLURM_", "SBATCH_", "PG")


@dataclass(frozen=True)
class Shape:
    """Nodes, and cards on each of them."""

    nodes: int
    cards: int

    def __str__(self) -> str:
        return f"{self.nodes}x{self.cards}"

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Parse a shape such as ``4x8``. Raises ValueError."""
        nodes, _, cards = text.partition("x")
        if not (nodes.isdecimal() and cards.isdecimal() and 1 <= int(nodes) <= 1024 and 1 <= int(cards) <= 1024):
            raise ValueError(f"{text!r}: expected NODESxCARDS, as 4x8")
        return cls(int(nodes), int(cards))


def parse_minutes(text: str) -> int:
    """Parse minutes or ``H:MM``. Raises ValueError."""
    hours, colon, minutes = text.rpartition(":")
    if not minutes.isdecimal() or (colon and not hours.isdecimal()):
        raise ValueError(f"{text!r}: expected minutes, or H:MM")
    total = 60 * int(hours or 0) + int(minutes)
    if not 1 <= total <= 60 * 24 * 30:
        raise ValueError(f"{text!r}: expected 1 minute to 30 days")
    return total


def parse_limit(text: str) -> int:
    """Parse the time limit of a job. Raises ValueError."""
    minutes = parse_minutes(text)
    if minutes < _LEAST_LIMIT_MINUTES:
        raise ValueError(
            f"{text!r}: expected {_LEAST_LIMIT_MINUTES} minutes or more, because Slurm asks the command to end one to "
            "two minutes before"
        )
    return minutes


@dataclass(frozen=True)
class JobRequest:
    """What is asked of Slurm."""

    # A name that no job of another command has.
    name: str
    # The folder of the job's output and of its second script.
    files: Path
    # Lines of sh that start the command, in the second script.
    command: str
    shape: Shape = Shape(1, 1)
    # The time limit; None for Slurm's.
    minutes: int | None = None
    exclude: str | None = None
    # The only node on which it may run; None for any.
    node: str | None = None
    # Slurm gives it up if it cannot end within so many minutes; None for never.
    deadline_minutes: int | None = None

    @property
    def log(self) -> Path:
        return self._file("log")

    @property
    def command_file(self) -> Path:
        return self._file("sh")

    def _file(self, ending: str) -> Path:
        return self.files / ".".join(filter(None, (self.name, self.node, ending)))

    def batch_script(self, cluster: ClusterConfig) -> str:
        """The script for sbatch. The shell is replaced, so that the command gets Slurm's signals, and its exit status
        is the job's."""
        lines = [f"#SBATCH {option}" for option in self._options(cluster)]
        return "\n".join(["#!/bin/sh", *lines, f"exec /bin/sh {shlex.quote(str(self.command_file))}", ""])

    def _options(self, cluster: ClusterConfig) -> Sequence[str]:
        named = [
            ("partition", cluster.partition),
            ("account", cluster.account),
            ("container", cluster.container),
            ("exclude", self.exclude),
            ("nodelist", self.node),
            ("time", self.minutes),
        ]
        return [
            f"--job-name={self.name}",
            f"--nodes={self.shape.nodes}",
            "--ntasks-per-node=1",
            *(f"--{name}={value}" for name, value in named if value is not None),
            *([f"--gres={cluster.gres}:{self.shape.cards}"] if cluster.gres is not None else []),
            *(["--exclusive"] if cluster.exclusive else []),
            f"--signal=B:TERM@{_NOTICE_SECONDS}",
            "--no-requeue",
            "--open-mode=append",
            *([f"--deadline=now+{self.deadline_minutes}minutes"] if self.deadline_minutes else []),
            f"--output={_path(self.log)}",
            f"--chdir={_path(Path.cwd())}",
            *cluster.options,
        ]


def python_command(words: Sequence[str]) -> str:
    """A line of sh that replaces the shell by ``python -m WORDS``."""
    return f"exec {shlex.join(['env', f'PYTHONPATH={ROOT}', sys.executable, '-u', '-m', *words])}"


def variables_of_job(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that sbatch gets, and the job with it: those that reach what trains, those of the installer and of
    Slurm, and none with a password."""
    passed = {name: value for name, value in variables.items() if name.startswith(_PASSED) or may_pass(name)}
    passed |= passed_to_installer(variables)
    return {
        name: value
        for name, value in passed.items()
        if not SECRET.fullmatch(name) and not passwords_in([(name, value)])
    }


def withheld_settings(variables: Mapping[str, str]) -> list[str]:
    """The installer's and the database's variables that stay behind because of a password in them."""
    wanted = {name for name in variables if name.startswith("PG")} | set(passed_to_installer(variables))
    return sorted(wanted - set(variables_of_job(variables)))


def write_for_owner(path: Path, text: str) -> None:
    """Write a new file that its owner alone can read. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _path(path: Path) -> str:
    """A path as sbatch reads it in a script, where quotes group words and % begins a pattern."""
    text = str(path)
    if any(sign in text for sign in "'\"\\\n"):
        raise ConfigError("folder", got=text, expected="a path without quotes, backslashes and line breaks")
    return "'" + text.replace("%", "%%") + "'"
