"""Checks of the processor: foreign processes on the cores, clocks, quotas, topology."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.common.unknown import Unknown
from helpers.machine.doctor.issue import Check, Context, Issue, blocker, warning
from helpers.machine.facts import cpu_list

# Reading these clocks takes tens of nanoseconds; other clocks take microseconds, at every step and every event.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")


def others_on_the_cores(context: Context) -> Iterator[Issue]:
    sample, limit = context.contention, context.max_foreign_share
    if sample.is_quiet(limit):
        return
    if sample.foreign_share is None:
        yield warning(
            "others on the cores",
            sample.describe(),
            "Without this look it is not known whether the machine is quiet",
            "Run the doctor again; every run measures it anyway",
        )
        return
    found = f"in the last {sample.window_seconds:.1f} s {sample.describe()}"
    if context.leases:
        yield warning(
            "others on the cores",
            found,
            "A session of the suite holds cards just now: it may be its own work, and cases wait for it",
            "Run the doctor again when that session is through",
        )
        return
    yield blocker(
        "others on the cores",
        found,
        f"A run with more than {limit:.0%} is INVALID (perf.yaml, contention.max_foreign_share)",
        "End those processes or wait; --allow-contention measures anyway, for no baseline and no gate",
    )


def governor(context: Context) -> Iterator[Issue]:
    names = context.facts.host.governors
    if not isinstance(names, Unknown) and (slow := sorted(names - {"performance"})):
        yield warning(
            "frequency governor",
            ", ".join(slow),
            "The clock follows the load with a delay, so short windows and data loading run at a changing speed",
            "sudo cpupower frequency-set -g performance",
        )


def wall_clock(context: Context) -> Iterator[Issue]:
    if context.files_from_the_future:
        yield warning(
            "wall clock",
            f"it is behind {context.files_from_the_future}",
            "A night that is dated before the ones it follows is out of order in the history",
            "Set the clock: timedatectl set-ntp true, or chronyc makestep",
        )


def quota(context: Context) -> Iterator[Issue]:
    state = context.facts.host
    cores = state.quota_cores
    if isinstance(cores, Unknown) or cores is None:
        return
    if cores < 1:
        yield blocker(
            "CPU quota",
            f"{cores:g} cores",
            "Less than one core: every step is stopped several times a second",
            "Give the container whole cores: docker run --cpuset-cpus=0-3 instead of --cpus",
        )
    elif cores < len(state.allowed_cpus):
        yield warning(
            "CPU quota",
            f"{cores:g} cores for {len(state.allowed_cpus)} CPUs",
            "A quota stops all threads for the rest of a period once it is used up, loader and trainer alike",
            "Give the container cores instead of a quota: docker run --cpuset-cpus=0-3",
        )


def threads_of_a_core(context: Context) -> Iterator[Issue]:
    state = context.facts.host
    outside = {cpu for cpu in state.allowed_cpus if state.siblings.get(cpu, frozenset()) - state.allowed_cpus}
    if outside:
        yield warning(
            "cores shared with others",
            f"CPUs {cpu_list(frozenset(outside))} have a sibling thread outside this process's CPUs",
            "Whoever runs on the sibling takes up to half of the core, and is not seen as contention",
            "Give the container whole cores, both threads of each (lscpu -e shows the pairs)",
        )


def memory_nodes(context: Context) -> Iterator[Issue]:
    state = context.facts.host
    if isinstance(state.numa_nodes, Unknown) or len(state.numa_nodes) < 2:
        return
    nodes = state.numa_nodes
    spread = [
        card.id
        for card in context.facts.machine.cpu_cards
        if not any(set(card.cores) <= cpus for cpus in nodes.values())
    ]
    if spread:
        yield warning(
            "NUMA",
            f"the cores of {', '.join(spread)} lie on more than one of {len(nodes)} nodes",
            "Half of a rank's memory is then behind the link between the sockets, which half differs from run to run",
            "Set machines.NAME.cpu_cards in perf.yaml to a multiple of the nodes",
        )
    if state.numa_balancing is True:
        yield warning(
            "automatic NUMA balancing",
            "on",
            "The kernel moves pages between nodes in the middle of a run",
            "sudo sysctl kernel.numa_balancing=0",
        )


def clock(context: Context) -> Iterator[Issue]:
    source = context.facts.host.clock_source
    if not isinstance(source, Unknown) and source not in _FAST_CLOCKS:
        yield warning(
            "clock source",
            source,
            "Reading this clock is slow: framework, loader and our own step times pay for it",
            "Check `dmesg | grep -i tsc`; boot with tsc=reliable if the hardware is sound",
        )


CHECKS: tuple[Check, ...] = (
    others_on_the_cores,
    governor,
    quota,
    threads_of_a_core,
    memory_nodes,
    clock,
    wall_clock,
)
