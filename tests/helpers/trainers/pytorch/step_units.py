"""Looks at the parts of PyTorch's step one by one, in .venv-pytorch: ``step_units.py``; prints JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy
import torch

from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model
from helpers.trainers.pytorch.data import feed_to
from helpers.trainers.pytorch.device import refuse_what_cannot_run
from helpers.trainers.pytorch.models import network_of
from helpers.trainers.pytorch.settings import PytorchSettings
from helpers.trainers.pytorch.steps import Convolutions, GraphedStep, TrainingStep, check_weights

IMAGES = torch.ones(1, 3, 64, 64)


def network(model: Model, *arguments: Any, **named: Any) -> Any:
    return network_of(model.spec, *arguments, **named)


def refusal(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return ""


def proofs(settings: PytorchSettings) -> dict[str, str]:
    """What the proof says where the model computes in another type or layout than the settings, and where not."""
    model = network(Model.RESNET50)

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
    trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
    return TrainingStep(trainer, settings, torch.device("cpu"))


class CardDouble:
    """Stands for torch.cuda: a graph is what ran while it was captured, run again over the same tensors."""

    def __init__(self) -> None:
        self.streams: list[Any] = []
        self.captures = self.replays = 0
        self.again: Any = None

    def Stream(self) -> Any:
        self.streams.append(self.current_stream())
        return self.streams[-1]

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    def stream(self, stream: Any) -> Any:
        return contextlib.nullcontext()

    def CUDAGraph(self) -> Any:
        return SimpleNamespace(replay=self.replay)

    def graph(self, graph: Any, capture_error_mode: str) -> Any:
        self.captures += 1
        return contextlib.nullcontext()

    def replay(self) -> None:
        self.replays += 1
        self.again()


def graphed() -> dict[str, Any]:
    """The losses of six batches through a step that is captured; a loss is the sum of its batch and label."""
    card, out = CardDouble(), torch.zeros(())

    def train(images: Any, labels: Any) -> Any:
        card.again = lambda: out.copy_(images.sum() + labels.sum())
        card.again()
        return out

    with mock.patch.object(torch, "cuda", card):
        step = GraphedStep(train)
        told = [float(step(torch.tensor([float(number)]), torch.tensor([100]))) for number in range(6)]
    return {"losses": told, "captures": card.captures, "replays": card.replays, "streams": len(card.streams)}


def fed() -> list[float]:
    """What the step has of a loader's array that is filled anew afterwards."""
    array = numpy.ones(2, dtype=numpy.float32)
    tensor = feed_to(torch.device("cpu"))(array)
    array[:] = 7.0
    return [float(each) for each in tensor]


def refused(spec: JobSpec) -> list[str]:
    """What is said of cases that a CPU cannot run."""
    cases = [dataclasses.replace(spec.case, precision=Precision.TF32), dataclasses.replace(spec.case, graphs=True)]
    jobs = [dataclasses.replace(spec, case=case) for case in cases]
    return [refusal(partial(refuse_what_cannot_run, job)) for job in jobs]


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
    return {
        "proofs": proofs(settings),
        "groups": groups,
        "rates": rates,
        "fed": fed(),
        "graphed": graphed(),
        "refused": refused(spec),
    }


if __name__ == "__main__":
    print(json.dumps(main(JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")))))
