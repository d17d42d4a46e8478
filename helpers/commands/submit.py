"""``perfgate submit``: runs a command as a job of Slurm. It shows the command's output, waits for its end, and ends
with its exit status (docs/multi-node.md)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TextIO

from helpers.commands.loading import add_runs_folder, new_session, say
from helpers.commands.main import EXIT_INTERRUPTED, parsed
from helpers.commands.option_types import typed
from helpers.common.masking import shown_words
from helpers.history.run_folders import JOBS_FOLDER
from helpers.launch.launchers import CHOICES
from helpers.launch.slurm.sbatch import run_jobs
from helpers.launch.slurm.script import (
    JobRequest,
    Shape,
    parse_limit,
    python_command,
    withheld_settings,
)
from helpers.plan.clusters import ClusterConfig
from helpers.plan.perf_yaml import load_config
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.errors import ConfigError

NAME = "submit"
HELP = "Run a command as a job of Slurm: show its output, wait, end with its exit status"
EXITS = {
    0: "the command ended with 0; each other status is the command's own",
    6: "Slurm ended the job before the command ended: its time was over, a node was lost, somebody cancelled it",
    EXIT_INTERRUPTED: "interrupted: the job was cancelled, and nothing of it is left unless the last lines say so",
}
_PYTEST = "pytest"
# Commands that are themselves clients of Slurm.
_NOT_IN_A_JOB = (NAME, "fleet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser)
    parser.add_argument(
        "--time",
        type=typed(parse_limit),
        metavar="MINUTES",
        help="End the job after MINUTES, or H:MM (4:00 is four hours)",
    )
    parser.add_argument(
        "--shape",
        type=typed(Shape.parse),
        default=Shape(1, 1),
        metavar="NODESxCARDS",
        help="Request so many nodes, and cards on each. Default: 1x1",
    )
    parser.add_argument("--exclude", metavar="NODES", help="Use none of these nodes (sbatch --exclude)")
    add_runs_folder(parser, f"Keep the job's output in FOLDER/{JOBS_FOLDER}")
    parser.add_argument(
        "words", metavar="-- COMMAND", nargs="*", help=f"{_PYTEST}, or a command of perfgate, with its options"
    )


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of every job."""
    parser.add_argument("--dry-run", action="store_true", help="Print the job's scripts, and submit nothing")
    parser.add_argument("--cluster", metavar="NAME", help="Use perf.yaml's clusters.NAME. Default: the only one")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Submit the job and wait. An interrupt cancels it. Raises SuiteError if perf.yaml or Slurm do not allow it."""
    words = arguments.words
    module = _module(words)
    cluster = cluster_of(arguments)

    def request(words: Sequence[str]) -> JobRequest:
        return JobRequest(
            name=new_session(f"perfgate-{arguments.words[0]}"),
            files=arguments.runs_dir.expanduser().absolute() / JOBS_FOLDER,
            command=python_command([*module, *words]) + "\n",
            shape=arguments.shape,
            minutes=arguments.time,
            exclude=arguments.exclude,
        )

    if arguments.dry_run:
        show_scripts(request(shown_words(words[1:])), cluster, out)
        return EXIT_OK
    say_withheld()

    def show(text: str) -> None:
        out.write(text)
        out.flush()

    (end,) = run_jobs([request(words[1:])], cluster, show, say)
    if end.why:
        say(end.why)
    return EXIT_NOT_JUDGED if end.status is None else end.status


def _module(words: Sequence[str]) -> Sequence[str]:
    """The module of a command, whose options are read here so that a mistake does not wait in a queue. Raises
    ConfigError for a command that is not one, and SystemExit for wrong options."""
    if not words or words[0] in _NOT_IN_A_JOB:
        raise ConfigError(
            "perfgate submit",
            got=words[0] if words else "no command",
            expected="a command behind --, as perfgate submit -- gate",
        )
    if words[0] == _PYTEST:
        return (_PYTEST,)
    parsed(words)
    return ("helpers.commands", words[0])


def show_scripts(request: JobRequest, cluster: ClusterConfig, out: TextIO) -> None:
    """Print both scripts of a job."""
    out.write(f"{request.batch_script(cluster)}\n# {request.command_file.name}\n{request.command}")


def say_withheld() -> None:
    """Say which settings do not reach the job."""

    for name in withheld_settings(os.environ):
        say(f"{name} is not passed to the job: it holds a password, which Slurm would keep. Use pip.conf or ~/.pgpass")


def cluster_of(arguments: argparse.Namespace) -> ClusterConfig:
    """The cluster that ``--cluster`` names, else the only one of perf.yaml. Raises ConfigError if there are several."""
    config = load_config(arguments.config, CHOICES)
    known = config.clusters
    if arguments.cluster is not None:
        if arguments.cluster not in known:
            raise ConfigError("--cluster", got=arguments.cluster, expected=f"one of {', '.join(known) or 'none'}")
        return known[arguments.cluster]
    if len(known) > 1:
        raise ConfigError(
            str(config.path),
            field="clusters",
            got=", ".join(known),
            expected="one",
            remedy="Choose: --cluster NAME",
        )
    return next(iter(known.values()), ClusterConfig())
