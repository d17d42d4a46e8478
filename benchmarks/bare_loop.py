"""A training loop on a CPU as a user of a framework would write it: ``python -m benchmarks.bare_loop FRAMEWORK``.

``benchmarks.trainer_speed`` compares the suite's trainer with it. Step, optimizer, precision and batch are written out
here. The model is Paddle's own, whose ``resnet50`` is v1.5; the other frameworks have none, so theirs is the trainer's.
With ``--steps`` it prints its images/s, else it serves blocks of steps.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.blocks import BARE, StepBlock, Stopwatch, serve
from helpers.trainers.contract.models import Model

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Operators for which Paddle has no bfloat16 kernel on a CPU.
FLOAT32_IN_PADDLE = {"add", "add_", "pool2d", "relu", "relu_"}


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("framework", choices=tuple(LOOPS), help="Train in this framework")
    parser.add_argument("--bf16", action="store_true", help="Convolve and multiply in bfloat16")
    parser.add_argument("--batch-size", type=int, default=4, help="Train on N images a step")
    parser.add_argument("--learning-rate", type=float, default=0.1 * 4 / 256, help="Take RATE, as it stands")
    parser.add_argument("--cores", type=int, nargs="+", required=True, help="Pin the process to these cores")
    parser.add_argument("--steps", type=int, help="Train N steps, print images/s and end; else serve blocks")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, arguments.cores)
    # The frameworks read the number of threads when they are imported.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(len(arguments.cores))))
    step, wait = LOOPS[arguments.framework](arguments)

    def train(steps: int) -> StepBlock:
        stopwatch = Stopwatch()
        for _ in range(steps):
            step()
        wait()
        return StepBlock(steps, *stopwatch.read())

    if arguments.steps is None:
        serve({BARE: train})
        return 0
    train(2)
    print(f"{arguments.batch_size / train(arguments.steps).step_seconds:.4g} images/s")
    return 0


# A step on a batch of noise, and what waits for the steps.
Loop = tuple[Callable[[], None], Callable[[], None]]


def paddle_loop(arguments: argparse.Namespace) -> Loop:
    import numpy
    import paddle
    import paddle.nn.functional as F

    paddle.set_device("cpu")
    paddle.seed(1234)
    model = _cast_by_paddle(paddle) if arguments.bf16 else paddle.vision.models.resnet50()
    model.train()
    rate = arguments.learning_rate
    optimizer = paddle.optimizer.Momentum(rate, 0.9, parameters=model.parameters(), weight_decay=1e-4)
    if arguments.bf16:
        # On a CPU Paddle casts in a compiled forward pass alone.
        model = paddle.jit.to_static(model, full_graph=True, backend=None)
    random = numpy.random.RandomState(1234)
    images = paddle.to_tensor(random.standard_normal((arguments.batch_size, 3, 224, 224)).astype("float32"))
    labels = paddle.to_tensor(random.randint(0, 1000, size=(arguments.batch_size,)).astype("int64"))

    def step() -> None:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.clear_grad()

    return step, lambda: None


def _cast_by_paddle(paddle: Any) -> Any:
    """A model under AMP O1, with float32 for an operation without a bfloat16 kernel."""

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
            with paddle.amp.auto_cast(level="O1", dtype="bfloat16", custom_black_list=FLOAT32_IN_PADDLE):
                logits = self.model(images)
            return logits.astype("float32")

    return Cast()


def pytorch_loop(arguments: argparse.Namespace) -> Loop:
    import torch
    import torch.nn.functional as F

    from helpers.trainers.pytorch.models import network_of

    torch.manual_seed(1234)
    model = network_of(Model.RESNET50.spec).train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=arguments.learning_rate, momentum=0.9, weight_decay=1e-4, fused=True
    )
    images = torch.randn(arguments.batch_size, 3, 224, 224)
    labels = torch.randint(0, 1000, (arguments.batch_size,))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16) if arguments.bf16 else contextlib.nullcontext():
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, lambda: None


def tensorflow_loop(arguments: argparse.Namespace) -> Loop:
    import tensorflow as tf

    from helpers.trainers.tensorflow.models import NetworkForm, network_of

    tf.config.threading.set_intra_op_parallelism_threads(len(arguments.cores))
    tf.config.threading.set_inter_op_parallelism_threads(len(arguments.cores))
    tf.random.set_seed(1234)
    compute = tf.bfloat16 if arguments.bf16 else tf.float32
    model = network_of(Model.RESNET50.spec, NetworkForm())
    weights = list(model.weights.trained.values())
    speeds = [tf.Variable(tf.zeros_like(each), trainable=False) for each in weights]
    images = tf.random.normal([arguments.batch_size, 224, 224, 3])
    labels = tf.random.uniform([arguments.batch_size], maxval=1000, dtype=tf.int64)
    rate = tf.constant(arguments.learning_rate)

    @tf.function(autograph=False)
    def train(images: Any, labels: Any, rate: Any) -> None:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(tf.cast(images, compute)), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for each, speed, gradient in zip(weights, speeds, tape.gradient(loss, weights), strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=each.handle, accum=speed.handle, lr=rate, grad=gradient + 1e-4 * each, momentum=0.9
            )

    return lambda: train(images, labels, rate), lambda: None


def mxnet_loop(arguments: argparse.Namespace) -> Loop:
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.contrib import amp

    from helpers.trainers.mxnet.models import NetworkForm, network_of

    if arguments.bf16:
        amp.init("bfloat16")
    mx.random.seed(1234)
    network = network_of(Model.RESNET50.spec, NetworkForm())
    network.initialize(ctx=mx.cpu(0))
    network.hybridize(static_alloc=True, static_shape=True)
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    entropy.hybridize(static_alloc=True, static_shape=True)
    options = {"learning_rate": arguments.learning_rate, "momentum": 0.9, "wd": 1e-4}
    trainer = gluon.Trainer(network.collect_params(), "sgd", options, kvstore=None)
    images = mx.nd.random.normal(shape=(arguments.batch_size, 3, 224, 224))
    labels = mx.nd.random.randint(0, 1000, shape=(arguments.batch_size,)).astype("float32")

    def step() -> None:
        with autograd.record():
            loss = entropy(network(images).astype("float32", copy=False), labels)
        loss.backward()
        trainer.step(arguments.batch_size)

    return step, mx.nd.waitall


LOOPS: Mapping[str, Callable[[argparse.Namespace], Loop]] = {
    "paddle": paddle_loop,
    "pytorch": pytorch_loop,
    "tensorflow": tensorflow_loop,
    "mxnet": mxnet_loop,
}

if __name__ == "__main__":
    sys.exit(main())
