"""Checks of the CUDA libraries that a rank of each framework would load, without loading them."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.machine.doctor.finding import Check, Context, Finding, blocker, warning
from helpers.machine.facts import FrameworkFacts
from helpers.machine.libraries import LibraryFile

# A library's title, and from how many cards on it is needed.
_LIBRARIES = {"cudnn": ("cuDNN", 1), "cublas": ("cuBLAS", 1), "nccl": ("NCCL", 2)}
_WITHOUT = {
    "cudnn": "Without it no convolution runs",
    "cublas": "Without it no step runs",
    "nccl": "Without it no job on several cards runs",
}
_REMEDY = (
    "make env installs CUDA's libraries with Paddle (requirements/cuda11.txt), and they come before all others; for a "
    "Python of your own: docs/choosing.md"
)


def libraries(context: Context) -> Iterator[Finding]:
    cards = len(context.facts.machine.gpus)
    for framework in context.facts.frameworks:
        if not cards or not framework.stated("cuda"):
            continue
        for library, (title, least) in _LIBRARIES.items():
            if cards < least:
                continue
            if library in framework.opened:
                yield from _opened(framework, library, framework.opened[library])
            elif library != "cublas" and not _is_there(context, framework, library):
                yield warning(
                    title,
                    f"no wheel installed with {framework.build.framework.value} and no lib{library}.so in the usual "
                    "folders",
                    _WITHOUT[library],
                    f"Install {title} for CUDA {framework.stated('cuda')}, or name its folder in LD_LIBRARY_PATH",
                )


def _is_there(context: Context, framework: FrameworkFacts, library: str) -> bool:
    return bool(framework.stated(f"{library}_wheel") or context.facts.machine_libraries.get(library))


def _opened(framework: FrameworkFacts, library: str, file: LibraryFile) -> Iterator[Finding]:
    title, build = _LIBRARIES[library][0], f"{framework.build.distribution} {framework.build.version}"
    if file.path is None:
        others = f"; there is {', '.join(map(str, file.others))}" if file.others else ""
        yield (warning if library == "nccl" else blocker)(
            title, f"no {file.name}, which {build} opens{others}", _WITHOUT[library], _REMEDY
        )
        return
    wanted = {"cublas": framework.stated("cuda"), "nccl": "2"}.get(library, framework.stated(library))
    if wanted and file.version and file.version.partition(".")[0] != wanted.partition(".")[0]:
        yield blocker(
            title,
            f"{build} would load {file.path} as {file.name}, and was built for {title} {wanted}",
            "A library of another major version is refused before training: it ends the job, or gives other figures",
            _REMEDY,
        )


CHECKS: tuple[Check, ...] = (libraries,)
