"""The fixtures of the tests of the loop: its runner, store and history answer at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.history.run_folders import ResultStore
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.case_loop import MeasureRequest, measure_case
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.measuring.loop_double import MakePlan, MakeRun, Measure
from tests.helpers.session_double import GOOD, NEW, WHEN, FakeRunner


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path, "s")


@pytest.fixture
def runner(store: ResultStore, make_run: MakeRun) -> FakeRunner:
    return FakeRunner(store, make_run)


@pytest.fixture
def memory() -> MemoryDouble:
    return MemoryDouble()


@pytest.fixture
def measure(runner: FakeRunner, store: ResultStore, memory: MemoryDouble) -> Measure:
    """measure_case with the test's runner, store and memory; each keyword is measure_case's own."""
    return lambda plan, **options: measure_case(
        plan, runner, store, memory, MeasureRequest(**options), now=lambda: WHEN
    )


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    return make_plan(build=NEW, reference=GOOD)
