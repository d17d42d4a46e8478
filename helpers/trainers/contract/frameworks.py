"""The frameworks: one entry each. Whoever needs to know something of a framework asks its entry, never its name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Mapping, Tuple

from helpers.trainers.contract.errors import entry_of


class Framework(enum.Enum):
    PADDLE = "paddle"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"

    @property
    def spec(self) -> FrameworkSpec:
        """Its entry; ConfigError names a framework that has none."""
        table = "FRAMEWORKS of helpers/trainers/contract/frameworks.py"
        return entry_of(FRAMEWORKS, self, f"framework {self.value}", table, "distributions, flags, launcher")


@dataclass(frozen=True)
class FrameworkSpec:
    """What the suite knows of a framework without importing it."""

    # In tables.
    title: str
    # Those that carry it; the first that is installed counts.
    distributions: Tuple[str, ...]
    # Within the distribution.
    version_file: str = ""
    # The variable of the version file with the build's commit.
    commit: str = ""
    # Its variables with the versions of CUDA and of CUDA's libraries that the build was made for.
    stated: Mapping[str, str] = field(default_factory=dict)
    # Its distributions without code for a GPU.
    for_cpu_alone: Tuple[str, ...] = ()
    # What its trainer uses of it, without which a build cannot train.
    parts: Tuple[str, ...] = ()
    # The module of DALI that its trainer reads through.
    dali: str = ""
    # Beginnings of the variables of the caller's shell that change what it measures.
    flags: Tuple[str, ...] = ()
    # What starts several cards (launch/launchers/__init__.py); empty where nothing does yet.
    launcher: str = ""
    # Whether each of its cases names one (static, dynamic, to_static).
    names_execution: bool = False
    # Whether one of its processes can drive several cards: its recipe then says how many (``cards_per_process``).
    several_cards: bool = False


FRAMEWORKS: Mapping[Framework, FrameworkSpec] = {
    Framework.PADDLE: FrameworkSpec(
        "Paddle",
        ("paddlepaddle-gpu", "paddlepaddle"),
        "paddle/version/__init__.py",
        "commit",
        {"cuda": "cuda_version", "cudnn": "cudnn_version", "nccl": "nccl_version"},
        for_cpu_alone=("paddlepaddle",),
        parts=("amp", "distributed", "jit", "nn", "optimizer", "static"),
        dali="nvidia.dali.plugin.paddle",
        flags=("FLAGS_", "GLOG_v"),
        launcher="paddle.distributed.launch",
        names_execution=True,
    ),
    Framework.PYTORCH: FrameworkSpec(
        "PyTorch",
        ("torch",),
        "torch/version.py",
        "git_version",
        {"cuda": "cuda"},
        parts=("amp", "distributed", "nn", "optim"),
        dali="nvidia.dali.plugin.pytorch",
        # Of Triton's (its knobs.py), which torch.compile calls on a GPU, those that change the code: the others say
        # where it is kept and what is printed.
        flags=(
            "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_F32_DEFAULT", "TRITON_DEFAULT_FP_FUSION",
            "TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_ENABLE_", "TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_ARCH",
            "TRITON_MOCK_PTX_VERSION", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS",
        ),
        launcher="torchrun",
    ),
    Framework.TENSORFLOW: FrameworkSpec(
        "TensorFlow",
        ("tensorflow", "nvidia-tensorflow", "tensorflow-gpu", "tensorflow-cpu"),
        # Its commit stands in its libraries alone.
        "tensorflow/python/platform/build_info.py",
        stated={"cuda": "cuda_version", "cudnn": "cudnn_version"},
        for_cpu_alone=("tensorflow-cpu",),
        parts=("config", "data", "distribute", "function", "nn", "raw_ops"),
        # Its plug-in would have to be compiled; DALI's tensors are handed over by DLPack.
        dali="nvidia.dali",
        # By name: Terraform's variables start with TF_ too.
        flags=(
            "TF_XLA_FLAGS", "XLA_FLAGS", "TF_ENABLE_", "TF_DISABLE_", "TF_CUDNN_", "TF_GPU_", "TF_FORCE_GPU_",
            "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_AUTOTUNE_THRESHOLD", "TF_AUTO_MIXED_PRECISION_",
            "TF_DETERMINISTIC_OPS", "TF_USE_CUDNN_", "TF_FP16_", "TF_MKL_",
        ),
        launcher="tf.distribute",
        several_cards=True,
    ),
    Framework.MXNET: FrameworkSpec(
        "MXNet",
        ("mxnet", "mxnet-cu112", "mxnet-cu110"),
        for_cpu_alone=("mxnet",),
        parts=("autograd", "gluon", "kvstore", "nd"),
        dali="nvidia.dali",
        flags=("MXNET_",),
        launcher="process",
        several_cards=True,
    ),
}  # fmt: skip
