"""The comparison of gradients finds a wrong one, so that the tests of parity can fail."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

from tests.helpers.trainers.parity_batch import beyond, relative_errors


@pytest.fixture
def gradients() -> dict[str, Any]:
    """Of very different sizes, as those of a network's first and last layers are."""
    draw = numpy.random.default_rng(0)
    return {f"layer{n}": draw.normal(size=(8, 3, 3, 3)) * 10.0 ** (-3 * n) for n in range(3)}


def test_equal_gradients_are_within_every_bound(gradients: dict[str, Any]) -> None:
    assert beyond(relative_errors(gradients, gradients), 0.0) == {}


def test_one_small_tensor_s_gradient_that_is_a_thousandth_too_large_is_found(gradients: dict[str, Any]) -> None:
    wrong = {**gradients, "layer2": gradients["layer2"] * 1.001}
    assert beyond(relative_errors(wrong, gradients), 1e-5) == {"layer2": pytest.approx(1e-3)}


def test_a_transposed_gradient_and_one_of_nan_are_found(gradients: dict[str, Any]) -> None:
    turned = {**gradients, "layer1": gradients["layer1"].swapaxes(2, 3)}
    assert list(beyond(relative_errors(turned, gradients), 1e-5)) == ["layer1"]
    broken = {**gradients, "layer0": gradients["layer0"] * math.nan}
    assert list(beyond(relative_errors(broken, gradients), 1e-5)) == ["layer0"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"layer3": numpy.ones(2)}, "other gradients: .'layer3'"),
        ({"layer1": numpy.ones(2)}, "layer1: a gradient of"),
    ],
)
def test_a_tensor_too_many_and_one_of_another_shape_are_refused(
    gradients: dict[str, Any], changed: dict[str, Any], text: str
) -> None:
    with pytest.raises(SystemExit, match=text):
        relative_errors({**gradients, **changed}, gradients)


def test_a_reference_of_zeros_is_refused(gradients: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="of norm 0"):
        relative_errors(gradients, {**gradients, "layer1": gradients["layer1"] * 0.0})
