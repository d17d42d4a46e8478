"""Row 6: pytest is killed with SIGKILL, at known and at random moments of a session, and the session is resumed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.fault import Fault, Seen, expect
from tests.faults.traces import (
    DISTURBED,
    broken_baselines,
    leases_of,
    one_card,
    recorded_cases,
    results,
    uuids,
    with_cases,
)
from tests.faults.workshop import Running, Workshop

_SEED, _MOMENTS = 6, 20
# --update-baselines makes so many runs.
_RUNS = 3
_SESSION = "night"
_SELECTED = "paddle-resnet50v1.5-fp32"
_ON_CPU = ("-m", "cpu")
# A lease's lock is the kernel's: it is free when the process is gone.
_FREE_SECONDS = 1.0
# A moment at which the session is over already is drawn again.
_MOST_DRAWS = 3


@dataclass(frozen=True)
class _Life:
    """An undisturbed session: the seconds until the last case was judged, and until the end."""

    judged: float
    ended: float


@dataclass
class _Death:
    """Kills one session, and keeps what was there in the moment after."""

    seconds: float = 0.0
    killed: bool = False
    held: tuple[str, ...] = ()

    def __call__(self, workshop: Workshop, running: Running) -> None:
        if running.process.poll() is not None:
            return
        running.process.kill()
        at = time.monotonic()
        self.killed = running.process.wait() == -9
        while (held := leases_of(workshop)) and time.monotonic() - at < _FREE_SECONDS:
            time.sleep(0.01)
        self.held = held
        while workshop.processes() and time.monotonic() - at < 30.0:
            time.sleep(0.02)
        self.seconds = time.monotonic() - at


Wait = Callable[[Running], object]


def _killed_at(workshop: Workshop, batches: list[int], moments: Sequence[Callable[[Workshop], Wait]]) -> Seen:
    """Kills a session at each of the moments, which are drawn again where a session was over already."""
    deaths: list[_Death] = []
    wrong: tuple[str, ...] = ()
    kept = lost = left = 0
    for number, moment in enumerate(moments):
        for attempt in range(_MOST_DRAWS):
            with _shop(workshop, f"moment{number}-{attempt}", batches) as shop:
                death, problems, found, missing, alive = _one(shop, moment(shop), batches)
            wrong += tuple(f"moment {number}: {each}" for each in problems)
            kept, lost, left = kept + found, lost + missing, left + alive
            if death.killed:
                deaths.append(death)
                break
    wrong += expect((len(deaths) == len(moments), f"only {len(deaths)} of {len(moments)} sessions were killed"))
    slowest = max((death.seconds for death in deaths), default=None)
    message = f"{len(deaths)} sessions killed, {kept} runs finished before it and kept"
    return Seen(f"{len(deaths)} x SIGKILL", -9, message, slowest, left, lost, wrong)


def _at_random(workshop: Workshop) -> Seen:
    """Every third moment falls on the end, where baselines and results are written within tenths of a second."""
    draw, batches = random.Random(_SEED), [1, 2]
    with _shop(workshop, "undisturbed", batches) as first:
        life, wrong = _undisturbed(first, len(batches))

    def at(number: int) -> Callable[[Workshop], Wait]:
        if number % 3 == 2:
            return lambda shop: _after(shop, draw.random() * (life.ended - life.judged), True, len(batches))
        return lambda shop: _after(shop, (number + draw.random()) / _MOMENTS * life.ended, False, len(batches))

    seen = _killed_at(workshop, batches, [at(number) for number in range(_MOMENTS)])
    return replace(seen, wrong=(*wrong, *seen.wrong))


def _at_known_moments(workshop: Workshop) -> Seen:
    """Kills one session while a run trains, and one when the last case was judged and nothing of it is recorded yet."""
    return _killed_at(workshop, [1], [_in_the_second_run, lambda shop: _after(shop, 0.0, late=True, cases=1)])


def _in_the_second_run(shop: Workshop) -> Wait:
    return lambda running: running.wait_for(lambda: len(running.run_folders()) > 1 and running.steps() > 2)


@contextmanager
def _shop(workshop: Workshop, name: str, batches: list[int]) -> Iterator[Workshop]:
    with Workshop(workshop.folder / name) as shop:
        # An entry that a killed session has recorded must not call for more runs.
        shop.configure(with_cases(batches, runs=_RUNS, budgets={"first_runs": _RUNS}))
        yield shop


def _after(shop: Workshop, moment: float, late: bool, cases: int) -> Wait:
    """Waits ``moment`` seconds from the start, or with ``late`` from when all cases were judged."""

    def wait(running: Running) -> None:
        began = time.monotonic()
        while late and not _judged(shop, cases) and running.process.poll() is None:
            time.sleep(0.005)
        ends = (time.monotonic() if late else began) + moment
        while time.monotonic() < ends and running.process.poll() is None:
            time.sleep(0.005)

    return wait


def _judged(shop: Workshop, cases: int) -> bool:
    return len(list((shop.folder / "runs").glob("*/*/night.json"))) == cases


def _undisturbed(shop: Workshop, cases: int) -> tuple[_Life, tuple[str, ...]]:
    judged: list[float] = []

    def during(running: Running) -> None:
        began = time.monotonic()
        running.wait_for(lambda: _judged(shop, cases))
        judged.append(time.monotonic() - began)

    done = shop.run("--update-baselines", *_ON_CPU, case=_SELECTED, session=_SESSION, during=during)
    wrong = expect(
        (done.exit_code == 0, f"exit code {done.exit_code} without a fault: {done.reason}"),
        (len(results(shop)) == cases * _RUNS, f"{len(results(shop))} runs without a fault"),
    )
    return _Life(judged[0], done.seconds), wrong


def _one(
    shop: Workshop, wait: Callable[[Running], object], batches: list[int]
) -> tuple[_Death, tuple[str, ...], int, int, int]:
    """Kill one session after ``wait``; returns its death, problems, results kept and lost, and processes left."""
    death = _Death()

    def during(running: Running) -> None:
        wait(running)
        death(shop, running)

    cut = shop.run("--update-baselines", *_ON_CPU, case=_SELECTED, session=_SESSION, during=during)
    # A run that an infrastructure failure ended is rightly made again.
    before = {folder: str(each["uuid"]) for folder, each in results(shop).items() if each["failure"] is None}
    half = broken_baselines(shop)
    begun = (shop.folder / "runs" / _SESSION).is_dir()
    again = ["--resume", _SESSION] if begun else []
    done = shop.run("--update-baselines", *_ON_CPU, *again, case=_SELECTED, session="" if begun else _SESSION)
    after = uuids(shop)
    missing = [folder for folder, uuid in before.items() if after.get(folder) != uuid]
    twice = [_short(folder) for folder, uuid in after.items() if ".aside" in folder.name and uuid in before.values()]
    wrong = expect(
        (not death.held, f"leases held after the end: {death.held}"),
        (not half, "; ".join(half)),
        (done.exit_code == 0, f"--resume ended with {done.exit_code}: {done.output[-600:]}"),
        (not missing, f"made again or lost: {[_short(folder) for folder in missing]}"),
        (not twice, f"finished and moved aside: {twice}"),
        (_complete(after, batches), f"--resume left it at {[_short(folder) for folder in after]}"),
        (not broken_baselines(shop), "; ".join(broken_baselines(shop))),
        (
            # A run in which somebody else had the whole core is not recorded.
            DISTURBED in done.output or recorded_cases(shop) == set(map(one_card, batches)),
            f"recorded: {sorted(recorded_cases(shop))}: {done.output[-1500:]}",
        ),
    )
    return death, wrong, len(before), shop.lost() + len(missing), len(cut.left) + len(done.left)


def _complete(after: dict[Path, str], batches: list[int]) -> bool:
    wanted = {(one_card(batch), f"r{number}") for batch in batches for number in range(_RUNS)}
    return wanted <= {(folder.parent.name, folder.name) for folder in after}


def _short(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


_HANGS = """
import time

def at_step(spec, rank, phase, number):
    if phase == "window":
        mark()
        time.sleep(600)
"""


def _while_the_trainer_hangs(workshop: Workshop) -> Seen:
    """Nobody but the suite would ever end this trainer."""
    death = _Death()

    def during(running: Running) -> None:
        running.wait_for(lambda: (workshop.folder / "marks.jsonl").exists())
        death(workshop, running)

    cut = workshop.run(fault=_HANGS, during=during)
    done = workshop.run("--resume", "night", session="")
    wrong = expect(
        (death.killed, "pytest was not killed"),
        (not death.held, f"leases held after the end: {death.held}"),
        (done.exit_code == 0, f"--resume ended with {done.exit_code}: {done.reason}"),
        (len(results(workshop)) == 1, f"{len(results(workshop))} results"),
    )
    left = len(cut.left) + len(done.left)
    return Seen("SIGKILL", cut.exit_code, done.reason, death.seconds, left, workshop.lost(), wrong)


FAULTS = [
    Fault(
        6,
        "kill -9 of pytest while its trainer hangs",
        "pytest gets SIGKILL while its trainer waits for ever; then --resume",
        _while_the_trainer_hangs,
    ),
    Fault(
        6,
        "kill -9 of pytest at 2 moments",
        "pytest --update-baselines gets SIGKILL in its second run, and after the last case; then --resume",
        _at_known_moments,
    ),
    Fault(
        6,
        f"kill -9 of pytest at {_MOMENTS} moments",
        f"pytest --update-baselines gets SIGKILL at {_MOMENTS} random moments, a third of them after the last case; "
        "then --resume",
        _at_random,
    ),
]
