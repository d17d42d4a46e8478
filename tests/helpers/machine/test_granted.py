"""The cards of a process in a job of Slurm. What real steps have is in tests/helpers/launch/test_slurm_nodes.py."""

from __future__ import annotations

import pytest

from helpers.machine.granted import AllowedCards, allowed_cards
from helpers.trainers.contract.errors import DeviceError

STEP, JOB, VISIBLE = "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"
UUIDS = "GPU-4f2c,GPU-9a01"


@pytest.mark.parametrize(
    ("variables", "cards", "allowed"),
    [
        ({}, 8, AllowedCards(None)),
        # Outside a job these are another program's.
        ({JOB: "3"}, 8, AllowedCards(None)),
        # A job without --gres: Slurm says nothing.
        ({"SLURM_JOB_ID": "7"}, 8, AllowedCards(None)),
        # A step has the batch script's variable, too, which may be that of another node.
        ({"SLURM_JOB_ID": "7", STEP: "2,5", JOB: "0,1"}, 8, AllowedCards("2,5", STEP)),
        ({"SLURM_JOB_ID": "7", JOB: "0,1"}, 8, AllowedCards("0,1", JOB)),
        # Confined by a control group: the numbers in gres.conf are not NVML's.
        ({"SLURM_JOB_ID": "7", STEP: "6,7"}, 2, AllowedCards(None)),
        ({"SLURM_JOB_ID": "7", STEP: "6,7", VISIBLE: "0,1"}, 2, AllowedCards("0,1")),
        ({"SLURM_JOB_ID": "7", STEP: "6,7", VISIBLE: UUIDS}, 8, AllowedCards(UUIDS)),
        ({"SLURM_JOB_ID": "7", STEP: "6,7", VISIBLE: ""}, 8, AllowedCards("")),
    ],
)
def test_the_cards_are_those_that_slurm_granted(variables: dict[str, str], cards: int, allowed: AllowedCards) -> None:
    assert allowed_cards(variables, cards) == allowed


def test_more_cards_than_slurm_granted_are_refused() -> None:
    with pytest.raises(
        DeviceError, match=r"got '0,1,2,3', expected at most the 1 that Slurm granted \(SLURM_JOB_GPUS=2"
    ):
        allowed_cards({"SLURM_JOB_ID": "7", JOB: "2", VISIBLE: "0,1,2,3"}, 8)


def test_a_slice_of_a_card_is_named() -> None:
    note = AllowedCards("MIG-GPU-4f2c/1/0").note
    assert note == "CUDA_VISIBLE_DEVICES=MIG-GPU-4f2c/1/0 names a slice of a card (MIG), of which there are no figures"
