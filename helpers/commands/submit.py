"""``perfgate submit``: runs a command that measures as a job of Slurm. It shows the command's output, waits for its
end, and ends with its exit status (docs/slurm.md)."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TextIO, TypeVar

from helpers.commands.gate import RESULTS
from helpers.commands.loading import load_suite, new_session, say
from helpers.commands.main import EXIT_INTERRUPTED, parsed
from helpers.commands.submission.job import FollowedFile, WatchedJob, submit, wait_for
from helpers.commands.submission.needs import Shape, by_shape, minutes_for, parse_minutes, parse_shape
from helpers.commands.submission.script import JobRequest, script_of
from helpers.launch.signals import signals_interrupt
from helpers.machine.files import read_text_limited
from helpers.plan.case_plan import SuiteCase
from helpers.plan.clusters import ClusterConfig
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_SLOWER, Gate
from helpers.session.suite import Suite
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

NAME = "submit"
HELP = "Run a command that measures as a job of Slurm: show its output, wait, end with its exit status"
EXITS = {
    0: "the command ended with 0; each other status is the command's own, too",
    6: "Slurm ended the job before the command ended: its time was over, a node was lost, somebody cancelled it",
    EXIT_INTERRUPTED: "interrupted: the job was cancelled, and nothing of it is left",
}

GATE = "gate"
# The commands that measure. When Slurm starts a job again, these commands continue their session and prove-gpu
# continues its folder. bisect cannot continue, because it may be on another machine.
_WITH_SESSIONS = (GATE, "calibrate", "compare-frameworks")
_MEASURING = (*_WITH_SESSIONS, "bisect", "prove-gpu")
T = TypeVar("T")
# The largest results file of a gate that is read.
_MOST_BYTES = 256 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="Print the job's script, and submit nothing")
    parser.add_argument(
        "--cluster", metavar="NAME", help="Use perf.yaml's clusters.NAME. Default: the one that it has, if it is one"
    )
    parser.add_argument(
        "--shape",
        type=_typed(parse_shape),
        metavar="NODESxCARDS",
        help="Request so many nodes and cards on each. Default: what the command's largest case needs",
    )
    parser.add_argument(
        "--time",
        type=_typed(parse_minutes),
        metavar="MINUTES",
        help="End the job after MINUTES, or H:MM. Default: an estimate from earlier runs and published figures",
    )
    parser.add_argument("--exclude", metavar="NODES", help="Use none of these nodes (sbatch --exclude)")
    parser.add_argument(
        "words",
        metavar="-- COMMAND",
        nargs="*",
        help=f"The command with its options; one of {', '.join(_MEASURING)}",
    )


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[argparse.Namespace], Suite] = load_suite) -> int:
    """Submit the job (for a gate, one job for each shape) and wait. An interrupt cancels the submitted jobs.

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
            for job in jobs:
                job.cancel()
                say(f"{job.name}: cancelled; its command ends what runs")
            wait_for(jobs, show, say)
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
            words = shlex.join([planned.words[0], f"--resume={request.session.name}", *request.options])
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
    words: tuple[str, ...]


def _planned(arguments: argparse.Namespace, load: Callable[[argparse.Namespace], Suite]) -> _Planned:
    words = tuple(arguments.words)
    if not words or words[0] not in _MEASURING:
        raise ConfigError(
            "perfgate submit",
            got=words[0] if words else "no command",
            expected=f"a command that measures behind --: {', '.join(_MEASURING)}",
        )
    name, inner = words[0], parsed(words)
    suite = load(inner)
    cluster = _cluster(arguments, suite)
    if arguments.exclude is not None:
        cluster = replace(cluster, options=(*cluster.options, f"--exclude={arguments.exclude}"))
    runs_folder = _runs_folder(inner)
    named, resumed = (getattr(inner, each, None) is not None for each in ("session", "resume"))
    with_session = name in _WITH_SESSIONS and not (named or resumed)

    def request(shape: Shape, minutes: int, options: tuple[str, ...], output: Path) -> JobRequest:
        session = runs_folder / new_session(name)
        return JobRequest(
            name=f"perfgate-{name}",
            shape=shape,
            cards=shape.cards * _workers(inner),
            minutes=minutes,
            command=("env", f"PYTHONPATH={ROOT}", sys.executable, "-u", "-m", "helpers.commands", name),
            options=options,
            requeue=with_session or (resumed and name != "bisect") or name == "prove-gpu",
            session=session if with_session else None,
            folder=Path.cwd(),
            log=runs_folder / "slurm" / f"{session.name}.log",
            output=output,
        )

    shape, minutes = arguments.shape, arguments.time
    output = Path(getattr(inner, "output", "."))
    if shape is not None and minutes is not None:
        return _Planned((request(shape, minutes, words[1:], output),), cluster, words)
    cases = chosen(name, inner, suite, cluster)
    if not cases:
        raise ConfigError(
            f"perfgate submit -- {name}",
            got="no case by which nodes, cards and time are known",
            expected="cases on its command line, or --shape and --time",
        )
    parts = by_shape(cases) if name == GATE and shape is None else {shape or Shape.for_all(cases): cases}
    if len(parts) > 1 and (named or resumed):
        raise ConfigError(
            f"perfgate submit -- {name}",
            got="one session for cases of several sizes",
            expected="no --session and no --resume, since each size is a job with a session of its own",
            remedy="--shape makes one job of them",
        )
    if len(parts) == 1:
        options = {next(iter(parts)): (words[1:], output)}
    else:
        options = {
            each: (_of_part(words[1:], cases, output / str(each)), output / str(each)) for each, cases in parts.items()
        }
    return _Planned(
        tuple(
            request(each, minutes or minutes_for(cases, suite.config, suite.run_before), *options[each])
            for each, cases in parts.items()
        ),
        cluster,
        words,
    )


def _of_part(words: Sequence[str], cases: Sequence[SuiteCase], output: Path) -> tuple[str, ...]:
    """The gate's options for a job that measures only ``cases``."""
    mark = words.index("--") if "--" in words else len(words)
    own, pytest_options = words[:mark], words[mark + 1 :]
    if any(word.startswith("-k") for word in pytest_options) and not _keyword(pytest_options):
        raise ConfigError(
            "-k", got="an expression", expected="one text, for a gate in several jobs", remedy="Or one job: --shape"
        )
    # The last -k counts.
    return (*own, f"--output={output}", "--", *pytest_options, "-k", " or ".join(each.case.id for each in cases))


def gate_line(outputs: Sequence[Path], statuses: Sequence[int]) -> tuple[str, bool]:
    """The last line of a gate in several jobs, and whether the gate passed, by the results file of each job."""
    passed = cases = quarantined = 0
    failed = []
    for output, status in zip(outputs, statuses, strict=True):
        try:
            verdict = json.loads(read_text_limited(output / RESULTS, _MOST_BYTES))["gate"]
            passed += int(verdict["passed"])
            cases += int(verdict["cases"])
            quarantined += len(verdict["quarantined"])
            if status or verdict["failed"]:
                failed.append(f"{output.name}: {verdict['line'].removeprefix('GATE ')}")
        except (OSError, ValueError, KeyError, TypeError):
            failed.append(f"{output.name}: no verdict, exit status {status}")
    if failed:
        return f"GATE FAILED in {len(failed)} of {len(outputs)} jobs: {'; '.join(failed)}", False
    kept = f"; {quarantined} in quarantine" if quarantined else ""
    return f"GATE PASSED: {passed} of {cases} in {len(outputs)} jobs{kept}", True


def _workers(inner: argparse.Namespace) -> int:
    """How many cases the command measures at the same time, each on its own cards; more than 1 only on a shared
    machine."""
    options = list(getattr(inner, "pytest_options", []))
    if "--share-machine" not in options:
        return 1
    given = next((options[place + 1] for place, word in enumerate(options[:-1]) if word == "-n"), "1")
    return int(given) if given.isdecimal() and int(given) > 0 else 1


def _cluster(arguments: argparse.Namespace, suite: Suite) -> ClusterConfig:
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


def chosen(name: str, inner: argparse.Namespace, suite: Suite, cluster: ClusterConfig) -> tuple[SuiteCase, ...]:
    """The cases that the command will measure on the cluster's nodes, as far as its command line and perf.yaml
    determine them."""
    target = cluster.target or getattr(inner, "target", None)
    cases = tuple(each for each in suite.cases if target in (None, each.target))
    if name == GATE:
        return _of_gate(inner, suite, cluster, cases)
    patterns = [*(getattr(inner, "cases", None) or []), *(getattr(inner, "case", None) or [])]
    if keyword := getattr(inner, "keyword", None):
        patterns.append(f"*{keyword}*")
    return tuple(each for each in cases if any(fnmatchcase(each.case.id, pattern) for pattern in patterns))


def _of_gate(
    inner: argparse.Namespace, suite: Suite, cluster: ClusterConfig, cases: tuple[SuiteCase, ...]
) -> tuple[SuiteCase, ...]:
    """The cases of the gate of the cluster's nodes, which may differ from this machine's."""
    machines = suite.config.machines
    if cluster.machine is None and len(machines) != 1:
        raise ConfigError(
            str(suite.config.path),
            field=f"clusters.{cluster.name or 'NAME'}.machine",
            got="no entry",
            expected="the entry of machines whose gate the cluster's nodes have",
            remedy=f"Entries: {', '.join(machines) or 'none'}",
        )
    machine = next(iter(machines.values())) if cluster.machine is None else machines[cluster.machine]
    gate = Gate(True, machine.gate)
    keyword = _keyword(inner.pytest_options)
    return tuple(each for each in cases if gate.judges(each) and keyword in each.case.id)


def _keyword(options: Sequence[str]) -> str:
    """The text of ``-k`` if it is a single text; empty (which means all cases) if it is an expression."""
    given = ""
    for number, word in enumerate(options):
        if word == "-k":
            given = options[number + 1] if number + 1 < len(options) else ""
        elif word.startswith("-k") and not word.startswith("--"):
            given = word[2:]
    return given if all(char.isalnum() or char in "-._" for char in given) else ""


def _runs_folder(inner: argparse.Namespace) -> Path:
    given = getattr(inner, "runs_dir", None)
    return ROOT / "runs" if given is None else Path(given).expanduser().absolute()
