"""Trains some steps of a job with Paddle's own step::

    parity_paddle.py SPEC.json WEIGHTS.npz GRADIENTS.npz float64|float32

Writes the weights that it began with and the first step's gradients of them, and prints, as JSON, the losses and the
number of parameters. Dropout draws differently in each framework, so there is none. ResNet50 is computed in float64: in
float32, with a batch this small, every other framework's first gradients are up to 2.3% from Paddle's (and the first
loss up to 1e-5), since batch norm and ReLU turn roundings into other signs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import paddle

from helpers.trainers.common.loop import Batch
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings
from helpers.trainers.paddle.steps import DynamicStep
from tests.helpers.trainers.parity_batch import answer, parity_batch
from tests.helpers.trainers.small_network import use_small_network


def main(spec: JobSpec, weights: Path, gradients: Path, dtype: str) -> dict[str, Any]:
    use_small_network()
    settings = PaddleSettings.of(spec)
    paddle.seed(spec.seed)
    paddle.set_default_dtype(dtype)
    step = DynamicStep(spec, settings, {}, ranks=1)
    model: Any = step.model
    for layer in model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.p = 0.0
    named = {name: each for name, each in model.named_parameters() if not each.stop_gradient}
    numpy.savez(weights, **{name: each.numpy() for name, each in named.items()})
    images, labels, samples = parity_batch(spec, settings, dtype)
    batch = Batch(paddle.to_tensor(images), paddle.to_tensor(labels), samples)
    found: dict[str, Any] = {}
    optimizer: Any = step._optimizer
    move = optimizer.step

    def record_and_move() -> None:
        if not found:
            found.update({name: each.grad.numpy() for name, each in named.items()})
        move()

    optimizer.step = record_and_move
    losses = [step.loss(step.step(batch)) for _ in range(spec.window_steps)]
    numpy.savez(gradients, **found)
    return {"losses": losses, "parameters": sum(int(each.size) for each in named.values())}


if __name__ == "__main__":
    answer(main)
