"""The parts of TensorFlow's step: counts, batch norm, labels, loss scale, proof of precision, lent memory, refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.launch.failure import failure_of_rank
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.small_network import CONVOLUTIONS

pytestmark = [pytest.mark.slow, TENSORFLOW.needs]

# Three steps need no fast machine code, on which XLA spends two fifths of its time.
QUICKLY_COMPILED = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    environment = replace(TENSORFLOW, variables={**TENSORFLOW.variables, **QUICKLY_COMPILED})
    return environment.units(tmp_path_factory, "resnet50v1.5-fp32-bs4-1x1-synthetic")


def test_the_fused_batch_norm_is_the_one_that_parity_was_shown_with(told: dict[str, Any]) -> None:
    assert told["batch_norm"] < 1e-4


def test_labels_are_as_smooth_as_the_settings_say(told: dict[str, Any]) -> None:
    assert told["labels"] == pytest.approx({"hard": 0.0, "smooth": 0.0}, abs=1e-5)


def test_a_loss_scale_and_xla_change_no_step(told: dict[str, Any]) -> None:
    scaling = told["scaling"]
    # bfloat16 has as many exponents as float32: a power of two changes no digit.
    assert scaling["scaled"] == pytest.approx(scaling["plain"], rel=1e-5)
    assert scaling["xla"] == pytest.approx(scaling["float32"], rel=1e-3)
    assert scaling["float32"][2] < scaling["float32"][1] < scaling["float32"][0]


def test_two_cards_average_their_gradients(told: dict[str, Any]) -> None:
    found = told["mirrored"]
    assert found["apart"] == 0.0
    assert found["same"] == pytest.approx(found["alone"], rel=1e-3)


def test_a_step_that_computes_in_another_type_than_its_case_is_refused(told: dict[str, Any]) -> None:
    assert told["proofs"]["right"] == ""
    assert told["proofs"]["not_cast"].endswith(
        f"the model's {CONVOLUTIONS} convolutions in bfloat16 NHWC: it has {CONVOLUTIONS} in float32 NHWC"
    )


def test_an_operation_s_error_says_whose_memory_is_full(told: dict[str, Any]) -> None:
    host, card, other = told["errors"]
    assert [failure_of_rank(each, started=True).what for each in (host, card, other)] == [
        "out of host memory", "out of GPU memory", "Python exception"
    ]  # fmt: skip
    assert (host, card) == (
        "MemoryError: ResourceExhaustedError: OOM when allocating",
        "RuntimeError: out of memory error on GPU: ResourceExhaustedError: OOM when allocating",
    )
    assert other.endswith("2000 is not in [0, 1000)")


def test_a_step_on_a_card_ends_when_the_card_has_done_it(told: dict[str, Any]) -> None:
    assert told["waiting"] == ["wait", "clock"] * 3 + [[[1.0, 2.5], [2.5, 4.0]]]


def test_what_a_cpu_cannot_run_is_refused_with_its_reason(told: dict[str, Any]) -> None:
    assert told["refused"].startswith("TF32 is arithmetic of NVIDIA GPUs")
