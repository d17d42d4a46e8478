"""Checks of everything besides cores and cards: memory, disk, limits, data, this shell's variables, and whether driver,
framework build, cuDNN, NCCL and DALI fit each other, as far as that is known without loading them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from helpers.common.inherited import withheld
from helpers.common.unknown import Unknown
from helpers.machine.devices import GIB
from helpers.machine.doctor.issue import Check, Context, Issue, blocker, note, warning
from helpers.machine.drivers import driver_numbers, least_driver, why_driver_too_old, why_no_kernels
from helpers.machine.environment import flags_of
from helpers.machine.facts import FrameworkFacts
from helpers.machine.host import UNLIMITED
from helpers.machine.surroundings import HOME_REMEDY, LOOPBACK_REMEDY, SHARED_MEMORY_REMEDY
from helpers.trainers.contract.frameworks import FRAMEWORKS

MIB = 1024**2
# The short selection's largest case, vgg16 amp_o1 on 2 cards, took 7.5 GiB (peak_host_bytes of its result).
_MEMORY_BYTES = 8 * GIB
# Docker's default for /dev/shm. One batch of 256 images of 224 x 224 in fp32 alone is 147 MiB.
_SHM_DEFAULT = 64 * MIB
_SHM_PER_GPU = GIB
# Step logs and results of a case take kilobytes; the log and core file of a crashed job take more.
_DISK_WARNING, _DISK_BLOCKER = GIB, 100 * MIB
# Enough for eight ranks with their loaders and the threads of NCCL and the allocator; each thread counts as a process.
_PROCESSES = 4096
# Loader workers and eight ranks hold hundreds of files and sockets each.
_OPEN_FILES = 4096
# Switches for finding errors. They change the speed, so a figure measured with one is worthless.
_DEBUG_SWITCHES = (
    "CUDA_LAUNCH_BLOCKING",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "FLAGS_benchmark",
    "FLAGS_check_nan_inf",
    "FLAGS_cudnn_deterministic",
    "MALLOC_CHECK_",
    "MALLOC_PERTURB_",
)
_OFF = ("", "0", "false", "False")


def memory(context: Context) -> Iterator[Issue]:
    state = context.facts.host
    free = state.memory_available_bytes
    limit = state.memory_limit_bytes
    if not isinstance(free, Unknown):
        most = free if isinstance(limit, Unknown) or limit is None else min(free, limit)
        if most < _MEMORY_BYTES:
            yield warning(
                "memory",
                f"{most / GIB:.1f} GiB for a job",
                "The short selection's largest case takes 7.5 GiB; short of it the job swaps or is killed",
                "End what holds memory, or leave VGG16 with 2 cards out (-k resnet50)",
            )
    if not isinstance(state.swap_used_bytes, Unknown) and state.swap_used_bytes > 64 * MIB:
        yield warning(
            "swap",
            f"{state.swap_used_bytes / GIB:.1f} GiB in use",
            "A page that comes back from disk stops a step",
            "sudo swapoff -a && sudo swapon -a once memory is free",
        )


def shared_memory(context: Context) -> Iterator[Issue]:
    if problem := context.facts.machine.shared_memory_problem:
        yield blocker(
            "/dev/shm",
            problem,
            "A reader with workers and a job on several GPUs pass data through it: their cases are not run",
            SHARED_MEMORY_REMEDY,
        )
        return
    size = context.facts.host.shared_memory
    if isinstance(size, Unknown):
        return
    gpus = len(context.facts.machine.gpus)
    found = f"{size.free_bytes / MIB:.0f} MiB free of {size.total_bytes / MIB:.0f} MiB"
    why = "Loader workers and NCCL pass data through it: a batch of 256 images is 147 MiB; a full one kills the job"
    remedy = "docker run --shm-size=64g (as the published A100 and V100 runs), or --ipc=host"
    if size.free_bytes <= _SHM_DEFAULT:
        yield (blocker if gpus else warning)("/dev/shm", found, why, remedy)
    elif size.free_bytes < gpus * _SHM_PER_GPU:
        yield warning("/dev/shm", found, why, remedy)


def home(context: Context) -> Iterator[Issue]:
    if problem := context.facts.machine.home_problem:
        why = "Paddle makes ~/.cache/paddle/dataset when it is imported: no case of it can run"
        yield blocker("home", problem, why, HOME_REMEDY)


def disk(context: Context) -> Iterator[Issue]:
    if context.runs_problem:
        yield blocker(
            "run folder", context.runs_problem, "Results cannot be kept", "Set --runs-dir to a writable folder"
        )
        return
    runs = context.runs
    if isinstance(runs, Unknown):
        return
    needed = context.runs_needed_bytes
    if runs.free_bytes < max(_DISK_WARNING, 2 * needed):
        estimate = f", a night here writes about {needed / MIB:.0f} MiB" if needed else ""
        yield (blocker if runs.free_bytes < max(_DISK_BLOCKER, needed) else warning)(
            "disk",
            f"{runs.free_bytes / MIB:.0f} MiB free for the run folder{estimate}",
            "A result that cannot be written is lost",
            "Free the disk or set --runs-dir",
        )


def limits(context: Context) -> Iterator[Issue]:
    state = context.facts.host
    if state.open_files != UNLIMITED and state.open_files < _OPEN_FILES:
        yield warning(
            "open files",
            f"at most {state.open_files}",
            "Loader workers and ranks together may need more and then fail",
            f"ulimit -n {_OPEN_FILES} (docker run --ulimit nofile=65536:65536)",
        )
    if state.locked_bytes != UNLIMITED and context.facts.has_infiniband:
        yield warning(
            "locked memory",
            f"at most {state.locked_bytes / MIB:.0f} MiB",
            "InfiniBand must lock the buffers it sends from",
            "ulimit -l unlimited (docker run --ulimit memlock=-1)",
        )
    own = float("inf") if state.processes == UNLIMITED else state.processes
    of_container = state.free_processes
    left = own if of_container is None or isinstance(of_container, Unknown) else min(own, of_container)
    if left < _PROCESSES:
        yield (blocker if left < _PROCESSES // 16 else warning)(
            "processes",
            f"at most {left} more of this user or container",
            "Threads count: a rank that gets none breaks off",
            f"ulimit -u {_PROCESSES} (docker run --ulimit nproc=-1 --pids-limit=-1)",
        )


def network(context: Context) -> Iterator[Issue]:
    if problem := context.facts.machine.loopback_problem:
        yield blocker("ports", problem, "Ranks meet at a port of this machine", LOOPBACK_REMEDY)
    for problem in context.node_problems:
        yield blocker(
            "nodes",
            problem,
            "Cases of several nodes cannot run",
            "Correct nodes in perf.yaml or the name service, or share the runs' file system; docs/multi-node.md",
        )


def history(context: Context) -> Iterator[Issue]:
    if context.history_problem:
        yield warning(
            "history",
            context.history_problem,
            "Verdicts rest on the nights before: while they cannot be asked, no case with a recorded entry passes",
            "Start the database, or correct --history or history.url; what is measured meanwhile waits on disk for it",
        )


def data(context: Context) -> Iterator[Issue]:
    if context.data_problem:
        yield blocker("dataset", context.data_problem, "No case with images can run", "Correct --data or data.root")
        return
    disk_of_data = context.facts.storage.get("data")
    if context.data_root is not None and disk_of_data is not None and not isinstance(disk_of_data, Unknown):
        if disk_of_data.over_network:
            yield warning(
                "dataset's disk",
                disk_of_data.describe(),
                "The first pass over the images runs at the disk's speed",
                "Copy the images to a local SSD, or read them once before measuring",
            )
    elif context.data_root is None and context.facts.machine.gpus:
        yield note(
            "dataset",
            "none of your own: for published cases of one node the suite makes images, from photographs",
            "They are read from the page cache, as the publishers' were; cases of several nodes are not run",
            "--data FOLDER or data.root in perf.yaml, with ImageNet's layout, to measure with your own images",
        )


def other_sessions(context: Context) -> Iterator[Issue]:
    if context.leases:
        yield warning(
            "another session",
            "; ".join(context.leases),
            "Cases wait until it is through",
            "Wait, or end it; a dead holder's lease is free",
        )
    if context.orphans:
        yield warning(
            "left-over job",
            "; ".join(context.orphans),
            "A killed session's processes still hold cores, cards and memory",
            "The next session ends them before its first case",
        )


def shell(context: Context) -> Iterator[Issue]:
    """Variables that reach the trainer, and the names of those that do not."""
    found = [each.build.framework for each in context.facts.frameworks]
    frameworks = [each.value for each in found or FRAMEWORKS]
    flags = {}
    for name, value in sorted(context.variables.items()):
        if word := next(filter(None, (flags_of({name: value}, each) for each in frameworks)), ""):
            flags[name] = word
    debug = [name for name in flags if name in _DEBUG_SWITCHES and context.variables[name] not in _OFF]
    if debug:
        yield blocker(
            "debugging switches",
            " ".join(flags[name] for name in debug),
            "They make every step wait or take another way: the figure is theirs",
            f"unset {' '.join(debug)}",
        )
    if rest := [name for name in flags if name not in debug]:
        yield warning(
            "variables of this shell",
            " ".join(flags[name] for name in rest),
            "They reach the trainer and are part of what a result is compared by: baselines without them do not match",
            f"unset {' '.join(rest)}, unless they are intended",
        )
    if names := withheld(context.variables):
        yield note(
            "variables that training does not get",
            " ".join(names),
            "Only what helpers/common/inherited.py lists reaches processes that train, probe and guard",
            "Where a training needs one, set it in a script that starts the interpreter (frameworks.NAME.interpreter)",
        )


def missing_frameworks(context: Context) -> Iterator[Issue]:
    for name, problem in context.framework_problems.items():
        yield (note if context.facts.frameworks else blocker)(
            f"{name} is missing",
            problem,
            f"No case of {name} can run",
            "Name a build (perfgate gate --build BUILD) or an interpreter (frameworks.NAME.interpreter in perf.yaml); "
            "in a checkout make env installs Paddle, make env-NAME others",
        )


def frameworks(context: Context) -> Iterator[Issue]:
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
                f"not installed with {each.build.framework.value}",
                "Most published figures were fed by DALI; those cases cannot run",
                "Install nvidia-dali-cuda120 (CUDA 11: nvidia-dali-cuda110) into the framework's interpreter",
            )


def _on_gpus(context: Context, framework: FrameworkFacts) -> Iterator[Issue]:
    machine, build, cuda = context.facts.machine, framework.build, framework.stated("cuda")
    name = build.framework.value
    served = f"driver {machine.driver} serves CUDA {machine.cuda_driver}"
    if build.for_cpu_alone:
        yield blocker(
            "framework build",
            f"{build.distribution} {build.version} has no GPU kernels, and here are {len(machine.gpus)} x "
            f"{machine.gpus[0].name}",
            "GPU cases are not run: they would train on the processor",
            "make env and make env-NAME choose the build by the hardware; or install the framework's GPU build",
        )
    too_old = bool(why_driver_too_old(machine.driver, cuda, machine.cuda_driver))
    if cuda and (too_old or driver_numbers(cuda)[:2] > driver_numbers(machine.cuda_driver)[:2]):
        needs = f", whose least driver is {least_driver(cuda)}" if too_old else ""
        yield (blocker if too_old or _major(cuda) > _major(machine.cuda_driver) else warning)(
            "driver and framework",
            f"{served}, {name} was built for {cuda}{needs}",
            "No kernel of a newer major version runs, and within one what the driver must compile fails",
            f"Update the driver to one for CUDA {cuda}, or install a build for CUDA {machine.cuda_driver} or below",
        )
    yield from _kernels_for_the_cards(context, framework)
    wheel = framework.stated("dali_wheel")
    made_for = re.search(r"cuda(\d\d)", wheel)
    if made_for and int(made_for.group(1)) > _major(machine.cuda_driver):
        yield blocker(
            "driver and DALI",
            f"{served}, {name}'s {wheel} is for CUDA {made_for.group(1)}",
            "DALI's decoder does not start on the cards, and most published cases are fed by it",
            "Update the driver; beside a Paddle for CUDA 11, make env tries the DALI for CUDA 11",
        )


def _kernels_for_the_cards(context: Context, framework: FrameworkFacts) -> Iterator[Issue]:
    build, cuda = framework.build, framework.stated("cuda")
    for capability in sorted({gpu.compute_capability for gpu in context.facts.machine.gpus}):
        why_not = why_no_kernels(build, cuda, framework.stated("archs"), capability)
        if why_not:
            cards = [gpu for gpu in context.facts.machine.gpus if gpu.compute_capability == capability]
            yield blocker(
                "card and framework",
                f"{cards[0].name} is sm_{capability[0]}{capability[1]}, {build.distribution} {build.version} {why_not}",
                "Without kernels for this card nothing runs, or the driver compiles them at every start",
                "Install a build for this card (the framework's own table of versions)",
            )


def _major(version: str) -> int:
    return next(iter(driver_numbers(version)), 0)


CHECKS: tuple[Check, ...] = (
    missing_frameworks,
    frameworks,
    memory,
    shared_memory,
    home,
    disk,
    limits,
    network,
    history,
    data,
    other_sessions,
    shell,
)
