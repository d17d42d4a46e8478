"""What the operators of MXNet's profiler say of a step, named as it names them."""

from __future__ import annotations

import pytest

from helpers.trainers.common.device_time import Operation, ProfileError
from helpers.trainers.contract.step_profile import HOST, Phase
from helpers.trainers.mxnet.operations import recording_of


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("Convolution", Phase.FORWARD),
        ("_backward_BatchNorm", Phase.BACKWARD),
        ("add_n", Phase.BACKWARD),
        ("multi_sgd_mom_update", Phase.OPTIMIZER),
        ("KVStoreReduce", Phase.ALL_REDUCE),
        ("CopyCPU2GPU", Phase.TRANSFER),
    ],
)
def test_an_operator_s_name_tells_its_phase(name: str, phase: Phase) -> None:
    recording = recording_of({"cpu/0": [Operation(name, 5.0, 7.0)]}, 0.0, steps=2)
    assert [(row.phase, row.operator) for row in recording.operators if row.operator != HOST] == [(phase, name)]
    assert recording.phases == pytest.approx({phase: 1.0, Phase.DATA_WAIT: 0.0})


def test_operators_that_run_side_by_side_count_once() -> None:
    side_by_side = [Operation("relu", 1.0, 3.0), Operation("relu", 2.0, 4.0)]
    recording = recording_of({"cpu/0": side_by_side}, 2.0, steps=1)
    assert recording.phases == pytest.approx({Phase.FORWARD: 3.0, Phase.DATA_WAIT: 2.0})


def test_the_engine_s_own_work_is_no_operator() -> None:
    with pytest.raises(ProfileError, match="no operator"):
        recording_of({"cpu/0": [Operation("DeleteVariable", 0.0, 1.0)]}, 0.0, steps=1)
