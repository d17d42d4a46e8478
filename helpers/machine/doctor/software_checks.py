"""Checks whether driver, framework build, cuDNN, NCCL and DALI fit each other, as far as is known without loading
them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from helpers.machine.doctor.finding import Check, Context, Finding, blocker, note, warning
from helpers.machine.facts.gathered import FrameworkFacts
from helpers.machine.frameworks import FrameworkBuild

# The cards for which builds were made that do not state it themselves (requirements/gpu-cuda11.txt).
_BUILT_FOR = {("paddlepaddle-gpu", "2.6"): ((6, 1), (8, 6))}
# For each toolkit, the oldest and the newest card for which it compiles, by CUDA's release notes; newest first.
_TOOLKITS = (
    ((13, 0), ((7, 5), (12, 1))),
    ((12, 8), ((5, 0), (12, 1))),
    ((12, 0), ((5, 0), (9, 0))),
    ((11, 8), ((3, 5), (9, 0))),
    ((11, 1), ((3, 5), (8, 6))),
    ((11, 0), ((3, 5), (8, 0))),
    ((10, 0), ((3, 0), (7, 5))),
)


def missing_frameworks(context: Context) -> Iterator[Finding]:
    for name, problem in context.framework_problems.items():
        yield (note if context.facts.frameworks else blocker)(
            f"{name} is missing",
            problem,
            f"No case of {name} can run",
            "make env installs Paddle, make env-pytorch PyTorch; others: frameworks.NAME.interpreter in perf.yaml",
        )


def frameworks(context: Context) -> Iterator[Finding]:
    for each in context.facts.frameworks:
        if isinstance(each.libraries, str):
            yield warning(
                f"{each.build.framework.value}'s libraries",
                each.libraries,
                "CUDA and DALI versions are missing from the result's tables",
                "Repair that interpreter",
            )
            continue
        if context.facts.machine.gpus:
            yield from _on_gpus(context, each)
        if not each.stated("dali_wheel"):
            yield warning(
                "DALI",
                f"not installed beside {each.build.framework.value}",
                "Most published figures were fed by DALI; those cases cannot run",
                "Install nvidia-dali-cuda120 (CUDA 11: nvidia-dali-cuda110) into the framework's interpreter",
            )


def _on_gpus(context: Context, framework: FrameworkFacts) -> Iterator[Finding]:
    machine, build, cuda = context.facts.machine, framework.build, framework.stated("cuda")
    name = build.framework.value
    served = f"driver {machine.driver} serves CUDA {machine.cuda_driver}"
    if build.for_cpu_alone:
        yield blocker(
            "framework build",
            f"{build.distribution} {build.version} has no GPU kernels, with {len(machine.gpus)} GPUs here",
            "GPU cases are not run: they would train on the processor",
            "make env and make env-pytorch choose the build by the hardware; or install the framework's GPU build",
        )
    if cuda and _number(cuda) > _number(machine.cuda_driver):
        yield (blocker if _major(cuda) > _major(machine.cuda_driver) else warning)(
            "driver and framework",
            f"{served}, {name} was built for {cuda}",
            "No kernel of a newer major version runs, and within one what the driver must compile fails",
            f"Update the driver to one for CUDA {cuda}, or install a build for CUDA {machine.cuda_driver} or below",
        )
    yield from _kernels_for_the_cards(context, framework)
    wheel = framework.stated("dali_wheel")
    made_for = re.search(r"cuda(\d\d)", wheel)
    if made_for and int(made_for.group(1)) > _major(machine.cuda_driver):
        yield blocker(
            "driver and DALI",
            f"{served}, {wheel} is for CUDA {made_for.group(1)}",
            "DALI's decoder does not start on the cards, and most published cases are fed by it",
            f"Update the driver, or install the DALI for CUDA {_major(machine.cuda_driver)}",
        )
    for title, library, cards in (("cuDNN", "cudnn", 1), ("NCCL", "nccl", 2)):
        absent = not framework.stated(f"{library}_wheel") and not context.facts.machine_libraries.get(library)
        if cuda and len(machine.gpus) >= cards and absent:
            yield warning(
                title,
                f"no wheel beside {name} and no lib{library}.so in the usual folders",
                "Without it no convolution runs" if cards == 1 else "Without it no job on several cards runs",
                f"Install {title} for CUDA {cuda}, or name its folder in LD_LIBRARY_PATH",
            )


def _kernels_for_the_cards(context: Context, framework: FrameworkFacts) -> Iterator[Finding]:
    build, cuda = framework.build, framework.stated("cuda")
    for capability in sorted({gpu.compute_capability for gpu in context.facts.machine.gpus}):
        why_not = _why_no_kernels(build, cuda, framework.stated("archs"), capability)
        if why_not:
            cards = [gpu for gpu in context.facts.machine.gpus if gpu.compute_capability == capability]
            yield blocker(
                "card and framework",
                f"{cards[0].name} is sm_{capability[0]}{capability[1]}, {build.distribution} {build.version} {why_not}",
                "Without kernels for this card nothing runs, or the driver compiles them at every start",
                "Install a build for this card (the framework's own table of versions)",
            )


def _why_no_kernels(build: FrameworkBuild, cuda: str, archs: str, card: tuple[int, int]) -> str:
    """Why a build has no kernels for a card; empty when it has some, or when nothing says so.

    Kernels run on cards of the same major number whose minor number is not smaller (CUDA's binary compatibility).
    """
    if archs:
        built_for = sorted({(int(word) // 10, int(word) % 10) for word in archs.split()})
        served = any(major == card[0] and minor <= card[1] for major, minor in built_for)
        return "" if served else f"has kernels for {', '.join(f'sm_{major}{minor}' for major, minor in built_for)}"
    line = ".".join(build.version.split(".")[:2])
    known = _BUILT_FOR.get((build.distribution, line)) or _toolkit(cuda)
    if known is None or known[0] <= card <= (known[1][0], 9):
        return ""
    return f"is for sm_{known[0][0]}{known[0][1]} to sm_{known[1][0]}{known[1][1]}"


def _toolkit(cuda: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The oldest and newest cards for which a CUDA toolkit compiles; None for a toolkit that the suite does not
    know."""
    number = _number(cuda)
    return next((cards for since, cards in _TOOLKITS if number and number[0] == since[0] and number >= since), None)


def _major(version: str) -> int:
    return _number(version)[0] if _number(version) else 0


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


CHECKS: tuple[Check, ...] = (missing_frameworks, frameworks)
