"""Whole nights of machines to which something happens, through the suite's own session loop and a history on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import verdict_lives
from benchmarks.verdict_lives import Dates, Lived, Year, lived
from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_session import JudgedNight, Machine
from benchmarks.verdict_worlds import CASES, At, DrawnRun, drawn_run
from helpers.history.history import History
from helpers.judging.evidence import Build
from helpers.judging.verdict import Status
from helpers.trainers.contract.case import Case

PASS, REGRESSION, IMPROVEMENT = Status.PASS, Status.REGRESSION, Status.IMPROVEMENT
# More nights than a history compares with (helpers.history.past.ACCEPTED_NIGHTS).
OLD = 42


@dataclass(frozen=True)
class Steady:
    """A machine whose runs vary by 0.1%, and its nights by half as much."""

    cases: tuple[Case, ...] = CASES[:3]
    published: tuple[float, ...] = ()

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        night = np.random.default_rng([1, at.night]).normal(0, 0.0005)
        generator = np.random.default_rng([at.night, case, int(build is Build.REFERENCE), number])
        return drawn_run(0.01 * np.exp(night + generator.normal(0, 0.001) + generator.normal(0, 0.001, 100)))


@dataclass(frozen=True)
class Slow(Steady):
    """The same, with all runs of both builds slower by 2% on one night."""

    night: int = 0

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        drawn = super().run(at, case, build, number)
        return drawn.slowed(0.02 if at.night == self.night and number < 1000 else 0.0)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History.open(f"sqlite:///{tmp_path}/history.sqlite") as opened:
        yield opened


@dataclass
class Life:
    """Nights one after the other."""

    nights: Lived
    history: History | HeldNights

    def night(self, number: int, drops: Mapping[int, float] | None = None) -> JudgedNight:
        machine = Machine.of(self.nights)
        return machine.night(At(0, number), self.history, drops or {}, stack=self.nights.stack(number))

    def said(self, first: int, last: int) -> list[list[Status]]:
        return [self.night(number).statuses for number in range(first, last)]


Live = Callable[..., Life]


@pytest.fixture
def life(history: History) -> Live:
    def of(dates: Dates, **also: object) -> Life:
        return Life(Lived(Steady(), dates, **also), history)  # type: ignore[arg-type]

    return of


def quiet(nights: int, cases: int = 3) -> list[list[Status]]:
    return [[PASS] * cases] * nights


@pytest.mark.slow
def test_a_loss_beside_a_new_reference_build_on_an_old_machine_is_a_regression(life: Live) -> None:
    """Nobody knows yet where the nights before stand against the new build, and nobody has to."""
    old = life(Dates(gain=None, pin=OLD, library=None, loss=None))
    assert old.said(0, OLD + 2) == quiet(OLD + 2)
    lost = old.night(OLD + 2, {0: 0.03})
    assert lost.statuses == [REGRESSION, PASS, PASS], lost.results[0].verdict.reason.message


@pytest.mark.slow
def test_on_an_old_machine_every_case_has_its_turn_beside_a_new_reference_build(life: Live) -> None:
    """Within the rotation's nights each case is compared with it once, and then no more without a suspicion."""
    old = life(Dates(gain=None, pin=OLD, library=None, loss=None))
    old.said(0, OLD)
    compared: dict[str, list[int]] = {case.id: [] for case in old.nights.cases}
    for number in range(OLD, OLD + 24):
        judged = old.night(number)
        assert judged.statuses == [PASS] * 3
        for result in judged.results:
            if len(result.runs) > 2:
                compared[result.plan.case.id].append(number)
    assert all(compared.values()), compared
    assert all(each[0] < OLD + 16 for each in compared.values()), compared


@pytest.mark.slow
def test_a_loss_that_comes_with_another_library_is_found_by_pairs_and_names_it(life: Live) -> None:
    changed = life(Dates(gain=None, pin=None, library=18, loss=None), library={0})
    assert changed.said(0, 18) == quiet(18)
    first = changed.night(18)
    assert first.statuses == [REGRESSION, PASS, PASS], [each.verdict.reason.message for each in first.results]
    for result in first.results:
        assert "cuDNN" in result.verdict.reason.message
    assert changed.said(19, 21) == [[REGRESSION, PASS, PASS]] * 2
    # Repaired; the library stays.
    assert changed.said(21, 27) == quiet(6)
    later = changed.night(27, {1: 0.02})
    assert later.statuses == [PASS, REGRESSION, PASS], later.results[1].verdict.reason.message


@pytest.mark.slow
def test_a_machine_that_is_slow_on_the_first_night_of_another_library_is_no_loss(life: Live) -> None:
    """Nothing of this stack is known, what is recorded is of another one, and both builds run alike."""
    changed = life(Dates(gain=None, pin=None, library=16, loss=None))
    changed.said(0, 16)
    # By the reference build's own nights and by nothing else: it is as slow.
    slow = replace(changed.nights, whole=Slow(night=16))
    changed.nights = slow
    assert changed.said(16, 19) == quiet(3)


@pytest.mark.slow
@pytest.mark.parametrize("pin", [None, 20])
def test_a_gain_that_is_lost_is_a_regression_whether_or_not_it_was_pinned(life: Live, pin: int | None) -> None:
    gained = life(Dates(gain=16, pin=pin, library=None, loss=26), gains={0: 0.04})
    assert gained.said(0, 16) == quiet(16)
    assert gained.said(16, 17) == [[IMPROVEMENT, PASS, PASS]]
    assert gained.said(17, 26) == quiet(9)
    assert gained.said(26, 29) == [[REGRESSION, PASS, PASS]] * 3
    assert gained.said(29, 31) == quiet(2)


def test_an_entry_of_a_slow_day_hides_no_loss(life: Live) -> None:
    """The README's night: three cases are 4.8% slower, one of them recorded while the machine was."""
    young = life(Dates(gain=None, pin=None, library=None, loss=None), slow_day={2})
    lost = young.night(0, dict.fromkeys(range(3), 0.048))
    assert lost.statuses == [REGRESSION] * 3, lost.results[2].verdict.reason.message


def test_an_entry_of_a_slow_day_is_no_gain_later(life: Live) -> None:
    young = life(Dates(gain=None, pin=None, library=None, loss=None), slow_day={2})
    assert young.said(0, 4) == quiet(4)


# --- the lives that benchmarks.verdicts counts


def test_a_life_touches_some_cases_each_in_one_way() -> None:
    one, other = lived(3, 0), lived(3, 1)
    groups = [set(one.slow_day), set(one.gains), set(one.library)]
    assert all(groups)
    assert len(set.union(*groups)) == sum(map(len, groups))
    assert (one.dates.pin, other.dates.pin) == (60, None)
    assert lived(3, 0).gains == one.gains != other.gains


def test_builds_are_as_fast_as_their_dates_say() -> None:
    nights = Lived(Steady(), Dates(), slow_day={0}, gains={1: 0.05}, library={2})

    def change(case: int, night: int, build: Build = Build.CANDIDATE, number: int = 0) -> float:
        at = At(0, night)
        whole = Steady().run(at, case, build, number)
        return float(np.expm1(nights.run(at, case, build, number).log_rate - whole.log_rate))

    assert change(0, 0, Build.REFERENCE, 1000) == pytest.approx(-verdict_lives.SLOW_DAY)
    assert change(0, 0) == change(1, 29) == change(2, 79) == change(2, 83) == 0.0
    assert [change(1, night) for night in (30, 99, 100, 102, 103)] == pytest.approx([0.05, 0.05, 0, 0, 0.05])
    assert [change(2, night) for night in (80, 82)] == pytest.approx([-0.02, -0.02])
    assert [change(1, night, Build.REFERENCE) for night in (59, 60, 100)] == pytest.approx([0, 0.05, 0.05])
    assert nights.stack(59).good != nights.stack(60).good
    assert nights.stack(79).cudnn != nights.stack(80).cudnn
    assert [nights.has_lost(2, night) for night in (79, 80, 82, 83)] == [False, True, True, False]
    assert [nights.has_lost(1, night) for night in (99, 100)] == [False, True]


def test_a_branch_goes_on_from_the_night_it_leaves() -> None:
    nights = lived(5, 0).whole
    branch = verdict_lives.branch_of(75, 0)
    drifts = [nights.weather(At(0, night)).drift for night in range(70, 76)]  # type: ignore[attr-defined]
    assert abs(nights.weather(At(branch, 75)).drift - drifts[4]) < 0.003  # type: ignore[attr-defined]
    assert nights.weather(At(branch, 75)).drift != drifts[5]  # type: ignore[attr-defined]


def test_what_is_said_is_counted_by_what_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    nights = Lived(Steady(), Dates(gain=16, pin=None, library=17, loss=None, nights=20), gains={0: 0.05}, library={1})
    said = {16: [IMPROVEMENT, PASS, REGRESSION], 17: [IMPROVEMENT, REGRESSION, Status.INCOMPARABLE]}
    said[18] = [PASS, Status.INCONCLUSIVE, Status.INCONCLUSIVE]

    @dataclass
    class Said:
        statuses: list[Status]

        @property
        def results(self) -> list[object]:
            return [type("Result", (), {"runs": (None,) * 2})() for _ in self.statuses]

    monkeypatch.setattr(Machine, "night", lambda self, at, *_, **__: Said(said.get(at.night, [PASS] * 3)))
    scores = Year(nights, Machine.of(nights), (1, 1)).live()
    mine = scores[verdict_lives.PERIODS[1].name]
    # The first IMPROVEMENT of a case that gained is right, the second is not.
    assert (mine.nights, mine.alarms, mine.unsure, mine.unjudged, mine.better) == (5, 1, 1, 1, 1)
    assert (mine.losses, mine.losses_at_once, mine.losses_in_three) == (1, 1, 1)
    assert mine.case_nights == 5 * 3 - 3
    assert mine.runs == 2 * mine.case_nights
