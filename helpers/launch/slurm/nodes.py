"""The nodes that Slurm has."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from helpers.launch.nodes.slurm import ask_slurm
from helpers.trainers.contract.errors import ConfigError

_ANSWER_SECONDS = 60.0
# A node with one of these words in its state gets no job, nor one with a star, which does not respond. A node that is
# POWERED_DOWN is powered up for a job.
_NOT_USABLE = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE", "INVALID_REG", "MAINT"),
    *("NOT_RESPONDING", "REBOOT", "UNKNOWN"),
}

Ask = Callable[..., str]


@dataclass(frozen=True)
class SlurmNode:
    """A node, by ``scontrol show node``."""

    name: str
    address: str
    state: str

    @property
    def problem(self) -> str:
        """Why it gets no job; empty if it may get one."""
        usable = "*" not in self.state and _NOT_USABLE.isdisjoint(re.findall(r"[A-Z_]+", self.state))
        return "" if usable else f"Slurm says {self.state}"

    @property
    def is_here(self) -> bool:
        """Whether its address is one of this machine."""
        try:
            for family, kind, _, _, place in socket.getaddrinfo(self.address, 0, type=socket.SOCK_STREAM):
                with socket.socket(family, kind) as probe:
                    probe.bind(place)
                    return True
        except OSError:
            pass
        return False


def nodes_of(listed: str | None, partition: str | None, ask: Ask = ask_slurm) -> tuple[SlurmNode, ...]:
    """The nodes of Slurm's list (``n[00-17]``), or all of the partition. Raises ConfigError for a node that Slurm does
    not have, and if there is none."""
    known: dict[str, SlurmNode] = {}
    default = []
    for line in ask("scontrol", "--oneliner", "show", "node", seconds=_ANSWER_SECONDS).splitlines():
        fields: dict[str, str] = dict(re.findall(r"(?:^| )(\w+)=(\S*)", line))
        if name := fields.get("NodeName", ""):
            known[name] = SlurmNode(name, fields.get("NodeAddr", name), fields.get("State", "UNKNOWN"))
            partitions = fields.get("Partitions", "").split(",")
            default += [name] if partitions[0] and partition in (None, *partitions) else []
    names = ask("scontrol", "show", "hostnames", listed, seconds=_ANSWER_SECONDS).split() if listed else default
    if not names or not set(names) <= known.keys():
        raise ConfigError(
            "perfgate fleet",
            field="--nodes",
            got=", ".join(sorted(set(names) - known.keys())) or f"no node in partition {partition}",
            expected=f"nodes of this Slurm, which has {', '.join(known) or 'none'}",
        )
    return tuple(known[name] for name in dict.fromkeys(names))
