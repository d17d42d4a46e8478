"""Checks what this machine and this build of MXNet can run, pins threads, forces the precision, and finds out when a
card has done a step."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Sequence, Tuple

import mxnet as mx

from helpers.trainers.common.float32 import PROBE, checked_state, probe_shape
from helpers.trainers.common.process import CardPlace, Refused, cpu_flags, refuse_tf32_on_cpu
from helpers.trainers.common.settings import on
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.job import JobSpec

# The release for which the trainer was written; it is MXNet's last.
_VERSION = "1.9"


def refuse_what_cannot_run(spec: JobSpec) -> None:
    """Raise Refused with the reason if this machine or build cannot run the case exactly as it is. The recipe refuses
    what no machine runs."""
    if not mx.__version__.startswith(_VERSION + "."):
        raise Refused(f"this trainer needs MXNet {_VERSION}, its last release; this is {mx.__version__}")
    if spec.device == "cpu":
        refuse_tf32_on_cpu(spec.case.precision)
        if (spec.case.precision.is_amp or spec.case.precision is Precision.BF16) and "avx512f" not in cpu_flags():
            raise Refused("oneDNN's bfloat16 needs a CPU with AVX-512, which this one lacks")
    else:
        _refuse_on_gpu(spec.case)


def _refuse_on_gpu(case: Case) -> None:
    if not mx.runtime.Features().is_enabled("CUDA"):
        raise Refused("this build of MXNet is for CPUs: make env-mxnet installs one for CUDA where there is a GPU")
    if case.precision is Precision.BF16:
        raise Refused("MXNet computes in bfloat16 on CPUs alone")
    found = mx.context.num_gpus()
    if found < case.cards_per_node:
        raise Refused(f"MXNet sees {found} GPUs, the case needs {case.cards_per_node}")


def contexts_of(spec: JobSpec, cards: Sequence[CardPlace]) -> List[Any]:
    """The device of each card. Raises Refused with MXNet's message if a GPU does not compute."""
    if spec.device == "cpu":
        # MXNet uses cpu(0) for work that belongs to no card; its thread starts together with those that all devices
        # share.
        return [mx.cpu(1 + card.local) for card in cards]
    contexts = [mx.gpu(card.local) for card in cards]
    for context in contexts:
        try:
            mx.nd.ones((1,), ctx=context).wait_to_read()
        except mx.MXNetError as error:
            raise Refused(f"MXNet {mx.__version__} does not compute on {context}: {last_line(error)}") from error
    return contexts


def last_line(error: Exception) -> str:
    """The line of an MXNetError that says what is wrong; it follows a stack trace of C++."""
    return str(error).strip().splitlines()[-1]


def pin_workers(cards: Sequence[CardPlace], contexts: Sequence[Any]) -> None:
    """Start the thread of each CPU card of this process on the card's own cores; the card's OpenMP threads inherit
    them.

    MXNet's engine starts the threads of a device at the first work for it, and a new thread has the cores of the thread
    that starts it. Threads that all devices share are started first, on all cores.
    """
    everything = os.sched_getaffinity(0)
    mx.nd.ones((1,)).wait_to_read()
    try:
        for card, context in zip(cards, contexts):
            os.sched_setaffinity(0, card.cores or everything)
            mx.nd.ones((1,), ctx=context).wait_to_read()
    finally:
        os.sched_setaffinity(0, everything)


def device_facts(spec: JobSpec) -> Dict[str, str]:
    """The header's facts on build and machine."""
    features = mx.runtime.Features()
    facts = {
        "onednn": on(bool(features.is_enabled("MKLDNN"))),
        "engine": os.environ.get("MXNET_ENGINE_TYPE", "default"),
    }
    if spec.device == "cpu":
        return facts
    facts["step_timer"] = "the host's clock when MXNet's engine says that the card has done the step"
    facts["peak_device_memory"] = "of the card at the end, by cudaMemGetInfo: MXNet's pool gives nothing back"
    return facts


def force_float32(spec: JobSpec, context: Any) -> Dict[str, str]:
    """Check whether float32 is rounded: TF32 must be off for fp32 (by NVIDIA_TF32_OVERRIDE) and on for tf32; for other
    precisions the build's default stays. The returned facts say what arithmetic shows.

    Raises Refused if that is not so, so that no figure is recorded under a wrong precision.
    """
    on_gpu = spec.device == "gpu"
    # MXNet has no switch for cuBLAS, so only convolutions, which are nearly all of the work, are required to round.
    state = checked_state(spec.case.precision, *products(context, on_gpu), on_gpu, by_product=False)
    return {"tf32": state if on_gpu else "not on a CPU"}


def products(context: Any, on_gpu: bool) -> Tuple[float, float]:
    """An element of a matrix product and one of a convolution; they are PROBE if float32 is not rounded."""
    size, batch, channels, side = probe_shape(on_gpu)
    product = mx.nd.FullyConnected(
        mx.nd.full((size, size), PROBE, ctx=context), mx.nd.eye(size, ctx=context), num_hidden=size, no_bias=True
    )
    kernel = mx.nd.eye(channels, ctx=context).reshape((channels, channels, 1, 1))
    convolved = mx.nd.Convolution(
        mx.nd.full((batch, channels, side, side), PROBE, ctx=context),
        kernel,
        kernel=(1, 1),
        num_filter=channels,
        no_bias=True,
    )
    return float(product[0, 0].asscalar()), float(convolved[0, 0, 0, 0].asscalar())


def peak_device_bytes(contexts: Sequence[Any]) -> int:
    """The peak memory of the card on which it is largest. MXNet's pool never releases memory, so the present size is
    the peak."""
    taken = []
    for context in contexts:
        free, total = mx.context.gpu_memory_info(context.device_id)
        taken.append(int(total) - int(free))
    return max(taken)


def last_of_step(weights: Sequence[Any], contexts: Sequence[Any]) -> Callable[[], Callable[[], None]]:
    """EngineTimer's ``mark``. It copies single elements of some ``weights`` on every card; the copies are done when the
    updates before them are done. The updates of a card run in groups, so elements of the first, a middle and the last
    weights are taken."""
    watched = [weights[0], weights[len(weights) // 2], weights[-1]]

    def mark() -> Callable[[], None]:
        copies = [each.data(context).reshape((-1,))[0:1].copy() for context in contexts for each in watched]

        def wait() -> None:
            for copy in copies:
                copy.wait_to_read()

        return wait

    return mark
