"""The switch of automatic parallelism in the installed build: what it chooses, and what it does not train."""

from __future__ import annotations

import sys

import paddle
import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle import auto as paddle_auto
from helpers.trainers.paddle.auto import FACT, examine_switch


def _spec(case_id: str, device: str) -> JobSpec:
    case = Case.parse(case_id)
    return JobSpec("j", case, 0, ".", device, 0, 2, settings=settings_for(case, device))


def _published(nodes_and_cards: str, precision: str = "unstated") -> Case:
    return Case.parse(f"paddle-vgg16-{precision}-bs32-{nodes_and_cards}-dali-static-auto")


@pytest.mark.parametrize(("cards", "first"), [("1x1", "TensorParallelOptimizer"), ("1x8", "ShardingOptimizer")])
def test_the_switch_is_honoured_on_1_and_8_cards_and_its_chain_is_told(cards: str, first: str) -> None:
    switch = examine_switch(_published(cards), "gpu")
    assert switch.obstacle is None
    assert switch.chain[0] == first
    assert {"AMPOptimizer", "LarsOptimizer"} <= set(switch.chain)
    facts: dict[str, str] = {}
    paddle_auto.start(_spec(_published(cards).id, "gpu"), facts)
    assert facts == {FACT: f"DistributedStrategy.auto (chose: {', '.join(switch.chain)})"}


@pytest.mark.parametrize(("cards", "ranks"), [("1x2", 2), ("2x8", 16), ("4x8", 32)])
def test_the_switch_is_not_honoured_where_its_sharding_is_made_for_another_number_of_cards(
    cards: str, ranks: int
) -> None:
    obstacle = examine_switch(_published(cards), "gpu").obstacle
    assert obstacle is not None
    assert "its sharding is made for 8 cards" in obstacle
    assert obstacle.endswith(f"not for {ranks}")
    with pytest.raises(Refused, match=f"DistributedStrategy.auto cannot be used: .* not for {ranks}"):
        paddle_auto.start(_spec(_published(cards).id, "gpu"), {})


def test_the_switch_does_not_train_a_case_that_names_its_precision() -> None:
    obstacle = examine_switch(_published("1x8", "fp32"), "gpu").obstacle
    assert obstacle == "it chooses the precision itself (mixed precision), and the case names fp32"


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


@pytest.mark.parametrize("case", ["fp32-bs1-1x2-dali-dynamic-auto", "fp32-bs1-1x1-dali-static-auto"])
def test_on_a_cpu_and_without_a_program_it_is_refused(case: str) -> None:
    with pytest.raises(Refused, match=r"DistributedStrategy\.auto"):
        paddle_auto.start(_spec(f"paddle-vgg16-{case}", "cpu"), {})
