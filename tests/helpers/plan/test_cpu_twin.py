"""Which CPU case stands for a case of a GPU, and how it differs."""

from __future__ import annotations

import pytest

from helpers.plan.case_plan import SuiteCase
from helpers.plan.cpu_twin import cpu_twin
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case

PURE = "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static"
FP32 = "paddle-resnet50v1.5-fp32-bs256-1x8-native-static"


def twin_of(case_id: str, *cpu_cases: str, target: str = "cpu") -> str | None:
    protocol = MeasuringProtocol("p", 1, 1, 1)
    cases = [SuiteCase(Case.parse(each), target, protocol) for each in cpu_cases]
    found = cpu_twin(Case.parse(case_id), cases)
    return found.case.id if found else None


def test_a_twin_has_the_same_model_execution_and_precision() -> None:
    right = "paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-static"
    wrong = [
        "paddle-vgg16-amp_o2-bs4-1x1-dali-static",
        "paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-to_static",
        "paddle-resnet50v1.5-amp_o1-bs4-1x1-dali-static",
        "paddle-resnet50v1.5-fp32-bs4-1x1-dali-static",
        "paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-static-auto",
    ]
    assert twin_of(PURE, *wrong) is None
    assert twin_of(PURE, *wrong, right) == right


def test_a_case_of_a_gpu_is_no_twin() -> None:
    assert twin_of(PURE, PURE, target="v100") is None


@pytest.mark.parametrize(
    ("case_id", "stands_in"),
    [
        ("paddle-resnet50v1.5-tf32-bs256-1x1-native-static", "paddle-resnet50v1.5-fp32-bs4-1x1-native-static"),
        ("pytorch-resnet50v1.5-amp-bs256-1x8-dali_cpu", "pytorch-resnet50v1.5-amp-bs4-1x2-dali_cpu"),
        ("pytorch-resnet50v1.5-amp-bs256-1x8-dali_cpu", "pytorch-resnet50v1.5-amp_o1-bs4-1x2-dali"),
        ("tensorflow-resnet50v1.5-amp-bs224-1x1-dali", "tensorflow-resnet50v1.5-bf16-bs4-1x1-dali"),
    ],
)
def test_what_a_cpu_lacks_has_its_stand_in(case_id: str, stands_in: str) -> None:
    assert twin_of(case_id, stands_in) == stands_in


def test_of_several_the_nearest_in_nodes_cards_and_data_counts_then_the_smaller_batch() -> None:
    one, two = "paddle-resnet50v1.5-fp32-bs4-1x1-native-static", "paddle-resnet50v1.5-fp32-bs8-1x2-dali-static"
    nodes = "paddle-resnet50v1.5-fp32-bs8-2x1-dali-static"
    native, larger = two.replace("dali", "native"), two.replace("dali", "native").replace("bs8", "bs16")
    assert twin_of(FP32, one, two, nodes) == two
    assert twin_of(FP32, one, larger, two, native) == native
    assert twin_of(FP32.replace("1x8", "4x8"), one, two, nodes) == nodes
