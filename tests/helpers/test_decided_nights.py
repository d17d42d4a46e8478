"""Whole nights on a machine whose history is lost and filled again from its run folders and the decisions in them."""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import main
from helpers.history import FILE_NAME, default_url, open_history
from helpers.history.history import History
from helpers.history.results import RunResult
from helpers.history.run_folders import DECISIONS_FOLDER, ResultStore
from helpers.history.stored import Calibration, Pin
from helpers.judging.case.evidence import Budget, Evidence, Past
from helpers.judging.case.judge import judge
from helpers.judging.case.verdict import NeedRuns, Status, Verdict
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.case_loop import evidence_of, reusable_runs, segment_tonight
from helpers.trainers.contract.case import Case
from tests.helpers.session_double import GOOD, NEW
from tests.helpers.test_session_level import FIRST, World, entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SIBLING = "paddle-resnet50v1.5-fp32-bs8-1x1-synthetic-dynamic"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@dataclass
class Machine:
    """A machine of two cases, and what was compared with what in each of its nights."""

    world: World
    sibling: World
    judged: list[tuple[str, CasePlan]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.world.folder

    def night(self, new: float, **plan: Any) -> Status:
        nights = [(world.plan, world.night(rate, **plan)) for world, rate in ((self.world, new), (self.sibling, 100.0))]
        session = f"night{self.world.night_number - 1:03d}"
        self.judged += [(session, replace(compared_with, **plan)) for compared_with, _ in nights]
        return nights[0][1].verdict.status

    def judged_afresh(self, history: History) -> list[tuple[Past, Verdict | NeedRuns]]:
        """Of each night, what the history knew before it, and the answer about the night's runs."""
        return [(past, judge(evidence)) for past, evidence in (self._evidence(history, *each) for each in self.judged)]

    def _evidence(self, history: History, session: str, plan: CasePlan) -> tuple[Past, Evidence]:
        case = plan.case
        runs = reusable_runs(plan, ResultStore(self.folder, session), allow_contention=False)
        past = history.past(case.id, plan.suite_case.target, segment_tonight(plan, runs), case.cards, session)
        return past, evidence_of(plan, runs, past, cases_tonight=60, seed=f"{session} {case.id}")

    def decided(self, history: History) -> list[object]:
        plan = self.world.plan
        segment = plan.recorded.segment if plan.recorded else {}
        return [
            history.exclusions(holding_only=False),
            history.pins(),
            history.segment_starts(plan.case.id),
            history.calibration(plan.case.id, "cpu", segment),
            [history.series(each.plan.case.id) for each in (self.world, self.sibling)],
        ]


@pytest.fixture
def lived(
    make_plan: Callable[..., CasePlan], make_run: Callable[..., RunResult], tmp_path: Path
) -> Iterator[tuple[Machine, History]]:
    """A machine that gained 5%, lost it again with everybody's consent, and of whose nights some were not to count."""

    def unique(plan: CasePlan, replicate: int = 0, **values: Any) -> RunResult:
        return make_run(plan, replicate, **{**values, "uuid": f"{plan.case.model.value}-{values.get('uuid', '')}"})

    plan = make_plan(build=NEW, reference=GOOD, budget=Budget(rotation=3))
    plan = replace(plan, recorded=entry(plan, make_run, 100.0, GOOD))
    other = replace(plan, suite_case=replace(plan.suite_case, case=Case.parse(SIBLING)))
    other = replace(other, recorded=entry(other, make_run, 100.0, GOOD))
    with open_history(default_url(tmp_path)) as history:
        machine = Machine(World(plan, unique, history, tmp_path), World(other, unique, history, tmp_path))
        for _ in range(8):
            machine.night(100.0)
        assert machine.night(105.0) is Status.IMPROVEMENT
        machine.world.record(105.0, NEW)
        for rate in (105.0, 105.0, 103.5, 105.0, 105.0, 105.0):
            machine.night(rate)
        assert machine.night(100.0) is Status.REGRESSION
        machine.world.record(100.0, NEW)
        for rate in (100.0, 100.0, 101.0, 100.0):
            machine.night(rate, reference={})
        decide(machine, history)
        yield machine, history


def decide(machine: Machine, history: History) -> None:
    case_id = machine.world.plan.case.id
    uuids = [each.uuid for each in history.series(case_id)]

    def at(minute: int) -> str:
        return (FIRST + datetime.timedelta(days=40, minutes=minute)).isoformat()

    history.exclude(uuids[11], "ada", at(0), "the fan was broken")
    history.exclude(uuids[2], "ada", at(1), "a training beside it")
    history.restore(uuids[2], "bob", at(2), "it was another night")
    history.exclude(history.series(case_id)[-2].record.run_uuids[0], "ada", at(3), "the door was open")
    history.exclude(history.series(SIBLING)[4].uuid, "ada", at(4), "the fan was broken")
    history.pin(Pin("paddlepaddle==3.3.1", "paddlepaddle", "3.3.1", "abcdef", "d1", "", "the release", "ada", at(7)))
    segment = machine.world.plan.recorded.segment if machine.world.plan.recorded else {}
    for minute, sigma in ((8, 0.004), (9, 0.0021)):
        made = Calibration(case_id, "cpu", segment, at(minute), "s", 10, sigma, 9.0, 0.0015, 0.1 + 0.2, 0.01)
        history.add_calibration(made)


def lost_and_filled_again(folder: Path) -> None:
    (folder / FILE_NAME).unlink()
    # As after a copy, the folders' own times say nothing of the order of the nights.
    for place, session in enumerate(sorted(folder.glob("night*"), reverse=True)):
        os.utime(session, (place, place))
    assert main(["reindex", "--runs-dir", str(folder)], io.StringIO()) == 0


def test_a_history_that_is_filled_again_judges_every_night_as_before(lived: tuple[Machine, History]) -> None:
    machine, history = lived
    decided, answers = machine.decided(history), machine.judged_afresh(history)
    assert {Status.PASS, Status.IMPROVEMENT, Status.REGRESSION} <= {
        answer.status for _, answer in answers if isinstance(answer, Verdict)
    }
    history.close()
    away = (machine.folder / DECISIONS_FOLDER).rename(machine.folder / ".decisions")
    lost_and_filled_again(machine.folder)
    with open_history(default_url(machine.folder)) as without:
        # These nights do depend on what was decided.
        assert machine.judged_afresh(without) != answers
    away.rename(machine.folder / DECISIONS_FOLDER)
    lost_and_filled_again(machine.folder)
    with open_history(default_url(machine.folder)) as again:
        assert machine.decided(again) == decided
        assert machine.judged_afresh(again) == answers
        machine.world.history = machine.sibling.history = again
        # What was accepted, 105 → 100, is no regression again.
        assert machine.night(100.0) is Status.PASS
