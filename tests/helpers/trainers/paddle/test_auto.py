"""Which way of automatic parallelism a case takes with the installed build, and that each way trains right."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import numpy
import paddle
import pytest

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import job_environment
from helpers.launch.outcome import OutcomeKind
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.supervisor import run_job
from helpers.machine.watch.contention import CpuMeter
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.trainers.common.process import Refused
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, StepLog
from helpers.trainers.paddle import auto as paddle_auto
from helpers.trainers.paddle.auto import FACT, Way, choose, examine_switch
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.jobs import LIMITS

CORES = own_cores()
TWO_CORES = pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
WORKER = Path(__file__).with_name("mesh_worker.py")


def _spec(case_id: str, device: str, folder: str = ".", **values: object) -> JobSpec:
    case = Case.parse(case_id)
    fields: dict[str, object] = {
        "job_id": uuid.uuid4().hex,
        "case": case,
        "replicate": 0,
        "run_folder": folder,
        "device": device,
        "warmup_steps": 0,
        "window_steps": 2,
        "settings": settings_for(case, device),
        **values,
    }
    return JobSpec(**fields)  # type: ignore[arg-type]


def _published(nodes_and_cards: str, precision: str = "unstated") -> Case:
    return Case.parse(f"paddle-vgg16-{precision}-bs32-{nodes_and_cards}-dali-static-auto")


# ---- the switch of 2020


@pytest.mark.parametrize(("cards", "first"), [("1x1", "TensorParallelOptimizer"), ("1x8", "ShardingOptimizer")])
def test_the_switch_is_honoured_on_1_and_8_cards_and_its_chain_is_told(cards: str, first: str) -> None:
    switch = examine_switch(_published(cards), "gpu")
    assert switch.obstacle is None
    assert switch.chain[0] == first
    assert {"AMPOptimizer", "LarsOptimizer"} <= set(switch.chain)
    automatic = choose(_spec(_published(cards).id, "gpu"))
    assert automatic.way is Way.SWITCH
    assert automatic.fact == f"DistributedStrategy.auto (chose: {', '.join(switch.chain)})"


@pytest.mark.parametrize(("cards", "ranks"), [("1x2", 2), ("2x8", 16), ("4x8", 32)])
def test_the_switch_is_not_honoured_where_its_sharding_is_made_for_another_number_of_cards(
    cards: str, ranks: int
) -> None:
    obstacle = examine_switch(_published(cards), "gpu").obstacle
    assert obstacle is not None
    assert "its sharding is made for 8 cards" in obstacle
    assert obstacle.endswith(f"not for {ranks}")
    automatic = choose(_spec(_published(cards).id, "gpu"))
    assert automatic.way is Way.MESH_PROGRAM
    assert f"paddle.distributed.to_static over a mesh of {ranks}" in automatic.fact
    assert "DistributedStrategy.auto is not used" in automatic.fact


def test_the_switch_does_not_train_a_case_that_names_its_precision() -> None:
    obstacle = examine_switch(_published("1x8", "fp32"), "gpu").obstacle
    assert obstacle == "it chooses the precision itself (mixed precision), and the case names fp32"
    assert choose(_spec(_published("1x8", "fp32").id, "gpu")).way is Way.MESH_PROGRAM


def test_the_switch_is_for_gpus() -> None:
    assert examine_switch(_published("1x1"), "cpu").obstacle == "fleet's program communicates among GPUs alone"


def test_asking_leaves_the_switch_and_the_mode_as_they_were() -> None:
    before = examine_switch(_published("1x8"), "gpu")
    assert paddle.in_dynamic_mode()
    assert examine_switch(_published("1x8"), "gpu") == before
    strategy = paddle.distributed.fleet.DistributedStrategy()
    strategy.auto = True
    assert strategy._is_strict_auto()


def test_a_build_that_ignores_the_switch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from paddle.distributed.fleet.base import distributed_strategy

    monkeypatch.setattr(distributed_strategy, "non_auto_func_called", False)
    assert examine_switch(_published("1x8"), "gpu").obstacle == "this build's fleet ignores it"


def test_a_build_without_the_switch_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paddle.distributed.fleet.base.strategy_compiler", None)
    obstacle = examine_switch(_published("1x8"), "gpu").obstacle
    assert obstacle is not None
    assert obstacle.startswith("this build's fleet has it no more (")
    assert paddle.in_dynamic_mode()


# ---- today's interface


@pytest.mark.parametrize(
    ("case", "device", "way"),
    [
        ("fp32-bs1-1x2-dali-dynamic-auto", "cpu", Way.MESH),
        ("tf32-bs1-1x8-dali-dynamic-auto", "gpu", Way.MESH),
        ("fp32-bs1-1x1-dali-static-auto", "cpu", Way.MESH_PROGRAM),
    ],
)
def test_the_way_follows_execution_and_device(case: str, device: str, way: Way) -> None:
    facts: dict[str, str] = {}
    automatic = paddle_auto.start(_spec(f"paddle-vgg16-{case}", device), facts)
    assert automatic.way is way
    assert facts == {FACT: automatic.fact}


@pytest.mark.parametrize(
    ("case", "device", "reason"),
    [
        ("fp32-bs1-1x1-dali-to_static-auto", "cpu", "its static form is the execution static"),
        ("unstated-bs1-1x1-dali-dynamic-auto", "cpu", "nothing chooses the precision"),
        ("amp_o1-bs1-1x1-dali-dynamic-auto", "gpu", "not in amp_o1"),
        ("amp_o1-bs1-1x8-dali-static-auto", "gpu", "not in amp_o1"),
        ("unstated-bs1-1x1-dali-static-auto", "cpu", "on a CPU no strategy chooses it"),
        ("fp32-bs1-1x2-dali-static-auto", "cpu", "on CPU cards use dynamic"),
    ],
)
def test_what_no_way_trains_is_refused_with_its_reason(case: str, device: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        choose(_spec(f"paddle-vgg16-{case}", device))


def test_a_build_that_cannot_join_the_ranks_shares_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Paddle 2.6 is.
    monkeypatch.delattr(paddle.distributed.auto_parallel.api, "dtensor_from_local")
    with pytest.raises(Refused, match="has no dtensor_from_local"):
        choose(_spec("paddle-vgg16-fp32-bs1-1x2-dali-dynamic-auto", "cpu"))


def test_a_build_whose_static_form_reads_its_data_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_static(layer: object, loader: object = None) -> None: ...

    monkeypatch.setattr(paddle.distributed, "to_static", to_static)
    with pytest.raises(Refused, match=r"not for 16; and .* reads its data itself"):
        choose(_spec(_published("2x8").id, "gpu"))


# ---- training


@pytest.mark.training
@pytest.mark.untimed
@TWO_CORES
def test_two_ranks_over_a_mesh_train_as_data_parallel_ones_and_as_one_on_the_whole_batch(tmp_path: Path) -> None:
    argv = [
        sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--devices", ",",
        "--host", "127.0.0.1", "--log_dir", str(tmp_path / "log"), str(WORKER), str(tmp_path),
    ]  # fmt: skip
    environment = {**os.environ, "PADDLE_DISTRI_BACKEND": "gloo", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    first, second = (dict(numpy.load(tmp_path / f"rank{rank}.npz")) for rank in (0, 1))
    names = [name for name in first if name.startswith("mesh")]
    assert len(names) == 8
    for name in names:
        index = name[len("mesh") :]
        assert numpy.array_equal(first[name], second[name])
        for other in ("parallel", "single"):
            assert numpy.allclose(first[name], first[f"{other}{index}"], rtol=0, atol=2e-6)
    losses = (first["losses"] + second["losses"]) / 2
    assert losses[-1] < 0.9 * losses[0]


def _run(spec: JobSpec) -> tuple[int, list[StepLog], str]:
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    command = launcher_for(spec).command(spec, sys.executable)
    environment = job_environment(os.environ, spec, command, {})
    done = subprocess.run(command.argv, env=environment, capture_output=True, text=True, timeout=600, check=False)
    ranks = range(spec.case.cards)
    return done.returncode, [read_step_log(spec.step_log_path(rank), spec.job_id, rank) for rank in ranks], done.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., JobSpec]:
    def make(case_id: str, **settings: object) -> JobSpec:
        folder = tmp_path_factory.mktemp("run")
        data = make_small_dataset(folder / "data", images_per_class=1).root if "-dali-" in case_id else None
        case = Case.parse(case_id)
        return _spec(
            case_id,
            "cpu",
            str(folder),
            data_root=str(data) if data else None,
            settings={**settings_for(case, "cpu"), **settings},
            overrides=settings,
            cores=tuple((CORES[card % len(CORES)],) for card in range(case.cards)),
        )

    return make


@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.usefixtures("small_images")
@TWO_CORES
def test_a_network_that_paddle_would_not_share_out_is_refused(job: Callable[..., JobSpec]) -> None:
    # Through the supervisor: the launcher may end one rank before it has said why, and hides their exit status.
    spec = job("paddle-resnet50v1.5-fp32-bs1-1x2-synthetic-dynamic-auto")
    command = launcher_for(spec).command(spec, sys.executable)
    outcome = run_job(spec, command, LIMITS, CpuMeter(()))
    assert outcome.kind is OutcomeKind.REFUSED
    assert "no rule for BatchNorm2D" in outcome.reason
    assert outcome.logs == ()


@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.usefixtures("small_images")
def test_the_static_form_trains_on_one_cpu_card_and_says_why_it_is_not_the_switch(job: Callable[..., JobSpec]) -> None:
    status, logs, errors = _run(job("paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-static-auto", learning_rate=0.001))
    assert (status, logs[0].footer.status) == (0, COMPLETE), errors[-2000:]
    fact = logs[0].header.facts[FACT]
    assert fact.startswith("paddle.distributed.to_static over a mesh of 1 (DistributedStrategy.auto is not used:")
    losses = [step.loss for step in logs[0].steps]
    assert losses[0] is not None and losses[1] is not None
    assert losses[1] < losses[0]
