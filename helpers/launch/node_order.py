"""What the first node asks of another before a case, and what both must agree in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.devices import Card, Machine
from helpers.environment import CPU, flag_variables, flags_of
from helpers.nvml import Gpu

# Beside the caller's flags: where the launcher and its ranks may listen, which a firewall limits everywhere alike.
_PORTS = ("PORT_RANGE",)


@dataclass(frozen=True)
class NodeOrder:
    """How a node is to get ready for a case.

    - ``address`` must be one of its own; ``environment`` holds for everything that its agent starts.
    - ``data_root`` is the data folder there; None with ``small_data``: its checkout's own small dataset; None
      without: no images.
    - ``cards`` of ``target`` are leased for up to ``lease_seconds`` of waiting; ``assigned`` names cards that
      the first node has leased already, being on the same machine.
    """

    case_id: str
    framework: str
    target: str
    address: str
    cards: int
    lease_seconds: float
    data_root: str | None = None
    small_data: bool = False
    assigned: tuple[str, ...] = ()
    exclusive_machine: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_cards: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """As JSON holds it; ``NodeOrder(**mapping)`` reads it back, both sides being of one checkout."""
        return {**vars(self), "assigned": list(self.assigned), "environment": dict(self.environment)}


def node_facts(
    build: Mapping[str, str], machine: Machine, cards: Sequence[Card], target: str, data: str
) -> dict[str, str]:
    """What all nodes of a job must have alike, in words; a difference would be measured as if it were one machine."""
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
