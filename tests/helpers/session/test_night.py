"""The night from the session's outcomes: which cases take part, and what differs from the night before."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.verdict import Reason, Standing, Status, SubVerdict, Verdict
from helpers.judging.statistics import EffectSize
from helpers.plan.case_plan import CasePlan
from helpers.session.night import night_case, night_cases, night_clues
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating, GoodBuild
from helpers.trainers.contract.case import Case

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

STANDING = Standing(4.6, 3.0, 2.5, True, 0.001, 0.0007, 40, 1, effect=EffectSize(-0.02, -0.03, -0.01))
RECORDED = SubVerdict(Status.PASS, Reason("c", "m"), "median-step", 99.0, 100.0, 0.008)
VERDICT = Verdict(Status.BELOW_PUBLISHED, Reason("c", "m"), recorded=RECORDED, standing=STANDING)
CASE = Case.parse("paddle-vgg16-fp32-bs8-1x2-dali-static")
OUTCOME = CaseOutcome(CASE, "cpu", VERDICT, Gating(CaseEffect.FAIL), good=GoodBuild("paddle 3.3.0 in envs/good"))


def test_a_case_takes_part_with_its_answer_to_the_recorded_question() -> None:
    case = night_case(OUTCOME)
    assert case is not None
    assert (case.key, case.status, case.standing) == (OUTCOME.key, Status.PASS, STANDING)
    assert (case.tolerance, case.can_confirm) == (0.008, True)
    assert "vgg16" in case.labels


@pytest.mark.parametrize(
    "changes",
    [
        {"gating": Gating(CaseEffect.WARN, judged=False)},
        {"verdict": replace(VERDICT, standing=None)},
        *({"verdict": replace(VERDICT, status=each)} for each in (Status.INVALID, Status.INFRA_ERROR)),
    ],
)
def test_what_was_not_judged_takes_no_part(changes: dict[str, object]) -> None:
    assert night_cases((replace(OUTCOME, **changes), OUTCOME)) == (night_case(OUTCOME),)  # type: ignore[arg-type]


@pytest.fixture
def measured(tmp_path: Path, make_plan: MakePlan, make_run: MakeRun) -> Callable[..., RunResult]:
    """``measured(session, age, gpu=…)`` leaves a session with one run, ``age`` seconds old, and gives the run."""

    def leave(session: str, age: int, **system: dict[str, str]) -> RunResult:
        store = ResultStore(tmp_path, session)
        store.new_run_folder(CASE.id, 0)
        run = make_run(make_plan(), 0, session=session, system=system)
        store.write(run)
        os.utime(store.folder, (1e9 - age, 1e9 - age))
        return run

    return leave


def test_what_differs_from_the_newest_session_before_is_a_clue_with_its_name(
    measured: Callable[..., RunResult], tmp_path: Path
) -> None:
    measured("oldest", 9, GPU={"driver": "0"})
    measured("before", 5, GPU={"driver": "1", "ECC": "on"}, system={"suite": "a"})
    tonight = measured("tonight", 1, GPU={"driver": "2", "ECC": "on"}, system={"suite": "b"})
    clues = night_clues((OUTCOME, replace(OUTCOME, runs=(tonight,))), tmp_path / "tonight")
    assert clues == ("GPU: driver: 1 → 2", "all since session before")


def test_there_is_no_clue_where_nothing_differs_or_nothing_is_known(
    measured: Callable[..., RunResult], tmp_path: Path
) -> None:
    tonight = measured("tonight", 1, GPU={"driver": "2"})
    outcome = replace(OUTCOME, runs=(tonight,))
    assert night_clues((outcome,), tmp_path / "tonight") == ()
    measured("before", 5, GPU={"driver": "2"})
    assert night_clues((outcome,), tmp_path / "tonight") == ()
    (tmp_path / "before" / CASE.id / "r0" / "result.json").write_text("{")
    assert night_clues((outcome,), tmp_path / "tonight") == ()


def test_others_on_the_machine_are_a_clue(make_plan: MakePlan, make_run: MakeRun, tmp_path: Path) -> None:
    contended = make_run(make_plan(), foreign_share=0.123, marks=("contended",))
    quiet = make_run(make_plan(), foreign_share=0.9)
    outcomes = tuple(replace(OUTCOME, runs=runs) for runs in ((contended,), (quiet,), ()))
    assert night_clues(outcomes, tmp_path / "tonight") == (
        "others used up to 12% of the cores while 1 of the cases ran",
    )
