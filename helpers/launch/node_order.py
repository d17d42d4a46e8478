"""What the first node asks of another before a case, and what both must agree in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.devices import Card, Machine
from helpers.environment import CPU, flags_of


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
    of_device = {"processor": machine.facts.cpu_model} if target == CPU else {"driver": machine.driver}
    return {
        "framework": " ".join(filter(None, (build.get(name, "") for name in ("distribution", "version", "commit")))),
        "card": " + ".join(sorted({card.name for card in cards})),
        **of_device,
        "data": data,
    }


def flag_variables(variables: Mapping[str, str], framework: str) -> dict[str, str]:
    """Those of the caller's variables that change what is measured: they must reach every node."""
    return {name: value for name, value in variables.items() if flags_of({name: value}, framework)}
