"""The operators of the programs behind Paddle's published figures, and how a program differs from them.

How they were counted: PaddleClas's own ResNet50 (commit 5bb2e8c, ppcls/arch/backbone/legendary_models/resnet.py) with
the optimizer and the strategies of its ppcls/static/program.py was built by paddlepaddle-gpu 2.6.2 without a card, as
rank 0 of 1, 8 and 32 cards; 8 and 32 gave the same. FleetX's VGG16 is a binary download, so its numbers are derived:
thirteen convolutions and three fully connected layers, whose biases fuse with the ReLU of all but the last; and what
the strategies of FleetX (commit 296e0d7, benchmark/paddle/vgg_benchmark.py) make of such a network in 2.6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.judging.case.evidence import ProgramEvidence
from helpers.plan.recipes import Source
from helpers.plan.recipes.publishers import FLEETX, PADDLECLAS
from helpers.trainers.contract.case import Case, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.program import COUNTED, counts_of, kind_of, lacks_fusions

# The fact of a result that says in what its program differs from the published one.
DIFFERS_FACT = "program_against_published"
AS_PUBLISHED = "as published"
# Not compared: what the suite reads of the loss beside the publisher adds some, and no step's work depends on it.
_ONLY_SHOWN = ("operators",)
# What batch norm's fusions change.
_FUSED = (
    "batch_norm", "fused_batch_norm_act", "fused_bn_add_activation", "fused_elemwise_add_activation", "relu",
)  # fmt: skip
# What the suite adds itself: the mean logit, which tells a NaN, is cast to float32.
_ADDED = {"cast": 1}

_CLAS = Source(f"{PADDLECLAS}, commit 5bb2e8c", "its resnet.py and strategies, built by paddlepaddle-gpu 2.6.2")
_FLEETX = Source(FLEETX, "derived: its program is a binary download; a VGG16 under its strategies, built by 2.6.2")


@dataclass(frozen=True)
class PublishedProgram:
    """What is counted of one rank's program; names that are missing are 0."""

    counts: Mapping[str, int]
    # On several cards, in the place of the same names.
    on_several: Mapping[str, int]
    source: Source

    def of(self, case: Case, *, fused: bool = True) -> dict[str, int]:
        """The counts of one rank; without ``fused`` those that a build makes that has no passes for batch norm."""
        counts = {**self.counts, **(self.on_several if case.cards > 1 else {})}
        if not fused:
            counts |= {name: _RESNET_FP32.counts.get(name, 0) for name in _FUSED}
        return {name: counts.get(name, 0) for name in COUNTED}


_RESNET = {"conv2d": 53, "elementwise_add": 1}
_RESNET_ALL_REDUCES = {"all_reduce": 21, "coalesce_tensor": 21}
_RESNET_FP32 = PublishedProgram(
    {**_RESNET, "operators": 441, "batch_norm": 53, "fused_elemwise_add_activation": 16, "relu": 33,
     "merged_momentum": 1},
    {**_RESNET_ALL_REDUCES, "operators": 646},
    _CLAS,
)  # fmt: skip
_RESNET_O2 = PublishedProgram(
    {**_RESNET, "operators": 289, "float16_conv2d": 53, "nhwc_conv2d": 53, "batch_norm": 4, "fused_batch_norm_act": 33,
     "fused_bn_add_activation": 16, "merged_momentum": 2, "cast": 2},
    {**_RESNET_ALL_REDUCES, "operators": 493},
    _CLAS,
)  # fmt: skip
_VGG = {"conv2d": 13, "fused_elemwise_add_activation": 15, "elementwise_add": 1, "momentum": 32}
_VGG_ALL_REDUCES = {"all_reduce": 4, "coalesce_tensor": 4}
_VGG_FP32 = PublishedProgram({**_VGG, "operators": 143}, {**_VGG_ALL_REDUCES, "operators": 184}, _FLEETX)
_VGG_AMP = PublishedProgram(
    {**_VGG, "operators": 218, "float16_conv2d": 13, "cast": 71}, {**_VGG_ALL_REDUCES, "operators": 292}, _FLEETX
)
_PROGRAMS: Mapping[tuple[Model, Precision], PublishedProgram] = {
    (Model.RESNET50, Precision.FP32): _RESNET_FP32,
    # The same program; TF32 is a switch of the libraries.
    (Model.RESNET50, Precision.TF32): _RESNET_FP32,
    (Model.RESNET50, Precision.AMP_O2): _RESNET_O2,
    (Model.VGG16, Precision.FP32): _VGG_FP32,
    (Model.VGG16, Precision.AMP_O1): _VGG_AMP,
}


def published_program(case: Case, device: str) -> PublishedProgram | None:
    """The program behind the published figures of such a case; None if there is none, or if nobody knows it (auto)."""
    if device != "gpu" or case.framework is not Framework.PADDLE or case.execution is not Execution.STATIC or case.auto:
        return None
    return _PROGRAMS.get((case.model, case.precision))


def differences_of(case: Case, facts: Mapping[str, str]) -> tuple[str, ...]:
    """The counts in which the GPU program of ``case`` with these facts differs from the published one; empty if it does
    not, or if either is not known. What a build check says a build for CPUs leaves out is no difference."""
    program, counts = published_program(case, "gpu"), counts_of(facts)
    if program is None or counts is None:
        return ()
    published = program.of(case, fused=not lacks_fusions(facts))
    got = {name: counts[name] - _ADDED.get(name, 0) for name in COUNTED if name not in _ONLY_SHOWN}
    return tuple(
        f"{name} {count}, published {published[name]}" for name, count in got.items() if count != published[name]
    )


def program_evidence(case: Case, device: str, facts: Mapping[str, str]) -> ProgramEvidence | None:
    """What a verdict says of the program that ``facts`` (of a step log or a build check) state; None if they state no
    kind. Raises ConfigError if they are not as helpers.trainers.contract.program writes them."""
    kind = kind_of(facts)
    if kind is None or device != "gpu":
        return None
    if published_program(case, device) is None:
        return ProgramEvidence(kind.value, kind.is_published)
    if counts_of(facts) is None:
        return ProgramEvidence(kind.value, kind.is_published, ("its operators were not counted",))
    return ProgramEvidence(kind.value, kind.is_published, differences_of(case, facts))


def program_facts(case: Case, device: str, facts: Mapping[str, str]) -> dict[str, str]:
    """The fact of a result that says what differs; empty where no published program is known, or no kind is stated."""
    found = program_evidence(case, device, facts)
    if found is None or published_program(case, device) is None:
        return {}
    return {DIFFERS_FACT: "; ".join(found.differences) or AS_PUBLISHED}
