"""A pool of equal nodes, night by night: how far the hosts that its nights come from are apart is learned."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from helpers.history import default_url, open_history
from helpers.history.history import History
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.reasons import reason_text
from helpers.session.measuring.case_loop import CaseResult, measure_case
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.session_double import FakeRunner

pytestmark = pytest.mark.slow

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]
FIRST = datetime.datetime(2026, 10, 1, 3, tzinfo=datetime.UTC)
# Of a night's run against its node, in turn: no two nights are alike.
WOBBLE = (1.0, 1.0006, 0.9993, 1.0002, 0.9998)


@dataclass
class Pool:
    """Nights of one case in one history; ``levels`` are what the nodes deliver, images/s."""

    folder: Path
    history: History
    make_plan: MakePlan
    make_run: MakeRun
    levels: dict[str, float]
    pool: str = "lab"
    made: int = field(default=0)

    def night(self, node: str, factor: float = 1.0) -> CaseResult:
        environment = {**ENVIRONMENT.to_mapping(), "host_id": node, "pool": self.pool, "data": ""}
        first = next(iter(self.levels.values()))
        plan = self.make_plan(environment={"host_id": node})
        segment = segment_of({**environment, "host_id": next(iter(self.levels))}, plan.settings, plan.case.id)
        provenance = Provenance("abcdef", "2026-09-30", "h", "first")
        entry = RecordedEntry(plan.case.id, first, MEDIAN_STEP, (first,) * 3, None, {}, segment, provenance)
        plan = replace(plan, recorded=entry)
        when = FIRST + datetime.timedelta(days=self.made)
        store = ResultStore(self.folder, f"night{self.made}", SessionRecord(began=when.isoformat()))
        runner = FakeRunner(store, self.make_run)
        rate = self.levels[node] * factor
        values = [{"environment": environment, "samples_per_s": rate * each} for each in WOBBLE * 2]
        start = self.made % len(WOBBLE)
        runner.answers = [
            {**each, "uuid": f"n{self.made}r{at}"} for at, each in enumerate(values[start:] + values[:start])
        ]
        self.made += 1
        return measure_case(plan, runner, store, self.history, now=lambda: when)

    def nights(self, count: int) -> None:
        nodes = list(self.levels)
        for number in range(count):
            self.night(nodes[number % len(nodes)])


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with open_history(default_url(tmp_path)) as opened:
        yield opened


@pytest.fixture
def pool(tmp_path: Path, history: History, make_plan: MakePlan, make_run: MakeRun) -> Pool:
    apart = {"n1": 100.0, "n2": 98.0, "n3": 103.0, "n4": 101.0}
    return Pool(tmp_path, history, make_plan, make_run, apart)


def test_a_node_that_stands_below_the_others_is_no_drop(pool: Pool) -> None:
    pool.nights(20)
    tonight = pool.night("n2")
    assert tonight.verdict.status.value == "PASS"
    assert "20 nights (2026-10-01 to 2026-10-20) on 4 nodes of a pool, whose nodes are " in reason_text(
        tonight.verdict.reason
    )
    standing = tonight.verdict.standing
    assert standing is not None
    # A run repeats to 0.1%; the nodes are 2% apart, and that is where the next node's place may be.
    assert standing.sigma < 0.003 < 0.02 < standing.tau


def test_where_the_nodes_are_alike_a_drop_is_seen(pool: Pool) -> None:
    pool.levels = {f"n{number}": 100.0 for number in range(8)}
    pool.nights(24)
    told = pool.night("n3", 0.93).verdict
    assert told.status.value == "SLOWER"
    assert "on 8 nodes of a pool" in reason_text(told.reason)
