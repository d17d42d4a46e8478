"""The registry of frameworks, with one entry for each. Code that depends on a framework uses its entry, never its
name."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Mapping, Tuple

from helpers.trainers.contract.errors import entry_of

# What a profiler of operators may leave out to cost less (``explained_without``).
DATA_TYPES, LAYERS = "data types", "layers"


class Framework(enum.Enum):
    PADDLE = "paddle"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    MXNET = "mxnet"

    @property
    def spec(self) -> FrameworkSpec:
        """The framework's entry. Raises ConfigError if it has none."""
        table = "FRAMEWORKS of helpers/trainers/contract/frameworks.py"
        return entry_of(FRAMEWORKS, self, f"framework {self.value}", table, "distributions, flags, launcher")


# Of ``FrameworkSpec.stated``: whether the build opens CUDA's libraries out of pip's packages, by names with a version.
PIP_LIBRARIES = "pip_libraries"


@dataclass(frozen=True)
class FrameworkSpec:
    """The facts about a framework that the suite needs without importing it."""

    # The name in tables.
    title: str
    # The distributions that contain it; the first one that is installed counts.
    distributions: Tuple[str, ...]
    # The file with its version, within the distribution.
    version_file: str = ""
    # The variable in that file that has the build's commit.
    commit: str = ""
    # The variables in that file that have the versions of CUDA and its libraries for which the build was made.
    stated: Mapping[str, str] = field(default_factory=dict)
    # The libraries of CUDA that its builds open by names without a version, unless a build states PIP_LIBRARIES as ON.
    opens: Tuple[str, ...] = ()
    # Those of its distributions that have no GPU code.
    for_cpu_alone: Tuple[str, ...] = ()
    # The parts that its trainer uses; a build without one of them cannot train.
    parts: Tuple[str, ...] = ()
    # The module of DALI through which its trainer reads.
    dali: str = ""
    # Prefixes of variables in the caller's shell that change its results.
    flags: Tuple[str, ...] = ()
    # The launcher for several cards (launch/launchers/__init__.py); empty if there is none yet.
    launcher: str = ""
    # Whether each of its cases names an execution (static, dynamic, to_static).
    names_execution: bool = False
    # Whether one of its processes can drive several cards: its recipe then says how many (``cards_per_process``).
    several_cards: bool = False
    # The devices (``cpu``, ``gpu``) on which its trainer reads its profiler operator by operator, for ``explain``.
    explained_on: Tuple[str, ...] = ()
    # What that profiler may leave out where it costs much, the first one first: DATA_TYPES, LAYERS.
    explained_without: Tuple[str, ...] = ()


FRAMEWORKS: Mapping[Framework, FrameworkSpec] = {
    Framework.PADDLE: FrameworkSpec(
        "Paddle",
        ("paddlepaddle-gpu", "paddlepaddle"),
        "paddle/version/__init__.py",
        "commit",
        {
            "cuda": "cuda_version", "cudnn": "cudnn_version", "nccl": "nccl_version",
            PIP_LIBRARIES: "with_pip_cuda_libraries",
        },
        opens=("cudnn", "cublas", "nccl"),
        for_cpu_alone=("paddlepaddle",),
        parts=("amp", "distributed", "jit", "nn", "optimizer", "static"),
        dali="nvidia.dali.plugin.paddle",
        flags=("FLAGS_", "GLOG_v"),
        launcher="paddle.distributed.launch",
        names_execution=True,
        explained_on=("cpu", "gpu"),
        explained_without=(LAYERS,),
    ),
    Framework.PYTORCH: FrameworkSpec(
        "PyTorch",
        ("torch",),
        "torch/version.py",
        "git_version",
        {"cuda": "cuda"},
        parts=("amp", "distributed", "nn", "optim"),
        dali="nvidia.dali.plugin.pytorch",
        # Of the variables of Triton (knobs.py), which torch.compile uses on a GPU, those that change the generated
        # code; the others set folders and what is printed.
        flags=(
            "TORCH_", "TORCHDYNAMO_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_F32_DEFAULT", "TRITON_DEFAULT_FP_FUSION",
            "TRITON_INTERPRET", "TRITON_DEBUG", "TRITON_ENABLE_", "TRITON_KERNEL_OVERRIDE", "TRITON_OVERRIDE_ARCH",
            "TRITON_MOCK_PTX_VERSION", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS",
        ),
        launcher="torchrun",
        explained_on=("cpu", "gpu"),
        explained_without=(DATA_TYPES, LAYERS),
    ),
    Framework.TENSORFLOW: FrameworkSpec(
        "TensorFlow",
        ("tensorflow", "nvidia-tensorflow", "tensorflow-gpu", "tensorflow-cpu"),
        # There is no variable for the commit: only its libraries contain it.
        "tensorflow/python/platform/build_info.py",
        stated={"cuda": "cuda_version", "cudnn": "cudnn_version"},
        for_cpu_alone=("tensorflow-cpu",),
        parts=("config", "data", "distribute", "function", "nn", "raw_ops"),
        # DALI's plug-in would have to be compiled, so DALI's tensors are passed by DLPack.
        dali="nvidia.dali",
        # Full names instead of the prefix TF_, since Terraform's variables start with TF_ too.
        flags=(
            "TF_XLA_FLAGS", "XLA_FLAGS", "TF_ENABLE_", "TF_DISABLE_", "TF_CUDNN_", "TF_GPU_", "TF_FORCE_GPU_",
            "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_AUTOTUNE_THRESHOLD", "TF_AUTO_MIXED_PRECISION_",
            "TF_DETERMINISTIC_OPS", "TF_USE_CUDNN_", "TF_FP16_", "TF_MKL_",
        ),
        launcher="tf.distribute",
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
