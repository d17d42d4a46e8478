"""The settings of a PyTorch case, read strictly, and the header's facts that are known without importing the
framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

from helpers.trainers.common.settings import (
    BASIC_AMP_LEVELS,
    AmpLevels,
    Settings,
    common_facts,
    on,
    one_of,
    refused,
    switch,
)
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


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = PytorchSettings


# torch.amp.GradScaler lowers its scale at each overflow, whatever this part of the rule says.
_FALLS_AT_EACH = "decr_every_n_nan_or_inf"


def setting_facts(spec: JobSpec, settings: PytorchSettings) -> Dict[str, str]:
    """The configuration in words."""
    case = spec.case
    facts = {
        **common_facts(settings),
        "compile": settings.compile_mode or "off",
        "graphs": on(case.graphs),
        "decay_norms": on(settings.decay_norms),
        "ddp": ", ".join(f"{name} {value}" for name, value in sorted(settings.ddp.items())) or "none",
    }
    if settings.loss_scaling is not None and settings.loss_scaling_rule[_FALLS_AT_EACH] != 1:
        facts[f"loss_scaling_rule.{_FALLS_AT_EACH}"] = "not applied: GradScaler's scale falls at each overflow"
    if settings.amp_level == "O1":
        facts["precision"] = f"AMP O1 in {settings.amp_dtype}: torch.autocast"
        facts["weights"] = "float32, cast where they are used"
    elif settings.amp_level == "O2":
        facts["precision"] = f"AMP O2 in {settings.amp_dtype}: all but batch norm and loss"
        facts["weights"] = f"{settings.amp_dtype}, float32 master copies; batch norm's float32"
    return facts


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
