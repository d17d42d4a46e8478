"""Published figures: to which card a row applies, and that no damaged file is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.baseline_files import PUBLISHED, FigureStatus
from helpers.plan.published import PublishedFigure, load_published
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError
from tests.for_each import for_each

CASE_ID = "paddle-resnet50v1.5-fp32-bs8-1x1-dali-static"
Damage = Callable[[dict[str, Any]], object]


def saved(folder: Path, data: object) -> Path:
    path = folder / "recorded.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def figure(gpu: str) -> PublishedFigure:
    return PublishedFigure(
        case=Case.parse(CASE_ID),
        target=gpu[:4].lower(),
        gpu=gpu,
        source="document",
        table="table",
        rule="paddleclas-trimmed",
        framework_version="2.5.0",
        precision_printed="FP32",
        strategy=None,
        samples_per_s=1.0,
        status=FigureStatus.GATE,
        note="",
        environment="machine",
    )


@for_each(
    ("gpu", "device_name", "applies"),
    [
        ("V100-SXM2-32GB", "Tesla V100-SXM2-32GB", True),
        ("V100-SXM2-32GB", "Tesla V100-SXM2-16GB", False),
        ("V100-SXM2-32GB", "Tesla V100-PCIE-32GB", False),
        ("V100-SXM2", "Tesla V100-SXM2-16GB", True),
        ("V100-SXM2", "Tesla V100S-PCIE-32GB", False),
        ("V100-SXM2", "NVIDIA A100-SXM4-40GB", False),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", True),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("A100-SXM4-40GB", "NVIDIA A100 80GB PCIe", False),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", False),
        ("A100-PCIE-80GB", "NVIDIA A100 80GB PCIe", True),
        ("A100-SXM4-40GB", "NVIDIA GeForce RTX 3090", False),
        ("A100-SXM4-40GB", "", False),
    ],
)
def test_a_row_applies_to_its_own_card_model_only(gpu: str, device_name: str, applies: bool) -> None:
    assert figure(gpu).applies_to(device_name) is applies


def published_data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((PUBLISHED / "a100.json").read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("figures[0].case", lambda data: data["figures"][0].update(case="paddle-lenet-fp32-bs8-1x1-dali-static")),
        ("figures[0].framework", lambda data: data["figures"][0].update(framework="paddle")),
        ("figures[0].precision", lambda data: data["figures"][0].update(precision="fp32")),
        ("figures[0].strategy", lambda data: data["figures"][0].update(strategy="auto")),
        ("figures[0].gpu", lambda data: data["figures"][0].update(gpu="V100-SXM2-32GB")),
        ("figures[0].gpu", lambda data: data["figures"][0].update(gpu="Tesla A100")),
        ("figures[0].source", lambda data: data["figures"][0].update(source="another.txt")),
        ("figures[0].environment", lambda data: data["figures"][0].update(environment="nowhere")),
        ("figures[0].rule", lambda data: data["figures"][0].update(rule="guessed")),
        ("figures[0].images_per_s", lambda data: data["figures"][0].update(images_per_s=-1)),
        ("figures[0].images_per_sec", lambda data: data["figures"][0].update(images_per_sec=1)),
        ("figures[0].note", lambda data: data["figures"][0].pop("note")),
        ("figures[14]", lambda data: data["figures"].append(data["figures"][0])),
        ("target", lambda data: data.update(target="h100")),
        ("unit", lambda data: data.update(unit="images/min")),
        ("schema_version", lambda data: data.update(schema_version=3)),
        (
            "environments.report-a100-1node-paddle.machine",
            lambda data: data["environments"]["report-a100-1node-paddle"]["machine"].update(colour="red"),
        ),
    ],
)
def test_a_damaged_published_file_is_an_error_with_its_field(tmp_path: Path, field: str, damage: Damage) -> None:
    data = published_data()
    damage(data)
    path = saved(tmp_path, data)

    with pytest.raises(BaselineError) as caught:
        load_published(path)
    assert caught.value.field == field
    assert str(path) in str(caught.value)
    assert caught.value.remedy
