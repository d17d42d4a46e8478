"""``perfgate submit``: runs a command that measures as a job of Slurm. It shows the command's output, waits for its
end, and ends with its exit status (docs/slurm.md)."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import load_suite, new_session, say
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import typed
from helpers.commands.submission.command import COMMANDS, GATE, MeasuringCommand, gate_of, read_command
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
from helpers.commands.submission.split import WHOLE, PlannedPart, SplitGate
from helpers.launch.signals import signals_interrupt
from helpers.plan.case_plan import SuiteCase
from helpers.plan.clusters import ClusterConfig
from helpers.session.gate import EXIT_NOT_JUDGED
from helpers.session.gate_verdict import GateState
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, SuiteError, printable

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
    if planned.split is not None:
        planned.split.forget_earlier()
        _say_what_has_passed(planned.split)
    jobs: list[WatchedJob] = []

    def show(text: str) -> None:
        out.write(text)
        out.flush()

    with signals_interrupt():
        try:
            for request, script in zip(planned.requests, scripts, strict=True):
                request.log.parent.mkdir(parents=True, exist_ok=True)
                label = str(request.shape) if planned.split is not None else ""
                jobs.append(WatchedJob(submit(script), FollowedFile(request.log), label))
                say(f"{jobs[-1].name}: {request.shape} for {request.minutes} min; its output: {request.log}")
            wait_for(jobs, show, say)
        except KeyboardInterrupt:
            # A second interrupt ends this wait; the jobs still end in order.
            cancel_each(jobs, say)
            wait_for(jobs, show, say)
            _say_how_the_whole_goes_on(planned)
            raise
        except SuiteError:
            # Slurm refused one of several jobs: nobody would wait for the others, or read their verdicts.
            cancel_each(jobs, say)
            raise
    ends = [_end_of(planned, request, job) for request, job in zip(planned.requests, jobs, strict=True)]
    if planned.split is None:
        return ends[0][0]
    return _judge_whole(planned, {request.shape: end for request, end in zip(planned.requests, ends, strict=True)}, out)


def _end_of(planned: _Planned, request: JobRequest, job: WatchedJob) -> tuple[int, str]:
    """The exit status of a job, and why Slurm ended it; says that, and how to go on."""
    assert job.state is not None
    status, why = job.state.exit_status()
    if why:
        say(f"{job.name}: {why}")
    if job.state.out_of_time:
        say(f"{job.name}: its {request.minutes} min are over; --time gives it more")
    if (why or job.state.out_of_time) and planned.split is None and request.session is not None:
        _say_how_to_go_on(planned, request.session.name, request.session, f"--shape {request.shape} ")
    return status, why


def _say_how_to_go_on(planned: _Planned, session: str, folder: Path, how: str = "") -> None:
    """Say it if ``folder``, which has what was measured, is there."""
    if folder.is_dir():
        words = shlex.join([planned.command.name, f"--resume={session}", *planned.command.without_session])
        say(f"what was measured is kept; to go on: perfgate submit {how}-- {words}")


def _say_how_the_whole_goes_on(planned: _Planned) -> None:
    if planned.split is not None:
        folders = [planned.command.runs_folder / part.session for part in planned.split.parts]
        found = next((folder for folder in folders if folder.is_dir()), folders[0])
        _say_how_to_go_on(planned, planned.split.session, found)


def _say_what_has_passed(split: SplitGate) -> None:
    for part in split.parts:
        if part.passed:
            say(f"{part.shape}: passed already in session {part.session}; no job is submitted for it")


def _judge_whole(planned: _Planned, endings: Mapping[Shape, tuple[int, str]], out: TextIO) -> int:
    """Write the reports on a gate in several jobs, and print the verdict; returns the exit status."""
    assert planned.split is not None
    whole = planned.split.ended(endings)
    verdict = whole.verdict()
    status = whole.exit_status(verdict)
    try:
        whole.write(verdict)
    except (OSError, SuiteError) as error:
        say(f"the reports on the whole gate were not written: {error}")
        verdict = replace(verdict, state=GateState.FAILED, other=(*verdict.other, "its reports were not written"))
        status = status or EXIT_NOT_JUDGED
    else:
        say(f"the reports on the whole gate: {', '.join(str(planned.split.output / name) for name in WHOLE)}")
    if whole.lost or any(each.why for each in whole.parts):
        _say_how_the_whole_goes_on(planned)
    for case in (*verdict.quarantined, *verdict.failed):
        print(printable(case.text), file=out)
    print(printable(verdict.line), file=out)
    return status


@dataclass(frozen=True)
class _Planned:
    requests: tuple[JobRequest, ...]
    cluster: ClusterConfig
    command: MeasuringCommand
    # None for a command in one job.
    split: SplitGate | None = None


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
    split = _split(command, suite, cluster, parts)
    requests = []
    for part in split.parts:
        if part.passed:
            continue
        at_once = command.side_by_side(part.shape, parts)
        whole = _request(
            command, part.shape, minutes or minutes_for(part.cases, suite.config, suite.run_before), part.session
        )
        goes_on = command.resumed and (command.runs_folder / part.session).is_dir()
        options = command.options_for(part.cases, part.output, at_once, part.path, part.session if goes_on else "")
        requests.append(
            replace(
                whole,
                cards=part.shape.cards * at_once,
                options=options,
                requeue=True,
                session=None if goes_on else command.runs_folder / part.session,
            )
        )
    return _Planned(tuple(requests), cluster, command, split)


def _split(
    command: MeasuringCommand, suite: Suite, cluster: ClusterConfig, parts: Mapping[Shape, tuple[SuiteCase, ...]]
) -> SplitGate:
    """Raises ConfigError for a session to go on with that no earlier gate in several jobs had, and for a new one that
    exists."""
    given = command.arguments.resume if command.resumed else command.arguments.session
    session = new_session(command.name) if given is None else given
    output = command.output.expanduser().absolute()
    made = tuple(PlannedPart(shape, cases, f"{session}-{shape}", output / str(shape)) for shape, cases in parts.items())
    there = [each.session for each in made if (command.runs_folder / each.session).is_dir()]
    if command.resumed and not there:
        raise ConfigError(
            "--resume",
            got=session or "no name",
            expected=f"the session of an earlier gate in several jobs, as NAME where {command.runs_folder} has "
            f"NAME-{made[0].shape}",
            remedy="For the session of one job: perfgate submit --shape",
        )
    if command.named and there:
        raise ConfigError(
            "--session",
            got=session,
            expected=f"a name without {', '.join(there)} in {command.runs_folder}",
            remedy=f"--resume={session} goes on with it",
        )
    words = ("perfgate", "submit", *(("--cluster", cluster.name) if cluster.name else ()), "--", command.name)
    options = command.without_session
    return SplitGate(
        suite,
        gate_of(suite, cluster),
        made,
        session,
        output,
        (*words, *command.options),
        (*words, *options, *(() if "--" in options else ("--",)), "-k"),
    )


def _request(command: MeasuringCommand, shape: Shape, minutes: int, name: str = "") -> JobRequest:
    """``name`` is that of the session, which is else a new one."""
    session = command.runs_folder / (name or new_session(command.name))
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
