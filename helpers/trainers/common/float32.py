"""Decides by arithmetic whether float32 is computed exactly or rounded to TF32. Each framework computes the products;
this module interprets them."""

from __future__ import annotations

from typing import NamedTuple

from helpers.trainers.common.process import Refused
from helpers.trainers.common.settings import on
from helpers.trainers.contract.case import Precision

# Whether a precision needs TF32 on or off; for other precisions the build's default stays.
TF32_WANTED = {Precision.FP32: False, Precision.TF32: True}
# It needs more than the 10 digits of TF32: multiplied by one, it becomes 1 if TF32 (or bfloat16) was used.
PROBE = 1.0 + 2.0**-12


class ProbeShape(NamedTuple):
    """The shape of the multiplied matrices (size x size) and of the convolved images (batch, channels, side, side)."""

    size: int
    batch: int
    channels: int
    side: int


def probe_shape(on_gpu: bool) -> ProbeShape:
    """The shapes to compute. They are large on a GPU, so that TF32 is by far the fastest there; else a search for the
    fastest algorithm might choose one in float32."""
    return ProbeShape(1024, 16, 256, 56) if on_gpu else ProbeShape(128, 2, 64, 14)


def checked_state(
    precision: Precision, product: float, convolved: float, on_gpu: bool, *, by_product: bool = True
) -> str:
    """In words, how matrix products and convolutions are computed, from an element of each that is PROBE if float32 is
    exact.

    ``by_product`` says whether the framework can also switch TF32 for matrix products. Raises Refused if the state does
    not fit the precision, so that no figure is recorded under a wrong precision.
    """
    matmul, convolution = product != PROBE, convolved != PROBE
    state, wanted = f"matmul {on(matmul)}, convolution {on(convolution)}", TF32_WANTED.get(precision)
    if wanted is False and (matmul or convolution):
        what = "TF32 could not be switched off" if on_gpu else "this CPU's library rounds float32 products"
        raise Refused(f"{what} ({state}): this would not be fp32")
    if wanted is True and not (convolution and (matmul or not by_product)):
        raise Refused(f"TF32 could not be switched on ({state}): this would not be tf32")
    return state
