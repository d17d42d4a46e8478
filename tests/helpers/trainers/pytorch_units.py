"""Looks at the parts of PyTorch's step one by one, in .venv-pytorch: ``pytorch_units.py``; prints JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from helpers.job import JobSpec
from helpers.trainers.loop import Batch
from helpers.trainers.process import Device, Ranks, Refused
from helpers.trainers.pytorch_device import force_float32
from helpers.trainers.pytorch_models import VGG16, ResNet50, as_layout
from helpers.trainers.pytorch_proof import Convolutions, check_weights
from helpers.trainers.pytorch_steps import TrainingStep
from helpers.trainers.settings import PytorchSettings

IMAGES = torch.ones(1, 3, 64, 64)


def refusal(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return ""


def proofs(settings: PytorchSettings) -> dict[str, str]:
    """What the proof says where the model computes in another type or layout than the settings, and where not."""
    model = ResNet50()

    def shown(wanted: PytorchSettings, dtype: Any) -> str:
        proof = Convolutions()
        proof.listen(model)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16), torch.no_grad():
            model(IMAGES)
        proof.stop()
        model(IMAGES)
        return refusal(lambda: proof.check(wanted, model))

    half = dataclasses.replace(settings, amp_level="O1", amp_dtype="bfloat16")
    return {
        "right": shown(settings, torch.float32),
        "right_half": shown(half, torch.bfloat16),
        "not_cast": shown(half, torch.float32),
        "cast": shown(settings, torch.bfloat16),
        "layout": shown(dataclasses.replace(settings, layout="NHWC"), torch.float32),
        "never_ran": refusal(lambda: Convolutions().check(settings, model)),
        "weights": refusal(lambda: check_weights(model.half(), settings)),
    }


def step_of(spec: JobSpec, settings: PytorchSettings) -> TrainingStep:
    trainer: Any = SimpleNamespace(spec=spec, ranks=Ranks(0, 0, 1), device=Device())
    return TrainingStep(trainer, settings, torch.device("cpu"))


def losses(spec: JobSpec, settings: PytorchSettings, steps: int) -> list[float]:
    torch.manual_seed(1)
    step = step_of(spec, settings)
    batch = Batch(torch.randn(2, 3, 64, 64), torch.tensor([3, 700]), 2)
    return [step.loss(step.step(batch)) for _ in range(steps)]


def overflows(spec: JobSpec, settings: PytorchSettings) -> list[list[float]]:
    """Losses without a loss scale, and under one so large that the first steps are skipped."""
    rule = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}
    scaled = dataclasses.replace(settings, loss_scaling=2.0**127, loss_scaling_rule=rule)
    return [losses(spec, settings, 3), losses(spec, scaled, 9)]


def main(spec: JobSpec) -> dict[str, Any]:
    settings = PytorchSettings.of(spec)
    groups, rates = {}, []
    for decay_norms in (True, False):
        step = step_of(spec, dataclasses.replace(settings, decay_norms=decay_norms))
        groups[str(decay_norms)] = [
            (len(each["params"]), each["weight_decay"]) for each in step._optimizer.param_groups
        ]
    for epoch in (0, 29, 30, 89, 90):
        step.begin_epoch(epoch)
        rates.append(step._optimizer.param_groups[0]["lr"] / settings.learning_rate)
    feed = as_layout(torch.ones(2, 5, 5, 3), "NHWC", "NHWC")
    precise = force_float32(spec, torch.device("cpu"))
    return {
        "parameters": [
            sum(each.numel() for each in model.parameters()) for model in (ResNet50(), ResNet50("NHWC", 4), VGG16())
        ],
        "proofs": proofs(settings),
        "groups": groups,
        "rates": rates,
        "feed": [list(feed.shape), feed.is_contiguous(memory_format=torch.channels_last)],
        "precise": precise,
        "overflows": overflows(spec, settings),
    }


if __name__ == "__main__":
    print(json.dumps(main(JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")))))
