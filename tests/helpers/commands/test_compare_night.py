"""A whole night and ``perfgate compare`` of the same runs give the same answer."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import main
from helpers.history import default_url, open_history
from helpers.history.results import RunResult
from helpers.judging.case.evidence import Budget, Build
from helpers.judging.case.verdict import Status
from helpers.machine.devices import Machine
from helpers.plan.case_plan import CasePlan
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.report.reasons import reason_text
from tests.helpers.session_double import GOOD, NEW
from tests.helpers.test_session_level import World, entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SLOWER, EXIT_OK = 1, 0


@pytest.fixture
def world(make_plan: Callable[..., CasePlan], make_run: Callable[..., RunResult], tmp_path: Path) -> Iterator[World]:
    """A machine that was recorded at 105 images/s; the reference build beside it runs at 100."""
    plan = make_plan(build=NEW, reference=GOOD, budget=Budget(rotation=2))
    plan = replace(plan, recorded=entry(plan, make_run, 105.0, NEW))
    with open_history(default_url(tmp_path / "runs")) as history:
        yield World(plan, make_run, history, tmp_path / "runs")


def nights_until_the_level_is_known(world: World) -> None:
    for _ in range(12):
        if world.night(105.0).verdict.reason.code == "level-measured":
            return
    pytest.fail("no night measured the level")


def compared(world: World, machine: Machine, baselines: Path, *sides: str) -> tuple[int, dict[str, Any]]:
    recorded = world.plan.recorded
    if recorded is not None:
        key = machine.machine_key("cpu")
        proposal = Proposal(recorded.case_id, ProposalKind.CREATED, None, recorded, "first")
        write_recorded(baselines / "recorded" / f"{key}.json", key, [proposal])
    out = io.StringIO()
    status = main(["compare", *sides, "--runs-dir", str(world.folder), "--baselines", str(baselines), "--json"], out)
    (case,) = json.loads(out.getvalue())["cases"]
    return status, case


def on_another_stack(world: World) -> None:
    """The build under test is of another line of the framework, and a job has other threads with it."""
    make_run = world.make_run

    def made(plan: CasePlan, replicate: int = 0, **values: Any) -> RunResult:
        run = make_run(plan, replicate, **values)
        new = values.get("role") == Build.CANDIDATE.value
        stack = {"framework_version": "3.4.0", "threads": "8"} if new else {}
        return replace(run, environment={**run.environment, **stack})

    world.make_run = made


def by_another_protocol(world: World) -> None:
    """perf.yaml has a longer window than when the case was recorded."""
    recorded, case = world.plan.recorded, world.plan.suite_case
    assert recorded is not None
    longer = replace(case, protocol=replace(case.protocol, window_steps=50))
    entry = replace(recorded, protocol={**case.protocol.steps, "runs": 3})
    world.plan = replace(world.plan, suite_case=longer, recorded=entry)


def without_an_entry(world: World) -> None:
    world.plan = replace(world.plan, recorded=None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (on_another_stack, "framework line: framework framework_version → framework 3.4; threads: threads → 8"),
        (by_another_protocol, "protocol window_steps: 5 → 50"),
        (without_an_entry, "nothing recorded for this case on this machine"),
    ],
)
def test_pairs_decide_where_no_recorded_figure_can_at_night_and_in_compare(
    world: World, machine: Machine, empty_baselines: Path, change: Callable[[World], None], told: str
) -> None:
    change(world)
    tonight = world.night(95.0)
    assert tonight.verdict.status is Status.REGRESSION and tonight.verdict.recorded is not None
    for against in ("commit:abcdef", "baseline"):
        status, case = compared(world, machine, empty_baselines, against, "session:night000")
        assert (status, case["status"]) == (SLOWER, "REGRESSION"), case
        assert case["sentence"] == reason_text(tonight.verdict.recorded.reason)
        assert told in case["sentence"] and "--update-baselines" in case["sentence"]


def test_runs_without_pairs_have_one_effect_at_night_and_in_compare(
    world: World, machine: Machine, empty_baselines: Path
) -> None:
    tonight = world.night(66.0, reference={})
    status, case = compared(world, machine, empty_baselines, "baseline", "session:night000")
    assert (status, case["status"], tonight.verdict.status) == (SLOWER, "SLOWER", Status.SLOWER)
    assert tonight.verdict.standing is not None and tonight.verdict.standing.effect is not None
    assert case["effect"] == asdict(tonight.verdict.standing.effect)


def test_a_lost_gain_is_a_regression_at_night_and_in_compare(
    world: World, machine: Machine, empty_baselines: Path
) -> None:
    nights_until_the_level_is_known(world)
    session = f"session:night{world.night_number:03d}"
    tonight = world.night(100.0)
    assert tonight.verdict.status is Status.REGRESSION and tonight.verdict.recorded is not None
    status, case = compared(world, machine, empty_baselines, "commit:abcdef", session)
    assert (status, case["status"]) == (SLOWER, "REGRESSION")
    assert case["sentence"] == reason_text(tonight.verdict.recorded.reason)
    assert case["sentence"].startswith("slower: -")
    status, against_baseline = compared(world, machine, empty_baselines, "baseline", session)
    assert (status, against_baseline["reason"]) == (SLOWER, case["reason"])


def test_a_gain_that_stays_lost_is_one_over_both_nights(world: World, machine: Machine, empty_baselines: Path) -> None:
    nights_until_the_level_is_known(world)
    first = world.night_number
    lost = [world.night(100.0) for _ in range(2)]
    assert {each.verdict.status for each in lost} == {Status.REGRESSION}
    dates = f"date:2026-09-{first + 2:02d}..2026-09-{first + 3:02d}"
    status, case = compared(world, machine, empty_baselines, "commit:abcdef", dates)
    assert (status, case["status"], case["b"]["nights"]) == (SLOWER, "REGRESSION", 2)
    assert "interleaved pairs at the level of the nights before (+" in case["sentence"]
    # The reference build itself is as fast as the new one, and no nights are its own.
    status, back = compared(world, machine, empty_baselines, dates, "commit:abcdef")
    assert (status, back["status"]) == (EXIT_OK, "PASS")
