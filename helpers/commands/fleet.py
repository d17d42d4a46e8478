"""``perfgate fleet``: runs the gate on every node of a Slurm cluster, and says which node is slow beyond chance
(docs/multi-node.md)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.commands.gate import NAME as GATE
from helpers.commands.gate import RESULTS
from helpers.commands.loading import add_json, history_of, history_url, new_session, print_answer, say, width_of
from helpers.commands.main import EXIT_INTERRUPTED, parsed
from helpers.commands.option_types import count_of, typed
from helpers.commands.submit import add_cluster, cluster_of, say_withheld, show_scripts
from helpers.common.files import read_text_limited
from helpers.common.masking import shown_words
from helpers.common.own_folder import own_folder
from helpers.common.wall_clock import utc_now
from helpers.common.words import counted
from helpers.history.run_folders import JOBS_FOLDER
from helpers.judging.fleet import LEAST_NODES, judge_fleet
from helpers.launch.slurm.nodes import SlurmNode, nodes_of
from helpers.launch.slurm.sbatch import run_jobs
from helpers.launch.slurm.script import JobRequest, Shape, parse_limit, parse_minutes, python_command
from helpers.plan.clusters import ClusterConfig
from helpers.report.fleet import FleetAnswer, fleet_record, fleet_text
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK, EXIT_SLOWER
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    # Not imported at run time: it would import the database libraries before the options are checked.
    from helpers.history.history import History

NAME = "fleet"
HELP = "Run the gate on every node of a Slurm cluster, and say which node is slow beyond chance"
EXITS = {
    0: "every node measured every case, and none is slow",
    1: "a node is slow beyond chance; 1 outranks 6",
    6: "none is slow, but a node or a case was not measured, or the nodes were too few to be judged",
    EXIT_INTERRUPTED: "interrupted: the jobs were cancelled, and nothing of them is left unless the last lines say so",
}
# A gate with one of these exit statuses came to its end, whatever it says of the build.
_CAME_TO_ITS_END = (EXIT_OK, EXIT_SLOWER, EXIT_NOT_JUDGED)
_GATE_MINUTES, _DAY_MINUTES = 4 * 60, 24 * 60
_MOST_BYTES = 256 * 1024 * 1024
_SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser)
    parser.add_argument(
        "--nodes", metavar="NODES", help="Measure on Slurm's list of nodes (n[00-17]). Default: the partition's"
    )
    parser.add_argument(
        "--cards",
        type=count_of("cards", 1, 1024),
        default=1,
        metavar="N",
        help="Request N cards on each node. Default: 1",
    )
    parser.add_argument(
        "--time",
        type=typed(parse_limit),
        default=_GATE_MINUTES,
        metavar="MINUTES",
        help="End a node's gate after MINUTES, or H:MM. Default: 4:00, four hours",
    )
    parser.add_argument(
        "--within",
        type=typed(parse_minutes),
        default=_DAY_MINUTES,
        metavar="MINUTES",
        help="Give up a node that has not begun within MINUTES, or H:MM. Default: 24:00",
    )
    parser.add_argument("--report", metavar="FLEET", help="Measure nothing: judge FLEET again by the history")
    add_json(parser)
    parser.add_argument("words", metavar="-- GATE_OPTION", nargs="*", help="Pass options on to perfgate gate")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Measure and judge. Raises SuiteError if the options, perf.yaml, Slurm or the history do not allow it."""
    gate = parsed([GATE, f"--config={arguments.config}", f"--baselines={arguments.baselines}", *arguments.words])
    if gate.session is not None or gate.resume is not None:
        raise ConfigError("perfgate gate", got="--session or --resume", expected="neither: a fleet names its sessions")
    gate.runs_dir = Path(gate.runs_dir or own_folder() / "runs").expanduser().absolute()
    cluster = cluster_of(arguments)
    nodes = nodes_of(arguments.nodes, cluster.partition)
    # In UTC, because several machines read it.
    fleet = arguments.report or new_session(NAME, f"{utc_now():%Y%m%d-%H%M%SZ}")
    why: Mapping[str, str] = {}
    if arguments.report is None:
        _check_history(gate, nodes)
        say(_plan(nodes))
        if arguments.dry_run:
            first = next(each.name for each in nodes if not each.problem)
            show_scripts(_request(arguments, gate, fleet, first, shown_words(arguments.words)), cluster, out)
            return EXIT_OK
        why = _measured(arguments, gate, fleet, nodes, cluster)
    answer = _answer(gate, fleet, [each.name for each in nodes], why)
    print_answer(arguments, out, fleet_text(answer, width_of(out)), fleet_record(answer))
    return EXIT_SLOWER if answer.verdict.slow else EXIT_OK if answer.complete else EXIT_NOT_JUDGED


def _plan(nodes: Sequence[SlurmNode]) -> str:
    """Which nodes are measured, and whether they are too few, in one line."""
    usable = [each.name for each in nodes if not each.problem]
    none = [f"{each.name} ({each.problem})" for each in nodes if each.problem]
    parts = [f"{counted(len(usable), 'job')}, one a node: {_few(usable)}"]
    parts += [f"no job: {_few(none)}"] if none else []
    parts += [f"fewer than {LEAST_NODES} nodes cannot be judged"] if len(usable) < LEAST_NODES else []
    return "; ".join(parts)


def _measured(
    arguments: argparse.Namespace,
    gate: argparse.Namespace,
    fleet: str,
    nodes: Sequence[SlurmNode],
    cluster: ClusterConfig,
) -> Mapping[str, str]:
    """Run the gate on each node that takes a job. Returns, and says, why a node's gate did not come to its end."""
    say_withheld()
    why = {each.name: each.problem for each in nodes if each.problem}
    usable = [each.name for each in nodes if not each.problem]
    requests = [_request(arguments, gate, fleet, node, arguments.words) for node in usable]
    for request, node, end in zip(requests, usable, run_jobs(requests, cluster, say, say), strict=True):
        if end.why or end.status not in _CAME_TO_ITS_END:
            why[node] = end.why or f"its gate ended with {end.status} ({request.log})"
    for node, text in why.items():
        say(f"{node}: {text}")
    return why


def _check_history(gate: argparse.Namespace, nodes: Sequence[SlurmNode]) -> None:
    """Raises ConfigError if no node takes a job, and for a file of SQLite that several machines would write."""
    if all(each.problem for each in nodes):
        raise ConfigError("--nodes", got=nodes[0].problem, expected=f"a node that takes a job, of {len(nodes)}")
    elsewhere = [each.name for each in nodes if not each.is_here]
    if history_url(gate).startswith("sqlite") and elsewhere:
        raise ConfigError(
            "perfgate fleet",
            field="history",
            got=f"a file of SQLite, and nodes on other machines ({', '.join(elsewhere[:_SHOWN])})",
            expected="a PostgreSQL, because SQLite's file is not safe with writers on several machines",
            remedy="Name it: -- --history postgresql://USER@HOST/DATABASE, or history.url in perf.yaml",
        )


def _request(
    arguments: argparse.Namespace, gate: argparse.Namespace, fleet: str, node: str, words: Sequence[str]
) -> JobRequest:
    """The gate of one node."""
    end = words.index("--") if "--" in words else len(words)
    own = [
        f"--config={arguments.config.absolute()}",
        f"--baselines={arguments.baselines.absolute()}",
        *words[:end],
        f"--session={fleet}.{node}",
        f"--output={_output(gate, fleet) / node}",
    ]
    return JobRequest(
        name=f"perfgate-{fleet}",
        files=gate.runs_dir / JOBS_FOLDER,
        command=python_command(["helpers.commands", GATE, *own, *words[end:]]) + "\n",
        shape=Shape(1, arguments.cards),
        minutes=arguments.time,
        node=node,
        # Slurm gives up what could not end by then.
        deadline_minutes=arguments.within + arguments.time,
    )


def _output(gate: argparse.Namespace, fleet: str) -> Path:
    return Path(gate.output).expanduser().absolute() / fleet


def _answer(gate: argparse.Namespace, fleet: str, nodes: Sequence[str], why: Mapping[str, str]) -> FleetAnswer:
    with history_of(gate) as history:
        rates = {node: _rates(history, f"{fleet}.{node}") for node in nodes}
    asked = {node: _gate_cases(_output(gate, fleet) / node / RESULTS) for node in nodes}
    cases = {case for found in (*rates.values(), *asked.values()) for case in found}
    missing = {}
    for node in nodes:
        lacking = sorted(cases - set(rates[node]))
        if node in why or lacking or not cases:
            figures = f"no figure of {_few(lacking) or 'any case'}" if lacking or not cases else ""
            missing[node] = "; ".join(filter(None, (why.get(node), figures)))
    return FleetAnswer(fleet, judge_fleet({node: found for node, found in rates.items() if found}), missing)


def _few(names: Sequence[str]) -> str:
    left = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _rates(history: History, session: str) -> dict[str, list[float]]:
    """The log rates of a node's runs by case: the screening runs of the build under test that nobody excluded."""
    found: dict[str, list[float]] = {}
    for each in history.results_of(session=session):
        run = each.result
        if run.is_screening and run.measured and run.log_rate is not None and each.exclusion is None:
            found.setdefault(f"{run.case_id} [{run.target}]", []).append(run.log_rate)
    return found


def _gate_cases(results: Path) -> set[str]:
    """The cases that a node's gate did not let pass, among them those that were not run at all; none without a
    result."""
    try:
        gate = json.loads(read_text_limited(results, _MOST_BYTES))["gate"]
        return {f"{each['case_id']} [{each['target']}]" for each in gate["failed"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
