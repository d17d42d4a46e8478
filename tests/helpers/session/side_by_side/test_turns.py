"""The real path of a comparison: one lease for all frameworks, and each one's own images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.session.side_by_side.turns
import helpers.session.suite
from helpers.history.results import RunResult
from helpers.judging.case.evidence import Build, Stage
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.session.measuring import planner
from helpers.session.measuring.job_runner import RunTerms
from helpers.session.side_by_side.configurations import PAIRS, Configuration
from helpers.session.side_by_side.turns import compare_frameworks, targets_here, why_not
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.commands.conftest import MACHINE
from tests.helpers.frameworks_double import CONFIG, PADDLE, PYTORCH, TurnsRunner, TwoFrameworks
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.workshop import IMAGENET

ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Leased:
    """What a lease yields: a runner with images."""

    turns: TurnsRunner
    read: list[tuple[str, object]]
    terms: RunTerms

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        self.read.append((plan.case.framework.value, self.terms.data))
        return self.turns.run(plan, replicate, build, stage)


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", TwoFrameworks)
    monkeypatch.setattr(planner, "settings_for", lambda case, *_, **__: {"optimizer": "momentum"})
    (tmp_path / "perf.yaml").write_text(CONFIG)
    (tmp_path / "runs").mkdir()
    options = SuiteOptions(tmp_path / "perf.yaml", ROOT / "baselines", tmp_path / "runs", "s", allow_contention=True)
    found = Suite.load(options, machine=MACHINE, memory=MemoryDouble())
    found.__dict__.update(system={}, data="images")
    return found


def of(suite: Suite, *case_ids: str) -> Configuration:
    known: dict[str, SuiteCase] = {each.case.id: each for each in suite.cases}
    return Configuration(tuple(known[case_id] for case_id in case_ids))


@pytest.mark.parametrize(
    ("of_paddle", "of_pytorch", "unlike"),
    [
        ({"amp_level": "O2"}, {"amp_level": "O1"}, {"amp_level": {"paddle": "O2", "pytorch": "O1"}}),
        ({}, {"decay_norms": True}, {}),
        ({}, {"decay_norms": False}, {"decay_norms": {"paddle": True, "pytorch": False}}),
        ({"execution": "static"}, {"cudnn_benchmark": True}, {}),
        ({}, {"cards_per_process": 1}, {}),
        ({}, {"cards_per_process": 2}, {"cards_per_process": {"paddle": 1, "pytorch": 2}}),
    ],
)
def test_a_row_tells_in_what_its_frameworks_are_not_trained_alike(
    suite: Suite,
    monkeypatch: pytest.MonkeyPatch,
    of_paddle: dict[str, Any],
    of_pytorch: dict[str, Any],
    unlike: dict[str, Any],
) -> None:
    own = {Framework.PADDLE: of_paddle, Framework.PYTORCH: of_pytorch}
    monkeypatch.setattr(
        planner,
        "settings_for",
        lambda case, *_, **__: {"optimizer": "momentum", **own[case.framework]},
    )
    suite.runner = TurnsRunner(suite.options.runs_folder, session="s")
    outcome = compare_frameworks(suite, of(suite, PADDLE, PYTORCH))
    assert (outcome.measured, outcome.unlike) == (2, unlike)


def test_all_frameworks_run_on_one_lease_under_the_sessions_terms(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[tuple[str, RunTerms]] = []
    runner = Leased(TurnsRunner(suite.options.runs_folder, session="s"), [], RunTerms(data=IMAGENET))

    @contextlib.contextmanager
    def leased(plan: CasePlan, machine: Any, store: Any, config: Any, terms: RunTerms, tell: Any) -> Iterator[Any]:
        leases.append((plan.case.id, terms))
        yield runner

    monkeypatch.setattr(helpers.session.side_by_side.turns, "leased_runner", leased)
    outcome = compare_frameworks(suite, of(suite, PADDLE, PYTORCH))
    assert (outcome.measured, outcome.unlike) == (2, {})
    assert leases == [(PADDLE, RunTerms(allow_contention=True, data=None, system={}))]
    assert PAIRS == 3
    # Synthetic: no images.
    assert runner.read == [(name, None) for name in ("paddle", "pytorch", "pytorch", "paddle", "paddle", "pytorch")]


def test_a_resumed_comparison_makes_half_a_pair_again_with_its_other_half(suite: Suite) -> None:
    folder = suite.options.runs_folder
    suite.runner = TurnsRunner(folder, session="s", answers={3: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        compare_frameworks(suite, of(suite, PADDLE, PYTORCH))
    # Paddle's second run is missing: PyTorch's, made just before it, is no other half of one that is made today.
    assert suite.runner.made == ["paddle", "pytorch", "pytorch", "paddle"]
    suite.options = replace(suite.options, resume=True)
    suite.runner = TurnsRunner(folder, session="s")
    assert compare_frameworks(suite, of(suite, PADDLE, PYTORCH)).measured == 2
    assert suite.runner.made == ["pytorch", "paddle", "paddle", "pytorch"]
    suite.runner = TurnsRunner(folder, session="s")
    assert compare_frameworks(suite, of(suite, PADDLE, PYTORCH)).measured == 2
    assert suite.runner.made == []


def test_several_nodes_are_not_compared(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Suite, "why_not", lambda self, case: None)
    two = replace(suite.cases[0], case=replace(suite.cases[0].case, nodes=2))
    assert "one node" in (why_not(suite, two) or "")
    (cell,) = compare_frameworks(suite, Configuration((two,))).cells
    assert "one node" in cell.reason.text and not cell.runs_here


@pytest.mark.parametrize(
    ("cards", "targets"),
    [(("NVIDIA H200",), ("gpu",)), (("Tesla V100-SXM2-32GB",), ("v100",)), (("NVIDIA A100-PCIE-40GB",), ("a100",))],
)
def test_a_machine_with_gpus_compares_its_models_configurations_else_those_of_any_card(
    suite: Suite, cards: tuple[str, ...], targets: tuple[str, ...]
) -> None:
    gpus = tuple(Gpu(n, f"GPU-{n}", name, 32 * 1024**3, (8, 0), 300) for n, name in enumerate(cards))
    suite.machine = replace(MACHINE, gpus=gpus, gpu_note="")
    anys = replace(suite.cases[0], target="gpu")
    suite.cases = (*suite.cases, anys)
    assert targets_here(suite) == targets
