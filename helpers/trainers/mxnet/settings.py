"""The settings of an MXNet case, read strictly; imports no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Optional

from helpers.trainers.common.scheduled import ScheduledSettings
from helpers.trainers.common.settings import AmpLevels, one_of
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec

# The whole network in half precision, or mxnet.contrib.amp's casts around single operators.
CAST, AMP = "cast", "amp"


@dataclass(frozen=True)
class MxnetSettings(ScheduledSettings):
    """The scheduled settings and those of MXNet alone."""

    # Precision.AMP has level O2 on a GPU and O1 on a CPU: ``_check``.
    AMP_LEVELS: ClassVar[AmpLevels] = {
        Precision.FP32: (None, None),
        Precision.TF32: (None, None),
        Precision.BF16: ("O1", "bfloat16"),
    }

    # CAST, AMP, or None in single precision.
    amp_through: Optional[str]
    # The kvstore that sums the gradients of the process's cards: "device"; None for a single card.
    kvstore: Optional[str]
    # The arguments of hybridize().
    static_alloc: bool
    static_shape: bool

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        one_of("kvstore", self.kvstore, ("device",) if case.cards > 1 else (None,))
        if case.precision is Precision.AMP:
            one_of("amp_level", self.amp_level, ("O2" if spec.device == "gpu" else "O1",))
            one_of("amp_dtype", self.amp_dtype, ("float16", "bfloat16"))
        through = {None: None, "O1": AMP, "O2": CAST}[self.amp_level]
        one_of("amp_through", self.amp_through, (through,))


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = MxnetSettings
