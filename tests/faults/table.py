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
    throttled,
)
from tests.faults.fault import Fault, in_table_order


def faults() -> list[Fault]:
    """Every fault that there is a row for; names are unique."""
    found = in_table_order(
        [
            *crashes.FAULTS,
            *ranks.FAULTS,
            *hangs.FAULTS,
            *launchers.FAULTS,
            *interrupts.FAULTS,
            *logs.FAULTS,
            *data.FAULTS,
            *clocks.FAULTS,
            *baselines.FAULTS,
            *databases.FAULTS,
            *hostile.FAULTS,
            *killed.FAULTS,
            *disks.FAULTS,
            *network.FAULTS,
            *dead_nodes.FAULTS,
            *sharing.FAULTS,
            *neighbours.FAULTS,
            *throttled.FAULTS,
        ]
    )
    names = [fault.name for fault in found]
    if doubles := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two faults are called {min(doubles)}")
    return found
