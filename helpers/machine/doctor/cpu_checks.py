"""Checks of the processor: foreign processes on the cores, clocks, quotas, topology."""

from __future__ import annotations

from collections.abc import Iterator

from helpers.machine.doctor.finding import Check, Context, Finding, blocker, note, warning
from helpers.machine.facts import cpu_list
from helpers.machine.unknown import Unknown

# Reading these clocks takes tens of nanoseconds; other clocks take microseconds, at every step and every event.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
# A clock that is only adjusted (adjtimex(2)) moves by less than 0.5 ms in a second; a larger jump means that it was
# set.
_CLOCK_JUMP_SECONDS = 0.1
# A smaller share of stolen time is an error of the hypervisor's accounting.
_STEAL = 0.005


def others_on_the_cores(context: Context) -> Iterator[Finding]:
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


def load(context: Context) -> Iterator[Finding]:
    state = context.facts.host
    if isinstance(state.load_1m, Unknown) or not context.contention.is_quiet(context.max_foreign_share):
        return
    # The doctor itself adds less than 0.1 to the minute's mean.
    if state.load_1m > 0.25 * max(1, state.physical_cores):
        yield warning(
            "load average",
            f"{state.load_1m:.2f} over the last minute on {state.physical_cores} cores",
            "It is quiet now and was not a moment ago: what ran then may come back in the middle of a case",
            "Look at what runs on a schedule (crontab -l, systemctl list-timers), or measure at another hour",
        )


def steal(context: Context) -> Iterator[Finding]:
    share = context.facts.host.steal_share
    if not isinstance(share, Unknown) and share > _STEAL:
        yield warning(
            "steal",
            f"{share:.1%} of all CPU time since boot went to other guests of this host",
            "Stolen time counts as contention and comes in bursts; nothing inside the machine can prevent it",
            "Use a host of your own (dedicated, pinned vCPUs); compare medians of several runs",
        )


def governor(context: Context) -> Iterator[Finding]:
    names = context.facts.host.governors
    if not isinstance(names, Unknown) and (slow := sorted(names - {"performance"})):
        yield warning(
            "frequency governor",
            ", ".join(slow),
            "The clock follows the load with a delay, so short windows and data loading run at a changing speed",
            "sudo cpupower frequency-set -g performance",
        )


def frequency_cap(context: Context) -> Iterator[Finding]:
    capped = context.facts.host.capped_cores
    if not isinstance(capped, Unknown) and capped:
        most, top = min(capped.values())
        yield warning(
            "frequency cap",
            f"CPUs {cpu_list(frozenset(capped))} may go to {most:.0f} MHz, the hardware to {top:.0f} MHz",
            "The cores run below what they can; a CPU case is INVALID under another cap than it was recorded at",
            f"sudo cpupower frequency-set -u {top:.0f}MHz, or record baselines at this cap",
        )


def wall_clock(context: Context) -> Iterator[Finding]:
    if abs(context.clock_jump_seconds) > _CLOCK_JUMP_SECONDS:
        yield warning(
            "wall clock",
            f"it was set by {context.clock_jump_seconds:+.1f} s while the doctor looked",
            "Durations are taken from another clock; but results and nights are kept by the date",
            "Look at what sets it (timedatectl, chronyc tracking) and let it come to rest",
        )
    if context.files_from_the_future:
        yield warning(
            "wall clock",
            f"it is behind {context.files_from_the_future}",
            "A night that is dated before the ones it follows is out of order in the history",
            "Set the clock: timedatectl set-ntp true, or chronyc makestep",
        )


def boost(context: Context) -> Iterator[Finding]:
    if context.facts.host.boost is True:
        yield note(
            "boost",
            "on",
            "The clock depends on temperature and on how many cores are busy: CPU figures drift",
            "For CPU cases: echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost "
            "(Intel: 1 into intel_pstate/no_turbo), and record baselines in that state",
        )


def heat(context: Context) -> Iterator[Finding]:
    times = context.facts.host.core_throttles
    if not isinstance(times, Unknown) and times > 0:
        yield warning(
            "cores slowed by heat",
            f"{times} times since boot",
            "A core at its temperature limit runs at a lower clock",
            "Check fans and air flow; see whether thermal_throttle/core_throttle_count grows during a run",
        )


def quota(context: Context) -> Iterator[Finding]:
    state = context.facts.host
    cores = state.quota_cores
    if isinstance(cores, Unknown) or cores is None:
        return
    cut = "" if isinstance(state.throttled_periods, Unknown) else f", cut {state.throttled_periods} periods so far"
    if cores < 1:
        yield blocker(
            "CPU quota",
            f"{cores:g} cores{cut}",
            "Less than one core: every step is stopped several times a second",
            "Give the container whole cores: docker run --cpuset-cpus=0-3 instead of --cpus",
        )
    elif cores < len(state.allowed_cpus):
        yield warning(
            "CPU quota",
            f"{cores:g} cores for {len(state.allowed_cpus)} CPUs{cut}",
            "A quota stops all threads for the rest of a period once it is used up, loader and trainer alike",
            "Give the container cores instead of a quota: docker run --cpuset-cpus=0-3",
        )


def threads_of_a_core(context: Context) -> Iterator[Finding]:
    state = context.facts.host
    outside = {cpu for cpu in state.allowed_cpus if state.siblings.get(cpu, frozenset()) - state.allowed_cpus}
    if outside:
        yield warning(
            "cores shared with others",
            f"CPUs {cpu_list(frozenset(outside))} have a sibling thread outside this process's CPUs",
            "Whoever runs on the sibling takes up to half of the core, and is not seen as contention",
            "Give the container whole cores, both threads of each (lscpu -e shows the pairs)",
        )
    elif any(len(each) > 1 for each in state.siblings.values()):
        yield note(
            "SMT",
            "on: each core has two threads, and a CPU card uses one of them",
            "Another process on the second thread slows the card without using its CPU",
            "For CPU cases: keep the machine empty, or echo off | sudo tee /sys/devices/system/cpu/smt/control",
        )


def memory_nodes(context: Context) -> Iterator[Finding]:
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


def clock(context: Context) -> Iterator[Finding]:
    source = context.facts.host.clock_source
    if not isinstance(source, Unknown) and source not in _FAST_CLOCKS:
        yield warning(
            "clock source",
            source,
            "Reading this clock is slow: framework, loader and our own step times pay for it",
            "Check `dmesg | grep -i tsc`; boot with tsc=reliable if the hardware is sound",
        )


def virtual(context: Context) -> Iterator[Finding]:
    if context.facts.host.hypervisor is True:
        yield note(
            "virtual machine",
            "the CPU says that a hypervisor runs it",
            "Clock, temperature and other guests cannot be seen from inside; of what they take only steal is",
            "Use the same type and size of machine for every baseline, and several runs a case",
        )


CHECKS: tuple[Check, ...] = (
    others_on_the_cores,
    load,
    steal,
    governor,
    frequency_cap,
    boost,
    heat,
    quota,
    threads_of_a_core,
    memory_nodes,
    clock,
    wall_clock,
    virtual,
)
