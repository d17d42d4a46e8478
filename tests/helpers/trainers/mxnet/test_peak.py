"""MXNet's products: which ways count for a precision."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.trainers.common.process import Refused
from helpers.trainers.mxnet.peak import as_wanted

WAYS: dict[str, Any] = {"connected": "c", "convolution": "v"}


def test_only_the_ways_that_round_as_the_precision_wants_are_tried() -> None:
    # cuBLAS is not told to take TF32 and cuDNN takes it by itself.
    assert as_wanted(WAYS, (False, True), True) == {"convolution": "v"}
    assert as_wanted(WAYS, (False, True), False) == {"connected": "c"}
    assert as_wanted(WAYS, (False, False), False) == WAYS


@pytest.mark.parametrize(
    ("rounded", "wanted", "told"),
    [((True, True), False, "TF32 is on and was to be off"), ((False, False), True, "TF32 is off and was to be on")],
)
def test_arithmetic_that_is_not_the_precisions_is_refused(rounded: tuple[bool, bool], wanted: bool, told: str) -> None:
    with pytest.raises(Refused, match=told):
        as_wanted(WAYS, rounded, wanted)
