"""Looks at the parts of TensorFlow's step one by one, in .venv-tensorflow: ``step_units.py``; prints JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from helpers.trainers.common.device_time import ProfileError, busy_seconds
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused, one_line
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model
from helpers.trainers.tensorflow.data import feed_to
from helpers.trainers.tensorflow.device import Cards, WaitingTimer, refuse_what_cannot_run, wait_for
from helpers.trainers.tensorflow.models import NetworkForm, network_of, normalised
from helpers.trainers.tensorflow.profile import TensorflowStepProfiler, kernels_of, planes_of, timelines_of
from helpers.trainers.tensorflow.settings import WHOLE_STEP, TensorflowSettings
from helpers.trainers.tensorflow.steps import TrainingStep, cross_entropy, plain_error
from tests.helpers.trainers.small_network import use_small_network
from tests.helpers.trainers.tensorflow.parity_tensorflow import normalised as written_out

CPU = Cards(["CPU:0"])
RULE = {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}


def refusal(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return ""


def parameters() -> dict[str, int]:
    def count(model: Model, channels: int) -> int:
        # In a graph that nobody runs the weights get no values.
        with tf.Graph().as_default():
            trained = network_of(model.spec, NetworkForm(channels=channels)).weights.trained
        return sum(int(each.shape.num_elements()) for each in trained.values())

    return {
        "resnet50": count(Model.RESNET50, 3),
        "four_channels": count(Model.RESNET50, 4),
        "vgg16": count(Model.VGG16, 3),
    }


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


def trained_steps(
    spec: JobSpec, settings: TensorflowSettings, images: Any, number: int, steeper: float = 1.0
) -> list[Any]:
    """The loss, the scale and whether a weight moved, step by step. ``steeper`` multiplies the classifier's weights,
    and so the gradients of all others."""
    trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
    step = TrainingStep(trainer, settings, CPU)
    weights = step.network.weights.trained
    stem, classifier = weights["stem.convolution.weight"], weights["classifier.weight"]
    classifier.assign(classifier * steeper)
    told = []
    for _ in range(number):
        before = stem.numpy()
        loss = step.loss(step.step(Batch([images], [tf.constant([1, 2], tf.int64)], 2)))
        told.append((loss, float(step._scale.value), bool((stem.numpy() != before).any())))
    return told


def scaling(spec: JobSpec, settings: TensorflowSettings) -> dict[str, Any]:
    images = tf.random.stateless_normal([2, 64, 64, 3], [1, 2])
    half = dataclasses.replace(settings, amp_level="O1", amp_dtype="bfloat16", loss_scaling_rule=RULE)
    static = {**RULE, "incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 10**9}
    return {
        "overflows": trained_steps(spec, dataclasses.replace(half, loss_scaling=2.0**127), images, 3, steeper=1e3),
        "rises": trained_steps(spec, dataclasses.replace(half, loss_scaling=8.0), images, 3),
        "static": trained_steps(spec, dataclasses.replace(half, loss_scaling=8.0, loss_scaling_rule=static), images, 3),
        "none": trained_steps(spec, dataclasses.replace(half, loss_scaling_rule={}), images, 3),
    }


def mirrored(spec: JobSpec, settings: TensorflowSettings) -> dict[str, Any]:
    """The losses of two cards of one process, whose exchange XLA does not compile; of two cards with the same images,
    and of one alone; how far the weights of two cards with other images are apart."""
    images = tf.random.stateless_normal([2, 2, 64, 64, 3], [1, 2])
    labels = tf.constant([[1, 2], [3, 4]], tf.int64)
    names = ["CPU:0", "CPU:1"]

    def trained(cards: Cards, chosen: list[int], mode: str | None = None) -> tuple[list[float], Any]:
        trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
        step = TrainingStep(trainer, dataclasses.replace(settings, xla_mode=mode, learning_rate=0.01), cards)
        batch = Batch([images[each] for each in chosen], [labels[each] for each in chosen], 2 * len(chosen))
        return [step.loss(step.step(batch)) for _ in range(3)], step.network.weights.trained

    def both() -> Cards:
        return Cards(names, tf.distribute.MirroredStrategy(names))

    plain, weights = trained(both(), [0, 1])
    copies = [each.values for each in weights.values()]
    return {
        "plain": plain,
        "apart": max(float(tf.reduce_max(tf.abs(first - second))) for first, second in copies),
        "xla": trained(both(), [0, 1], WHOLE_STEP)[0],
        "same": trained(both(), [0, 0])[0],
        "alone": trained(CPU, [0])[0],
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


def errors(pool: Executor) -> list[Future[str]]:
    """What becomes of errors: memory that no machine has, asked for by a graph and by XLA, and a wrong index.

    TensorFlow gives up on memory only after 10 s, during which other threads go on.
    """
    ones = tf.ones([1000, 1000])

    def enormous(values: Any) -> Any:
        return tf.reduce_sum(tf.tile(values, [1000, 1000]) * 2.0 + values[0, 0])

    def outside(values: Any) -> Any:
        return tf.gather(values, [2000])

    def told(act: Any, jit: bool | None, device: str) -> str:
        try:
            tf.function(act, jit_compile=jit)(ones)
        except tf.errors.OpError as error:
            plain = plain_error(error, device)
            return one_line(f"{type(plain).__name__}: {plain}")
        return ""

    ways = (enormous, None, "CPU:0"), (enormous, True, "GPU:0"), (outside, None, "CPU:0")
    return [pool.submit(told, *way) for way in ways]


def waiting() -> list[Any]:
    done: list[Any] = []
    clock = iter((1.0, 2.5, 4.0))
    timer = WaitingTimer(lambda: done.append("wait"), lambda: done.append("clock") or next(clock))
    wait_for(["CPU:0"])
    timer.begin()
    timer.mark()
    timer.mark()
    return [*done, timer.resolve()]


def lending() -> dict[str, bool]:
    space = numpy.zeros(1024, numpy.uint8)
    first = -space.ctypes.data % 64
    told = {}
    for name, start in (("aligned", first), ("elsewhere", first + 4)):
        array = space[start : start + 64].view(numpy.float32)
        tensor = feed_to("CPU:0")(array)
        array[0] = 5.0
        told[name] = float(tensor[0]) == 5.0
        array[0] = 0.0
    return told


def profiles() -> dict[str, Any]:
    """What is read from profiles as TensorFlow writes them of cards."""
    known = xplane_pb2.XSpace()
    _add_plane(
        known,
        "/device:GPU:0",
        {
            "Stream #7(Kernel,MemcpyD2D)": [(0.0, 1.0, "conv"), (2.0, 0.5, "conv")],
            # At the same time as the first kernel.
            "Stream #9(MemcpyH2D)": [(0.5, 1.0, "copy")],
            "CUPTI overhead": [(3.0, 5.0, "flush")],
            "TensorFlow Ops": [(0.0, 9.0, "Conv2D")],
        },
    )
    _add_plane(known, "/device:GPU:1", {"Stream #7(Kernel)": [(0.0, 3.0, "conv")]})
    _add_plane(known, "/host:CPU", {"tf_Compute": [(0.0, 9.0, "Conv2D")]})
    _add_plane(known, "/host:CUPTI", {"Host Threads/1": [(0.0, 9.0, "cuLaunchKernel")]})
    dropped = xplane_pb2.XSpace(planes=known.planes, warnings=["Detected GPU events dropped on host: 5 events dropped"])
    told: dict[str, Any] = {}
    for name, space in {"known": known, "dropped": dropped, "none": xplane_pb2.XSpace()}.items():
        try:
            timelines = timelines_of(space.SerializeToString())
            told[name] = {card: [len(each), busy_seconds(each)] for card, each in timelines.items()}
        except ProfileError as error:
            told[name] = str(error)
    stream = known.planes[0].lines[0]
    for key, name in {1: "tf_op", 2: "blocks.0/Conv2D:Conv2D"}.items():
        known.planes[0].stat_metadata[key].name = name
    stream.events[0].stats.add(metadata_id=1, ref_value=2)
    stream.events[1].stats.add(metadata_id=1, str_value="Relu:Relu")
    kernels = [
        each for each in kernels_of(planes_of(known.SerializeToString())) if each.lane.startswith("/device:GPU:0")
    ]
    told["kernels"] = [[each.name, each.start, each.end, each.operation] for each in kernels]
    told["gpus"] = []
    for devices in (["GPU:0"], ["GPU:0", "GPU:1"]):
        try:
            # Here there is no card: what the host does must not be taken for its work.
            profiler = TensorflowStepProfiler(set(), devices)
            profiler.start()
            tf.zeros([2, 2])
            with tempfile.TemporaryDirectory() as folder:
                profiler.stop(1, Path(folder) / "trace.json")
        except ProfileError as error:
            told["gpus"].append(str(error))
    told["names"] = sorted({each.name for each in timelines_of(known.SerializeToString())["/device:GPU:0"]})
    return told


def _add_plane(space: Any, name: str, lines: dict[str, list[tuple[float, float, str]]]) -> None:
    """Events as start, duration, both in seconds, and name."""
    plane = space.planes.add(name=name)
    for line_name, events in lines.items():
        # A date: events are counted from it.
        line = plane.lines.add(name=line_name, timestamp_ns=1_795_000_000_000_000_000)
        for start, seconds, of in events:
            key = sum(of.encode())
            plane.event_metadata[key].name = of
            line.events.add(metadata_id=key, offset_ps=int(start * 1e12), duration_ps=int(seconds * 1e12))


def refusals(settings: TensorflowSettings) -> dict[str, str]:
    def of(case_id: str, device: str = "cpu", wanted: TensorflowSettings = settings) -> str:
        case = Case.parse(f"tensorflow-resnet50v1.5-{case_id}")
        spec = JobSpec("j", case, 0, "/", device, 0, 1)
        return refusal(lambda: refuse_what_cannot_run(spec, wanted))

    return {
        "tf32": of("tf32-bs1-1x1-dali"),
        "amp_o2": of("amp_o2-bs1-1x1-dali"),
        "compile": of("fp32-bs1-1x1-dali-compile"),
        "static": of("fp32-bs1-1x1-dali-static"),
        "NCHW": of("fp32-bs1-1x1-dali", wanted=dataclasses.replace(settings, layout="NCHW")),
        "gpu": of("fp32-bs1-1x1-dali", device="gpu"),
        "none": of("fp32-bs1-1x1-dali"),
    }


def main(spec: JobSpec) -> dict[str, Any]:
    settings = TensorflowSettings.of(spec)
    with ThreadPoolExecutor() as pool:
        failing = errors(pool)
        told = {"parameters": parameters(), "batch_norm": batch_norm(), "labels": labels(settings)}
        told |= {"lending": lending(), "refusals": refusals(settings), "waiting": waiting(), "profiles": profiles()}
        use_small_network()
        told |= {"scaling": scaling(spec, settings), "proofs": proofs(spec, settings)}
        told["mirrored"] = mirrored(spec, settings)
        return {**told, "errors": [each.result() for each in failing]}


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, 2 * [tf.config.LogicalDeviceConfiguration()])
    print(json.dumps(main(JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")))))
