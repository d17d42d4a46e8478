"""The settings of a PyTorch case, read strictly, and what a build's code runs on; imports no framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, List, Mapping, Optional, Tuple

from helpers.trainers.common.settings import BASIC_AMP_LEVELS, AmpLevels, Settings, one_of, refused
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.records import finite


@dataclass(frozen=True)
class PytorchSettings(Settings):
    """The settings of every framework and those of PyTorch alone."""

    AMP_LEVELS: ClassVar[AmpLevels] = {
        **BASIC_AMP_LEVELS,
        Precision.BF16: ("O1", "bfloat16"),
        Precision.AMP: ("O1", None),
    }
    DDP: ClassVar[Tuple[str, ...]] = ("gradient_as_bucket_view", "bucket_cap_mb", "static_graph")

    # Whether weight decay acts on batch norm's parameters too.
    decay_norms: bool
    cudnn_benchmark: bool
    # The mode of torch.compile; None if nothing is compiled.
    compile_mode: Optional[str]
    # DistributedDataParallel's arguments; empty for one card.
    ddp: Mapping[str, Any]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        one_of("compile_mode", self.compile_mode, ("default",) if case.compile else (None,))
        wanted = self.DDP if case.cards > 1 else ()
        if set(self.ddp) != set(wanted):
            raise refused("ddp", self.ddp, ", ".join(wanted) or "nothing for one card")
        for name, value in self.ddp.items():
            if name != "bucket_cap_mb":
                one_of(f"ddp.{name}", value, (True, False))
            elif not finite(value) or value <= 0:
                raise refused(f"ddp.{name}", value, "a positive number of MiB")


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = PytorchSettings


def has_kernels(capability: Tuple[int, ...], archs: List[str]) -> bool:
    """Whether a build for ``archs`` (sm_80, compute_90) runs on a card: it needs code for the card's major version, or
    PTX."""
    for arch in archs:
        kind, _, number = arch.partition("_")
        digits = number.rstrip("af")
        if not digits.isdigit():
            continue
        built = divmod(int(digits), 10)
        exact = number != digits
        if kind == "compute" and not exact and built <= capability:
            return True
        if kind == "sm" and (built == capability if exact else built[0] == capability[0] and built <= capability):
            return True
    return False
