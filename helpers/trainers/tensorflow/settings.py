"""The settings of a TensorFlow case, read strictly, and the header's facts on them; imports no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, Optional

from helpers.trainers.common.scheduled import ScheduledSettings, scheduled_facts
from helpers.trainers.common.settings import NEVER_STEPS, AmpLevels, at_least, one_of, refused
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.records import finite

# What XLA compiles: the parts of the graph that it chooses, or the whole step.
AUTOCLUSTERING, WHOLE_STEP = "autoclustering", "jit_compile"
# How ranks exchange gradients, by tf.distribute's names.
NCCL, RING = "NCCL", "RING"
# Of a rule: after so many steps the loss scale changes.
_MOVES = ("incr_every_n_steps", "decr_every_n_nan_or_inf")


@dataclass(frozen=True)
class TensorflowSettings(ScheduledSettings):
    """The scheduled settings and those of TensorFlow alone."""

    AMP_LEVELS: ClassVar[AmpLevels] = {
        Precision.FP32: (None, None),
        Precision.TF32: (None, None),
        Precision.BF16: ("O1", "bfloat16"),
        Precision.AMP: ("O1", None),
    }

    # AUTOCLUSTERING or WHOLE_STEP; None if nothing is compiled.
    xla_mode: Optional[str]
    # NCCL or RING; None for one card.
    communication: Optional[str]
    # Threads within an operation, and for different operations; None: as many as the rank has cores.
    intra_op_threads: Optional[int]
    inter_op_threads: Optional[int]
    # The share of the card's memory that is reserved at the start; None: memory is taken as needed.
    memory_fraction: Optional[float]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        one_of("xla_mode", self.xla_mode, (AUTOCLUSTERING, WHOLE_STEP) if case.xla else (None,))
        one_of("communication", self.communication, (NCCL, RING) if case.cards > 1 else (None,))
        for name in ("intra_op_threads", "inter_op_threads"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        share = self.memory_fraction
        if share is not None and (not finite(share) or not 0 < share <= 1):
            raise refused("memory_fraction", share, "a share above 0 and up to 1, or null")
        if self.loss_scaling is not None and min(self.loss_scaling_rule[name] for name in _MOVES) < NEVER_STEPS:
            raise refused("loss_scaling_rule", self.loss_scaling_rule, "a rule that never changes the loss scale")


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = TensorflowSettings


def setting_facts(spec: JobSpec, settings: TensorflowSettings) -> Dict[str, str]:
    """The configuration in words."""
    facts = {
        **scheduled_facts(settings),
        "xla": settings.xla_mode or "off",
        "communication": settings.communication or "none",
        "memory_fraction": "grows as needed" if settings.memory_fraction is None else str(settings.memory_fraction),
    }
    if settings.amp_level is not None:
        facts["precision"] = f"AMP {settings.amp_level} in {settings.amp_dtype}: casts in the graph"
        facts["weights"] = "float32, cast where they are used"
    return facts
