"""Checks what this machine and this build of Paddle can run, forces the precision, and states both in the header's
facts."""

from __future__ import annotations

import itertools
import os
from typing import Any, Callable, Dict, Optional, Tuple

import paddle

from helpers.trainers.common.cuda import CudaEvents, EventTimer, cudnn_text
from helpers.trainers.common.float32 import PROBE, TF32_WANTED, checked_state, probe_shape
from helpers.trainers.common.process import Refused, cpu_name, refuse_tf32_on_cpu
from helpers.trainers.common.settings import on
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.libraries import refuse_wrong_libraries
from helpers.trainers.paddle.settings import PaddleSettings

core = paddle.base.core


def refuse_what_cannot_run(spec: JobSpec) -> None:
    """Raise Refused with the reason if this machine, build or trainer cannot run the case exactly as it is."""
    refuse_what_is_no_case(spec.case)
    if spec.device == "cpu":
        _refuse_on_cpu(spec.case)
    else:
        if not paddle.is_compiled_with_cuda():
            raise Refused("this build of Paddle is for CPUs: install paddlepaddle-gpu (requirements/gpu-cuda11.txt)")
        if paddle.device.cuda.device_count() == 0:
            raise Refused("Paddle sees no GPU")
        refuse_wrong_libraries()


def refuse_what_is_no_case(case: Case) -> None:
    """Raise Refused if this trainer cannot run the case on any machine."""
    for feature in ("compile", "graphs", "xla"):
        if getattr(case, feature):
            raise Refused(f"the feature {feature} is not Paddle's")
    # In automatic parallelism the strategy may choose a precision that the case does not state (auto.py).
    if case.precision is Precision.AMP or (case.precision is Precision.UNSTATED and not case.auto):
        raise Refused(f"precision {case.precision.value} does not say what Paddle is to compute in")
    if case.data is DataSource.UNSTATED:
        raise Refused("data source unstated: name dali, dali_cpu, native or synthetic")


def _refuse_on_cpu(case: Case) -> None:
    precision = case.precision
    refuse_tf32_on_cpu(precision)
    if precision.is_amp or precision is Precision.BF16:
        if case.execution is Execution.DYNAMIC:
            raise Refused(
                "paddle.amp.auto_cast has no effect on a CPU, and dynamic execution has no bfloat16 kernel there; "
                f"{precision.value} runs with to_static, and on one card with static"
            )
        if not core.supports_bfloat16():
            raise Refused("oneDNN's bfloat16 needs a CPU with AVX-512, which this one lacks")
    if case.execution is Execution.STATIC and case.cards > 1:
        raise Refused("fleet's static mode trains on several GPUs (NCCL); on CPU cards use dynamic or to_static")


def use_device(spec: JobSpec) -> str:
    """Select the rank's device and return its name."""
    if spec.device == "cpu":
        paddle.set_device("cpu")
        return cpu_name()
    # The card that the launcher chose for this rank, else the first visible card.
    paddle.set_device(f"gpu:{gpu_index()}")
    return str(paddle.device.cuda.get_device_name())


def gpu_index() -> int:
    return int(paddle.distributed.ParallelEnv().device_id)


def place_of(spec: JobSpec) -> Any:
    """The place of the rank's programs and their tensors."""
    return paddle.CPUPlace() if spec.device == "cpu" else paddle.CUDAPlace(gpu_index())


def build_facts() -> Dict[str, str]:
    """The versions of CUDA, cuDNN and NCCL for which this build was made, and the version of cuDNN that it reports to
    have found."""
    stated = {
        "cuda": paddle.version.cuda(),
        "build_cudnn": paddle.version.cudnn(),
        # Paddle 3 has it; 2.6 does not.
        "build_nccl": getattr(paddle.version, "nccl", str)(),
    }
    facts = {name: str(value) for name, value in stated.items() if str(value) not in ("", "0", "False", "None")}
    found = paddle.get_cudnn_version()
    return {**facts, "cudnn": cudnn_text(int(found))} if found else facts


def force_tf32(precision: Precision) -> Dict[str, str]:
    """Switch TF32 on a GPU: off for fp32, on for tf32; for other precisions the build's default stays. Returns facts:
    what arithmetic shows, and the build's switches.

    Raises Refused if it cannot be switched, so that no figure is recorded under a wrong precision.
    """
    wanted = TF32_WANTED.get(precision)
    switches = set_tf32_switches(wanted)
    state = checked_state(precision, *_products(), on_gpu=True)
    return {"tf32": state, "tf32_switches": switches}


def set_tf32_switches(wanted: Optional[bool]) -> str:
    """Set the build's switches for cuBLAS and cuDNN (None leaves them), and return their states in words. Needs no
    card.

    Paddle 2.6 and 3.3 have both switches under these names. NVIDIA_TF32_OVERRIDE=0, which is also set for fp32,
    overrides them.
    """
    states = []
    for library in ("cublas", "cudnn"):
        if wanted is not None and hasattr(core, f"set_{library}_switch"):
            getattr(core, f"set_{library}_switch")(wanted)
        read = getattr(core, f"get_{library}_switch", None)
        states.append(f"{library} {'unknown to this build' if read is None else on(bool(read()))}")
    return ", ".join([*states, f"NVIDIA_TF32_OVERRIDE {os.environ.get('NVIDIA_TF32_OVERRIDE', 'not set')}"])


def _products() -> Tuple[float, float]:
    size, batch, channels, side = probe_shape(on_gpu=True)
    product = paddle.matmul(paddle.full([size, size], PROBE, dtype="float32"), paddle.eye(size, dtype="float32"))
    images = paddle.full([batch, channels, side, side], PROBE, dtype="float32")
    kernel = paddle.eye(channels, dtype="float32").reshape([channels, channels, 1, 1])
    convolved = paddle.nn.functional.conv2d(images, kernel)
    return float(product[0, 0]), float(convolved[0, 0, 0, 0])


def flag_facts(settings: PaddleSettings) -> Dict[str, str]:
    """For each wanted flag: its present value in the build, or that the build does not know it."""
    known = core.globals()
    facts = {}
    for name in sorted(settings.environment):
        if not name.startswith("FLAGS_"):
            facts[name] = str(settings.environment[name])
        elif name in known:
            facts[name] = str(known[name])
        else:
            facts[name] = "not applied: this build of Paddle does not know it"
    return facts


def apply_options(target: Any, options: Any, kind: str, facts: Dict[str, str]) -> None:
    """Set each of ``options`` on the strategy object ``target`` (None if there is none); ``facts`` say which were
    applied."""
    for name, value in sorted(options.items()):
        if target is not None and hasattr(target, name):
            setattr(target, name, value)
            facts[f"{kind}.{name}"] = str(value)
        else:
            facts[f"{kind}.{name}"] = f"not applied: this build has no such {kind} option here"


def all_agree(own: bool) -> bool:
    """Whether ``own`` is true on every rank; all ranks must call it. The sum is by NCCL on GPUs, by gloo on CPUs."""
    against = paddle.to_tensor([0.0 if own else 1.0], dtype="float32")
    paddle.distributed.all_reduce(against)
    return float(against) == 0.0


# The low bits count the ranks that have answered, the high bits those that answered no, so that one addition does both.
_AGAINST = 1 << 32


def host_agreement(world_size: int) -> Callable[[bool], bool]:
    """``LoopIO.agree`` for the ``world_size`` ranks of a static program. Every rank must call this, since rank 0 waits
    for the others, and all must ask equally often.

    A static program cannot exchange anything between its steps. But Paddle's processes, on one or several nodes, are
    connected to a key-value store over TCP, which rank 0 serves at ``PADDLE_MASTER``; the ranks ask each other through
    it. An answer takes 80 to 180 ms; it is needed only in warm-up. It waits for the last rank, like a barrier; if a
    rank is gone, the supervisor ends the job.
    """
    store, numbers = core.create_or_get_global_tcp_store(), itertools.count(1)

    def agree(own: bool) -> bool:
        key = f"perfgate/steady/{next(numbers)}"
        answers = int(store.add(f"{key}/said", 1 if own else 1 + _AGAINST))
        if answers % _AGAINST == world_size:
            store.set(f"{key}/all", b"yes" if answers < _AGAINST else b"no")
        return bool(store.get(f"{key}/all") == b"yes")

    return agree


def card_events() -> CudaEvents:
    """Events on the stream of the rank's card on which Paddle computes."""
    index = gpu_index()
    place = paddle.CUDAPlace(index)
    return CudaEvents(index, lambda: int(paddle.device.current_stream(place).stream_base.cuda_stream))


def event_timer() -> EventTimer:
    """Times steps on the rank's card."""
    place = paddle.CUDAPlace(gpu_index())
    return EventTimer(card_events(), lambda: paddle.device.synchronize(place))
