"""Whether driver, framework build, cuDNN, NCCL and DALI fit each other, as far as one knows without loading them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from helpers.doctor.finding import Check, Context, Finding, blocker, note, warning
from helpers.system_facts import FrameworkFacts


def missing_frameworks(context: Context) -> Iterator[Finding]:
    for name, problem in context.framework_problems.items():
        yield (note if context.facts.frameworks else blocker)(
            f"{name} is missing",
            problem,
            f"No case of {name} can run",
            "make env installs Paddle; other frameworks: frameworks.NAME.interpreter in perf.yaml",
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
    if not cuda and name == "paddle":
        yield blocker(
            "framework build",
            f"{build.distribution} {build.version} has no GPU kernels, with {len(machine.gpus)} GPUs here",
            "GPU cases are not run: they would train on the processor",
            "make perf (chooses the build by the hardware), or install paddlepaddle-gpu",
        )
    if cuda and _number(cuda) > _number(machine.cuda_driver):
        yield (blocker if _major(cuda) > _major(machine.cuda_driver) else warning)(
            "driver and framework",
            f"{served}, {name} was built for {cuda}",
            "No kernel of a newer major version runs, and within one what the driver must compile fails",
            f"Update the driver to one for CUDA {cuda}, or install a build for CUDA {machine.cuda_driver} or below",
        )
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


def _major(version: str) -> int:
    return _number(version)[0] if _number(version) else 0


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


CHECKS: tuple[Check, ...] = (missing_frameworks, frameworks)
