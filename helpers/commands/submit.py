"""``perfgate submit``: runs a command that measures as a job of Slurm. It shows the command's output, waits for its
end, and ends with its exit status (docs/slurm.md)."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from helpers.commands.gate import RESULTS
from helpers.commands.loading import load_suite, new_session, say
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import typed
from helpers.commands.submission.command import COMMANDS, GATE, MeasuringCommand, read_command
from helpers.commands.submission.job import FollowedFile, WatchedJob, cancel_each, submit, wait_for
from helpers.commands.submission.needs import (
    Shape,
    by_shape,
    minutes_for,
    minutes_of_night,
    parse_minutes,
    parse_shape,
)
from helpers.commands.submission.script import JobRequest, script_of
from helpers.commands.submission.verdict import gate_line
from helpers.launch.signals import signals_interrupt
from helpers.plan.clusters import ClusterConfig
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_SLOWER
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, SuiteError

NAME = "submit"
HELP = "Run a command that measures as a job of Slurm: show its output, wait, end with its exit status"
EXITS = {
    0: "the command ended with 0; each other status is the command's own, too",
    6: "Slurm ended the job before the command ended: its time was over, a node was lost, somebody cancelled it",
    EXIT_INTERRUPTED: "interrupted: the job was cancelled, and nothing of it is left",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="Print the job's script, and submit nothing")
    parser.add_argument(
        "--cluster", metavar="NAME", help="Use perf.yaml's clusters.NAME. Default: the one that it has, if it is one"
    )
    parser.add_argument(
        "--shape",
        type=typed(parse_shape),
        metavar="NODESxCARDS",
        help="Request so many nodes and cards on each. Default: what the command's largest case needs",
    )
    parser.add_argument(
        "--time",
        type=typed(parse_minutes),
        metavar="MINUTES",
        help="End the job after MINUTES, or H:MM. Default: an estimate from earlier runs and published figures",
    )
    parser.add_argument("--exclude", metavar="NODES", help="Use none of these nodes (sbatch --exclude)")
    parser.add_argument(
        "words",
        metavar="-- COMMAND",
        nargs="*",
        help=f"The command with its options; one of {', '.join(COMMANDS)}",
    )


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[argparse.Namespace], Suite] = load_suite) -> int:
    """Submit the job (for a gate, one job for each shape) and wait. An interrupt cancels the submitted jobs, and
    so does Slurm's refusal of one of them.

    Raises SuiteError if the command, perf.yaml or Slurm do not allow it.
    """
    planned = _planned(arguments, load)
    scripts = [script_of(request, planned.cluster) for request in planned.requests]
    if arguments.dry_run:
        out.write("\n".join(scripts))
        return 0
    jobs: list[WatchedJob] = []

    def show(text: str) -> None:
        out.write(text)
        out.flush()

    with signals_interrupt():
        try:
            for request, script in zip(planned.requests, scripts, strict=True):
                request.log.parent.mkdir(parents=True, exist_ok=True)
                if len(scripts) > 1:
                    # If the job never begins, the verdict of an earlier night must not be read for it.
                    (request.output / RESULTS).unlink(missing_ok=True)
                label = str(request.shape) if len(scripts) > 1 else ""
                jobs.append(WatchedJob(submit(script), FollowedFile(request.log), label))
                say(f"{jobs[-1].name}: {request.shape} for {request.minutes} min; its output: {request.log}")
            wait_for(jobs, show, say)
        except KeyboardInterrupt:
            # A second interrupt ends this wait; the jobs still end in order.
            cancel_each(jobs, say)
            wait_for(jobs, show, say)
            raise
        except SuiteError:
            # Slurm refused one of several jobs: nobody would wait for the others, or read their verdicts.
            cancel_each(jobs, say)
            raise
    return _status(planned, jobs, out)


def _status(planned: _Planned, jobs: Sequence[WatchedJob], out: TextIO) -> int:
    """The exit status of the command. For a gate in several jobs it is the worst of them, and the verdict on all jobs
    is printed."""
    statuses = []
    for request, job in zip(planned.requests, jobs, strict=True):
        assert job.state is not None
        status, why = job.state.exit_status()
        statuses.append(status)
        if why:
            say(f"{job.name}: {why}")
        if job.state.out_of_time:
            say(f"{job.name}: its {request.minutes} min are over; --time gives it more")
        if (why or job.state.out_of_time) and request.session is not None and request.session.is_dir():
            words = shlex.join([planned.command.name, f"--resume={request.session.name}", *request.options])
            say(f"what was measured is kept; to go on: perfgate submit --shape {request.shape} -- {words}")
    if len(jobs) > 1:
        line, passed = gate_line([each.output for each in planned.requests], statuses)
        print(line, file=out)
        if not passed and not any(statuses):
            return EXIT_NOT_JUDGED
    return next((each for each in (EXIT_SLOWER, EXIT_NOT_JUDGED) if each in statuses), max(statuses))


@dataclass(frozen=True)
class _Planned:
    requests: tuple[JobRequest, ...]
    cluster: ClusterConfig
    command: MeasuringCommand


def _planned(arguments: argparse.Namespace, load: Callable[[argparse.Namespace], Suite]) -> _Planned:
    command = read_command(arguments.words)
    suite = load(command.arguments)
    cluster = cluster_of(arguments, suite)
    if arguments.exclude is not None:
        cluster = replace(cluster, options=(*cluster.options, f"--exclude={arguments.exclude}"))
    shape, minutes = arguments.shape, arguments.time
    if shape is not None and minutes is not None:
        return _Planned((_request(command, shape, minutes),), cluster, command)
    cases = command.cases(suite, cluster)
    if not cases:
        raise ConfigError(
            f"perfgate submit -- {command.name}",
            got="no case by which nodes, cards and time are known",
            expected="cases on its command line, or --shape and --time",
        )
    parts = by_shape(cases)
    if shape is not None or command.name != GATE or len(parts) == 1:
        if minutes is None and suite.config.night is not None and command.follows_plan:
            minutes = minutes_of_night(suite.config.night)
        minutes = minutes or minutes_for(cases, suite.config, suite.run_before)
        whole = _request(command, shape or Shape.for_all(cases), minutes)
        return _Planned((whole if shape else replace(whole, cards=command.cards(parts)),), cluster, command)
    if command.named or command.resumed:
        raise ConfigError(
            f"perfgate submit -- {command.name}",
            got="one session for cases of several sizes",
            expected="no --session and no --resume, since each size is a job with a session of its own",
            remedy="--shape makes one job of them",
        )
    requests = []
    for each, of_shape in parts.items():
        at_once, output = command.side_by_side(each, parts), command.output / str(each)
        whole = _request(command, each, minutes or minutes_for(of_shape, suite.config, suite.run_before))
        options = command.options_for(of_shape, output, at_once)
        requests.append(replace(whole, cards=each.cards * at_once, options=options, output=output))
    return _Planned(tuple(requests), cluster, command)


def _request(command: MeasuringCommand, shape: Shape, minutes: int) -> JobRequest:
    session = command.runs_folder / new_session(command.name)
    return JobRequest(
        name=f"perfgate-{command.name}",
        shape=shape,
        cards=shape.cards,
        minutes=minutes,
        command=command.argv,
        options=command.options,
        requeue=command.requeue,
        session=session if command.with_new_session else None,
        folder=Path.cwd(),
        log=command.runs_folder / "slurm" / f"{session.name}.log",
        output=command.output,
    )


def cluster_of(arguments: argparse.Namespace, suite: Suite) -> ClusterConfig:
    """The cluster that ``--cluster`` names, else the only one of perf.yaml. Raises ConfigError if there are several."""
    known = suite.config.clusters
    if arguments.cluster is not None:
        if arguments.cluster not in known:
            raise ConfigError("--cluster", got=arguments.cluster, expected=f"one of {', '.join(known) or 'none'}")
        return known[arguments.cluster]
    if len(known) > 1:
        raise ConfigError(
            str(suite.config.path),
            field="clusters",
            got=", ".join(known),
            expected="one",
            remedy="Choose: --cluster NAME",
        )
    return next(iter(known.values()), ClusterConfig())
