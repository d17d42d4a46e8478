"""A Paddle training loop as a user would write it; helpers/session/lockstep.py compares the trainer with it.

``python -m helpers.trainers.paddle.bare_loop --cores 0 --steps 10`` prints its images/s. It shares no code with
the trainer. Model and optimizer are Paddle's own; its ``resnet50`` is v1.5 (the stride is in the 3 x 3
convolution).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from helpers.trainers.contract.blocks import StepBlock, Stopwatch, Train, add_loop_arguments, run_bare_loop

_FLOAT32 = {"add", "add_", "pool2d", "relu", "relu_"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bf16", action="store_true", help="Compile with to_static under AMP O1 in bfloat16")
    add_loop_arguments(parser)
    return run_bare_loop(parser.parse_args(), training)


def training(arguments: argparse.Namespace) -> Train:
    """Returns a function that trains a given number of steps on one batch of noise."""
    import numpy
    import paddle
    import paddle.nn.functional as F

    batch_size, rate, bf16 = arguments.batch_size, arguments.learning_rate, arguments.bf16
    paddle.set_device("cpu")
    paddle.seed(1234)
    model = _bfloat16_model(paddle) if bf16 else paddle.vision.models.resnet50()
    model.train()
    optimizer = paddle.optimizer.Momentum(rate, 0.9, parameters=model.parameters(), weight_decay=1e-4)
    if bf16:
        model = paddle.jit.to_static(model, full_graph=True, backend=None)
    random = numpy.random.RandomState(1234)
    images = paddle.to_tensor(random.standard_normal((batch_size, 3, 224, 224)).astype("float32"))
    labels = paddle.to_tensor(random.randint(0, 1000, size=(batch_size,)).astype("int64"))

    def train(steps: int) -> StepBlock:
        stopwatch = Stopwatch()
        for _ in range(steps):
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        return StepBlock(steps, *stopwatch.read())

    return train


def _bfloat16_model(paddle: Any) -> Any:
    """A model under AMP O1 as a CPU supports it: in the compiled forward pass, with float32 for an operation without a
    bfloat16 kernel."""

    class Float32BatchNorm(paddle.nn.BatchNorm2D):
        def forward(self, images: Any) -> Any:
            return paddle.nn.BatchNorm2D.forward(self, images.astype("float32"))

    class Cast(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.model = paddle.vision.models.resnet50()
            for layer in self.model.sublayers():
                if type(layer) is paddle.nn.BatchNorm2D:
                    layer.__class__ = Float32BatchNorm

        def forward(self, images: Any) -> Any:
            with paddle.amp.auto_cast(level="O1", dtype="bfloat16", custom_black_list=_FLOAT32):
                logits = self.model(images)
            return logits.astype("float32")

    return Cast()


if __name__ == "__main__":
    sys.exit(main())
