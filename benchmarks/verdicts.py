"""How many false alarms the verdicts give, and which slowdowns they find, beside other tools' rules: ``make bench``.

Replays nights through the suite's own session loop and judge(): forty nights of the reference build, which count as
quiet ones from the 16th on, then futures of three nights, quiet ones and ones in which a few cases are slower from
their first night on. Then the same on machines whose builds got faster while the reference build stayed pinned
(verdict_worlds.LeftBehind), and 120 nights of machines to which something happens (verdict_lives). Exit status 1 where
a goal is missed, and where a SQLite history leads to other verdicts. asv and Otava are left out where they are not
installed.
docs/accuracy.md, "What the nights are", describes the nights, and "How good it is" the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import verdict_real
from benchmarks.cores import spread
from benchmarks.goals import missed
from benchmarks.verdict_lives import live
from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_replay import DROPS_PERCENT, LOST, PROCEDURE, Future, Replay, Scores, add_world
from benchmarks.verdict_report import (
    goals_of,
    goals_of_lives,
    lives_text,
    more_text,
    progress_text,
    scores_json,
    table_text,
)
from benchmarks.verdict_rivals import absent, trends
from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import (
    BURN_IN_NIGHTS,
    CASES,
    FRESH_NIGHTS,
    GAIN_NIGHT,
    LOSSES_PERCENT,
    At,
    LeftBehind,
    Nights,
    Synthetic,
)
from helpers.history import open_history
from helpers.report.unforeseen import ended

SEED = 20240501
# Cases that a future slows down, of each size.
_CASES_A_DROP = 3
# What a noisy future slows down, and by how much: few enough not to fall as a group.
_NOISY_CARDS, _NOISY_PERCENT, _NOISY_CASES = 32, 2, 3
# Past the 15th night another rule judges; two cases of each number of cards have siblings.
_CHECKED_NIGHTS = 18
# The night after the gains comes with pairs.
_CHECKED_BEHIND = GAIN_NIGHT + 2
_CHECKED_CASES = 10
_BEHIND_FROM = 1000


@dataclass(frozen=True)
class Size:
    """How many worlds are replayed, and how many futures of each."""

    worlds: int
    quiet: int
    dropped: int
    # On a slow machine.
    slow: int
    # Of the quiet ones and of those with drops each: how many asv and Otava are asked about too, which take long.
    trended: int
    # With 2% drops on 32 cards only.
    noisy: int
    # How many machines live 120 nights.
    lives: int = 0


QUICK = Size(worlds=3, quiet=1, dropped=6, slow=1, trended=1, noisy=6, lives=2)
FULL = Size(worlds=16, quiet=22, dropped=8, slow=5, trended=2, noisy=8, lives=16)
# Of the machines on which the reference build was left behind.
# More machines than futures: of each only the runs of its first nights count, and these differ from machine to machine.
QUICK_BEHIND = Size(worlds=2, quiet=1, dropped=3, slow=1, trended=0, noisy=4)
FULL_BEHIND = Size(worlds=12, quiet=29, dropped=8, slow=2, trended=0, noisy=10)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    by_processes = partial(spread, processes=options.processes)
    sizes = (QUICK, QUICK_BEHIND) if options.quick else (FULL, FULL_BEHIND)
    if options.worlds is not None:
        sizes = (
            replace(sizes[0], worlds=options.worlds, lives=options.worlds),
            replace(sizes[1], worlds=options.worlds),
        )
    told, told_behind = map(_counted, sizes)
    print(f"seed {options.seed}: {told}\nthe reference build left behind: {told_behind}", flush=True)
    if left_out := absent():
        print(f"left out, not installed here: {', '.join(left_out)}; make env-dev installs them", flush=True)
    started = time.monotonic()
    scores, lives = _synthetic(options, *sizes), _lives(options, sizes[0].lives)
    print(f"\n{table_text(scores)}\n\n{more_text(scores)}\n\n{lives_text(lives)}\n", flush=True)
    print(f"{time.monotonic() - started:.0f} s\n", flush=True)
    goals = [*goals_of(scores), *goals_of_lives(lives)]
    print("\n".join(goal.text for goal in goals), flush=True)
    if options.json is not None:
        about = {"seed": options.seed, **asdict(sizes[0]), "behind": asdict(sizes[1])}
        options.json.write_text(
            json.dumps(scores_json({**scores, **lives}, about, goals), indent=1) + "\n", encoding="utf-8"
        )
    told, same = through_history(Synthetic(options.seed, 0))
    behind = LeftBehind(Synthetic(options.seed, 0), options.seed)
    told_behind, same_behind = through_history(behind, count=_CHECKED_BEHIND, recorded_faster=behind.recorded_faster)
    print(f"{told}\nthe reference build left behind: {told_behind}", flush=True)
    real = verdict_real.QUICK if options.quick else verdict_real.FULL
    print(f"\n{verdict_real.real_series_text(options.series, options.seed, real, by_processes)}", flush=True)
    return 1 if missed(goals, clearly=options.quick) or not (same and same_behind) else 0


def _counted(size: Size) -> str:
    nights = size.worlds * FRESH_NIGHTS
    return (
        f"{size.worlds} machines of {len(CASES)} cases, each {BURN_IN_NIGHTS} nights, then {nights * size.quiet} quiet "
        f"nights, {nights * size.dropped} with drops, {size.worlds * size.slow} on a slow machine, "
        f"{size.worlds * size.noisy} with drops on {_NOISY_CARDS} cards only"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick",
        action="store_true",
        help="Replay few nights; a goal is missed where its whole interval lies beyond it",
    )
    parser.add_argument("--series", type=Path, metavar="FOLDER", help="Replay the real series of FOLDER too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the scores to FILE")
    parser.add_argument("--seed", type=int, default=SEED, help="Draw other nights")
    parser.add_argument("--worlds", type=int, help="Replay that many machines")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="Use that many processes")
    return parser.parse_args(arguments)


def futures_of(seed: int, world: int, size: Size, percents: Sequence[float] = DROPS_PERCENT) -> tuple[Future, ...]:
    """A world's futures; those with drops slow down three cases of each size, drawn at random."""
    generator = np.random.default_rng([seed, world, 7])
    quiet = [Future(1 + number, trended=number < size.trended) for number in range(size.quiet)]
    dropped = []
    for number in range(size.dropped):
        chosen = generator.permutation(len(CASES))[: _CASES_A_DROP * len(percents)]
        drops = {int(case): percents[place % len(percents)] for place, case in enumerate(chosen)}
        dropped.append(Future(1001 + number, drops, trended=number < size.trended))
    noisiest = [index for index, case in enumerate(CASES) if case.cards == _NOISY_CARDS]
    for number in range(size.noisy):
        chosen = generator.permutation(noisiest)[:_NOISY_CASES]
        dropped.append(Future(3001 + number, {int(case): _NOISY_PERCENT for case in chosen}, noisy=True))
    return (*quiet, *dropped, *(Future(branch, slow=True) for branch in slow_branches(size)))


def slow_branches(size: Size) -> range:
    return range(2001, 2001 + size.slow)


def replay_world(world: int, *, seed: int, size: Size) -> Scores:
    """One synthetic machine: what every rule scores on it."""
    nights = Synthetic(seed, world, frozenset(slow_branches(size)))
    return Replay(Machine.of(nights), trends()).run(futures_of(seed, world, size))


def replay_behind(world: int, *, seed: int, size: Size) -> Scores:
    """One synthetic machine on which the reference build is left behind: what the procedure scores on it."""
    # Other worlds than those without gains, though of one seed.
    behind = LeftBehind(Synthetic(seed, _BEHIND_FROM + world, frozenset(slow_branches(size))), seed, world)
    faster = behind.recorded_faster
    replay = Replay(Machine.of(behind, recorded_faster=faster), behind=faster)
    return replay.run(futures_of(seed, _BEHIND_FROM + world, size, LOSSES_PERCENT))


def through_history(
    nights: Nights, count: int = _CHECKED_NIGHTS, recorded_faster: Collection[int] = ()
) -> tuple[str, bool]:
    """Replay the first nights of some cases with a SQLite history on disk: whether it leads to the same verdicts."""
    machine, held = Machine.of(nights, recorded_faster=recorded_faster).part(_CHECKED_CASES), HeldNights()
    with tempfile.TemporaryDirectory() as folder, open_history(f"sqlite:///{folder}/history.sqlite") as history:
        different = 0
        for night in range(count):
            one, other = (machine.night(At(0, night), memory) for memory in (held, history))
            different += sum(
                left.verdict != right.verdict for left, right in zip(one.results, other.results, strict=True)
            )
    told = f"{count} nights of {_CHECKED_CASES} cases with a SQLite history instead of the replay's own: "
    return told + (f"{different} verdicts DIFFER" if different else "the same verdicts"), not different


def _synthetic(options: argparse.Namespace, size: Size, behind: Size) -> Scores:
    total: Scores = {}
    parts: tuple[tuple[Callable[[int], Scores], int, str], ...] = (
        (partial(replay_world, seed=options.seed, size=size), size.worlds, PROCEDURE),
        (partial(replay_behind, seed=options.seed, size=behind), behind.worlds, LOST),
    )
    for replay, worlds, rule in parts:
        for done, scores in enumerate(spread(replay, range(worlds), options.processes), start=1):
            add_world(total, scores)
            print(f"{done} of {worlds}: {progress_text(total[rule])}", file=sys.stderr, flush=True)
    return total


def _lives(options: argparse.Namespace, worlds: int) -> Scores:
    total: Scores = {}
    for done, scores in enumerate(spread(partial(live, seed=options.seed), range(worlds), options.processes), start=1):
        add_world(total, scores)
        print(f"{done} of {worlds} machines have lived 120 nights", file=sys.stderr, flush=True)
    return total


if __name__ == "__main__":
    sys.exit(ended(main, "verdicts"))
