"""``perfgate submit``: runs a command that measures as a job of Slurm. It shows the command's output, waits for its
end, and ends with its exit status (docs/slurm.md)."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import load_suite, new_session, say
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import typed
from helpers.commands.submission.command import COMMANDS, GATE, MeasuringCommand, gate_of, read_command
from helpers.commands.submission.ends import JobEnds
from helpers.commands.submission.job import NoAnswer, WatchedJob, submit, unfinished
from helpers.commands.submission.needs import (
    Shape,
    by_shape,
    minutes_for,
    minutes_of_night,
    parse_minutes,
    parse_shape,
)
from helpers.commands.submission.record import Submission, SubmittedJob
from helpers.commands.submission.script import JobRequest, script_of
from helpers.commands.submission.split import WHOLE, PlannedPart, SplitGate
from helpers.commands.submission.waiting import Patience, cancel_each, wait_for
from helpers.history.run_folders import JOBS_FOLDER, sessions_of
from helpers.history.session_file import NIGHT
from helpers.launch.signals import signals_interrupt
from helpers.plan.case_plan import SuiteCase
from helpers.plan.clusters import ClusterConfig
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.gate_verdict import GateState
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, SuiteError, printable

NAME = "submit"
HELP = "Run a command that measures as a job of Slurm: show its output, wait, end with its exit status"
EXITS = {
    0: "the command ended with 0; each other status is the command's own, too",
    6: "Slurm ended the job before the command ended (its time was over, a node was lost, somebody cancelled it), or "
    "Slurm did not answer for so long that nobody waits any more",
    EXIT_INTERRUPTED: "interrupted: the job was cancelled, and nothing of it is left unless the last lines say so",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="Print the job's script, and submit nothing")
    parser.add_argument("--cluster", metavar="NAME", help="Use perf.yaml's clusters.NAME. Default: the only one")
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
    parser.add_argument(
        "--attach",
        metavar="FILE",
        type=Path,
        help="Submit nothing: wait for the jobs in FILE, which an earlier perfgate submit wrote (runs/slurm/*.json)",
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
    if arguments.attach is not None:
        return _attached(arguments, out, load)
    planned = _planned(arguments, load)
    scripts = [script_of(request, planned.cluster) for request in planned.requests]
    if arguments.dry_run:
        out.write("\n".join(scripts))
        return EXIT_OK
    submission = _submission(arguments, planned)
    _refuse_running(planned, submission)
    if planned.split is not None:
        planned.split.forget_earlier()
    jobs: list[WatchedJob] = []
    with signals_interrupt():
        try:
            for request, each, script in zip(planned.requests, submission.jobs, scripts, strict=True):
                request.log.parent.mkdir(parents=True, exist_ok=True)
                # Written before, so that a job is found by its name if this command ends just now.
                submission.with_ids(jobs).write()
                jobs.append(each.watched())
                _submit(jobs, script)
                say(f"{jobs[-1].name}: {request.shape} for {request.minutes} min; its output: {request.log}")
            submission = submission.with_ids(jobs)
            submission.write()
        except KeyboardInterrupt:
            _cancel(planned, submission, jobs, out)
            raise
        except SuiteError:
            # Slurm refused one of several jobs: nobody would wait for the others, or read their verdicts.
            if jobs:
                _cancel(planned, submission, jobs, out)
            else:
                submission.path.unlink(missing_ok=True)
            raise
        say(f"if this command is lost, the job is not; to wait for it again: {_again(submission)}")
        return _waited(planned, submission, jobs, out)


def _submission(arguments: argparse.Namespace, planned: _Planned) -> Submission:
    return Submission(
        words=(planned.command.name, *planned.command.options),
        cluster=arguments.cluster,
        folder=str(Path.cwd()),
        session="" if planned.split is None else planned.split.session,
        away_minutes=planned.cluster.away_minutes,
        jobs=tuple(
            SubmittedJob.of(each, str(each.shape) if planned.split is not None else "") for each in planned.requests
        ),
    )


def _refuse_running(planned: _Planned, submission: Submission) -> None:
    """Raises ConfigError if a job of an earlier submission still measures in a session of this one, and LaunchError
    if Slurm does not say."""
    command = planned.command
    if not (command.resumed or command.named):
        return
    given = _sessions_of(submission)
    for path in sorted(submission.path.parent.glob("*.json")):
        try:
            earlier = Submission.read(path)
            shared = given & _sessions_of(earlier)
        except (ConfigError, SystemExit):
            # No file of a submission, or one of another version, whose options are not known any more.
            continue
        if shared and (running := unfinished([each.name for each in earlier.jobs])):
            raise ConfigError(
                "--resume" if command.resumed else "--session",
                got=f"{', '.join(sorted(shared))}, on which {', '.join(f'job {job}' for job in running)} of Slurm is "
                "still at work",
                expected="a session on which no job is at work",
                remedy=f"Wait for what was submitted: {_again(earlier)}",
            )


def _sessions_of(submission: Submission) -> set[str]:
    """The names of the sessions in which its jobs measure, as far as they are known before the jobs begin."""
    if submission.session:
        return {f"{submission.session}-{each.label}" for each in submission.jobs}
    command = read_command(submission.words)
    given = command.resume if command.resumed else command.session
    return {name for name in (given, *(Path(each.session).name for each in submission.jobs)) if name}


def _submit(jobs: list[WatchedJob], script: str) -> None:
    """Submit the last of ``jobs``. If Slurm refuses it, it is no job any more."""
    try:
        jobs[-1].job = submit(script)
    except NoAnswer as error:
        say(f"{jobs[-1].name}: Slurm did not answer ({error.got}); if it has the job, the name leads to it")
    except SuiteError:
        jobs.pop()
        raise


def _attached(arguments: argparse.Namespace, out: TextIO, load: Callable[[argparse.Namespace], Suite]) -> int:
    """Wait for jobs that another ``perfgate submit`` submitted, and show all that their commands have printed."""
    if arguments.words:
        raise ConfigError("--attach", got=f"a command, too ({arguments.words[0]})", expected="the file alone")
    submission = Submission.read(arguments.attach)
    arguments.cluster = submission.cluster
    # The command line is read as where it was typed.
    with contextlib.chdir(submission.folder):
        command = read_command(submission.words)
        planned = _Planned((), ClusterConfig(), command)
        if submission.session:
            suite = load(command.arguments)
            cluster = cluster_of(arguments, suite)
            parts = by_shape(command.cases(suite, cluster))
            planned = replace(planned, split=_split_of(command, suite, cluster, parts, submission.session))
    with signals_interrupt():
        return _waited(planned, submission, [each.watched() for each in submission.jobs], out)


def _waited(planned: _Planned, submission: Submission, jobs: Sequence[WatchedJob], out: TextIO) -> int:
    """Wait for the jobs; returns the exit status. An interrupt cancels them."""
    _keep_found(submission, jobs)
    patience = Patience(submission.away_minutes)
    try:
        over = wait_for(jobs, _show(out), say, patience)
    except KeyboardInterrupt:
        _cancel(planned, submission, jobs, out)
        raise
    found = submission.with_ids(jobs)
    if not over:
        names = ", ".join(job.name for job in jobs if not job.is_over)
        say(f"{names}: {patience.text}; what runs goes on without it. To wait for it again: {_again(found)}")
        return EXIT_NOT_JUDGED
    accounts = JobEnds()
    ends = {
        parse_shape(each.shape): _end_of(planned, each, job, accounts)
        for each, job in zip(found.jobs, jobs, strict=True)
    }
    if planned.split is None:
        return next(iter(ends.values()))[0]
    return _judge_whole(planned, ends, out)


def _cancel(planned: _Planned, submission: Submission, jobs: Sequence[WatchedJob], out: TextIO) -> None:
    """Cancel the jobs, and wait for their end. A second interrupt ends the wait; the jobs still end in order."""
    _keep_found(submission, jobs)
    cancel_each(jobs, say)
    patience = Patience(submission.away_minutes)
    if not wait_for(jobs, _show(out), say, patience, cancelling=True):
        for job in jobs:
            if not job.is_over:
                say(f"{job.name}: {patience.text}; it may still run. When Slurm answers: scancel {job.for_scancel}")
    _say_how_the_whole_goes_on(planned)


def _keep_found(submission: Submission, jobs: Sequence[WatchedJob]) -> None:
    """Write the id of a job whose submission got no answer as soon as it is known."""

    def found() -> None:
        try:
            submission.with_ids(jobs).write()
        except SuiteError as error:
            say(f"the ids of the jobs were not written: {error}")

    for job in jobs:
        job.found = found


def _again(submission: Submission) -> str:
    return shlex.join(["perfgate", NAME, f"--attach={submission.path}"])


def _show(out: TextIO) -> Callable[[str], None]:
    def show(text: str) -> None:
        out.write(text)
        out.flush()

    return show


def _end_of(planned: _Planned, submitted: SubmittedJob, job: WatchedJob, accounts: JobEnds) -> tuple[int, str]:
    """The exit status of a job, and why Slurm ended it; says that, and how to go on."""
    state, accounted = accounts.of(job)
    status, why = state.exit_status()
    for text in filter(None, (why, accounted)):
        say(f"{job.name}: {text}")
    if state.out_of_time:
        say(f"{job.name}: its {submitted.minutes} min are over; --time gives it more")
    if (why or state.out_of_time) and planned.split is None and submitted.session:
        session = Path(submitted.session)
        _say_how_to_go_on(planned, session.name, session, f"--shape {submitted.shape} ")
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
        command = _naming_session(command)
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
        minutes = minutes or _minutes(command, cases, suite)
        command = _naming_session(command)
        whole = _request(command, shape or Shape.for_all(cases), minutes)
        return _Planned((whole if shape else replace(whole, cards=command.cards(parts)),), cluster, command)
    split = _split(command, suite, cluster, parts)
    requests = tuple(_request_of_part(command, suite, each, parts, minutes) for each in split.parts)
    return _Planned(requests, cluster, command, split)


def _request_of_part(
    command: MeasuringCommand, suite: Suite, part: PlannedPart, shapes: Collection[Shape], minutes: int | None
) -> JobRequest:
    """The request for the job that measures one part of a gate whose parts have these shapes."""
    at_once = command.side_by_side(part.shape, shapes)
    folder = command.runs_folder / part.session
    goes_on = command.resumed and folder.is_dir()
    whole = _request(command, part.shape, minutes or _minutes(command, part.cases, suite), part.session)
    return replace(
        whole,
        cards=part.shape.cards * at_once,
        options=command.options_for(part.cases, part.output, at_once, part.path, part.session if goes_on else ""),
        requeue=True,
        session=None if goes_on else folder,
    )


def _minutes(command: MeasuringCommand, cases: Sequence[SuiteCase], suite: Suite) -> int:
    """The time limit of a job that measures the cases, with the time in which it may explain their REGRESSIONs."""
    explaining = suite.config.explain.night_minutes if command.explains else 0
    return minutes_for(cases, suite.config, suite.run_before) + explaining


def _naming_session(command: MeasuringCommand) -> MeasuringCommand:
    """The command of one job with the name of the session that ``--resume`` alone means: the newest one by now, since
    another may be newer when the job begins. Raises ConfigError if there is none."""
    if command.resume != "":
        return command
    newest = next(sessions_of(command.runs_folder, NIGHT), None)
    if newest is None:
        raise ConfigError("--resume", got="no name", expected=f"a night in {command.runs_folder}, which has none")
    say(f"--resume: the newest night is {newest}")
    return command.going_on_with(newest)


def _split(
    command: MeasuringCommand, suite: Suite, cluster: ClusterConfig, parts: Mapping[Shape, tuple[SuiteCase, ...]]
) -> SplitGate:
    """Raises ConfigError for a session to go on with that no earlier gate in several jobs had, and for a new one that
    exists."""
    given = command.resume if command.resumed else command.session
    session = new_session(command.name) if given is None else given
    split = _split_of(command, suite, cluster, parts, session)
    there = [each.session for each in split.parts if (command.runs_folder / each.session).is_dir()]
    if command.resumed and not there:
        raise ConfigError(
            "--resume",
            got=session or "no name",
            expected=f"the session of an earlier gate in several jobs, as NAME where {command.runs_folder} has "
            f"NAME-{split.parts[0].shape}",
            remedy="For the session of one job: perfgate submit --shape",
        )
    if command.named and there:
        raise ConfigError(
            "--session",
            got=session,
            expected=f"a name without {', '.join(there)} in {command.runs_folder}",
            remedy=f"--resume={session} goes on with it",
        )
    return split


def _split_of(
    command: MeasuringCommand,
    suite: Suite,
    cluster: ClusterConfig,
    parts: Mapping[Shape, tuple[SuiteCase, ...]],
    session: str,
) -> SplitGate:
    output = command.output.expanduser().absolute()
    made = tuple(PlannedPart(shape, cases, f"{session}-{shape}", output / str(shape)) for shape, cases in parts.items())
    words = ("perfgate", "submit", *(("--cluster", cluster.name) if cluster.name else ()), "--", command.name)
    options = command.without_session
    return SplitGate(
        suite=suite,
        gate=gate_of(suite, cluster),
        parts=made,
        session=session,
        output=output,
        command=(*words, *command.options),
        again=(*words, *options, *(() if "--" in options else ("--",)), "-k"),
    )


def _request(command: MeasuringCommand, shape: Shape, minutes: int, name: str = "") -> JobRequest:
    """The request for a job. ``name`` is that of its session; empty for a new one."""
    new = new_session(command.name)
    session = command.runs_folder / (name or new)
    log = command.runs_folder / JOBS_FOLDER / f"{session.name}.log"
    if log.exists() or log.with_suffix(".json").exists():
        # They are an earlier submission's: its output is not shown again, and its jobs can still be waited for.
        log = log.with_name(f"{session.name}.{new}.log")
    return JobRequest(
        # Unique, also among jobs that go on with the same session: a job whose submission got no answer is found by it.
        name=f"perfgate-{new}",
        shape=shape,
        cards=shape.cards,
        minutes=minutes,
        command=command.argv,
        options=command.options,
        requeue=command.requeue,
        session=session if command.with_new_session else None,
        folder=Path.cwd(),
        log=log,
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
