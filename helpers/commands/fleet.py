"""``perfgate fleet``: measures the same cases on every node of a Slurm partition, and those of one card on every card,
and says which node or card is slow beyond chance (docs/fleet.md)."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.commands.fleets.array import (
    SlurmNode,
    WatchedArray,
    array_script,
    cards_of_all,
    chosen_nodes,
    is_here,
    pin_commands,
    submit_pinned,
    wait_for_array,
)
from helpers.commands.fleets.findings import Asked, FleetFindings, case_names, findings_of
from helpers.commands.fleets.on_node import MODULE
from helpers.commands.fleets.text import FILES, fleet_text
from helpers.commands.loading import (
    add_build,
    add_data,
    add_file_formats,
    add_history,
    check_files,
    history_of,
    history_url,
    load_suite,
    new_session,
    print_text,
    say,
    text_output,
    width_of,
    write_files,
)
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import count_of, number_in, typed
from helpers.commands.submission.job import FollowedFile, WatchedJob
from helpers.commands.submission.needs import Shape, minutes_for_runs, parse_minutes
from helpers.commands.submission.script import JobRequest
from helpers.commands.submission.waiting import Patience, cancel_each, find_lost, wait_for
from helpers.commands.submit import cluster_of
from helpers.history.run_folders import JOBS_FOLDER
from helpers.history.stored import FLEET_KIND, session_of_place
from helpers.judging.calibrate import LEAST_RUNS
from helpers.judging.wording import counted
from helpers.launch.signals import signals_interrupt
from helpers.machine.files import read_text_limited, write_whole
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import CPU, SuiteCase
from helpers.plan.clusters import ClusterConfig
from helpers.plan.matrix import TARGETS
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK, EXIT_SLOWER
from helpers.session.suite import Suite
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError, HistoryError, ResultError

if TYPE_CHECKING:
    # Not imported at run time: it would import the database libraries before the options are checked.
    from helpers.history.history import History

NAME = "fleet"
HELP = "Measure the same cases on every node and card of a Slurm partition, and say which is slow beyond chance"
EXITS = {
    0: "every node and card was measured, and none is slow",
    1: "a node or a card is slow beyond chance; 1 outranks 6",
    6: "none is slow, but a node, a card or a case was not measured or is not known, or the nodes could not be judged",
    EXIT_INTERRUPTED: "interrupted: the array was cancelled, and nothing of it is left unless the last lines say so",
}

# 1: first format.
# 2: the number of cards on each node, whether contended runs count; null for a node whose task's end nobody has seen.
_ASKED_SCHEMA_VERSION = 2
_MOST_BYTES = 16 * 1024 * 1024
_MOST_RUNS, _MOST_CARDS = 100, 256
# CPU cards of a node without an entry in perf.yaml (helpers.machine.devices).
_CPU_CARDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--nodes",
        metavar="PATTERN",
        help="Measure on these nodes: Slurm's list (n[00-17]), or a pattern over the partition's nodes (n*)",
    )
    what.add_argument(
        "--report",
        metavar="FLEET",
        nargs="?",
        const="",
        help="Measure nothing: report FLEET from the history. Without a name: the newest one",
    )
    parser.add_argument("cases", metavar="CASE", nargs="*", help="Case ids or patterns over them, of one node")
    parser.add_argument("-k", dest="keyword", metavar="TEXT", help="Measure the cases whose id contains TEXT")
    parser.add_argument("--target", choices=TARGETS, help="Measure only this target's cases. Default: the cluster's")
    parser.add_argument(
        "--runs",
        type=count_of("runs", LEAST_RUNS, _MOST_RUNS),
        default=LEAST_RUNS,
        metavar="N",
        help=f"Run each case N times on each node, those of one card N times on each card. Default: {LEAST_RUNS}",
    )
    parser.add_argument(
        "--cards",
        type=count_of("cards", 1, _MOST_CARDS),
        metavar="N",
        help="Measure the cases of one card on N cards of each node. Default: on all that Slurm lists",
    )
    parser.add_argument(
        "--share-machine",
        action="store_true",
        help="Measure the cards of a node side by side. Default: one after the other",
    )
    parser.add_argument(
        "--spread",
        type=_spread,
        metavar="PERCENT",
        help="Healthy nodes, and cards of a node, differ by PERCENT (standard deviation). Default: learned from the "
        "fast half of them",
    )
    parser.add_argument("--cluster", metavar="NAME", help="Use perf.yaml's clusters.NAME. Default: the only one")
    parser.add_argument(
        "--time", type=typed(parse_minutes), metavar="MINUTES", help="End a node's task after MINUTES, or H:MM"
    )
    parser.add_argument(
        "--wait",
        type=typed(parse_minutes),
        metavar="MINUTES",
        help="Give up nodes that have not begun after MINUTES. Default: wait for all that Slurm has not lost",
    )
    parser.add_argument("--dry-run", action="store_true", help="Print the array's script, and submit nothing")
    add_build(parser)
    add_data(parser)
    parser.add_argument(
        "--allow-contention", action="store_true", help="Measure although others use a node, and let such runs count"
    )
    add_file_formats(parser, FILES)
    add_history(parser)


def _spread(text: str) -> float:
    """A fraction from a text such as ``0.5%`` or ``0.5``, both in percent."""
    value = number_in(text.removesuffix("%"))
    if not 0 < value <= 20:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a percentage above 0 and up to 20")
    return value / 100


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[argparse.Namespace], Suite] = load_suite) -> int:
    """Measure, or only report. Raises SuiteError if options, perf.yaml, Slurm or the history do not allow it."""
    check_files(arguments, FILES)
    if arguments.report is not None:
        return _report(arguments, out, arguments.report)
    # In UTC, because several machines read the name, and because sorted names are then in the order of time.
    fleet = new_session(FLEET_KIND, f"{utc_now():%Y%m%d-%H%M%SZ}")
    suite = load(arguments)
    cluster = cluster_of(arguments, suite)
    cases = _chosen(arguments, suite, cluster)
    nodes = chosen_nodes(arguments.nodes, cluster.partition)
    usable = [each for each in nodes if not each.problem]
    if not usable:
        raise ConfigError(
            "--nodes",
            got=f"{counted(len(nodes), 'node')}, none of which takes a job",
            expected=f"a node that does; {nodes[0].name}: {nodes[0].problem}",
        )
    names = [each.name for each in usable]
    _check_history(arguments, usable)
    cards = _asked_cards(arguments, cluster, cases, usable)
    request = _request(arguments, suite, fleet, cases, cards)
    script = array_script(request, cluster, fleet, names)
    if arguments.dry_run:
        out.write(script)
        comments = [f"scontrol {line}" for line in pin_commands("JOB", names)]
        comments += [f"not asked: {each.name}: {each.problem}" for each in nodes if each.problem]
        print("\n".join(f"# {line}" for line in comments), file=out)
        return EXIT_OK
    place = _asked_file(arguments, fleet)
    request.log.parent.mkdir(parents=True, exist_ok=True)
    ids = tuple(sorted(case_names((each.case.id, each.target) for each in cases).values()))
    # If this command is killed, nobody has seen how a task ended.
    asked = Asked(
        nodes={each.name: each.problem or None for each in nodes},
        cases=ids,
        runs=arguments.runs,
        cards=cards,
        contended=arguments.allow_contention,
    )
    _write_asked(place, fleet, asked)
    ended = _measured(arguments, script, names, request, cluster)
    if ended is None:
        say(f"when its tasks have ended: perfgate {NAME} --report {fleet}")
        return EXIT_NOT_JUDGED
    _write_asked(place, fleet, replace(asked, nodes={**asked.nodes, **ended}))
    return _report(arguments, out, fleet)


def _measured(
    arguments: argparse.Namespace, script: str, names: Sequence[str], request: JobRequest, cluster: ClusterConfig
) -> dict[str, str] | None:
    """Submit the array and wait; an interrupt cancels it. Returns for each node why its task did not end well (empty if
    it did), or None if Slurm stayed away."""
    patience = Patience(cluster.away_minutes)
    with signals_interrupt():
        try:
            job = submit_pinned(script, names, lambda: find_lost(request.name, say, patience))
        except KeyboardInterrupt:
            _cancel_by_name(request, cluster)
            raise
        array = WatchedArray(job, names)
        say(f"job {array.job}: {len(names)} nodes, {request.minutes} min each; their output: {request.log}.N")
        try:
            over = wait_for_array(array, say, patience, None if arguments.wait is None else 60.0 * arguments.wait)
        except KeyboardInterrupt:
            # A second interrupt ends this wait; the tasks still end in order.
            cancel_each([array], say)
            if not wait_for_array(array, say, Patience(cluster.away_minutes), cancelling=True):
                say(f"{array.name}: {patience.text}; it may still run. When Slurm answers: scancel {array.job}")
            raise
    if not over:
        say(f"{array.name}: {patience.text}; its tasks may go on without it")
        return None
    return {name: array.problem(task, f"{request.log}.{task}") for task, name in enumerate(names)}


def _cancel_by_name(request: JobRequest, cluster: ClusterConfig) -> None:
    """Cancel an array whose id is not known, and wait for its end: Slurm may have it, and would hold it for ever."""
    job, patience = WatchedJob("", FollowedFile(request.log), slurm_name=request.name), Patience(cluster.away_minutes)
    cancel_each([job], say)
    if not wait_for([job], say, say, patience, cancelling=True):
        say(f"{job.name}: {patience.text}; it may wait for ever. When Slurm answers: scancel {job.for_scancel}")


def _report(arguments: argparse.Namespace, out: TextIO, fleet: str) -> int:
    output = text_output(arguments, FILES, out)
    with history_of(arguments) as history, _without_collector():
        found = _found(arguments, history, fleet)
    print_text(fleet_text(found, width_of(out)), output)
    write_files(arguments, FILES, found, out)
    return EXIT_SLOWER if found.slow else EXIT_OK if found.complete else EXIT_NOT_JUDGED


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Python's search for cycles takes a fifth of the time with the runs of thousands of cards, and finds none."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _found(arguments: argparse.Namespace, history: History, fleet: str) -> FleetFindings:
    known = history.fleets()
    if not fleet and not known:
        raise HistoryError(
            "perfgate fleet --report",
            got="a history without a fleet",
            expected="one that perfgate fleet --nodes has measured",
        )
    fleet = fleet or next(reversed(known))
    asked = _read_asked(_asked_file(arguments, fleet))
    return findings_of(history, fleet, known, asked, arguments.spread, contended=arguments.allow_contention)


# ---- what is asked


def _chosen(arguments: argparse.Namespace, suite: Suite, cluster: ClusterConfig) -> tuple[SuiteCase, ...]:
    patterns = [*arguments.cases, *([f"*{arguments.keyword}*"] if arguments.keyword else [])]
    target = arguments.target or cluster.target
    found = tuple(
        each
        for each in suite.cases
        if target in (None, each.target)
        and each.case.nodes == 1
        and any(fnmatchcase(each.case.id, pattern) for pattern in patterns)
    )
    if not found:
        raise ConfigError(
            "perfgate fleet",
            field="CASE",
            got=", ".join(patterns) or "no case",
            expected=f"cases of one node{f' on {target}' if target else ''}, by id, pattern or -k",
        )
    return found


def _one_card(case: SuiteCase) -> bool:
    return case.case.cards == 1


def _asked_cards(
    arguments: argparse.Namespace, cluster: ClusterConfig, cases: Sequence[SuiteCase], nodes: Sequence[SlurmNode]
) -> int:
    """On how many cards of each node the cases of one card are measured; 0 for all cards of a node if their number is
    not known. Raises ConfigError if nodes have different numbers."""
    of_one = [each for each in cases if _one_card(each)]
    if not of_one:
        return 0
    if len(targets := sorted({each.target for each in of_one})) > 1:
        raise ConfigError(
            "perfgate fleet",
            got=f"cases of one card on {' and '.join(targets)}",
            expected="those of one target, because a card's runs are one session",
            remedy=f"Choose: --target {targets[0]}",
        )
    if arguments.cards is not None:
        return int(arguments.cards)
    return cards_of_all(nodes, cluster.gres) if cluster.gres is not None else 0


def _minutes(arguments: argparse.Namespace, suite: Suite, cases: Sequence[SuiteCase], cards: int) -> int:
    """The time limit of a node's task. Raises ConfigError if the number of its cards is not known."""
    if arguments.time:
        return int(arguments.time)
    on_cpu = all(each.target == CPU for each in cases if _one_card(each))
    if not cards and on_cpu:
        cards = max([_CPU_CARDS, *(each.cpu_cards or 0 for each in suite.config.machines.values())])
    if not cards:
        raise ConfigError(
            "perfgate fleet",
            got="cases of one card, and no number of cards of a node",
            expected="one, by which the time of a node's task is known",
            remedy="Set gres of the cluster in perf.yaml, or say --cards N or --time MINUTES",
        )
    in_turn = 1 if arguments.share_machine else cards
    return minutes_for_runs(
        cases, lambda each: arguments.runs * (in_turn if _one_card(each) else 1), suite.config, suite.run_before
    )


def _check_history(arguments: argparse.Namespace, nodes: Sequence[SlurmNode]) -> None:
    """Raises ConfigError for a file of SQLite that several machines would write."""
    if not history_url(arguments).startswith("sqlite"):
        return
    if elsewhere := [each.name for each in nodes if not is_here(each.address)]:
        raise ConfigError(
            "perfgate fleet",
            field="history",
            got=f"a file of SQLite, and nodes on other machines ({', '.join(elsewhere[:3])})",
            expected="a PostgreSQL, because SQLite's file is not safe with writers on several machines",
            remedy="Name it: --history postgresql://USER@HOST/DATABASE, or history.url in perf.yaml",
        )


def _request(
    arguments: argparse.Namespace, suite: Suite, fleet: str, cases: Sequence[SuiteCase], cards: int
) -> JobRequest:
    runs_folder = arguments.runs_dir.expanduser().absolute()
    shape = Shape.for_all(cases)
    given = [("history", arguments.history), ("build", arguments.build), ("data", arguments.data)]
    targets = {each.target for each in cases}
    return JobRequest(
        # Unique, so that the array is found by it if its submission got no answer.
        name=f"perfgate-{fleet}",
        shape=shape,
        cards=max(shape.cards, cards),
        minutes=_minutes(arguments, suite, cases, cards),
        command=("env", f"PYTHONPATH={ROOT}", sys.executable, "-u", "-m", MODULE),
        options=(
            *([f"--cards={cards}"] if cards else []),
            *(["--share-machine"] if arguments.share_machine else []),
            "--",
            f"--config={arguments.config.expanduser().absolute()}",
            f"--baselines={arguments.baselines.expanduser().absolute()}",
            f"--runs-dir={runs_folder}",
            f"--runs={arguments.runs}",
            *(f"--{name}={value}" for name, value in given if value is not None),
            *(["--allow-contention"] if arguments.allow_contention else []),
            *([f"--target={next(iter(targets))}"] if len(targets) == 1 else []),
            *dict.fromkeys(each.case.id for each in cases),
        ),
        requeue=True,
        session=runs_folder / session_of_place(fleet, ("NODE", "")),
        folder=Path.cwd(),
        log=runs_folder / JOBS_FOLDER / f"{fleet}.log",
    )


# ---- the file that keeps what was asked


def _asked_file(arguments: argparse.Namespace, fleet: str) -> Path:
    return Path(arguments.runs_dir).expanduser().absolute() / JOBS_FOLDER / f"{fleet}.json"


def _write_asked(path: Path, fleet: str, asked: Asked) -> None:
    record = {"schema_version": _ASKED_SCHEMA_VERSION, "fleet": fleet, **asdict(asked)}
    try:
        write_whole(path, json.dumps(record, indent=1).encode())
    except OSError as error:
        raise ResultError(str(path), got=str(error), expected="room for the list of nodes") from error


def _read_asked(path: Path) -> Asked:
    """What a fleet was asked; empty if its file is not here, as on another machine than the one that asked."""
    try:
        record = json.loads(read_text_limited(path, _MOST_BYTES))
        if record["schema_version"] != _ASKED_SCHEMA_VERSION:
            raise ValueError(f"schema_version {record['schema_version']}")
        nodes = {str(node): None if why is None else str(why) for node, why in record["nodes"].items()}
        cases, runs, cards = tuple(map(str, record["cases"])), int(record["runs"]), int(record["cards"])
        return Asked(nodes, cases, runs, cards, record["contended"] is True)
    except FileNotFoundError:
        return Asked()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultError(str(path), got=str(error), expected="what perfgate fleet wrote") from error
