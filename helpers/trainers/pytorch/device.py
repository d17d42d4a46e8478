"""Checks what this machine and this build of PyTorch can run, forces the precision, and states both in the header's
facts."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, Tuple

import torch

from helpers.trainers.common.cuda import CudaEvents, EventTimer, cudnn_text
from helpers.trainers.common.float32 import PROBE, TF32_WANTED, checked_state, probe_shape
from helpers.trainers.common.process import RankPlace, Refused, cpu_name, refuse_tf32_on_cpu
from helpers.trainers.common.settings import on
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.settings import PytorchSettings, has_kernels

# The first version with fused SGD, GradScaler for any device, and graph capture of both.
_LEAST_VERSION = (2, 4)
_COMPILERS = ("g++", "clang++")


def refuse_what_cannot_run(spec: JobSpec) -> None:
    """Raise Refused with the reason if this machine or build cannot run the case exactly as it is. The recipe refuses
    what no machine runs."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _LEAST_VERSION:
        raise Refused(f"this trainer needs PyTorch 2.4, this is {torch.__version__}")
    if spec.case.graphs and spec.case.cards > 1:
        raise Refused("CUDA graphs are captured on one card; with several, NCCL's all-reduce would be in them")
    if spec.device == "cpu":
        _refuse_on_cpu(spec.case)
    else:
        _refuse_on_gpu()


def _refuse_on_cpu(case: Case) -> None:
    refuse_tf32_on_cpu(case.precision)
    if case.graphs:
        raise Refused("CUDA graphs are of NVIDIA GPUs; a CPU has none")
    if case.compile and not (os.environ.get("CXX") or any(map(shutil.which, _COMPILERS))):
        raise Refused(f"torch.compile on a CPU needs a C++ compiler ({' or '.join(_COMPILERS)}), and there is none")


def _refuse_on_gpu() -> None:
    if torch.version.cuda is None:
        raise Refused("this build of PyTorch is for CPUs: make env-pytorch installs one for CUDA where there is a GPU")
    if not torch.cuda.is_available() or torch.cuda.device_count() == 0:
        raise Refused(f"PyTorch sees no GPU that its CUDA {torch.version.cuda} works with: perfgate doctor says why")
    capability, name = tuple(torch.cuda.get_device_capability()), torch.cuda.get_device_name()
    archs = torch.cuda.get_arch_list()
    if not has_kernels(capability, archs):
        raise Refused(f"this build of PyTorch has no code for {name}: it is for {' '.join(archs)}")


def use_device(spec: JobSpec, ranks: RankPlace) -> Any:
    """Select the rank's device and return it."""
    if spec.device == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(ranks.local_rank)
    return torch.device("cuda", ranks.local_rank)


def device_name(device: Any) -> str:
    return cpu_name() if device.type == "cpu" else str(torch.cuda.get_device_name(device))


def apply_switches(spec: JobSpec, settings: PytorchSettings, threads: int) -> Dict[str, str]:
    """Set the threads and the switches of libraries as the job states them. The returned facts say which are in
    effect."""
    torch.set_num_threads(threads)
    facts = {"torch_threads": str(torch.get_num_threads())}
    if spec.device == "cpu":
        onednn = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
        facts["onednn"] = on(bool(onednn))
        return facts
    torch.backends.cudnn.benchmark = settings.cudnn_benchmark
    facts["cudnn"] = cudnn_text(torch.backends.cudnn.version() or 0)
    facts["cudnn_benchmark"] = on(torch.backends.cudnn.benchmark)
    facts["cuda"] = str(torch.version.cuda)
    if spec.case.cards > 1:
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def force_float32(spec: JobSpec, device: Any) -> Dict[str, str]:
    """Switch TF32: off for fp32, on for tf32; for other precisions the build's default stays. The returned facts say
    what arithmetic shows.

    Raises Refused if it cannot be switched, so that no figure is recorded under a wrong precision.
    """
    on_gpu, wanted = device.type == "cuda", TF32_WANTED.get(spec.case.precision)
    if on_gpu and wanted is not None:
        torch.backends.cuda.matmul.allow_tf32 = wanted
        torch.backends.cudnn.allow_tf32 = wanted
    state = checked_state(spec.case.precision, *_products(device), on_gpu)
    return {"tf32": state if on_gpu else "not on a CPU"}


def _products(device: Any) -> Tuple[float, float]:
    size, batch, channels, side = probe_shape(device.type == "cuda")
    with torch.no_grad():
        product = torch.full((size, size), PROBE, device=device) @ torch.eye(size, device=device)
        images = torch.full((batch, channels, side, side), PROBE, device=device)
        kernel = torch.eye(channels, device=device).reshape(channels, channels, 1, 1)
        convolved = torch.nn.functional.conv2d(images, kernel)
    return float(product[0, 0]), float(convolved[0, 0, 0, 0])


def all_agree(device: Any) -> Any:
    """A function that returns whether its argument is true on every rank; all ranks must call it. The sum is by NCCL on
    GPUs, by gloo on CPUs."""

    def agree(own: bool) -> bool:
        against = torch.tensor([0.0 if own else 1.0], device=device)
        torch.distributed.all_reduce(against)
        return float(against) == 0.0

    return agree


def card_events(device: Any) -> CudaEvents:
    """Events on the stream of the rank's card on which PyTorch computes."""
    return CudaEvents(device.index, lambda: int(torch.cuda.current_stream(device).cuda_stream))


def event_timer(device: Any) -> EventTimer:
    """Times steps on the rank's card."""
    return EventTimer(card_events(device), lambda: torch.cuda.synchronize(device))
