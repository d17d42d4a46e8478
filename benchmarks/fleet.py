"""What ``perfgate fleet`` finds in simulated fleets of 1,000 nodes, with and without 8 cards each, and how long its
answer takes: ``make bench``.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from benchmarks.history_scale import ENVIRONMENT, made_run
from helpers.history import default_url, open_history
from helpers.history.codec import RunRow, digest, run_row
from helpers.history.database import open_database
from helpers.history.results import RunResult
from helpers.history.stored import session_of_place
from helpers.history.tables import documents, results, steps
from helpers.judging.fleet import judge_fleet
from helpers.judging.rules import MEDIAN_STEP, WALL_CLOCK
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case

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
CARDS = tuple(Case.parse(case).cards for case in CASES)
BAD_RUNS, BAD_BASE = 0.02, 0.005
FLEET = "fleet-20261122-020000Z-abcd"
EARLIER = "fleet-20261115-020000Z-abcd"

Rates = Mapping[str, Mapping[str, Sequence[float]]]
CardRates = Mapping[str, Rates]
# A node with one of its cards; without one it is the node as a whole.
Place = tuple[str, str]
Slow = Mapping[Place, float | str]
Size = tuple[bool, float | str]
Values = np.ndarray[Any, np.dtype[np.float64]]


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
    # On how many cards of a node the cases of one card are measured; 1 does not hold cards against each other.
    cards: int = 1
    # As above between the cards of a node.
    card_sigma: float = 0.003
    card_case_sigma: float = 0.002
    # On this share of the nodes half or more of the cards were measured, and not all.
    in_part: float = 0.0


WORLDS = (
    World("alike: 0.3%", NODES, 0.003, 0.002),
    World("alike, heavy tails (t, 5 degrees)", NODES, 0.003, 0.002, 5.0),
    World("wide: 1%", NODES, 0.01, 0.005),
    World("alike: 0.3%", 100, 0.003, 0.002),
    World("alike: 0.3%", 16, 0.003, 0.002),
)
WORLDS_OF_CARDS = (
    World("alike: 0.3%", NODES, 0.003, 0.002, cards=8),
    World("alike, heavy tails (t, 5 degrees)", NODES, 0.003, 0.002, 5.0, cards=8),
    World("wide cards: 1%", NODES, 0.003, 0.002, cards=8, card_sigma=0.01, card_case_sigma=0.005),
    World("alike: 0.3%", 100, 0.003, 0.002, cards=8),
    World("alike: 0.3%", 16, 0.003, 0.002, cards=8),
    World("alike: 0.3%", 1, 0.003, 0.002, cards=8),
    World("4 to 7 cards on a node in 4", 100, 0.003, 0.002, cards=8, in_part=0.25),
    World("the same, wide cards: 1%", 100, 0.003, 0.002, cards=8, card_sigma=0.01, card_case_sigma=0.005, in_part=0.25),
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
    parser.add_argument("--cards", type=int, default=8, help="Give each node of the one fleet N cards. Default: 8")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    one = replace(WORLDS[0], nodes=arguments.nodes, cards=arguments.cards)
    reached = [_whole_way(one, rng, arguments.history)]
    reached += _tables(arguments.fleets, rng)
    return 0 if all(reached) else 1


# What is counted as slow, with the heads of its columns: whether it is a card, and by how much it is slow.
OF_NODES: Mapping[Size, str] = {(False, size): f"{size:.0%}" for size in SLOW} | {(False, ONE_CASE): ONE_CASE}
OF_CARDS: Mapping[Size, str] = {
    (card, size): f"{'card' if card else 'node'} {size:.0%}" for card in (False, True) for size in SLOW
}


def _tables(fleets: int, rng: np.random.Generator) -> Iterator[bool]:
    said = (
        f"half of the fleets are without a slow node; {len(CASES)} cases, {RUNS} runs each. By size: found slow, and "
        "found slow or suspect. wrong: of slow and suspect nodes those that are healthy"
    )
    said_of_cards = (
        "8 cards a node: cases of one card are measured on each card; slow cards besides the slow nodes, as many of "
        "each size"
    )
    for text, healthy, worlds, sizes in (
        (said, "healthy nodes", WORLDS, OF_NODES),
        (said_of_cards, "healthy cards", WORLDS_OF_CARDS, OF_CARDS),
    ):
        heads = "".join(f"{head:>12}" for head in sizes.values())
        print(f"\n{text}\n{healthy:<34}{'nodes':>5}  {'false alarms in':<16}{heads}{'wrong':>10}{'judged in':>10}")
        for world in worlds:
            # Small fleets take less time, so that there are more of them.
            yield _world(world, max(2, fleets) * min(5, NODES // world.nodes), sizes, rng)


@dataclass
class Tally:
    """What was found of the slow ones of a kind and size, and how often the alarm was false."""

    found: dict[Size, list[bool]] = field(default_factory=dict)
    suspected: dict[Size, list[bool]] = field(default_factory=dict)
    alarms: int = 0
    wrong: int = 0
    called: int = 0
    seconds: list[float] = field(default_factory=list)

    def judge(self, rates: Rates, cards: CardRates, slow: Slow) -> None:
        began = time.perf_counter()
        verdict = judge_fleet(rates, cards=cards)
        self.seconds.append(time.perf_counter() - began)
        assert verdict is not None
        named = {each.place for each in verdict.slow}
        both = named | {each.place for each in verdict.suspect}
        true = _right(slow)
        self.alarms += bool(named - true)
        self.wrong, self.called = self.wrong + len(both - true), self.called + len(both)
        for place, size in slow.items():
            self.found.setdefault((bool(place[1]), size), []).append(place in named)
            self.suspected.setdefault((bool(place[1]), size), []).append(place in both)

    def print(self, world: World, fleets: int, sizes: Collection[Size]) -> bool:
        rate, share = f"{self.alarms} of {fleets} ({self.alarms / fleets:.0%})", self.wrong / max(self.called, 1)
        found = "".join(f"{self._found(size):>12}" for size in sizes)
        print(
            f"{world.name:<34}{world.nodes:>5}  {rate:<16}{found}{share:>10.1%}{np.median(self.seconds):>8.2f} s",
            flush=True,
        )
        # Three standard errors above the goal: more is no chance.
        return self.alarms / fleets <= ERROR_RATE_GOAL + 3 * math.sqrt(ERROR_RATE_GOAL * (1 - ERROR_RATE_GOAL) / fleets)

    def _found(self, size: Size) -> str:
        if size not in self.found:
            return "-"
        return f"{np.mean(self.found[size]):.2f} {np.mean(self.suspected[size]):.2f}"


def _right(slow: Slow) -> set[Place]:
    """What may be called slow: a case of 8 cards is as slow as its slowest card, so that the node is slow, too."""
    return {*slow, *((node, "") for node, _ in slow)}


def _world(world: World, fleets: int, sizes: Collection[Size], rng: np.random.Generator) -> bool:
    """Judge fleets of one kind, and print what was found."""
    tally = Tally()
    for number in range(fleets):
        slow = _slow_places(world, rng) if number % 2 else {}
        tally.judge(*made_fleet(world, slow, rng), slow)
    return tally.print(world, fleets, sizes)


def _slow_places(world: World, rng: np.random.Generator) -> Slow:
    """One node in 250 is slow, of each size. Where cards are measured, so is one card of one node in 250, and in a
    single node only a card; where they are not, one node in 250 is slow in one case alone."""
    if world.cards > 1 and world.nodes < 2 * len(SLOW):
        size = SLOW[int(rng.integers(len(SLOW)))]
        return {(node_name(0), str(rng.integers(world.cards))): size}
    each = max(1, world.nodes // 250)
    sizes = [size for size in (*SLOW, *([ONE_CASE] if world.cards == 1 else SLOW)) for _ in range(each)]
    slow: dict[Place, float | str] = {}
    for number, (node, size) in enumerate(zip(rng.choice(world.nodes, len(sizes), replace=False), sizes, strict=True)):
        of_card = world.cards > 1 and number >= each * len(SLOW)
        slow[node_name(int(node)), str(rng.integers(world.cards)) if of_card else ""] = size
    return slow


def made_fleet(world: World, slow: Slow, rng: np.random.Generator) -> tuple[Rates, CardRates]:
    """The log rates of a fleet's runs: those of nodes, and those of cards in the cases of one card."""
    rates = made_rates(world, slow, rng)
    if world.cards == 1:
        return rates, {}
    single = [case for case, cards in zip(CASES, CARDS, strict=True) if cards == 1]
    card = rng.normal(0, world.card_sigma, (world.nodes, world.cards))
    if world.tails is not None:
        card = rng.standard_t(world.tails, card.shape) * world.card_sigma * math.sqrt(1 - 2 / world.tails)
    own = rng.standard_t(5, (world.nodes, world.cards, len(single))) * world.card_case_sigma * math.sqrt(0.6)
    runs = _runs(np.array(RUN_SIGMA[1]), (world.nodes, world.cards, len(single), RUNS), rng)
    level = np.array([[np.median(rates[node_name(row)][case]) for case in single] for row in range(world.nodes)])
    values = level[:, None, :, None] + card[:, :, None, None] + own[:, :, :, None] + runs
    of_nodes: dict[str, dict[str, Sequence[float]]] = {
        node: {case: runs for case, runs in mine.items() if case not in single} for node, mine in rates.items()
    }
    for (node, number), size in slow.items():
        if not number or isinstance(size, str):
            continue
        values[int(node[1:]), int(number)] += math.log1p(size)
        for case, cards in zip(CASES, CARDS, strict=True):
            # A case of 4 cards uses the first of the node.
            if case not in single and int(number) < cards:
                of_nodes[node][case] = [rate + math.log1p(size) for rate in of_nodes[node][case]]
    by_card = {
        node_name(row): {
            str(number): {case: tuple(map(float, values[row, number, at])) for at, case in enumerate(single)}
            for number in range(world.cards)
        }
        for row in range(world.nodes)
    }
    for node, mine in by_card.items():
        if world.in_part and rng.random() < world.in_part:
            of_these = [number for number in mine if (node, number) not in slow]
            so_many = int(rng.integers(world.cards - world.cards // 2)) + 1
            for number in rng.choice(of_these, min(so_many, world.cards // 2), replace=False):
                del mine[str(number)]
    return of_nodes, by_card


def node_name(number: int) -> str:
    return f"n{number:04d}"


def made_rates(world: World, slow: Slow, rng: np.random.Generator) -> Rates:
    """The log rates of a fleet's runs."""
    count = len(CASES)
    if world.tails is None:
        node = rng.normal(0, world.node_sigma, world.nodes)
    else:
        node = rng.standard_t(world.tails, world.nodes) * world.node_sigma * math.sqrt(1 - 2 / world.tails)
    case = rng.standard_t(5, (world.nodes, count)) * world.case_sigma * math.sqrt(0.6)
    sigma = np.array([RUN_SIGMA[cards] for cards in CARDS]) * np.exp(rng.normal(0, 0.2, count))
    runs = _runs(sigma[None, :, None], (world.nodes, count, RUNS), rng)
    level = np.log(400.0 * np.array(CARDS))
    values = level[None, :, None] + node[:, None, None] + case[:, :, None] + runs
    for (name, card), size in slow.items():
        if isinstance(size, str):
            values[int(name[1:]), int(rng.integers(count))] += math.log1p(-0.05)
        elif not card:
            values[int(name[1:])] += math.log1p(size)
    return {
        node_name(row): {each: tuple(map(float, values[row, column])) for column, each in enumerate(CASES)}
        for row in range(world.nodes)
    }


def _runs(sigma: Values, shape: tuple[int, ...], rng: np.random.Generator) -> Values:
    """By how much runs differ; some are slower than noise makes them."""
    runs = rng.normal(0, 1, shape) * sigma
    bad = np.where(rng.random(shape) < BAD_RUNS, rng.exponential(1, shape), 0.0)
    return runs - bad * (3 * sigma + BAD_BASE)


# ---- one fleet through the history


def _whole_way(world: World, rng: np.random.Generator, url: str | None) -> bool:
    slow = _slow_places(world, rng)
    drivers = {node for (node, card), size in slow.items() if size == SLOW[-1] and not card}
    narrow = {place for place, size in slow.items() if size == SLOW[-1] and place[1]}
    with tempfile.TemporaryDirectory() as folder:
        runs_folder = Path(folder)
        url = url or default_url(runs_folder)
        began = time.perf_counter()
        before, cards_before = made_fleet(world, {}, rng)
        first = _Written(EARLIER, "2026-11-15T02:00:00+00:00")
        written = _write(url, first, before, cards_before, runs=1)
        now = _Written(FLEET, "2026-11-22T02:00:00+00:00", drivers, narrow)
        written += _write(url, now, *made_fleet(world, slow, rng))
        print(f"{written} results of 2 fleets written in {time.perf_counter() - began:.0f} s ({url.partition(':')[0]})")
        asked = {
            "schema_version": 2, "fleet": FLEET, "cases": CASES, "runs": RUNS, "nodes": dict.fromkeys(before, ""),
            "cards": world.cards if world.cards > 1 else 0, "contended": False,
        }  # fmt: skip
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
    named = {(each["node"], each.get("card", "")): each for each in record["nodes"] + record["cards"] if each["slow"]}
    for size in (*SLOW, *([ONE_CASE] if world.cards == 1 else [])):
        nodes, cards = (
            [each for each in slow if slow[each] == size and bool(each[1]) == card] for card in (False, True)
        )
        shown = f"{size:.0%}" if isinstance(size, float) else size
        of_cards = f", {sum(map(named.__contains__, cards))} of {len(cards)} cards" if cards else ""
        print(f"  {shown}: {sum(map(named.__contains__, nodes))} of {len(nodes)} nodes{of_cards} found")
    for what, fact, places in (
        ("another driver on the nodes", "driver", [(node, "") for node in drivers]),
        ("half of the PCI Express link on the cards", "PCI Express link", list(narrow)),
    ):
        told = [each for each in places if any(one["fact"] == fact for one in named.get(each, _NOBODY)["differences"])]
        if places:
            print(f"  {what} of -5%: said of {len(told)} of {len(places)}")
    print(f"  not slow in the fleet a week before: {sum(each['since']['fleets'] == 1 for each in named.values())} of "
          f"{len(named)}")  # fmt: skip
    good = seconds < ANSWER_GOAL_SECONDS
    print(
        f"perfgate fleet --report: {seconds:.1f} s, {used:.1f} s of a processor; "
        f"goal under {ANSWER_GOAL_SECONDS:.0f} s{'' if good else ': MISSED'}"
    )
    return good and not set(named) - _right(slow)


_NOBODY: Mapping[str, Sequence[Mapping[str, str]]] = {"differences": ()}


@dataclass(frozen=True)
class _Written:
    """One fleet in the history."""

    name: str
    created: str
    # Nodes with another driver, and cards with half of the PCI Express link.
    drivers: Collection[str] = ()
    narrow: Collection[Place] = ()


def _write(url: str, fleet: _Written, rates: Rates, cards: CardRates, runs: int = RUNS) -> int:
    """Write so many runs of each case, past the API, which would take many times as long; returns how many results
    these are."""
    template, written = made_run(0, 0, random.Random(0)), 0
    known: dict[str, int] = {}
    # This makes the tables.
    open_history(url).close()
    database = open_database(url)
    with database.writing() as connection:
        for node in rates:
            places: dict[str, Mapping[str, Sequence[float]]] = {"": rates[node], **cards.get(node, {})}
            rows = [
                run_row(result)
                for card, cases in places.items()
                for result in _results(template, fleet, (node, card), cases, runs)
            ]
            _insert(connection, rows, known)
            written += len(rows)
    database.engine.dispose()
    return written


def _insert(connection: sa.Connection, rows: Sequence[RunRow], known: dict[str, int]) -> None:
    """``known`` are the rows of the texts that are there already."""
    texts = dict.fromkeys(text for row in rows for text in row.documents.values() if text is not None)
    digests = {text: digest(text) for text in texts if text not in known}
    if digests:
        there = sa.select(documents.c.digest, documents.c.id).where(documents.c.digest.in_(digests.values()))
        ids = dict(connection.execute(there).all())
        if missing := [{"digest": key, "body": text} for text, key in digests.items() if key not in ids]:
            made = connection.execute(sa.insert(documents).returning(documents.c.digest, documents.c.id), missing)
            ids |= dict(made.all())
        known |= {text: ids[key] for text, key in digests.items()}
    values = [{**row.columns, **{name: text and known[text] for name, text in row.documents.items()}} for row in rows]
    made = connection.execute(sa.insert(results).returning(results.c.uuid, results.c.id), values)
    ids = dict(made.all())
    connection.execute(sa.insert(steps), [{"result_id": ids[row.columns["uuid"]], **row.steps} for row in rows])


def _results(
    template: RunResult, fleet: _Written, place: Place, cases: Mapping[str, Sequence[float]], runs: int
) -> Iterator[RunResult]:
    node, card = place
    environment = {**ENVIRONMENT, "host": node, "host_id": uuid.uuid5(uuid.NAMESPACE_OID, node).hex[:16], "pool": ""}
    environment |= {"driver": "535.104.05" if node in fleet.drivers else "550.54.15"}
    for case, rates in cases.items():
        used = [card] if card else [str(number) for number in range(Case.parse(case).cards)]
        links = ["gen4-x8" if (node, each) in fleet.narrow else "gen4-x16" for each in used]
        for number, rate in enumerate(rates[:runs]):
            # As different as real ones are.
            warm = random.Random(f"{fleet.name} {node} {card} {case} {number}")
            yield replace(
                template,
                uuid=uuid.uuid4().hex,
                session=session_of_place(fleet.name, place),
                case_id=case,
                target="a100",
                replicate=number,
                created=fleet.created,
                environment={
                    **environment,
                    "cards": f"{len(used)} x NVIDIA A100-SXM4-40GB",
                    "card_ids": " ".join(f"GPU-{node}-{each}" for each in used),
                },
                facts={
                    "card_index": " ".join(used),
                    "sm_clock_mhz": " ".join(f"{warm.randint(1395, 1410)}" for _ in used),
                    "gpu_temperature_c": " ".join(f"{warm.randint(52, 66)}" for _ in used),
                    "gpu_power_watts": " ".join(f"{warm.randint(385, 400)}" for _ in used),
                    "gpu_pcie_link": " ".join(links),
                    "gpu_nvlinks_active": " ".join("12-of-12" for _ in used),
                },
                figures={MEDIAN_STEP: math.exp(rate), WALL_CLOCK: math.exp(rate)},
            )


if __name__ == "__main__":
    sys.exit(ended(main, "fleet"))
