"""What the first node orders another one to prepare for a case, and the facts that must be alike on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.machine.devices import Card, Machine
from helpers.machine.environment import CPU, flag_variables, flags_of
from helpers.machine.nvml import Gpu

# Beside the caller's flags: the ports on which a firewall allows the launcher and its ranks to listen, on all nodes.
_PORTS = ("PORT_RANGE",)


@dataclass(frozen=True)
class NodeOrder:
    """How a node is to prepare for a case."""

    case_id: str
    framework: str
    target: str
    # The node must have this address.
    address: str
    # So many cards of ``target`` are leased.
    cards: int
    # How long the node may wait for its cards.
    lease_seconds: float
    # The data folder on the node; None where the case reads no images, or with ``small_data``.
    data_root: str | None = None
    # Whether the node makes and reads the small dataset of its own checkout.
    small_data: bool = False
    # Cards that the first node, being on the same machine, has leased for this one already.
    assigned: tuple[str, ...] = ()
    exclusive_machine: bool = True
    # Holds for everything that the node's agent starts.
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_cards: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """The order as a JSON object; ``NodeOrder(**mapping)`` reads it back, since both sides have one checkout."""
        return {**vars(self), "assigned": list(self.assigned), "environment": dict(self.environment)}


def node_facts(
    build: Mapping[str, str], machine: Machine, cards: Sequence[Card], target: str, data: str
) -> dict[str, str]:
    """What must be alike on all nodes of a job, as text: nodes that differ would be measured as if they did not."""
    if target == CPU:
        of_device = {"processor": machine.facts.cpu_model}
    else:
        caps = sorted({card.power_limit_watts for card in cards if isinstance(card, Gpu)})
        of_device = {"driver": machine.driver, "power cap (W)": " ".join(map(str, caps))}
    return {
        "framework": " ".join(filter(None, (build.get(name, "") for name in ("distribution", "version", "commit")))),
        "card": " + ".join(sorted({card.name for card in cards})),
        **of_device,
        "data": data,
    }


def node_record(
    machine: Machine, cards: Sequence[Card], variables: Mapping[str, str], framework: str
) -> dict[str, Any]:
    """Which node this is: its host's id, its GPUs, and the variables that change what is measured, each as text."""
    return {
        "host_id": machine.host_id,
        "card_ids": [card.uuid for card in cards if isinstance(card, Gpu)],
        "flags": flag_texts(variables, framework),
    }


def flag_texts(variables: Mapping[str, str], framework: str) -> list[str]:
    """``NAME=value`` of each variable that changes what is measured, sorted."""
    chosen = sorted(flag_variables(variables, framework).items())
    return [flags_of({name: value}, framework) for name, value in chosen]


def variables_along(variables: Mapping[str, str], framework: str) -> dict[str, str]:
    """Those of the caller's variables that must hold on every node."""
    return {**flag_variables(variables, framework), **{name: variables[name] for name in _PORTS if name in variables}}
