"""The settings of a PyTorch case, read strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Mapping, Optional, Tuple

from helpers.trainers.common.settings import BASIC_AMP_LEVELS, AmpLevels, Settings, one_of, refused, switch
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec, finite


@dataclass(frozen=True)
class PytorchSettings(Settings):
    """What PyTorch has beside the settings of every framework."""

    AMP_LEVELS: ClassVar[AmpLevels] = {
        **BASIC_AMP_LEVELS,
        Precision.BF16: ("O1", "bfloat16"),
        Precision.AMP: ("O1", None),
    }
    DDP: ClassVar[Tuple[str, ...]] = ("gradient_as_bucket_view", "bucket_cap_mb", "static_graph")

    # Whether weight decay acts on batch norm's parameters too.
    decay_norms: bool
    cudnn_benchmark: bool
    # torch.compile's; None where nothing is compiled.
    compile_mode: Optional[str]
    # DistributedDataParallel's arguments; empty for one card.
    ddp: Mapping[str, Any]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        for name in ("decay_norms", "cudnn_benchmark"):
            switch(name, getattr(self, name))
        one_of("compile_mode", self.compile_mode, ("default",) if case.compile else (None,))
        wanted = self.DDP if case.cards > 1 else ()
        ddp: Any = self.ddp
        if not isinstance(ddp, Mapping) or set(ddp) != set(wanted):
            raise refused("ddp", ddp, ", ".join(wanted) or "nothing for one card")
        for name, value in ddp.items():
            if name != "bucket_cap_mb":
                switch(f"ddp.{name}", value)
            elif not finite(value) or value <= 0:
                raise refused(f"ddp.{name}", value, "a positive number of MiB")


# What helpers.trainers.common.settings reads a job of this framework into.
SETTINGS = PytorchSettings
