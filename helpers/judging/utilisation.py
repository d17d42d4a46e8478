"""How far from the chip's limit a training is: samples/s x FLOPs per image / the measured peak of a matrix product.

FLOPs are counted layer by layer over the tables from which the trainers build their networks, for 3 channels (a fourth
one is padding). Conventions: a multiply-add is 2 FLOPs; only convolutions and fully connected layers count, biases,
norms, activations and pooling do not; a training step is the forward pass, the weights' gradient and the inputs'
gradient, as much arithmetic each, except that nobody needs the gradient of the images, so the first layer has two of
the three. What an implementation computes beyond that (padding, another algorithm) does not count either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from helpers.judging.rates import fields_of
from helpers.judging.statistics import number
from helpers.machine.records_check import Checker
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.models import Model

_FLOPS_PER_MULTIPLY_ADD = 2
_TERA, _GIGA = 1e12, 1e9
# The precision of the matrix products of a case with automatic mixed precision, by its setting amp_dtype.
_OF_AMP = {"float16": "fp16", "bfloat16": "bf16"}
_PEAK_TEXTS = ("precision", "device", "device_name", "uuid", "how", "framework_version")
_PEAK_COUNTS = ("size", "repeats")
_PEAK_NAMES = (*_PEAK_TEXTS, "tflops", *_PEAK_COUNTS)
_PEAK = Checker(
    {
        "type": "object",
        "properties": {
            **{key: {"type": "string", "description": "text"} for key in _PEAK_TEXTS},
            "tflops": {"type": "number", "exclusiveMinimum": 0, "description": "a finite number above 0"},
            **{
                key: {"type": "integer", "minimum": 1, "description": "a whole number of at least 1"}
                for key in _PEAK_COUNTS
            },
        },
        "required": list(_PEAK_NAMES),
        "additionalProperties": False,
        "description": "the keys " + ", ".join(_PEAK_NAMES),
    }
)
# The names that the share and the parts of the peak have in a run's facts.
UTILISATION_FACT = "utilisation"
_PEAK_FACT = "peak_"
_NO_PEAK_FACT = "no_peak"
# The matrix products that a probe can measure.
PEAK_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True)
class Peak:
    """The fastest matrix product of one card, as the framework's own program measured it (helpers/trainers)."""

    precision: str
    device: str
    device_name: str
    # The card's UUID; empty on a CPU.
    uuid: str
    # In TFLOP/s, by the median of the timings.
    tflops: float
    # The rows of the square matrices.
    size: int
    # The number of timings.
    repeats: int
    # In words, how the product was computed.
    how: str
    framework_version: str

    @property
    def text(self) -> str:
        """``790 TFLOP/s``."""
        return _flops_text(self.tflops)

    @staticmethod
    def from_record(record: Any, about: str = "peak") -> Peak:
        """The peak from the probe's answer. Raises ResultError, which names the key, for anything unexpected."""
        if (wrong := _PEAK.violation(record)) is not None:
            raise ResultError(about, field=wrong.field, got=wrong.got, expected=wrong.expected)
        return Peak(**record)


@dataclass(frozen=True)
class Utilisation:
    """How far from its limit a case was."""

    # The share of the limit, which is ``cards`` times one card's peak; None if there is none, for the reason.
    share: float | None
    reason: str
    # The figure of all cards together, by ``rule``.
    samples_per_s: float
    rule: str
    cards: int
    flops_per_sample: int
    # The peak of one card.
    peak: Peak | None

    @staticmethod
    def of(samples_per_s: float, rule: str, case: Case, found: Peak | str) -> Utilisation:
        """``found`` is the measured peak of one card, or why there is none."""
        flops = training_flops(case.model)
        if isinstance(found, str):
            return Utilisation(None, found, samples_per_s, rule, case.cards, flops, None)
        share = utilisation(samples_per_s, case.model, found, case.cards)
        if share <= 1:
            return Utilisation(share, "", samples_per_s, rule, case.cards, flops, found)
        # The product was disturbed, or the library has no better one for this device. A share would look right and be
        # wrong.
        reason = f"faster than the measured product ({found.text}), which is then no peak"
        return Utilisation(None, reason, samples_per_s, rule, case.cards, flops, found)

    @staticmethod
    def of_runs(samples_per_s: float, rule: str, case: Case, facts: Iterable[Mapping[str, str]]) -> Utilisation | None:
        """The utilisation by the first peak in the facts of the runs. If none has a peak, it holds the first reason;
        damaged facts are a reason too. None if no peak was requested."""
        found = [each for one in facts if (each := _peak_or_reason(one)) is not None]
        peak = next((each for each in found if isinstance(each, Peak)), found[0] if found else None)
        return None if peak is None else Utilisation.of(samples_per_s, rule, case, peak)

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Utilisation:
        """The utilisation that ``to_record`` wrote. Raises TypeError, KeyError and ResultError."""
        peak = record["peak"]
        return Utilisation(**{**fields_of(record), "peak": None if peak is None else Peak.from_record(peak)})

    def in_short(self) -> str:
        """``38.1% of the measured bf16 peak (790 TFLOP/s)``, or why there is no share."""
        if self.share is None or self.peak is None:
            return f"no share: {self.reason}"
        times = f"{self.cards} x " if self.cards > 1 else ""
        each = " a card" if self.cards > 1 else ""
        return f"{self.share:.1%} of {times}the measured {self.peak.precision} peak ({self.peak.text}{each})"

    def details(self, sample: str) -> str:
        """As ``in_short``, with the figures from which it was computed. ``sample`` is the name of one sample, such as
        ``image``."""
        flops = self.samples_per_s * self.flops_per_sample / _TERA
        rate = f"{number(self.samples_per_s)} {sample}s/s by {self.rule}"
        if self.cards > 1:
            rate += f" of {self.cards} cards"
        parts = [self.in_short(), f"{rate} x {self.flops_per_sample / _GIGA:.2f} GFLOP each = {_flops_text(flops)}"]
        if self.peak is not None:
            size = self.peak.size
            parts.append(f"peak: {size} x {size}, {self.peak.how}; version {self.peak.framework_version}")
        return "; ".join(parts)

    def to_facts(self, sample: str) -> dict[str, str]:
        """The facts of a run that hold it; ``sample`` as in ``details``."""
        facts = {UTILISATION_FACT: self.details(sample)}
        if self.peak is None:
            return {**facts, _NO_PEAK_FACT: self.reason}
        return {**facts, **{_PEAK_FACT + name: str(value) for name, value in asdict(self.peak).items()}}


def peak_of_facts(facts: Mapping[str, str]) -> Peak | str | None:
    """The peak in a run's facts, or why it has none; None if it was not requested. Raises ResultError."""
    if UTILISATION_FACT not in facts:
        return None
    if _NO_PEAK_FACT in facts:
        return facts[_NO_PEAK_FACT]
    values: dict[str, Any] = {name: facts.get(_PEAK_FACT + name) for name in _PEAK_TEXTS}
    try:
        values |= {name: int(facts[_PEAK_FACT + name]) for name in _PEAK_COUNTS}
        values["tflops"] = float(facts[f"{_PEAK_FACT}tflops"])
    except (KeyError, ValueError) as error:
        raise ResultError("peak of a run's facts", got=str(error), expected="numbers") from error
    return Peak.from_record(values, "peak of a run's facts")


def _peak_or_reason(facts: Mapping[str, str]) -> Peak | str | None:
    try:
        return peak_of_facts(facts)
    except ResultError as error:
        return f"the peak in the run's result cannot be read: {' '.join(str(error).split())}"


def training_flops(model: Model) -> int:
    """The FLOPs of one sample in one training step: forward and both gradients, without the gradient of the sample
    itself."""
    first, *rest = model.spec.layers().in_order()
    return _FLOPS_PER_MULTIPLY_ADD * (2 * first.multiply_adds + 3 * sum(layer.multiply_adds for layer in rest))


def utilisation(samples_per_s: float, model: Model, peak: Peak, cards: int = 1) -> float:
    """The share of the measured peak that training on ``cards`` such cards reaches; 0.38 is 38%."""
    return samples_per_s * training_flops(model) / (peak.tflops * _TERA * cards)


def peak_precision(precision: Precision, settings: Mapping[str, Any]) -> str:
    """The precision of the matrix product that limits a case: with automatic mixed precision its 16-bit type, else its
    own."""
    amp = settings.get("amp_dtype")
    return precision.value if amp is None else _OF_AMP.get(amp, str(amp))


def _flops_text(tflops: float) -> str:
    return f"{tflops:.3g} TFLOP/s" if tflops >= 1 else f"{1000 * tflops:.3g} GFLOP/s"
