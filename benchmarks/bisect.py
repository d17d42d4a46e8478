"""How often a search for the first bad build is right, and how many runs it takes, beside other tools: ``make bench``.

64 builds, one of which brought a drop of 1, 2, 3 or 5% on 1, 8 and 32 cards, with and without builds that fail; every
rule is asked about the same pairs. Exit status 1 where a goal is missed. With ``--keep FILE`` a run that was ended
goes on. docs/bisect.md, "How good it is", has the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bisect_rules, bisect_world, verdict_worlds
from benchmarks.bisect_rules import BUDGET_RUNS, OWN, RULES, Found, own
from benchmarks.bisect_world import BUILDS, drawn
from benchmarks.cores import spread
from benchmarks.goals import Goal, missed, share_95, share_goal
from helpers.judging.bisect import posterior as bisection_posterior
from helpers.judging.bisect import search as bisection
from helpers.judging.case import evalue, noise
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import ConfigError

SEED = 20261123
CARDS = (1, 8, 32)
DROPS_PERCENT = (1.0, 2.0, 3.0, 5.0)
FAILING_SHARES = (0.0, 0.1)
QUICK, FULL = 12, 300
# Of the claims, how many have to be right.
RIGHT = 0.98
# Claims are due where the budget suffices: everything but drops of 1% on 8 cards and more.
CLAIMED = 0.95
# Searches in which something is otherwise than the search expects, by what it is.
SIGMA_FACTORS = (0.25, 4.0)
# The larger is twice the other: beyond what helpers.judging.bisect.posterior.AS_LARGE takes for alike.
TWO_DROPS_PERCENT = (4.0, 2.0)
# Searches of one kind differ in their number, and a process takes so many at a time.
_SPREAD, _A_JOB = 50_000, 5
# How often progress is told, in seconds.
_TOLD_SECONDS = 60.0
# What decides how a search ends.
_CODE = (verdict_worlds, bisect_world, bisect_rules, bisection, bisection_posterior, evalue, noise)


@dataclass(frozen=True)
class Kind:
    """Searches of one kind."""

    cards: int
    drops_percent: tuple[float, ...]
    failing_share: float = 0.0
    sigma_factor: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether the search is told nothing wrong, and there is one change."""
        return self.sigma_factor == 1 and len(self.drops_percent) == 1


# The place of a kind in kinds(), the kind, and the numbers of its searches.
Job = tuple[int, Kind, Sequence[int]]


@dataclass(frozen=True)
class Search:
    """One search of a kind: every rule's outcome on the same builds."""

    kind: Kind
    number: int
    found: dict[str, Found]


@dataclass(frozen=True)
class Tally:
    """The outcomes of one rule's searches of one kind."""

    kind: Kind
    rule: str
    found: tuple[Found, ...]

    @property
    def claims(self) -> list[Found]:
        return [each for each in self.found if each.claimed]

    @property
    def right(self) -> int:
        return sum(each.right for each in self.claims)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    count = options.searches or (QUICK if options.quick else FULL)
    print(
        f"seed {options.seed}: {count} searches of each kind, {BUILDS} builds, at most {BUDGET_RUNS} runs", flush=True
    )
    started = time.monotonic()
    tallies = _searched(options.seed, count, options.processes, options.keep)
    for share in FAILING_SHARES:
        print(f"\n{100 * share:.0f}% of the builds fail\n\n{table_text(tallies, share)}", flush=True)
    print(f"\n{others_text(tallies)}\n\n{time.monotonic() - started:.0f} s\n")
    goals = goals_of(tallies)
    print("\n".join(goal.text for goal in goals))
    return 1 if missed(goals, clearly=options.quick) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="Search less often; a goal is missed where its whole interval lies beyond"
    )
    parser.add_argument("--searches", type=int, metavar="N", help="Search N times of each kind")
    parser.add_argument("--seed", type=int, default=SEED, help="Draw other builds and other nights")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="Append every search's outcome to FILE, and make only those it lacks"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="Use that many processes")
    return parser.parse_args(arguments)


def kinds() -> list[Kind]:
    """Every world, then those in which the search expects something else."""
    plain = [Kind(cards, (drop,), share) for share in FAILING_SHARES for cards in CARDS for drop in DROPS_PERCENT]
    wrong = [Kind(cards, (2.0,), sigma_factor=factor) for factor in SIGMA_FACTORS for cards in CARDS]
    return [*plain, *wrong, *(Kind(cards, TWO_DROPS_PERCENT) for cards in CARDS)]


def _searched(seed: int, count: int, processes: int, keep: Path | None) -> list[Tally]:
    """The outcomes of every rule in every world."""
    wanted = kinds()
    done = [] if keep is None else kept_searches(keep, seed)
    known = {(each.kind, each.number) for each in done}
    # All kinds in turn, so that what is there after half of the time is half of each.
    jobs = [
        (place, kind, lacking)
        for start in range(0, count, _A_JOB)
        for place, kind in enumerate(wanted)
        if (lacking := [each for each in range(start, min(start + _A_JOB, count)) if (kind, each) not in known])
    ]
    for found in _told(spread(partial(search_job, seed=seed), jobs, processes), len(jobs)):
        done += found
        if keep is not None:
            with keep.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(each)) + "\n" for each in found)
    ordered = sorted((each for each in done if each.number < count), key=lambda each: each.number)
    mine = {kind: [each.found for each in ordered if each.kind == kind] for kind in wanted}
    return [Tally(kind, rule, tuple(each[rule] for each in mine[kind])) for kind in wanted for rule in mine[kind][0]]


def _told(found: Iterable[list[Search]], jobs: int) -> Iterator[list[Search]]:
    """The searches, with progress on standard error."""
    started = told = time.monotonic()
    for done, each in enumerate(found, start=1):
        yield each
        now = time.monotonic()
        if now - told >= _TOLD_SECONDS:
            told = now
            left = (now - started) / done * (jobs - done)
            text = f"{done} of {jobs} jobs in {(now - started) / 60:.0f} min, about {left / 60:.0f} min are left"
            print(text, file=sys.stderr, flush=True)


def search_job(job: Job, *, seed: int) -> list[Search]:
    """Some searches of the kind at that place of kinds(): all rules ask for the same measurements."""
    place, kind, numbers = job
    rules = RULES if kind.plain else {OWN: partial(own, sigma_factor=kind.sigma_factor)}
    made = []
    for number in numbers:
        builds = drawn(seed, _SPREAD * place + number, kind.cards, kind.drops_percent, kind.failing_share)
        made.append(Search(kind, number, {rule: search(builds) for rule, search in rules.items()}))
    return made


def kept_searches(file: Path, seed: int) -> list[Search]:
    """The searches that ``file`` has; it is begun where it is missing. ConfigError on those of another seed or code."""
    header = json.dumps({"seed": seed, "code": _code_digest()})
    if not file.exists():
        file.write_text(header + "\n", encoding="utf-8")
        return []
    text = file.read_text(encoding="utf-8")
    # Whoever was ended while writing has left a part of a line.
    whole = text[: text.rfind("\n") + 1]
    first, *lines = whole.splitlines() or [""]
    if first != header:
        remedy = "Other code or another seed makes other searches: name another file"
        raise ConfigError(f"--keep {file}", got=first or "no whole line", expected=header, remedy=remedy)
    if whole != text:
        file.write_text(whole, encoding="utf-8")
    return [_search(json.loads(line)) for line in lines]


def _code_digest() -> str:
    return hashlib.sha256(b"".join(Path(str(each.__file__)).read_bytes() for each in _CODE)).hexdigest()[:16]


def _search(record: dict[str, Any]) -> Search:
    kind = Kind(**{**record["kind"], "drops_percent": tuple(record["kind"]["drops_percent"])})
    return Search(kind, record["number"], {rule: Found(**each) for rule, each in record["found"].items()})


def table_text(tallies: Sequence[Tally], failing_share: float) -> str:
    """A row for each number of cards and drop; for each rule claims, the right ones among them, and the median runs."""
    chosen = [each for each in tallies if each.kind.plain and each.kind.failing_share == failing_share]
    rows = [["cards", "drop", *(f"{rule}: claims, right, runs" for rule in RULES)]]
    for cards in CARDS:
        for drop in DROPS_PERCENT:
            cells = {
                each.rule: each for each in chosen if each.kind.cards == cards and each.kind.drops_percent == (drop,)
            }
            rows.append([str(cards), f"{drop:g}%", *(_cell_text(cells[rule]) for rule in RULES if rule in cells)])
    rows.append(["all", "", *(_cell_text(_joined(chosen, rule)) for rule in RULES)])
    rows.insert(1, ["---"] * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _joined(tallies: Sequence[Tally], rule: str) -> Tally:
    mine = [each for each in tallies if each.rule == rule]
    return Tally(mine[0].kind, rule, tuple(found for each in mine for found in each.found))


def _cell_text(tally: Tally) -> str:
    claims = tally.claims
    if not claims:
        return "0%, -, -"
    median, most = np.quantile([each.runs for each in claims], [0.5, 0.9], method="inverted_cdf")
    made, right = len(claims) / len(tally.found), tally.right / len(claims)
    return f"{made:.0%}, {right:.1%}, {median} ({most})"


def others_text(tallies: Sequence[Tally]) -> str:
    """What the tables leave out: budgets that ran out, hidden changes, wrong expectations, second changes."""
    lines = []
    plain = [each for each in tallies if each.kind.plain and each.rule == OWN]
    found = [search for each in plain for search in each.found]
    one = [each for each in found if each.claimed and each.builds == 1]
    several = [each for each in found if each.claimed and each.builds > 1]
    lines.append(f"one build named at 99%: {_counted(one)}")
    lines.append(f"a range at 99% that only builds that fail keep open: {_counted(several)}")
    spent = [each for each in found if not each.claimed and each.builds]
    lines.append(f"a range where the budget was spent: {_counted(spent)}")
    lines.append(f"no answer (the bad build was not shown to be slower): {sum(not each.builds for each in found)}")
    claims = [each for each in found if each.claimed]
    if claims:
        low, middle, high = np.quantile([each.expected_runs / each.runs for each in claims], [0.05, 0.5, 0.95])
        lines.append(f"runs expected once bad was bad, over runs taken: {middle:.2f} (90%: {low:.2f} to {high:.2f})")
    lines.append(
        f"a second change was told where there is one only: {sum(each.unexplained for each in claims)} of {len(claims)}"
    )
    for each in tallies:
        kind = each.kind
        if kind.sigma_factor != 1:
            what = f"sigma {kind.sigma_factor:g} times what it is, {kind.drops_percent[0]:g}% on {kind.cards} cards"
            lines.append(f"{what}: {_cell_text(each)}")
        if len(kind.drops_percent) > 1:
            what = f"{' and '.join(f'{drop:g}%' for drop in kind.drops_percent)} on {kind.cards} cards"
            said = sum(claim.unexplained for claim in each.claims)
            lines.append(
                f"{what}: {_cell_text(each)} of the larger; {said} of {len(each.claims)} say that more is left"
            )
    return "\n".join(lines)


def _counted(found: Sequence[Found]) -> str:
    right = sum(each.right for each in found)
    if not found:
        return "0"
    low, high = share_95(right, len(found))
    size = sorted(each.builds for each in found)[len(found) // 2]
    builds = f", {size} builds (median)" if size > 1 else ""
    return f"{len(found)}, right {right} ({right / len(found):.2%}, 95% {low:.2%} to {high:.2%}){builds}"


def goals_of(tallies: Sequence[Tally]) -> list[Goal]:
    mine = [each for each in tallies if each.rule == OWN]
    goals = [_right(f"right claims, {100 * s:.0f}% of builds fail", mine, _has_failing(s)) for s in FAILING_SHARES]
    goals.append(_right("right claims, sigma wrong", mine, lambda each: each.kind.sigma_factor != 1))
    goals.append(_right("right claims, two changes", mine, lambda each: len(each.kind.drops_percent) > 1))
    due = [each for each in mine if each.kind.plain and (each.kind.cards == 1 or each.kind.drops_percent[0] > 1)]
    claims, made = sum(len(each.claims) for each in due), sum(len(each.found) for each in due)
    return [*goals, share_goal("claims on 1 card and of drops of 2% and more", claims, made, CLAIMED, told=True)]


def _has_failing(share: float) -> Callable[[Tally], bool]:
    return lambda each: each.kind.plain and each.kind.failing_share == share


def _right(name: str, tallies: Sequence[Tally], chosen: Callable[[Tally], bool]) -> Goal:
    kept = [each for each in tallies if chosen(each)]
    right, claims = sum(each.right for each in kept), sum(len(each.claims) for each in kept)
    return share_goal(name, right, claims, RIGHT, told=True)


if __name__ == "__main__":
    sys.exit(ended(main, "bisect"))
