"""What ``perfgate fleet`` finds in simulated fleets of 1,000 nodes, and how long its answer takes: ``make bench``.

One fleet goes the whole way: its results are written into a history, and ``perfgate fleet --report`` reads and judges
them in a process of its own. Many more are judged by the same ``judge_fleet`` without a database, for the rates of
false alarms and of slow nodes found. Exit status 1 if a goal is missed.

Nodes, cases and runs are drawn as docs/fleet.md, "How good it is" says.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.history_scale import ENVIRONMENT, made_run
from helpers.history import default_url, open_history
from helpers.history.results import RunResult
from helpers.history.stored import session_of_node
from helpers.judging.fleet import judge_fleet
from helpers.judging.rules import MEDIAN_STEP, WALL_CLOCK
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT

NODES, RUNS = 1000, 4
SLOW = (-0.01, -0.02, -0.03, -0.05)
ONE_CASE = "1 case -5%"
ANSWER_GOAL_SECONDS = 10.0
ERROR_RATE_GOAL = 0.05
# Standard deviations between runs by cards (docs/verdicts.md, "What is known about the noise"), of four cases each.
RUN_SIGMA = {1: 0.0007, 4: 0.0010, 8: 0.0052}
CASES = tuple(
    f"paddle-{model}-{precision}-bs{batch}-1x{cards}-synthetic-static"
    for cards in RUN_SIGMA
    for model, batch in (("resnet50v1.5", 128), ("vgg16", 96))
    for precision in ("fp32", "amp_o2")
)
CARDS = tuple(int(case.split("-1x")[1].partition("-")[0]) for case in CASES)
BAD_RUNS, BAD_BASE = 0.02, 0.005
FLEET = "fleet-20261122-020000-abcd"
EARLIER = "fleet-20261115-020000-abcd"

Rates = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class World:
    """How healthy nodes differ."""

    name: str
    nodes: int
    # The standard deviation between nodes that all cases of a node share, and that of a case on a node besides.
    node_sigma: float
    case_sigma: float
    # Degrees of freedom of the nodes' distribution; None for the normal distribution.
    tails: float | None = None


WORLDS = (
    World("alike: 0.3%", NODES, 0.003, 0.002),
    World("alike, heavy tails (t, 5 degrees)", NODES, 0.003, 0.002, 5.0),
    World("wide: 1%", NODES, 0.01, 0.005),
    World("alike: 0.3%", 100, 0.003, 0.002),
    World("alike: 0.3%", 16, 0.003, 0.002),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--fleets", type=int, default=40, help="Judge N large fleets of each kind, half of them healthy"
    )
    parser.add_argument("--seed", type=int, default=20261123, help="Draw with this seed")
    parser.add_argument(
        "--history", metavar="URL", help="Write the one fleet into this database. Default: a new SQLite"
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="Give the one fleet N nodes")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    reached = [_whole_way(replace(WORLDS[0], nodes=arguments.nodes), rng, arguments.history)]
    print(
        f"\nhalf of the fleets are without a slow node; {len(CASES)} cases, {RUNS} runs each. By size: found slow, and "
        "found slow or suspect. wrong: of slow and suspect nodes those that are healthy"
    )
    heads = "".join(f"{each if isinstance(each, str) else f'{each:.0%}':>12}" for each in (*SLOW, ONE_CASE))
    print(f"{'healthy nodes':<34}{'nodes':>5}  {'false alarms in':<16}{heads}{'wrong':>10}{'judged in':>10}")
    for world in WORLDS:
        # Small fleets take less time, so that there are more of them.
        reached.append(_world(world, max(2, arguments.fleets) * min(5, NODES // world.nodes), rng))
    return 0 if all(reached) else 1


def _world(world: World, fleets: int, rng: np.random.Generator) -> bool:
    """Judge fleets of one kind, and print what was found."""
    alarms = 0
    sizes = (*SLOW, ONE_CASE)
    slow_found: dict[object, list[bool]] = {each: [] for each in sizes}
    suspected: dict[object, list[bool]] = {each: [] for each in sizes}
    wrong = called = 0
    seconds = []
    for number in range(fleets):
        slow = dict(_slow_nodes(world, rng)) if number % 2 else {}
        rates = made_rates(world, slow, rng)
        began = time.perf_counter()
        verdict = judge_fleet(rates)
        seconds.append(time.perf_counter() - began)
        assert verdict is not None
        named = {each.node for each in verdict.slow}
        alarms += bool(named - set(slow))
        both = named | {each.node for each in verdict.suspect}
        wrong, called = wrong + len(both - set(slow)), called + len(both)
        for node, size in slow.items():
            slow_found[size].append(node in named)
            suspected[size].append(node in both)
    rate, share = f"{alarms} of {fleets} ({alarms / fleets:.0%})", wrong / max(called, 1)
    found = "".join(f"{f'{np.mean(slow_found[size]):.2f} {np.mean(suspected[size]):.2f}':>12}" for size in sizes)
    print(
        f"{world.name:<34}{world.nodes:>5}  {rate:<16}{found}{share:>10.1%}{np.median(seconds):>8.2f} s",
        flush=True,
    )
    # Three standard errors above the goal: more is no chance.
    return alarms / fleets <= ERROR_RATE_GOAL + 3 * math.sqrt(ERROR_RATE_GOAL * (1 - ERROR_RATE_GOAL) / fleets)


def _slow_nodes(world: World, rng: np.random.Generator) -> Iterator[tuple[str, object]]:
    """One node in 50 is slow: as many of each size, and as many in one case alone."""
    each = max(1, world.nodes // 250)
    sizes: list[object] = [size for size in (*SLOW, ONE_CASE) for _ in range(each)]
    chosen = rng.choice(world.nodes, len(sizes), replace=False)
    return ((node_name(int(node)), size) for node, size in zip(chosen, sizes, strict=True))


def node_name(number: int) -> str:
    return f"n{number:04d}"


def made_rates(world: World, slow: Mapping[str, object], rng: np.random.Generator) -> Rates:
    """The log rates of a fleet's runs."""
    count = len(CASES)
    if world.tails is None:
        node = rng.normal(0, world.node_sigma, world.nodes)
    else:
        node = rng.standard_t(world.tails, world.nodes) * world.node_sigma * math.sqrt(1 - 2 / world.tails)
    case = rng.standard_t(5, (world.nodes, count)) * world.case_sigma * math.sqrt(0.6)
    sigma = np.array([RUN_SIGMA[cards] for cards in CARDS]) * np.exp(rng.normal(0, 0.2, count))
    shape = (world.nodes, count, RUNS)
    runs = rng.normal(0, 1, shape) * sigma[None, :, None]
    bad = np.where(rng.random(shape) < BAD_RUNS, rng.exponential(1, shape), 0.0)
    level = np.log(400.0 * np.array(CARDS))
    values = level[None, :, None] + node[:, None, None] + case[:, :, None] + runs
    values -= bad * (3 * sigma + BAD_BASE)[None, :, None]
    for name, size in slow.items():
        if isinstance(size, float):
            values[int(name[1:])] += math.log1p(size)
        else:
            values[int(name[1:]), int(rng.integers(count))] += math.log1p(-0.05)
    return {
        node_name(row): {each: tuple(map(float, values[row, column])) for column, each in enumerate(CASES)}
        for row in range(world.nodes)
    }


# ---- one fleet through the history


def _whole_way(world: World, rng: np.random.Generator, url: str | None) -> bool:
    slow = dict(_slow_nodes(world, rng))
    drivers = {node for node, size in slow.items() if size == SLOW[-1]}
    with tempfile.TemporaryDirectory() as folder:
        runs_folder = Path(folder)
        url = url or default_url(runs_folder)
        before = made_rates(world, {}, rng)
        began = time.perf_counter()
        earlier = {node: {case: runs[:1] for case, runs in own.items()} for node, own in before.items()}
        _write(url, EARLIER, earlier, "2026-11-15T02:00:00+00:00", set())
        _write(url, FLEET, made_rates(world, slow, rng), "2026-11-22T02:00:00+00:00", drivers)
        results = world.nodes * len(CASES) * (RUNS + 1)
        print(f"{results} results of 2 fleets written in {time.perf_counter() - began:.0f} s ({url.partition(':')[0]})")
        asked = {"schema_version": 1, "fleet": FLEET, "cases": CASES, "runs": RUNS, "nodes": dict.fromkeys(before, "")}
        (runs_folder / "slurm").mkdir()
        (runs_folder / "slurm" / f"{FLEET}.json").write_text(json.dumps(asked))
        answer = runs_folder / "fleet.json"
        command = [sys.executable, "-m", "helpers.commands", "fleet", f"--report={FLEET}", f"--history={url}"]
        command += [f"--runs-dir={runs_folder}", f"--json={answer}"]
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if done.returncode != 1:
            raise SystemExit(f"fleet: exit status {done.returncode}: {done.stderr}")
        record = json.loads(answer.read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    print(done.stdout)
    named = {each["node"]: each["by"] for each in record["nodes"] if each["slow"]}
    for size in (*SLOW, ONE_CASE):
        nodes = [node for node, own in slow.items() if own == size]
        shown = f"{size:.0%}" if isinstance(size, float) else size
        print(f"  {shown}: {sum(node in named for node in nodes)} of {len(nodes)} found")
    told = [node for node in drivers if any(each["fact"] == "driver" for each in record["differences"].get(node, []))]
    print(f"  another driver on the nodes of -5%: said of {len(told)} of {len(drivers)}; "
          f"not slow in the fleet a week before: {sum(each['fleets'] == 1 for each in record['since'].values())} "
          f"of {len(record['since'])}")  # fmt: skip
    good = seconds < ANSWER_GOAL_SECONDS
    print(
        f"perfgate fleet --report: {seconds:.1f} s, {used:.1f} s of a processor; "
        f"goal under {ANSWER_GOAL_SECONDS:.0f} s{'' if good else ': MISSED'}"
    )
    return good and not set(named) - set(slow)


def _write(url: str, fleet: str, rates: Rates, created: str, drivers: set[str]) -> None:
    template = made_run(0, 0, random.Random(0))
    with open_history(url) as history:
        for node, cases in rates.items():
            history.add_results(list(_results(template, fleet, node, cases, created, node in drivers)))


def _results(
    template: RunResult, fleet: str, node: str, cases: Mapping[str, Sequence[float]], created: str, other_driver: bool
) -> Iterator[RunResult]:
    environment = {**ENVIRONMENT, "host": node, "host_id": uuid.uuid5(uuid.NAMESPACE_OID, node).hex[:16], "pool": ""}
    environment |= {"card_ids": f"GPU-{node}", "driver": "535.104.05" if other_driver else "550.54.15"}
    for case, rates in cases.items():
        for number, rate in enumerate(rates):
            yield replace(
                template,
                uuid=uuid.uuid4().hex,
                session=session_of_node(fleet, node),
                case_id=case,
                target="a100",
                replicate=number,
                created=created,
                environment=environment,
                facts={"sm_clock_mhz": f"{1410 + number}", "gpu_temperature_c": "61"},
                figures={MEDIAN_STEP: math.exp(rate), WALL_CLOCK: math.exp(rate)},
            )


if __name__ == "__main__":
    sys.exit(ended(main, "fleet"))
