"""How far from the chip's limit a training is: samples/s x FLOPs per image / the peak in the chip's data sheet.

FLOPs are counted layer by layer over the tables from which the trainers build their networks, for 3 channels (a fourth
one is padding). Conventions: a multiply-add is 2 FLOPs; only convolutions and fully connected layers count, biases,
norms, activations and pooling do not; a training step is the forward pass, the weights' gradient and the inputs'
gradient, as much arithmetic each, except that nobody needs the gradient of the images, so the first layer has two of
the three. What an implementation computes beyond that (padding, another algorithm) does not count either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from helpers.trainers.contract.case import Case
from helpers.trainers.contract.models import Model

_FLOPS_PER_MULTIPLY_ADD = 2
_TERA = 1e12
_OF_AMP = {"float16": "fp16", "bfloat16": "bf16"}
# Dense matrix products in TFLOP/s (without sparsity, at boost clock) by NVIDIA's data sheets of each chip. The first
# pattern that fits NVML's name counts.
DATA_SHEETS: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("V100S", {"fp32": 16.4, "fp16": 130.0}),
    ("V100-SXM[23]", {"fp32": 15.7, "fp16": 125.0}),
    ("V100-PCIE", {"fp32": 14.0, "fp16": 112.0}),
    ("A100", {"fp32": 19.5, "tf32": 156.0, "fp16": 312.0, "bf16": 312.0}),
    ("A30", {"fp32": 10.3, "tf32": 82.0, "fp16": 165.0, "bf16": 165.0}),
    ("A10", {"fp32": 31.2, "tf32": 62.5, "fp16": 125.0, "bf16": 125.0}),
    ("H100 PCIe", {"fp32": 51.0, "tf32": 378.0, "fp16": 756.0, "bf16": 756.0}),
    ("H100 80GB HBM3|H200(?! NVL)", {"fp32": 67.0, "tf32": 495.0, "fp16": 989.0, "bf16": 989.0}),
    ("L40S", {"fp32": 91.6, "tf32": 183.0, "fp16": 362.0, "bf16": 362.0}),
    ("L4", {"fp32": 30.3, "tf32": 60.0, "fp16": 121.0, "bf16": 121.0}),
    ("T4", {"fp32": 8.1, "fp16": 65.0}),
)


@dataclass(frozen=True)
class Utilisation:
    """The share of the data sheet's peak that a case reached."""

    # 0.38 is 38% of ``cards`` times ``peak_tflops``.
    share: float
    chip: str
    precision: str
    cards: int
    # Of one card, in TFLOP/s.
    peak_tflops: float
    flops_per_sample: int

    @staticmethod
    def of(
        samples_per_s: float, case: Case, settings: Mapping[str, Any], environment: Mapping[str, str]
    ) -> Utilisation | None:
        """``settings`` and ``environment`` are those of a run. None for a CPU, cards of several models, a part of a
        card, and a chip or precision that is not in DATA_SHEETS."""
        precision = matrix_precision(case, settings)
        found = re.fullmatch(r"\d+ x ([^,+]+)", environment.get("cards", ""))
        peak = peak_tflops(found[1], precision) if found else None
        if found is None or peak is None:
            return None
        flops = training_flops(case.model)
        share = samples_per_s * flops / (peak * _TERA * case.cards)
        return Utilisation(share, found[1], precision, case.cards, peak, flops)

    @property
    def limit(self) -> str:
        """``8 x 312 TFLOP/s fp16``, the peak by the data sheet."""
        times = f"{self.cards} x " if self.cards > 1 else ""
        return f"{times}{self.peak_tflops:g} TFLOP/s {self.precision}"


def peak_tflops(chip: str, precision: str) -> float | None:
    """The data sheet's figure of a chip by NVML's name; None if it is not known, or for a part of a card (MIG)."""
    if "MIG" in chip:
        return None
    for pattern, peaks in DATA_SHEETS:
        if re.search(rf"\b({pattern})\b", chip):
            return peaks.get(precision)
    return None


def training_flops(model: Model) -> int:
    """The FLOPs of one sample in one training step: forward and both gradients, without the gradient of the sample
    itself."""
    first, *rest = model.spec.layers().in_order()
    return _FLOPS_PER_MULTIPLY_ADD * (2 * first.multiply_adds + 3 * sum(layer.multiply_adds for layer in rest))


def matrix_precision(case: Case, settings: Mapping[str, Any]) -> str:
    """The precision of the matrix products that limit a case: with automatic mixed precision its 16-bit type, else its
    own."""
    amp = settings.get("amp_dtype")
    return case.precision.value if amp is None else _OF_AMP.get(amp, str(amp))
