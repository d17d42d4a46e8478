"""Checks of the GPUs, and of the CUDA libraries that a rank of each framework would load, without loading them. Every
limit comes from NVML or from the suite's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from helpers.common.unknown import Unknown
from helpers.machine.devices import GIB
from helpers.machine.doctor.issue import Check, Context, Issue, blocker, note, warning
from helpers.machine.facts import FrameworkFacts
from helpers.machine.libraries import LibraryFile
from helpers.machine.nvml import Gpu, GpuDetails
from helpers.machine.watch.gpu_health import THROTTLE_REASONS

# The driver uses some hundred MiB on an idle card. More than this is used by a process.
_IDLE_BYTES = GIB
# nvml.h, nvmlClocksEventReasons: an idle card may show sync boost and the display's clock, too.
_WHEN_IDLE = 0x10 | 0x100
# A library's title, and from how many cards on it is needed.
_LIBRARIES = {"cudnn": ("cuDNN", 1), "cublas": ("cuBLAS", 1), "nccl": ("NCCL", 2)}
_WITHOUT = {
    "cudnn": "Without it no convolution runs",
    "cublas": "Without it no step runs",
    "nccl": "Without it no job on several cards runs",
}
_LIBRARY_REMEDY = (
    "make env installs CUDA's libraries with Paddle (requirements/cuda11.txt), and they come before all others; for a "
    "Python of your own: docs/choosing.md"
)


def driver(context: Context) -> Iterator[Issue]:
    if (failure := context.gpu_failure) is not None:
        yield blocker(
            "NVIDIA driver" if failure.about.startswith("NVML") else failure.about,
            f"{failure.about}: {failure.got}" if failure.about.startswith("NVML") else str(failure.got),
            "No case can run on a card",
            failure.remedy or "CUDA_VISIBLE_DEVICES= (empty) measures the CPU of this machine",
        )
    elif context.gpus_on_bus and not context.facts.machine.gpus:
        if "CUDA_VISIBLE_DEVICES" in context.facts.machine.gpu_note:
            yield note(
                "hidden GPUs",
                context.facts.machine.gpu_note,
                "Cases are measured on the CPU",
                "unset CUDA_VISIBLE_DEVICES to measure on the cards",
            )
        else:
            yield blocker(
                "NVIDIA driver",
                f"{context.gpus_on_bus} NVIDIA cards on the PCI bus, and {context.facts.machine.gpu_note}",
                "Without the driver's library no case can run on them",
                "Install the driver; in a container: docker run --gpus all",
            )
    elif not context.facts.machine.gpus:
        yield note(
            "no GPU",
            context.facts.machine.gpu_note or "NVML finds none",
            "The published figures were measured on V100 and A100; only CPU cases run here",
            "Nothing, if this machine is to measure its CPU",
        )


def left_out(context: Context) -> Iterator[Issue]:
    machine = context.facts.machine
    for gpu in machine.faulty:
        yield warning(
            "card left out",
            f"{_names([gpu])} {gpu.name or 'of unknown model'}: {gpu.fault}",
            "No job runs on it, and a case that needs it too is skipped",
            gpu.remedy,
        )
    if machine.unread:
        yield warning(
            "visible cards",
            machine.unread,
            "The cards after that word are not used",
            "Name cards that nvidia-smi -L lists, by number or UUID",
        )


def foreign_processes(context: Context) -> Iterator[Issue]:
    for gpu, details in _cards(context):
        if isinstance(details.processes, Unknown):
            continue
        if details.processes:
            users = [context.process_names.get(pid, f"pid {pid}") for pid in details.processes]
            found = f"{_names([gpu])}: {', '.join(users)}"
            if not isinstance(details.memory_used_bytes, Unknown):
                found += f"; {details.memory_used_bytes / GIB:.1f} of {gpu.memory_bytes / GIB:.0f} GiB in use"
            if _is_leased(context, gpu):
                yield warning(
                    "processes on a card",
                    found,
                    "A session of the suite holds the card just now: it may be its own job, and cases wait for it",
                    "Run the doctor again when that session is through",
                )
                continue
            yield blocker(
                "processes on a card",
                found,
                "They share the card's time and memory; such a run is INVALID",
                "End them, or wait: nvidia-smi shows whose they are",
            )
        elif not isinstance(details.memory_used_bytes, Unknown) and details.memory_used_bytes > _IDLE_BYTES:
            yield warning(
                "memory in use on a card",
                f"{_names([gpu])}: {details.memory_used_bytes / GIB:.1f} GiB and no process to be seen",
                "A process of another container holds it, or one that died badly",
                "Look on the host: nvidia-smi, fuser -v /dev/nvidia*",
            )


def throttled(context: Context) -> Iterator[Issue]:
    for gpu, details in _cards(context):
        state = details.state
        if isinstance(state, Unknown):
            continue
        bits = state.throttle_reasons & ~_WHEN_IDLE
        if bad := [name for bit, name in THROTTLE_REASONS.items() if bits & bit]:
            yield blocker(
                "throttled card",
                f"{_names([gpu])}: {', '.join(bad)}, now {state.sm_clock_mhz} MHz, {state.temperature_c} °C",
                "A run is INVALID while the card is slowed",
                "Check cooling and power: nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
            )


def memory_errors(context: Context) -> Iterator[Issue]:
    if pending := _with(context, lambda d: d.pages_pending is True):
        yield blocker(
            "memory to be retired",
            f"{_names(pending)}: pages or rows wait for a reset after ECC errors, or no spare is left",
            "A run on such a card is INVALID",
            f"sudo nvidia-smi -i {','.join(str(gpu.index) for gpu in pending)} --gpu-reset, or reboot; if it stays, "
            "replace the card",
        )
    if bad := _with(context, lambda d: not isinstance(d.state, Unknown) and d.state.uncorrected_ecc > 0):
        yield warning(
            "ECC errors",
            f"{_names(bad)}: uncorrected errors since the driver was loaded",
            "A run in which there are more of them is INVALID",
            "Reset the card or reboot; if they come back, replace it",
        )
    if off := _with(context, lambda d: d.ecc is False):
        mixed = len(off) < len(context.facts.machine.gpus)
        yield (warning if mixed else note)(
            "ECC off",
            _names(off),
            "Cards with and without it differ in memory bandwidth"
            if mixed
            else "Data centre cards come with it on; without it a memory error stays unseen",
            f"sudo nvidia-smi -i {','.join(str(gpu.index) for gpu in off)} -e 1, then a reset",
        )


def power_and_clocks(context: Context) -> Iterator[Issue]:
    if off := _with(context, lambda d: d.persistence is False):
        yield warning(
            "persistence mode off",
            _names(off),
            "Each job loads the driver again: start-up takes longer, and settings are lost",
            "sudo nvidia-smi -pm 1",
        )
    for gpu, details in _cards(context):
        now, default = details.power_limit_watts, details.default_power_limit_watts
        if not isinstance(now, Unknown) and not isinstance(default, Unknown) and now != default:
            yield warning(
                "power limit",
                f"{_names([gpu])}: {now} W, by default {default} W",
                "Under full load the clock follows the limit; a run is INVALID under another than it was recorded at, "
                "or, with nothing recorded, where one below the default holds the card back",
                f"sudo nvidia-smi -i {gpu.index} -pl {default}, or record baselines at this limit",
            )
        clock, usual = details.applications_clock_mhz, details.default_applications_clock_mhz
        if not isinstance(clock, Unknown) and not isinstance(usual, Unknown) and clock < usual:
            yield warning(
                "applications clock",
                f"{_names([gpu])}: {clock} MHz, by default {usual} MHz",
                "It bounds the card's clock",
                f"sudo nvidia-smi -i {gpu.index} -rac",
            )


def links(context: Context) -> Iterator[Issue]:
    narrow = [
        (gpu, d)
        for gpu, d in _cards(context)
        if not isinstance(d.pcie_width, Unknown)
        and not isinstance(d.max_pcie_width, Unknown)
        and d.pcie_width < d.max_pcie_width
    ]
    for gpu, details in narrow:
        yield warning(
            "narrow PCI Express",
            f"{_names([gpu])}: x{details.pcie_width} of x{details.max_pcie_width}",
            "Images reach the card at a part of the speed",
            "Reseat the card, or look at the slot's wiring and BIOS",
        )
    sxm = [details.nvlinks for gpu, details in _cards(context) if "SXM" in gpu.name]
    if len(sxm) > 1 and not any(isinstance(each, Unknown) or any(each) for each in sxm):
        yield warning(
            "no NVLink",
            f"{len(sxm)} SXM cards and no active link of any",
            "Gradients go over PCI Express; the machines of the published figures had NVLink",
            "nvidia-smi nvlink -s; on A100 and later start nvidia-fabricmanager",
        )


def affinity(context: Context) -> Iterator[Issue]:
    allowed = context.facts.host.allowed_cpus
    if far := _with(context, lambda d: not isinstance(d.cpus, Unknown) and bool(d.cpus) and not d.cpus & allowed):
        yield warning(
            "cores far from a card",
            f"{_names(far)}: none of this process's CPUs is near",
            "Every copy to the card crosses the link between the sockets",
            "Give the process cores of the card's node (nvidia-smi topo -m, CPU Affinity)",
        )


def libraries(context: Context) -> Iterator[Issue]:
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


def _opened(framework: FrameworkFacts, library: str, file: LibraryFile) -> Iterator[Issue]:
    title, build = _LIBRARIES[library][0], f"{framework.build.distribution} {framework.build.version}"
    if file.path is None:
        others = f"; there is {', '.join(map(str, file.others))}" if file.others else ""
        yield (warning if library == "nccl" else blocker)(
            title, f"no {file.name}, which {build} opens{others}", _WITHOUT[library], _LIBRARY_REMEDY
        )
        return
    wanted = {"cublas": framework.stated("cuda"), "nccl": "2"}.get(library, framework.stated(library))
    if wanted and file.version and file.version.partition(".")[0] != wanted.partition(".")[0]:
        yield blocker(
            title,
            f"{build} would load {file.path} as {file.name}, and was built for {title} {wanted}",
            "A library of another major version is refused before training: it ends the job, or gives other figures",
            _LIBRARY_REMEDY,
        )


def _is_leased(context: Context, gpu: Gpu) -> bool:
    return any(held.startswith(("the machine ", f"{gpu.id} ")) for held in context.leases)


def _cards(context: Context) -> Iterator[tuple[Gpu, GpuDetails]]:
    details = context.facts.details
    return ((gpu, details[gpu.uuid]) for gpu in context.facts.machine.gpus if gpu.uuid in details)


def _with(context: Context, true: Callable[[GpuDetails], bool]) -> list[Gpu]:
    return [gpu for gpu, details in _cards(context) if true(details)]


def _names(gpus: list[Gpu]) -> str:
    return ", ".join(f"GPU{gpu.index}" for gpu in gpus)


CHECKS: tuple[Check, ...] = (
    driver,
    left_out,
    foreign_processes,
    throttled,
    memory_errors,
    power_and_clocks,
    links,
    affinity,
)
