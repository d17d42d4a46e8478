"""Which GPUs a process may use: those of CUDA_VISIBLE_DEVICES, and in a job of Slurm none but those that it granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.trainers.contract.errors import DeviceError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_JOB = "SLURM_JOB_ID"
# The cards on this node, by their numbers in gres.conf: of the job step, and of the job for its batch script. A step
# has both, and the second may be that of another node (srun, "OUTPUT ENVIRONMENT VARIABLES").
_GRANTED = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_MIG = "MIG-"


@dataclass(frozen=True)
class AllowedCards:
    """What a variable says of the GPUs of this process."""

    # As CUDA reads it: indices or UUIDs. None means all cards.
    visible: str | None
    variable: str = VISIBLE

    @property
    def note(self) -> str:
        """In words, why it selects no card of this machine."""
        if self.visible is None:
            return "NVML finds none"
        stated = f"{self.variable}={self.visible}"
        if _MIG in self.visible:
            return f"{stated} names a slice of a card (MIG), of which there are no figures"
        return f"{stated} names none"


def allowed_cards(variables: Mapping[str, str], cards: int) -> AllowedCards:
    """The GPUs that this process may use on a machine where NVML lists ``cards`` of them.

    If Slurm confines the job to its cards (``ConstrainDevices``), NVML lists only those, and they have new indices.
    Raises DeviceError if CUDA_VISIBLE_DEVICES names more cards than Slurm granted.
    """
    visible = variables.get(VISIBLE)
    by = next((name for name in _GRANTED if variables.get(name)), None) if _JOB in variables else None
    if by is None:
        return AllowedCards(visible)
    granted = variables[by].split(",")
    if visible is None:
        return AllowedCards(None) if cards <= len(granted) else AllowedCards(variables[by], by)
    if len([word for word in visible.split(",") if word.strip()]) > len(granted):
        raise DeviceError(
            VISIBLE,
            got=visible,
            expected=f"at most the {len(granted)} that Slurm granted ({by}={variables[by]})",
            remedy="Do not set it in a job of Slurm, which sets it; --gres requests more cards",
        )
    return AllowedCards(visible)
