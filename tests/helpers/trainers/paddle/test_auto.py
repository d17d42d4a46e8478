"""What the switch of automatic parallelism does not train."""

from __future__ import annotations

import pytest

from helpers.trainers.common.process import Refused
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.auto import start


@pytest.mark.parametrize(
    ("case", "device", "reason"),
    [
        ("unstated-bs32-1x2-dali-static-auto", "gpu", "not for 2"),
        ("unstated-bs32-4x8-dali-static-auto", "gpu", "not for 32"),
        ("fp32-bs32-1x8-dali-static-auto", "gpu", "the case names fp32"),
        ("unstated-bs32-1x1-dali-static-auto", "cpu", "of GPUs"),
        ("unstated-bs32-1x1-dali-dynamic-auto", "gpu", "a static program"),
    ],
)
def test_what_the_switch_does_not_train_is_refused_before_any_program_is_made(
    case: str, device: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        start(JobSpec("j", Case.parse(f"paddle-vgg16-{case}"), 0, ".", device, 0, 2))
