"""The settings of a TensorFlow case, read strictly; imports no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Optional

from helpers.trainers.common.scheduled import ScheduledSettings
from helpers.trainers.common.settings import AmpLevels, at_least, one_of, refused
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec

# What XLA compiles: the parts of the graph that it chooses, or the whole step.
AUTOCLUSTERING, WHOLE_STEP = "autoclustering", "jit_compile"
# How ranks exchange gradients, by tf.distribute's names.
NCCL, RING = "NCCL", "RING"
# Of a rule: after so many steps the loss scale changes; it is static if it never does.
_NEVER_STEPS = 10**9
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
    # What tf.data reads: "jpeg" (the files of the folder) or "tfrecord" (records made from these files).
    native_source: str
    # The size of the shuffle buffer in images.
    shuffle_buffer: int

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        one_of("xla_mode", self.xla_mode, (AUTOCLUSTERING, WHOLE_STEP) if case.xla else (None,))
        one_of("communication", self.communication, (NCCL, RING) if case.cards > 1 else (None,))
        for name in ("intra_op_threads", "inter_op_threads"):
            at_least(name, getattr(self, name), 1)
        share = self.memory_fraction
        if share is not None and not 0 < share <= 1:
            raise refused("memory_fraction", share, "a share above 0 and up to 1, or null")
        if self.loss_scaling is not None and min(self.loss_scaling_rule[name] for name in _MOVES) < _NEVER_STEPS:
            raise refused("loss_scaling_rule", self.loss_scaling_rule, "a rule that never changes the loss scale")
        one_of("native_source", self.native_source, ("jpeg", "tfrecord"))
        at_least("shuffle_buffer", self.shuffle_buffer, 1)


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = TensorflowSettings
