"""Checks what this machine and this build of TensorFlow can run, forces the precision, and states both in the header's
facts."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Dict, Optional, Tuple

import tensorflow as tf

from helpers.trainers.common.cuda import total_memory_bytes
from helpers.trainers.common.float32 import PROBE, TF32_WANTED, checked_state, probe_shape
from helpers.trainers.common.loop import HostTimer
from helpers.trainers.common.process import Refused, Trainer, cpu_name, refuse_tf32_on_cpu
from helpers.trainers.common.settings import on
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow.settings import AUTOCLUSTERING, TensorflowSettings

# The first version that supports Python and CUDA of the pinned environment; the trainer was written with it.
_LEAST_VERSION = (2, 16)


def refuse_what_cannot_run(spec: JobSpec, settings: TensorflowSettings) -> None:
    """Raise Refused with the reason if this machine or build cannot run the case exactly as it is. The recipe refuses
    what no machine runs."""
    version = tuple(int(part) for part in tf.__version__.split(".")[:2])
    if version < _LEAST_VERSION:
        raise Refused(f"this trainer needs TensorFlow 2.16, this is {tf.__version__}")
    if spec.device == "cpu":
        _refuse_on_cpu(spec, settings)
    else:
        _refuse_on_gpu()


def _refuse_on_cpu(spec: JobSpec, settings: TensorflowSettings) -> None:
    refuse_tf32_on_cpu(spec.case.precision)
    if settings.layout != "NHWC":
        raise Refused(f"TensorFlow's convolutions on a CPU are NHWC, and the settings say {settings.layout}")


def _refuse_on_gpu() -> None:
    if not tf.test.is_built_with_cuda():
        raise Refused(
            "this build of TensorFlow is for CPUs: make env-tensorflow installs one for CUDA where there is a GPU"
        )
    if not tf.config.list_physical_devices("GPU"):
        raise Refused("TensorFlow sees no GPU that its CUDA works with; the lines above, of its own, say why")


@dataclass(frozen=True)
class Card:
    """The card that this process drives, and the strategy that joins it with those of other processes."""

    # TensorFlow's name.
    device: str
    # None for a job of one card.
    strategy: Optional[Any] = None

    def scope(self) -> ContextManager[Any]:
        """The context in which variables are made that have a copy on every card."""
        if self.strategy is None:
            return contextlib.nullcontext()
        scope: ContextManager[Any] = self.strategy.scope()
        return scope

    def total(self) -> Callable[[float], float]:
        """A function that sums a number over the cards of all processes; all processes must call it."""
        strategy = self.strategy
        if strategy is None:
            return float

        def add(number: Any) -> Any:
            # Moves the number to the card, where it is summed.
            own = tf.identity(number)
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, own)

        summed = tf.function(lambda number: strategy.run(add, (number,)), autograph=False)
        return lambda number: float(strategy.experimental_local_results(summed(tf.constant(number)))[0])


def card_of(trainer: Trainer, settings: TensorflowSettings) -> Card:
    """The device of the process; sets its threads and memory. Must be called before anything is computed.

    Several processes find each other by TF_CONFIG, which the launcher sets (MultiWorkerMirroredStrategy).
    """
    facts, on_gpu = trainer.device.facts, trainer.spec.device == "gpu"
    facts.update(_apply_threads(trainer, settings))
    if on_gpu:
        _share_memory(settings)
        if settings.xla_mode == AUTOCLUSTERING:
            tf.config.optimizer.set_jit("autoclustering")
    device = "GPU:0" if on_gpu else "CPU:0"
    if trainer.ranks.world_size == 1:
        facts["strategy"] = "none"
        return Card(device)
    facts["strategy"] = "MultiWorkerMirroredStrategy"
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation[str(settings.communication)]
    )
    return Card(device, tf.distribute.MultiWorkerMirroredStrategy(communication_options=options))


def _apply_threads(trainer: Trainer, settings: TensorflowSettings) -> Dict[str, str]:
    cores = len(os.sched_getaffinity(0))
    between = max(2, cores - 2) if trainer.spec.device == "gpu" else cores
    within = settings.intra_op_threads or cores
    between = settings.inter_op_threads or between
    tf.config.threading.set_intra_op_parallelism_threads(within)
    tf.config.threading.set_inter_op_parallelism_threads(between)
    return {"intra_op_threads": str(within), "inter_op_threads": str(between)}


def _share_memory(settings: TensorflowSettings) -> None:
    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_visible_devices([card], "GPU")
    if settings.memory_fraction is None:
        tf.config.experimental.set_memory_growth(card, True)
        return
    mebibytes = int(settings.memory_fraction * total_memory_bytes(0) / 2**20)
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=mebibytes)])


def device_name(trainer: Trainer) -> str:
    if trainer.spec.device == "cpu":
        return cpu_name()
    card = tf.config.list_physical_devices("GPU")[0]
    return str(tf.config.experimental.get_device_details(card).get("device_name", "unknown GPU"))


def build_facts(spec: JobSpec) -> Dict[str, str]:
    """The versions of libraries."""
    if spec.device == "cpu":
        return {"onednn": on(os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") != "0")}
    built = tf.sysconfig.get_build_info()
    return {name: str(built.get(f"{name}_version", "unknown")) for name in ("cuda", "cudnn")}


def force_float32(spec: JobSpec) -> Dict[str, str]:
    """Switch TF32: off for fp32, on for tf32; for other precisions the build's default stays. The returned facts say
    what arithmetic shows.

    Raises Refused if it cannot be switched, so that no figure is recorded under a wrong precision.
    """
    on_gpu, wanted = spec.device == "gpu", TF32_WANTED.get(spec.case.precision)
    if on_gpu and wanted is not None:
        tf.config.experimental.enable_tensor_float_32_execution(wanted)
    state = checked_state(spec.case.precision, *_products(on_gpu), on_gpu)
    return {"tf32": state if on_gpu else "not on a CPU"}


def _products(on_gpu: bool) -> Tuple[float, float]:
    size, batch, channels, side = probe_shape(on_gpu)
    with tf.device("GPU:0" if on_gpu else "CPU:0"):
        product = tf.linalg.matmul(tf.fill([size, size], PROBE), tf.eye(size))
        kernel = tf.reshape(tf.eye(channels), [1, 1, channels, channels])
        convolved = tf.nn.conv2d(tf.fill([batch, side, side, channels], PROBE), kernel, 1, "SAME")
    return float(product[0, 0]), float(convolved[0, 0, 0, 0])


def wait_for(device: str) -> None:
    """Wait until the card has done all its work."""
    with tf.device(device):
        tf.raw_ops.SyncDevice()


def timer_of(spec: JobSpec, card: Card) -> Tuple[HostTimer, str]:
    """The timer of the steps, and its description in words. TensorFlow gives no access to the stream on which it
    computes, so no event can be recorded there; a card is waited for, as with a session of TensorFlow 1."""
    if spec.device == "cpu":
        return HostTimer(time.monotonic), "the host's clock; steps on a CPU are synchronous"
    timer = HostTimer(time.monotonic, lambda: wait_for(card.device))
    return timer, "the host's clock, the card waited for after every step"


def peak_device_bytes(card: Card) -> int:
    """The peak memory of TensorFlow's allocator."""
    return int(tf.config.experimental.get_memory_info(card.device)["peak"])
