"""Trains some steps of a job with PyTorch's own step::

    parity_pytorch.py SPEC.json WEIGHTS.npz GRADIENTS.npz float64|float32

Runs in .venv-pytorch. Begins with the weights that ``parity_paddle.py`` wrote and prints what that prints, and how far
the first step's gradients are from those that it wrote.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.settings import PytorchSettings
from helpers.trainers.pytorch.steps import TrainingStep
from tests.helpers.trainers.parity_batch import (
    answer,
    parity_batch,
    read_arrays,
    relative_errors,
    transposed,
)
from tests.helpers.trainers.small_network import use_small_network


def main(spec: JobSpec, weights: Path, gradients: Path, dtype: str) -> dict[str, Any]:
    use_small_network()
    settings = PytorchSettings.of(spec)
    trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
    step = TrainingStep(trainer, settings, torch.device("cpu"))
    model: Any = step._model
    if dtype == "float64":
        model.double()
        # The loss is taken in float64 too: each step would enlarge the error of one in float32.
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
        for state in step._optimizer.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].double()
        # No case is computed in float64.
        step._proof = None
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in read_arrays(weights, own, transposed).items():
            own[name].copy_(torch.from_numpy(value))
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    images, labels, samples = parity_batch(spec, settings, dtype)
    batch = Batch(torch.tensor(images), torch.tensor(labels), samples)
    step.begin_epoch(0)
    found: dict[str, Any] = {}

    def record(optimizer: Any, positional: Any, named: Any) -> None:
        if not found:
            found.update({name: each.grad.numpy().copy() for name, each in model.named_parameters()})

    step._optimizer.register_step_pre_hook(record)
    losses = [step.loss(step.step(batch)) for _ in range(spec.window_steps)]
    errors = relative_errors(found, read_arrays(gradients, found, transposed))
    parameters = sum(each.numel() for each in model.parameters())
    return {"losses": losses, "parameters": parameters, "gradient_errors": errors}


if __name__ == "__main__":
    torch.set_num_threads(1)
    answer(main)
