"""The variables of the caller's environment that may reach the processes which train, probe and guard.

Those processes get what is listed here, and nothing else: a shell holds passwords and tokens of other programs, which
launchers write into files, and variables that change what Python or another launcher does. What somebody writes into
perf.yaml (``environment`` of a node) or gives with ``--set environment.NAME=`` is passed on in addition.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from helpers.trainers.contract import ROOT
from helpers.trainers.contract.frameworks import FRAMEWORKS

# Names that say of themselves that they hold a secret. They are never passed on, whatever they begin with.
SECRET = re.compile(r"\w*(PASSW|SECRET|TOKEN|CREDENTIAL|(API|ACCESS|PRIVATE|SIGNING)_?KEY)\w*", re.IGNORECASE)

# Variables of the caller's shell that change what a trainer measures, by their beginnings. They are recorded with each
# result. These belong to libraries that every framework uses; a framework's own variables are in its entry
# (contract/frameworks.py).
LIBRARY_FLAGS = (
    "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "GLOO_", "NVIDIA_TF32_OVERRIDE", "DALI_", "DNNL_", "ONEDNN_",
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_", "GLIBC_TUNABLES", "TCMALLOC_", "LD_PRELOAD",
)  # fmt: skip

_NAMES = (
    # Where programs, the user's files and temporary files are; PyTorch's compiler names its cache by the user.
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_CACHE_HOME",
    # Language and clock: the encoding of outputs and of file names, and the times in them.
    "LANG", "LANGUAGE", "TZ",
    # Where the driver's and CUDA's libraries are.
    "LD_LIBRARY_PATH",
    # The compiler and its folders, for torch.compile and Triton.
    "CC", "CXX", "CPATH", "LIBRARY_PATH",
    # The ports that an administrator leaves to jobs (Paddle's launcher).
    "PORT_RANGE",
    # TensorFlow's logging. Its other variables are in its entry, since Terraform's begin with TF_ too.
    "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL",
    # Which job of Slurm this is, and which of its nodes. SLURM_JWT is a password.
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME",
)  # fmt: skip
_PREFIXES = (
    *LIBRARY_FLAGS,
    *(prefix for entry in FRAMEWORKS.values() for prefix in entry.flags),
    "LC_",
    # What a container's runtime says of its cards.
    "NVIDIA_",
    # How NCCL's plugins reach InfiniBand and EFA.
    "UCX_", "FI_", "RDMAV_", "MLX5_",
    # Folders and messages of PyTorch's compiler and of logging libraries.
    "TRITON_", "GLOG_",
    # This suite's own switches and marks.
    "PERFGATE_",
)  # fmt: skip
# Of an installer: where packages come from, and how that server is reached. May hold passwords.
_INSTALLING = (
    "PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC", "XDG_",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip


def may_pass(name: str) -> bool:
    """Whether a variable of the caller with this name reaches what trains."""
    return (name in _NAMES or name.startswith(_PREFIXES)) and not SECRET.fullmatch(name)


def passed_on(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that trains, probes or guards: what may pass of ``variables`` (by default those of
    this process), and the suite's own modules as all of PYTHONPATH."""
    given = os.environ if variables is None else variables
    return {**{name: value for name, value in given.items() if may_pass(name)}, "PYTHONPATH": str(ROOT)}


def passed_to_installer(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of an installer of packages: its indexes' settings, with their passwords, pass as well."""
    return {name: value for name, value in variables.items() if may_pass(name) or name.startswith(_INSTALLING)}


def withheld(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables that do not pass, sorted."""
    return tuple(sorted(name for name in variables if not may_pass(name)))
