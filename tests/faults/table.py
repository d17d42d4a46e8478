"""All faults, in the order of the table."""

from __future__ import annotations

from tests.faults import (
    baselines,
    clocks,
    crashes,
    data,
    databases,
    dead_nodes,
    disks,
    hangs,
    hostile,
    interrupts,
    killed,
    launchers,
    logs,
    neighbours,
    network,
    ranks,
    sharing,
    slurm,
    throttled,
)
from tests.faults.fault import Fault

# What `make test` makes: of each way that a fault goes through the suite, one. The others differ in what the tests of
# the module cover that finds the fault (which damage of a file or name is refused, which signal a process ended by).
QUICK = frozenset(
    {
        "CUDA out of memory, raised in window",
        "SIGKILL once, then the retry",
        "a hidden child after a good end",
        "Ctrl-C in a terminal, training",
        "kill -9 of pytest while its trainer hangs",
        "kill -9 of pytest at 2 moments",
        "TMPDIR full",
        "runs read-only before",
        "log cut in a record",
        "card slowed by heat",
        "merge conflict in baselines",
    }
)


def faults() -> list[Fault]:
    """Every fault that there is a row for; names are unique."""
    modules = (
        crashes, ranks, hangs, launchers, interrupts, killed, disks, logs, network, dead_nodes, data, sharing,
        neighbours, throttled, clocks, baselines, databases, hostile, slurm,
    )  # fmt: skip
    found = [fault for module in modules for fault in module.FAULTS]
    names = [fault.name for fault in found]
    if doubles := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two faults are called {min(doubles)}")
    if unknown := QUICK - set(names):
        raise ValueError(f"no fault is called {min(unknown)}")
    return found
