"""The parts of TensorFlow's step: counts, batch norm, labels, loss scale, proof of precision, lent memory, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.failure import class_of_failure
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.environments import TENSORFLOW
from tests.helpers.trainers.once import made_once
from tests.helpers.trainers.small_network import CONVOLUTIONS

pytestmark = [pytest.mark.slow, TENSORFLOW.needs]

# Three steps need no fast machine code, on which XLA spends two fifths of its time.
QUICKLY_COMPILED = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}
CASE = Case.parse("tensorflow-resnet50v1.5-fp32-bs4-1x1-synthetic")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    def looked() -> Any:
        folder = tmp_path_factory.mktemp("units")
        spec = JobSpec("j", CASE, 0, str(folder), "cpu", 0, 1, settings=settings_for(CASE, "cpu"))
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
        environment = replace(TENSORFLOW, variables={**TENSORFLOW.variables, **QUICKLY_COMPILED})
        printed = environment.run("-m", "tests.helpers.trainers.tensorflow.step_units", str(spec.spec_path))
        return json.loads(printed.splitlines()[-1])

    return dict(made_once(tmp_path_factory, "steps-tensorflow", looked))


def test_the_models_have_as_many_parameters_as_every_framework_s(told: dict[str, Any]) -> None:
    assert told["parameters"] == {"resnet50": 25_557_032, "four_channels": 25_560_168, "vgg16": 138_357_544}


def test_the_fused_batch_norm_is_the_one_that_parity_was_shown_with(told: dict[str, Any]) -> None:
    assert told["batch_norm"] < 1e-4


def test_labels_are_as_smooth_as_the_settings_say(told: dict[str, Any]) -> None:
    assert told["labels"] == pytest.approx({"hard": 0.0, "smooth": 0.0}, abs=1e-5)


def test_an_overflow_changes_no_weight_and_halves_the_scale(told: dict[str, Any]) -> None:
    assert [(scale, moved) for _, scale, moved in told["scaling"]["overflows"]] == [
        (2.0**126, False), (2.0**125, False), (2.0**124, False)
    ]  # fmt: skip


def test_the_scale_rises_by_its_rule_and_a_static_one_stays(told: dict[str, Any]) -> None:
    assert [(scale, moved) for _, scale, moved in told["scaling"]["rises"]] == [(8.0, True), (16.0, True), (16.0, True)]
    assert [(scale, moved) for _, scale, moved in told["scaling"]["static"]] == [(8.0, True)] * 3


def test_whatever_the_scale_the_weights_move_alike(told: dict[str, Any]) -> None:
    losses = {name: [loss for loss, _, _ in steps] for name, steps in told["scaling"].items()}
    # bfloat16 has as many exponents as float32: a power of two changes no digit.
    assert losses["static"] == losses["rises"] == pytest.approx(losses["none"], rel=1e-5)


def test_two_cards_of_a_process_train_alike_whether_xla_compiles_their_gradients_or_not(told: dict[str, Any]) -> None:
    plain, xla = told["mirrored"]["plain"], told["mirrored"]["xla"]
    assert plain == pytest.approx(xla, rel=1e-3)
    assert plain[2] < plain[1] < plain[0]


def test_two_cards_of_a_process_average_their_gradients(told: dict[str, Any]) -> None:
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
    assert [class_of_failure(each, started=True) for each in (host, card, other)] == [
        FailureClass.HOST_MEMORY, FailureClass.GPU_MEMORY, FailureClass.EXCEPTION
    ]  # fmt: skip
    assert host.startswith(
        "MemoryError: ResourceExhaustedError: OOM when allocating tensor with shape[1000000,1000000]"
    )
    assert "File" not in host and "[[" not in host
    assert card.startswith("RuntimeError: out of memory error on GPU: ResourceExhaustedError: Out of memory")
    assert "2000 is not in [0, 1000)" in other


def test_a_step_on_a_card_ends_when_the_card_has_done_it(told: dict[str, Any]) -> None:
    assert told["waiting"] == ["wait", "clock"] * 3 + [[[1.0, 2.5], [2.5, 4.0]]]


def test_a_card_s_time_is_that_of_its_streams_in_the_profile(told: dict[str, Any]) -> None:
    assert told["profiles"]["known"] == {
        "/device:GPU:0": [3, pytest.approx(2.0)], "/device:GPU:1": [1, pytest.approx(3.0)],
        "/host:CPU": [1, pytest.approx(9.0)],
    }  # fmt: skip
    assert told["profiles"]["names"] == ["conv", "copy"]
    assert told["profiles"]["none"] == {}


def test_a_kernel_has_the_name_of_what_launched_it(told: dict[str, Any]) -> None:
    assert told["profiles"]["kernels"] == [
        ["conv", 0.0, 1.0, "blocks.0/Conv2D:Conv2D"], ["conv", 2.0, 2.5, "Relu:Relu"], ["copy", 0.5, 1.5, ""],
    ]  # fmt: skip


def test_of_a_gpu_only_its_own_kernels_are_a_profile_and_of_several_in_a_process_there_is_none(
    told: dict[str, Any],
) -> None:
    without_kernel, of_two = told["profiles"]["gpus"]
    assert without_kernel.startswith("tf.profiler recorded no kernel")
    assert of_two == "the suite reads the profile of one GPU a process, and this one has 2"


def test_a_profile_that_lost_events_is_none(told: dict[str, Any]) -> None:
    assert told["profiles"]["dropped"] == (
        "the profile is not whole: Detected GPU events dropped on host: 5 events dropped"
    )


def test_aligned_memory_is_lent_and_other_memory_copied(told: dict[str, Any]) -> None:
    assert told["lending"] == {"aligned": True, "elsewhere": False}


def test_what_cannot_run_is_refused_with_its_reason(told: dict[str, Any]) -> None:
    refusals = told["refusals"]
    for name, reason in {
        "tf32": "a CPU has none",
        "amp_o2": "precision amp_o2",
        "compile": "the feature compile",
        "static": "execution static is Paddle's",
        "NCHW": "convolutions on a CPU are NHWC",
        "gpu": "make env-tensorflow",
    }.items():
        assert reason in refusals[name]
    assert refusals["none"] == ""
