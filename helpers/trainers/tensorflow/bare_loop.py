"""A TensorFlow training loop as a user would write it; helpers/session/lockstep.py compares the trainer with it.

``python -m helpers.trainers.tensorflow.bare_loop --cores 0 --steps 10`` prints its images/s. The model is the
trainer's; step, optimizer, precision and batch are written out here.
"""

from __future__ import annotations

import argparse
import os
import sys

from helpers.trainers.contract.blocks import StepBlock, Stopwatch, Train, add_loop_arguments, run_bare_loop


def main() -> int:
    return run_bare_loop(_parser().parse_args(), training)


def training(arguments: argparse.Namespace) -> Train:
    """Returns a function that trains a given number of steps on one batch of noise."""
    import tensorflow as tf

    from helpers.trainers.contract.models import Model
    from helpers.trainers.tensorflow.models import NetworkForm, network_of

    on_gpu = arguments.device == "gpu"
    tf.config.threading.set_intra_op_parallelism_threads(len(os.sched_getaffinity(0)))
    if not on_gpu:
        tf.config.threading.set_inter_op_parallelism_threads(len(os.sched_getaffinity(0)))
    for card in tf.config.list_physical_devices("GPU") if on_gpu else ():
        tf.config.experimental.set_memory_growth(card, True)
    if arguments.tf32 is not None:
        tf.config.experimental.enable_tensor_float_32_execution(arguments.tf32 == "on")
    tf.random.set_seed(1234)
    compute, scale = tf.as_dtype(arguments.amp_dtype or "float32"), arguments.loss_scaling
    model = network_of(Model.RESNET50.spec, NetworkForm())
    weights = list(model.weights.trained.values())
    speeds = [tf.Variable(tf.zeros_like(each), trainable=False) for each in weights]
    images = tf.random.normal([arguments.batch_size, 224, 224, 3])
    labels = tf.random.uniform([arguments.batch_size], maxval=1000, dtype=tf.int64)
    rate = tf.constant(arguments.learning_rate)

    @tf.function(jit_compile=arguments.xla or None, autograph=False)
    def step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(tf.cast(images, compute)), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            scaled = loss if scale is None else loss * scale
        for each, speed, gradient in zip(weights, speeds, tape.gradient(scaled, weights)):
            if scale is not None:
                gradient = gradient * (1.0 / scale)
            tf.raw_ops.ResourceApplyMomentum(
                var=each.handle, accum=speed.handle, lr=rate, grad=gradient + 1e-4 * each, momentum=0.9
            )
        return loss

    def train(steps: int) -> StepBlock:
        stopwatch = Stopwatch()
        for _ in range(steps):
            step(images, labels, rate)
        if on_gpu:
            tf.test.experimental.sync_devices()
        return StepBlock(steps, *stopwatch.read())

    return train


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train ResNet50 v1.5 in a bare TensorFlow loop.")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="Train there")
    parser.add_argument("--amp-dtype", choices=("bfloat16", "float16"), help="Convolve and multiply in this type")
    parser.add_argument("--loss-scaling", type=float, help="Scale the loss by this number, which stays")
    parser.add_argument("--tf32", choices=("on", "off"), help="Force TF32. Default: as the build has it")
    parser.add_argument("--xla", action="store_true", help="Have XLA compile the whole step")
    add_loop_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
