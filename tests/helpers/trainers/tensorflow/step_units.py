"""Looks at the parts of TensorFlow's step one by one, in .venv-tensorflow: ``step_units.py``; prints JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import tensorflow as tf

from helpers.trainers.common.loop import Batch, HostTimer
from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused, one_line
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow.device import Card, refuse_what_cannot_run, wait_for
from helpers.trainers.tensorflow.models import NetworkForm, normalised
from helpers.trainers.tensorflow.settings import WHOLE_STEP, TensorflowSettings
from helpers.trainers.tensorflow.steps import TrainingStep, cross_entropy, plain_error
from tests.helpers.trainers.small_network import use_small_network
from tests.helpers.trainers.tensorflow.parity_tensorflow import normalised as written_out

CPU = Card("CPU:0")
STATIC = {"incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 10**9, "incr_ratio": 2.0, "decr_ratio": 0.5}


def refusal(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return ""


def batch_norm() -> float:
    """How far the fused batch norm and its gradients are from those written out, as a share."""
    form = NetworkForm()
    images = tf.random.stateless_normal([8, 5, 5, 4], [1, 2], 3.0, 2.0)
    scale, offset = tf.constant([1.0, 2.0, 0.5, 1.0]), tf.constant([0.0, 1.0, -1.0, 0.5])
    found = []
    for norm in (normalised, written_out):
        with tf.GradientTape() as tape:
            tape.watch([images, scale, offset])
            normed, mean, _ = norm(images, scale, offset, tf.zeros(4), tf.ones(4), form)
            total = tf.reduce_sum(normed**3)
        found.append([normed, mean, *tape.gradient(total, [images, scale, offset])])
    return max(float(tf.reduce_max(tf.abs(a - b)) / tf.reduce_max(tf.abs(b))) for a, b in zip(*found, strict=True))


def labels(settings: TensorflowSettings) -> dict[str, float]:
    """The loss of one sample with hard and with smooth labels, and the latter by its definition."""
    logits = numpy.zeros((1, 1000), numpy.float32)
    logits[0, 7] = 3.0
    right, smooth = tf.constant([7], tf.int64), dataclasses.replace(settings, label_smoothing=0.1)
    likely = logits[0].astype("float64") - numpy.log(numpy.exp(logits[0].astype("float64")).sum())
    defined = -(0.9 * likely[7] + 0.1 * likely.mean())
    return {
        "hard": float(cross_entropy(logits, right, settings)) + float(likely[7]),
        "smooth": float(cross_entropy(logits, right, smooth)) - float(defined),
    }


def scaling(spec: JobSpec, settings: TensorflowSettings) -> dict[str, list[float]]:
    """The losses of three steps with a loss scale, without one, and compiled by XLA."""
    images, labels = tf.random.stateless_normal([2, 64, 64, 3], [1, 2]), tf.constant([1, 2], tf.int64)
    half = dataclasses.replace(settings, amp_level="O1", amp_dtype="bfloat16", learning_rate=0.01)
    ways = {
        "scaled": dataclasses.replace(half, loss_scaling=8.0, loss_scaling_rule=STATIC),
        "plain": dataclasses.replace(half, loss_scaling_rule={}),
        "float32": dataclasses.replace(settings, learning_rate=0.01),
        "xla": dataclasses.replace(settings, learning_rate=0.01, xla_mode=WHOLE_STEP),
    }
    told = {}
    for name, wanted in ways.items():
        trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
        step = TrainingStep(trainer, wanted, CPU)
        told[name] = [step.loss(step.step(Batch(images, labels, 2))) for _ in range(3)]
    return told


def mirrored(spec: JobSpec, settings: TensorflowSettings) -> dict[str, Any]:
    """The losses of two cards with the same images and of one alone, and how far the weights of two cards with other
    images are apart. Both cards are this process's here, each a rank's of its own elsewhere."""
    names = ["CPU:0", "CPU:1"]
    images = tf.random.stateless_normal([2, 2, 64, 64, 3], [1, 2])
    labels = tf.constant([[1, 2], [3, 4]], tf.int64)

    def trained(chosen: list[int]) -> tuple[list[float], Any]:
        strategy = tf.distribute.MirroredStrategy(names) if len(chosen) > 1 else None
        trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
        step = TrainingStep(trainer, dataclasses.replace(settings, learning_rate=0.01), Card("CPU:0", strategy))
        # The proof counts the convolutions of one card.
        step._proven = True

        def each(values: Any) -> Any:
            if strategy is None:
                return values[chosen[0]]
            return strategy.experimental_distribute_values_from_function(
                lambda context: values[chosen[context.replica_id_in_sync_group]]
            )

        batch = Batch(each(images), each(labels), 2)
        return [step.loss(step.step(batch)) for _ in range(3)], step.network.weights.trained

    copies = [each.values for each in trained([0, 1])[1].values()]
    return {
        "apart": max(float(tf.reduce_max(tf.abs(first - second))) for first, second in copies),
        "same": trained([0, 0])[0],
        "alone": trained([0])[0],
    }


def proofs(spec: JobSpec, settings: TensorflowSettings) -> dict[str, str]:
    def shown(wanted: TensorflowSettings, computed: Any) -> str:
        trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
        step = TrainingStep(trainer, wanted, CPU)
        cast, step._compute = step._compute, computed
        network = step.network

        def cast_back(images: Any) -> Any:
            step._compute = cast
            return network(images)

        cast_back.weights, cast_back.convolutions = network.weights, network.convolutions  # type: ignore[attr-defined]
        step.network = cast_back
        shapes = tf.TensorSpec([2, 64, 64, 3]), tf.TensorSpec([2], tf.int64), tf.TensorSpec([])
        return refusal(lambda: step.graph(*shapes))

    half = dataclasses.replace(settings, amp_level="O1", amp_dtype="bfloat16")
    return {"right": shown(settings, tf.float32), "not_cast": shown(half, tf.float32)}


def errors() -> list[str]:
    """What becomes of an error of memory, on the host and on a card, and of another one."""
    words = 'Graph execution error:\n\n  File "x", line 1\nOOM when allocating'
    full = tf.errors.ResourceExhaustedError(None, None, words)
    wrong = tf.errors.InvalidArgumentError(None, None, "2000 is not in [0, 1000)")
    plain = [plain_error(full, "CPU:0"), plain_error(full, "GPU:0"), plain_error(wrong, "CPU:0")]
    return [one_line(f"{type(each).__name__}: {each}") for each in plain]


def waiting() -> list[Any]:
    done: list[Any] = []
    clock = iter((1.0, 2.5, 4.0))
    timer = HostTimer(lambda: done.append("clock") or next(clock), lambda: done.append("wait"))
    wait_for("CPU:0")
    timer.begin()
    timer.mark()
    timer.mark()
    return [*done, timer.resolve()]


def refused(spec: JobSpec) -> str:
    """What is said of a case that a CPU cannot run."""
    case = dataclasses.replace(spec.case, precision=Precision.TF32)
    return refusal(lambda: refuse_what_cannot_run(dataclasses.replace(spec, case=case), TensorflowSettings.of(spec)))


def main(spec: JobSpec) -> dict[str, Any]:
    settings = TensorflowSettings.of(spec)
    told = {
        "batch_norm": batch_norm(),
        "labels": labels(settings),
        "waiting": waiting(),
        "errors": errors(),
        "refused": refused(spec),
    }
    use_small_network()
    told |= {"scaling": scaling(spec, settings), "proofs": proofs(spec, settings)}
    return {**told, "mirrored": mirrored(spec, settings)}


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
    print(json.dumps(main(JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")))))
