"""The sets of pinned packages, the parts of each, and which set fits the machine's cards and driver."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import Gpu, SetUpError, dotted, least_driver

Capability = tuple[int, int]
# A build with PTX has no limit, since newer cards compile that for themselves.
NO_LIMIT = (99, 0)


@dataclass(frozen=True)
class GpuBuild:
    """What a set for GPUs runs on."""

    oldest: Capability
    newest: Capability
    # The major version of CUDA, which decides the least driver.
    cuda: int

    def runs_on(self, gpus: Sequence[Gpu], driver: str) -> bool:
        """Whether it has code for all these cards, and the driver serves it; an unknown driver may."""
        return all(self.oldest <= gpu.capability <= self.newest for gpu in gpus) and serves(driver, self.cuda)

    def __str__(self) -> str:
        to = "newer" if self.newest == NO_LIMIT else f"up to {dotted(self.newest)}"
        return f"{dotted(self.oldest)} and {to} with driver {least_driver(self.cuda)} or newer"


@dataclass(frozen=True)
class Framework:
    """A framework's sets, and what is imported of it."""

    module: str
    cpu: str
    # The first that runs on the cards is taken.
    gpu: Mapping[str, GpuBuild]


PADDLE = "paddle"
FRAMEWORKS = {
    # The chips of the CUDA 11.8 build of Paddle, without PTX.
    PADDLE: Framework("paddle", "cpu", {"gpu-cuda11": GpuBuild((6, 1), (8, 6), 11)}),
    # pytorch-gpu-cuda12.in says how the chips of that build were found.
    "pytorch": Framework(
        "torch", "pytorch-cpu",
        {"pytorch-gpu": GpuBuild((7, 5), NO_LIMIT, 13), "pytorch-gpu-cuda12": GpuBuild((7, 0), (12, 0), 12)},
    ),
    "tensorflow": Framework("tensorflow", "tensorflow-cpu", {"tensorflow-gpu": GpuBuild((6, 0), NO_LIMIT, 12)}),
    # mxnet-cu112 1.9.1, without PTX.
    "mxnet": Framework("mxnet", "mxnet-cpu", {"mxnet-gpu": GpuBuild((5, 0), (8, 6), 11)}),
}  # fmt: skip
# Tools with an environment of their own -> what is imported of them.
TOOLS = {"fuzz": "atheris", "site": "mkdocs"}
EXTRAS = ("dev",)
SETS = {name: framework for framework, each in FRAMEWORKS.items() for name in (each.cpu, *each.gpu)}


@dataclass(frozen=True)
class Part:
    """Packages that are installed together."""

    files: tuple[str, ...]
    # Imported in a new process before the part counts as installed.
    modules: tuple[str, ...] = ()
    # The loss without it; empty for a part without which there is no environment.
    cost: str = ""
    # Run with the environment's Python after the installation.
    script: str = ""
    # Whether a package is a source archive, which is built; of all others only wheels are installed.
    builds: bool = False
    # The files to take where ``files`` cannot be had.
    instead: tuple[str, ...] = ()

    def digest(self, folder: Path) -> str:
        """SHA-256 over the files that decide its content, each with its name."""
        total = hashlib.sha256()
        for name in (*self.files, *self.instead, *([self.script] if self.script else [])):
            total.update(name.encode() + b"\0" + (folder / name).read_bytes() + b"\0")
        return total.hexdigest()


_SUITE = ("suite.txt", "pip.txt", "uv.txt", "dataset.txt")
_SUITE_MODULES = ("numpy", "scipy", "pytest", "xdist", "yaml", "sqlalchemy", "msgspec", "PIL", "jinja2")
# A library that Paddle loads. Where the machine lacks it, it becomes a part of the environment.
LIBGOMP = "libgomp"
_LIBGOMP = Part(("libgomp.txt",), cost="Paddle does not load", script="link_libraries.py")
_DEV = Part(("dev.txt", "otava.txt"), ("mypy", "hypothesis", "pytest_timeout"))
_CUDA11 = Part(
    ("cuda11.txt",), cost="cases on a GPU run only where the machine itself has CUDA 11, cuDNN 8 and NCCL",
    script="link_libraries.py",
)  # fmt: skip
_DALI = Part(("dali-cuda12.txt",), ("nvidia.dali",), "cases with DALI are skipped")
_DALI_CUDA11 = Part(("dali-cuda11.txt",), ("nvidia.dali",), "cases with DALI are skipped", builds=True)
# An index may lack torch's build for CPUs; the one for CUDA trains on a CPU too.
_PYTORCH_CPU = Part(
    ("pytorch-common.txt", "torch-cpu.txt", "uv.txt"), ("torch",), instead=("pytorch-gpu.txt", "uv.txt")
)


def parts_of(chosen: str, extras: Sequence[str] = (), driver: str = "") -> dict[str, Part]:
    """The parts of an environment, in the order of installation."""
    if chosen in TOOLS:
        return {chosen: Part((f"{chosen}.txt", "uv.txt"), (TOOLS[chosen],))}
    framework = SETS[chosen]
    module = FRAMEWORKS[framework].module
    if framework != PADDLE:
        own = _PYTORCH_CPU if chosen == "pytorch-cpu" else Part((f"{chosen}.txt", "uv.txt"), (module,))
        return {framework: own, "dali-cuda12": _DALI}
    parts = {
        "suite": Part((*_SUITE, "numpy2.txt" if chosen == "cpu" else "numpy1.txt"), _SUITE_MODULES),
        PADDLE: Part((f"{chosen}.txt",), (module,), "cases of Paddle are skipped"),
        **{name: part for name, part in ((LIBGOMP, _LIBGOMP), ("dev", _DEV)) if name in extras},
    }
    if chosen == "cpu":
        return {**parts, "dali-cuda12": _DALI}
    # DALI for CUDA 12 serves a Paddle for CUDA 11 as well, unless the driver is older.
    dali = {"dali-cuda12": _DALI} if serves(driver, 12) else {"dali-cuda11": _DALI_CUDA11}
    return {**parts, "cuda11": _CUDA11, **dali}


def choose(framework: str, gpus: Sequence[Gpu], driver: str) -> str:
    """The framework's set for these cards and this driver. Raises SetUpError if none runs on them, because a CPU must
    never be measured in place of a GPU unasked."""
    known = FRAMEWORKS[framework]
    if not gpus:
        return known.cpu
    for name, build in known.gpu.items():
        if build.runs_on(gpus, driver):
            return name
    cards = " and ".join(sorted({f"{gpu.name} of compute capability {dotted(gpu.capability)}" for gpu in gpus}))
    sets = ", ".join(f"requirements/{name}.txt runs on {build}" for name, build in known.gpu.items())
    raise SetUpError(
        f"this machine has {cards}, and driver {driver or 'unknown'}; {sets}. Update the driver, or name the Python of "
        f"a build for these cards under frameworks.{framework}.interpreter in perf.yaml"
    )


def serves(driver: str, cuda: int) -> bool:
    """Whether the driver serves this major version of CUDA; an unknown one may."""
    return not driver or _numbers(driver) >= _numbers(least_driver(cuda))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
