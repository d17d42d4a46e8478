"""Whether float32 is computed as such or rounded to TF32, as arithmetic shows it: each framework makes the products,
here is what they mean."""

from __future__ import annotations

from typing import NamedTuple

from helpers.trainers.common.process import Refused
from helpers.trainers.common.settings import on
from helpers.trainers.contract.case import Precision

# What a precision asks of TF32; the others leave it as the build has it.
TF32_WANTED = {Precision.FP32: False, Precision.TF32: True}
# It has more digits than TF32's 10: times one it comes back as 1 where TF32 (or bfloat16) computed.
PROBE = 1.0 + 2.0**-12


class ProbeShape(NamedTuple):
    """Of the matrices (size x size), and of the images (batch, channels, side, side) that are convolved."""

    size: int
    batch: int
    channels: int
    side: int


def probe_shape(on_gpu: bool) -> ProbeShape:
    """Large enough on a GPU that TF32 is by far the fastest, since a search for the fastest algorithm may otherwise
    take one of float32."""
    return ProbeShape(1024, 16, 256, 56) if on_gpu else ProbeShape(128, 2, 64, 14)


def checked_state(
    precision: Precision, product: float, convolved: float, on_gpu: bool, *, by_product: bool = True
) -> str:
    """How products of matrices and convolutions are computed, from an element of each that should be PROBE.

    ``by_product`` says whether a framework can switch the products of matrices too. Raises Refused where the state is
    not the precision's, so that no figure stands under the wrong one.
    """
    matmul, convolution = product != PROBE, convolved != PROBE
    state, wanted = f"matmul {on(matmul)}, convolution {on(convolution)}", TF32_WANTED.get(precision)
    if wanted is False and (matmul or convolution):
        what = "TF32 could not be switched off" if on_gpu else "this CPU's library rounds float32 products"
        raise Refused(f"{what} ({state}): this would not be fp32")
    if wanted is True and not (convolution and (matmul or not by_product)):
        raise Refused(f"TF32 could not be switched on ({state}): this would not be tf32")
    return state


def check_product(wanted: bool, product: float) -> None:
    """Raise Refused where an element of a product that should be PROBE is not rounded as ``wanted``."""
    rounded = product != PROBE
    if rounded is not wanted:
        raise Refused(f"TF32 is {on(rounded)} and was to be {on(wanted)}")
