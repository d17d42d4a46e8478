"""Rates inside and outside: the keys of the file formats, and what samples/s are called."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from helpers.judging.rules.rates import key_of, rate_unit, to_record
from helpers.trainers.contract import models
from helpers.trainers.contract.models import MODELS, Model

RESNET50, VGG16 = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-static", "paddle-vgg16-fp32-bs4-1x1-dali-static"


@dataclass(frozen=True)
class Inner:
    samples_per_s: float


@dataclass(frozen=True)
class Outer:
    run_samples_per_s: tuple[float, ...]
    samples_per_step: int
    inner: tuple[Inner, ...]


def test_records_have_the_keys_of_the_file_formats() -> None:
    record = to_record(Outer((1.0, 2.0), 4, (Inner(3.0),)))
    assert record == {"run_images_per_s": (1.0, 2.0), "samples_per_step": 4, "inner": ({"images_per_s": 3.0},)}
    assert key_of("reference_samples_per_s") == "reference_images_per_s"


def test_a_rate_has_the_unit_of_its_model_s_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rate_unit() == rate_unit("of another version") == rate_unit(RESNET50, VGG16) == "images/s"
    monkeypatch.setattr(models, "MODELS", {**MODELS, Model.VGG16: replace(MODELS[Model.VGG16], sample="sentence")})
    assert rate_unit(VGG16) == "sentences/s"
    assert rate_unit(RESNET50, VGG16) == "samples/s"
