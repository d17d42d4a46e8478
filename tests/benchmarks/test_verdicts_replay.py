"""Nights go through the suite's own loop and judge, and are counted right."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import verdict_session
from benchmarks.verdict_memory import HeldNights
from benchmarks.verdict_replay import (
    FIRST_NIGHTS,
    LOST,
    LOST_FIRST,
    PROCEDURE,
    Future,
    Replay,
    Score,
    add_world,
    is_new_step,
)
from benchmarks.verdict_rivals import ASV_NAME, OTAVA_NAME, RIVALS
from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import BURN_IN_NIGHTS, CASES, At, DrawnRun, Synthetic, drawn_run
from benchmarks.verdicts import through_history
from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.judging.evidence import Build, Compared, Past, Stage
from helpers.judging.night import NeedConfirmation
from helpers.judging.night_groups import Key, NightCase
from helpers.judging.verdict import Standing, Status
from helpers.trainers.contract.case import Case

SLOW = 99


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History.open(f"sqlite:///{tmp_path}/history.sqlite") as opened:
        yield opened


@dataclass(frozen=True)
class Quiet:
    """Two cases whose runs all but repeat; the machine is a third slower in the slow future."""

    cases: tuple[Case, ...] = CASES[:2]
    published: tuple[float, ...] = ()

    def run(self, at: At, case: int, build: Build, number: int) -> DrawnRun:
        generator = np.random.default_rng([at.branch, at.night, case, int(build is Build.REFERENCE), number])
        slow = 1.5 if at.branch == SLOW else 1.0
        return drawn_run(0.01 * slow * np.exp(generator.normal(0, 0.001, 5)))


# --- a night through the session


@pytest.mark.slow
def test_a_night_judges_every_case_with_the_runs_it_asks_for() -> None:
    machine, memory = Machine.of(Quiet()), HeldNights()
    for night in range(16):
        judged = machine.night(At(0, night), memory)
    assert judged.statuses == [Status.PASS, Status.PASS]
    assert judged.runs >= 2
    dropped = machine.night(At(0, 16), memory, {0: 0.05})
    assert dropped.statuses == [Status.REGRESSION, Status.PASS]
    assert {run.role for run in dropped.results[0].runs} == {"candidate", "reference"}


@pytest.mark.slow
def test_only_the_build_under_test_is_slowed_down() -> None:
    machine, memory = Machine.of(Quiet()), HeldNights()
    for night in range(16):
        machine.night(At(0, night), memory)
    runs = machine.night(At(0, 16), memory, {0: 0.05}).results[0].runs
    new, good = ([run.log_rate or 0.0 for run in runs if run.role == build.value] for build in Build)
    assert np.median(new) - np.median(good) == pytest.approx(np.log(0.95), abs=0.002)


@pytest.mark.slow
def test_a_machine_without_another_build_confirms_nothing() -> None:
    machine, memory = Machine.of(Quiet(), has_reference=False), HeldNights()
    for night in range(16):
        machine.night(At(0, night), memory)
    judged = machine.night(At(0, 16), memory, {0: 0.05})
    assert judged.statuses == [Status.INCONCLUSIVE, Status.PASS]
    assert {run.role for run in judged.results[0].runs} == {"candidate"}


def test_the_night_as_a_whole_may_have_a_case_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def judge_night(screened: Sequence[NightCase], confirmed: Mapping[Key, NightCase]) -> NeedConfirmation | None:
        asked.append(len(confirmed))
        assert all(case.can_confirm for case in screened)
        return None if confirmed else NeedConfirmation(CASES[1].id, "v100", "they fell together")

    machine, memory = Machine.of(Quiet()), HeldNights()
    for night in range(16):
        machine.night(At(0, night), memory)
    alone = machine.night(At(0, 16), memory.fork())
    monkeypatch.setattr(verdict_session, "judge_night", judge_night)
    judged = machine.night(At(0, 16), memory)
    assert asked == [0, 1]
    assert judged.whole is None
    assert not [run for run in alone.results[1].runs if run.stage == Stage.CONFIRM.value]
    assert [run for run in judged.results[1].runs if run.stage == Stage.CONFIRM.value]
    assert judged.runs > alone.runs
    assert len(memory.past(CASES[1].id, "v100", {}, 4, "later").nights) == 17


# --- the replay's own history


@pytest.mark.slow
def test_a_sqlite_history_leads_to_the_same_verdicts() -> None:
    told, same = through_history(Synthetic(3, 0), cases=3, count=5)
    assert same, told
    assert told.endswith("the same verdicts")


def test_a_history_that_forgets_leads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldNights, "past", lambda *_: Past())
    told, same = through_history(Synthetic(3, 0), cases=3, count=3)
    assert not same
    assert "DIFFER" in told


def record(case: Case, night: int, rate: float, standing: Standing | None, status: Status) -> NightRecord:
    created = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=night)
    return NightRecord(
        session=f"n{night}",
        case_id=case.id,
        target="v100",
        created=created.isoformat(timespec="microseconds"),
        date=created.date().isoformat(),
        segment={"host": "h"},
        status=status.value,
        code="code",
        reason="reason",
        cards=case.cards,
        log_rates=(rate, rate + 0.01),
        stall_share=0.01,
        standing=standing,
    )


@pytest.mark.slow
def test_it_tells_the_past_as_history_does(history: History) -> None:
    """Accepted and refused nights, nights judged twice, new segments, nights without a standing, nights on another
    stack, pairs: all alike."""
    generator, held = np.random.default_rng(0), HeldNights()
    siblings = [case for case in CASES if case.cards == 4][:3]
    for night in range(50):
        for case in (*siblings, CASES[0]):
            for _ in range(1 + int(generator.random() < 0.1)):
                accepted, starts = generator.random() < 0.93, generator.random() < 0.01
                evidence = float(generator.uniform(0.2, 5))
                standing = Standing(0.0, 1.0, evidence, bool(accepted or starts), 0.01, 0.01, 3, 1)
                standing = replace(standing, new_segment=bool(starts))
                status = Status.REGRESSION if generator.random() < 0.05 else Status.PASS
                said = standing if generator.random() < 0.95 else None
                told = record(case, night, float(generator.normal()), said, status)
                stack = "9.5" if night >= 40 or night in (20, 21) else "9.1"
                pairs = tuple(map(float, generator.normal(size=3)))
                compared = Compared("good", pairs, pairs[::-1]) if generator.random() < 0.5 and said else None
                told = replace(told, segment={"host": "h", "cuDNN": stack}, compared=compared)
                held.add_night(told)
                history.add_night(told)
        for stack, session in itertools.product(("9.1", "9.5"), (f"n{night}", f"n{night + 1}")):
            asked = siblings[night % 3].id, "v100", {"host": "h", "cuDNN": stack}, 4
            one, other = held.past(*asked, session), history.past(*asked, session)
            assert one.nights == other.nights
            assert (one.compared, one.elsewhere, one.gained) == (other.compared, other.elsewhere, other.gained)
            assert sorted(one.siblings) == sorted(other.siblings)


def test_futures_do_not_see_each_other() -> None:
    held = HeldNights()
    held.add_night(record(CASES[0], 0, 1.0, Standing(0.0, 1.0, 1.0, True, 0.1, 0.1, 1, 1), Status.PASS))
    fork = held.fork()
    fork.add_night(record(CASES[0], 1, 2.0, Standing(0.0, 1.0, 1.0, True, 0.1, 0.1, 1, 1), Status.PASS))
    assert [len(each.past(CASES[0].id, "v100", {}, 1, "n9").nights) for each in (held, fork)] == [1, 2]


# --- scores


@pytest.mark.slow
def test_a_replay_scores_the_procedure_and_every_rival() -> None:
    futures = [
        Future(1, trended=True),
        Future(2, {0: 10}, trended=True),
        Future(SLOW, slow=True),
    ]
    scores = Replay(Machine.of(Quiet()), detect=lambda series: tuple(() for _ in series)).run(futures)
    asked = {rival.name for rival in RIVALS if not rival.asks_published}
    assert set(scores) == {PROCEDURE, FIRST_NIGHTS, ASV_NAME, OTAVA_NAME, *asked}
    mine, fixed, otava = (scores[rule] for rule in (PROCEDURE, "-5% of own reference", OTAVA_NAME))
    assert (mine.nights, mine.case_nights, mine.alarms, mine.slow_nights, mine.slow_alarms) == (28, 56, 0, 1, 0)
    assert (mine.injected, mine.first_night, mine.three_nights) == ({10: 1}, {10: 1}, {10: 1})
    assert mine.runs >= 56
    assert (fixed.alarms, fixed.slow_alarms, fixed.first_night[10], fixed.runs) == (0, 2, 1, 6)
    assert (otava.nights, otava.alarms, otava.injected[10], otava.three_nights[10]) == (3, 0, 1, 0)
    assert (scores[FIRST_NIGHTS].nights, scores[FIRST_NIGHTS].case_nights) == (15, 30)
    assert scores[ASV_NAME].three_nights[10] == 1


def test_where_gains_are_lost_only_accepted_ones_count() -> None:
    """Case 0 was recorded with the faster build; case 1 gains nothing, so there is nothing of it to lose."""
    replay = Replay(Machine.of(Quiet()), behind={0})
    scores = replay.run([Future(1), Future(2, {0: 5, 1: 5}), Future(3, {0: 2}, noisy=True)])
    assert set(scores) == {LOST, LOST_FIRST}
    assert scores[LOST].injected == {5: 1}
    assert scores[LOST].injected_on == {(5, 1): 1, (2, 1): 1}
    replay.gained.add(1)
    replay._judged(Future(4, {1: 5}))
    assert scores[LOST].injected == {5: 2}


def test_a_drop_counts_once_however_often_it_is_found() -> None:
    score, drop = Score(), Status.REGRESSION
    for said in ([Status.INCONCLUSIVE, drop, drop], [drop] * 3, [Status.PASS, Status.IMPROVEMENT, Status.PASS]):
        score.drop(2, 8, said)
    assert (score.injected[2], score.first_night[2], score.three_nights[2]) == (3, 1, 2)
    assert (score.passed[2], score.called_faster) == (1, 1)
    score.drop(2, 32, [drop], whole=False)
    assert (score.injected[2], score.first_night[2]) == (3, 1)
    assert (score.injected_on, score.found_on) == ({(2, 8): 3, (2, 32): 1}, {(2, 8): 1, (2, 32): 1})


def test_only_regressions_are_alarms() -> None:
    score = Score()
    score.quiet_night([Status.REGRESSION, Status.INCONCLUSIVE, Status.PASS, Status.IMPROVEMENT], 7)
    score.slow_night([Status.REGRESSION, Status.INCONCLUSIVE, Status.INCONCLUSIVE])
    assert (score.nights, score.case_nights, score.runs) == (1, 4, 7)
    assert (score.alarms, score.unsure, score.better) == (1, 1, 1)
    assert (score.slow_nights, score.slow_alarms, score.slow_unsure) == (1, 1, 2)


def test_worlds_are_added_up_and_remembered() -> None:
    total: dict[str, Score] = {}
    for alarms in (1, 2):
        score = Score(nights=10, alarms=alarms)
        score.drop(3, 1, [Status.REGRESSION])
        add_world(total, {"rule": score})
    assert (total["rule"].alarms, total["rule"].nights, total["rule"].injected[3]) == (3, 20, 2)
    assert total["rule"].by_world == [(1, 0, 10), (2, 0, 10)]


def test_a_step_that_moved_by_a_night_is_no_new_one() -> None:
    assert is_new_step(frozenset({40}), frozenset())
    assert is_new_step(frozenset({12, 40}), frozenset({12}))
    assert not is_new_step(frozenset({13}), frozenset({12}))
    assert not is_new_step(frozenset(), frozenset({12}))


def test_a_future_lies_after_the_nights_that_all_share() -> None:
    assert [at.night for at in Future(3).nights] == [BURN_IN_NIGHTS, BURN_IN_NIGHTS + 1, BURN_IN_NIGHTS + 2]
    assert Future(3, slow=True).nights == (At(3, BURN_IN_NIGHTS),)
    assert Future(3, {1: 2}, noisy=True).nights == (At(3, BURN_IN_NIGHTS),)
    assert Future(3, {1: 0.5}).shares == {1: 0.005}


def test_rivals_that_are_left_out_have_no_score() -> None:
    replay = Replay(Machine.of(Quiet()), with_asv=False, series=[[0.0] * BURN_IN_NIGHTS] * 2)
    replay._trends([Future(1)])
    assert replay.scores == {}
