"""The parts of MXNet's step: what is refused, counts, proofs, several cards, weight decay, rates, what it is fed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.environments import MXNET
from tests.helpers.trainers.once import made_once

pytestmark = [pytest.mark.slow, MXNET.needs]

CORES = own_cores()


def _spec(cards: int) -> str:
    case = Case.parse(f"mxnet-resnet50v1.5-fp32-bs2-1x{cards}-synthetic")
    cores = tuple((CORES[card % len(CORES)],) for card in range(cards))
    return JobSpec("j", case, 0, "r", "cpu", 0, 1, settings=settings_for(case, "cpu"), cores=cores).to_json()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    def looked() -> Any:
        specs = tmp_path_factory.mktemp("units") / "specs.json"
        specs.write_text(json.dumps({"one": _spec(1), "two": _spec(2)}), encoding="utf-8")
        printed = MXNET.run(str(Path(__file__).with_name("step_units.py")), str(specs))
        return json.loads(printed.splitlines()[-1])

    return dict(made_once(tmp_path_factory, "steps-mxnet", looked))


def test_convolutions_and_weights_of_another_type_or_layout_are_refused(told: dict[str, Any]) -> None:
    proofs = told["proofs"]
    assert proofs.pop("right") == ""
    assert "convolutions in float16: 0 of 53" in proofs["not_cast"]
    assert "convolutions in NHWC: 0 of 53" in proofs["layout"]
    assert all(proofs.values()), proofs


def test_labels_are_smoothed_by_the_formula(told: dict[str, Any]) -> None:
    measured, wanted = told["smoothed"]
    assert measured == pytest.approx(wanted, rel=1e-6)
    assert measured > 1


def test_two_cards_with_the_same_images_learn_as_one_does(told: dict[str, Any]) -> None:
    together = told["together"]
    assert together["two"] == pytest.approx(together["one"], rel=1e-10)
    assert together["one"][2] < together["one"][0]
    assert together["weights_differ"] == 0


def test_weight_decay_spares_batch_norm_where_the_settings_say_so(told: dict[str, Any]) -> None:
    assert told["decay"] == {"True": [161, 0], "False": [55, 106]}


def test_the_rate_of_every_step_is_the_settings_own(told: dict[str, Any]) -> None:
    assert told["rates"] == pytest.approx([0.0, 0.5, 1.0, 0.1])


def test_what_the_step_gets_is_a_copy_and_labels_are_float32(told: dict[str, Any]) -> None:
    assert told["fed"] == [[[1.0, 1.0], "float16"], [[5.0, 700.0], "float32"], [[5.0, 700.0], "float32"]]


def test_a_batch_of_dali_s_is_copied_before_dali_fills_it_anew(told: dict[str, Any]) -> None:
    assert told["dali"] == [[[[0.0, 0.0], [0.0, 1.0]], "float16"], [[[0, 0], [0, 1]], "int64"]]


@pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
def test_each_card_computes_on_its_own_cores(told: dict[str, Any]) -> None:
    assert sorted(told["pinned"]) == sorted([core] for core in CORES[:2])
