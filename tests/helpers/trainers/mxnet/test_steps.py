"""The parts of MXNet's step: what is refused, counts, proofs, several cards, weight decay, rates, what it is fed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.environments import MXNET

pytestmark = [pytest.mark.slow, MXNET.needs]

CORES = own_cores()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return MXNET.units(tmp_path_factory, *(f"resnet50v1.5-fp32-bs2-1x{cards}-synthetic" for cards in (1, 2)))


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


def test_what_a_cpu_cannot_run_is_refused_with_its_reason(told: dict[str, Any]) -> None:
    assert told["refused"].startswith("TF32 is arithmetic of NVIDIA GPUs")
