"""Which sessions a busy machine stops, who is named, and what the user can do; a spike stops none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.environment import CPU, GPU
from helpers.machine.leases import Leases, default_folder
from helpers.machine.watch.contention import ContentionSample, ForeignProcess
from helpers.machine.watch.processes import Process, Processes
from helpers.plan.case_plan import CasePlan, SuiteCase, matrix
from helpers.plan.perf_yaml import Config, GateRule, load_config
from helpers.session.gate import Gate
from helpers.session.measuring.disturbance import LOOK_SECONDS, QuickLook, disturbance_of
from helpers.session.measuring.examination import ExaminationIO
from helpers.session.suite import SuiteOptions
from helpers.trainers.contract.errors import LaunchError
from tests.helpers.machines import HOST, StandInNvml, details_of_all, gpu_machine, v100s
from tests.helpers.session.measuring.test_examination import Clock

TWO_CARDS = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="none")
CC1 = ForeignProcess("cc1", 4711, 1.9, "ann")


@dataclass
class Meter:
    """Others' share at each look, one after another."""

    shares: Sequence[float | None]
    own: list[Collection[int]] = field(default_factory=list)
    answered: int = 0

    def __call__(self, cores: frozenset[int]) -> Meter:
        return self

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        self.own.append(own)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        share = self.shares[self.answered]
        self.answered += 1
        if share is None:
            raise LaunchError("/proc/stat", got="nothing", expected="cores")
        return ContentionSample(share, (CC1,), window[1] - window[0] if window else 0.0)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def process(pid: int, parent: int, name: str = "python") -> Process:
    return Process(pid, parent, name, "R", 1.0, 1, 0, 0, 0.0)


@dataclass
class Everyone(Processes):
    """A session (10) with a worker (11) and its loader (12), and a compiler (20)."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))

    def all(self) -> list[Process]:
        return [process(1, 0, "init"), process(10, 1), process(11, 10), process(12, 11), process(20, 1, "cc1")]

    def look(self, pid: int) -> Process | None:
        return next((each for each in self.all() if each.pid == pid), None)


def looking(tmp_path: Path, *shares: float | None, machine: Machine = TWO_CARDS, **io: object) -> QuickLook:
    clock = Clock()
    given: dict[str, object] = {
        "root": tmp_path,
        "variables": {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        "open_nvml": lambda: "no libnvidia-ml.so.1",
        "processes": Everyone(),
        "meter": Meter(shares),
        "clock": clock,
        "sleep": clock.sleep,
        **io,
    }
    return QuickLook(machine, 0.05, ExaminationIO(**given), own=lambda: 10)  # type: ignore[arg-type] # by name


def test_a_quiet_machine_is_looked_at_once_for_a_second(tmp_path: Path) -> None:
    look = looking(tmp_path, 0.05)
    before = look.io.clock()
    assert look.disturbance({CPU: 2}) == ""
    assert look.io.clock() - before == LOOK_SECONDS[0] == 1.0


def test_a_busy_one_is_looked_at_twice_and_who_uses_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "loadavg").write_text("7.25 5.0 4.0 8/400 9999\n")
    look = looking(tmp_path, 0.5, 0.6)
    before = look.io.clock()
    told = look.disturbance({CPU: 2})
    assert told.startswith("in the last 2.0 s 60.0% of the leased cards' time went to others: cc1 (pid 4711, user ann")
    assert told.endswith("load average 7.2")
    assert look.io.clock() - before == sum(LOOK_SECONDS) == 3.0


@pytest.mark.parametrize(
    ("cards", "share", "stops"),
    [(2, 0.06, True), (2, 0.05, False), (1, 0.5, False), (1, 0.52, False), (1, 0.54, True), (1, 1.0, True)],
)
def test_others_may_have_the_cores_that_the_smallest_case_leaves(
    tmp_path: Path, cards: int, share: float, stops: bool
) -> None:
    assert bool(looking(tmp_path, share, share).disturbance({CPU: cards})) is stops


def test_the_sessions_own_processes_count_as_its_own(tmp_path: Path) -> None:
    look = looking(tmp_path, 0.0)
    look.disturbance({CPU: 2})
    meter = look.io.meter
    assert isinstance(meter, Meter)
    assert [sorted(each) for each in meter.own] == [[10, 11, 12]] * 2


def test_while_another_session_holds_cards_nothing_is_stopped(tmp_path: Path) -> None:
    look = looking(tmp_path, 0.9, 0.9)
    leases = Leases(default_folder(TWO_CARDS.host_id, look.io.variables))
    with leases.lease(TWO_CARDS.cpu_cards, 1, "a-case", exclusive_machine=False):
        assert look.disturbance({CPU: 2}) == ""
    assert looking(tmp_path, 0.9, 0.9).disturbance({CPU: 2}) != ""


@pytest.mark.parametrize("shares", [(None,), (0.9, None)])
def test_what_cannot_be_seen_stops_nothing(tmp_path: Path, shares: tuple[float | None, ...]) -> None:
    assert looking(tmp_path, *shares).disturbance({CPU: 2}) == ""


@pytest.mark.parametrize(("busy", "needed", "stops"), [(0, 4, False), (1, 4, True), (1, 3, False), (4, 1, True)])
def test_cards_that_somebody_sits_on_are_counted(tmp_path: Path, busy: int, needed: int, stops: bool) -> None:
    gpus = v100s()[:4]
    details = {uuid: replace(each, processes=()) for uuid, each in details_of_all().items()}
    details |= {gpu.uuid: replace(details[gpu.uuid], processes=(20,)) for gpu in gpus[:busy]}
    nvml = StandInNvml(gpus, details)
    look = looking(tmp_path, machine=gpu_machine(gpus), open_nvml=lambda: nvml, owner=lambda pid: "ann")
    told = look.disturbance({GPU: needed})
    assert ("processes on a card: GPU0: cc1 (pid 20, user ann)" in told) is stops
    assert told.count("processes on a card") == (busy if stops else 0)


ROOT = Path(__file__).parents[3]
ONE_CARD = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
GATED = Gate(True, (GateRule("*", "recorded"),))


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT / "helpers/plan/defaults.yaml")


@pytest.fixture
def case(config: Config) -> SuiteCase:
    (found,) = [each for each in matrix(config, {}) if each.key == ("cpu", ONE_CARD)]
    return found


@pytest.fixture
def busy(tmp_path: Path) -> ExaminationIO:
    """Others have both cores."""
    return looking(tmp_path, 1.0, 1.0).io


@pytest.fixture
def told(tmp_path: Path, config: Config, case: SuiteCase, busy: ExaminationIO) -> Callable[..., str]:
    def ask(gate: Gate | None = None, **changes: Any) -> str:
        options = replace(SuiteOptions(tmp_path, tmp_path, tmp_path / "runs", "s"), **changes)
        suite = SimpleNamespace(
            options=options, config=config, machine=TWO_CARDS, gate=gate or Gate(False), io=busy,
            store=ResultStore(tmp_path / "runs", "s"),
        )  # fmt: skip
        return disturbance_of([case], suite)

    return ask


def test_where_contention_is_allowed_nothing_is_asked(told: Callable[..., str]) -> None:
    assert told(allow_contention=True) == ""


@pytest.mark.parametrize("allowed", [True, False])
def test_a_gate_judges_no_disturbed_run_whatever_is_allowed(told: Callable[..., str], allowed: bool) -> None:
    assert told(GATED, allow_contention=allowed).endswith("a gate judges no disturbed run, whatever is allowed")


@pytest.mark.parametrize(
    ("resume", "finished", "stops"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_a_resumed_session_is_stopped_only_for_what_is_left_to_measure(
    told: Callable[..., str], tmp_path: Path, case: SuiteCase, make_run: Callable[..., RunResult],
    resume: bool, finished: bool, stops: bool,
) -> None:  # fmt: skip
    store = ResultStore(tmp_path / "runs", "s")
    run = make_run(CasePlan(case))
    store.new_run_folder(case.case.id, 0)
    store.write(run)
    if finished:
        store.add_verdict((run,), Verdict(Status.PASS, Reason("no-drop", "no drop")))
    assert bool(told(resume=resume)) is stops
