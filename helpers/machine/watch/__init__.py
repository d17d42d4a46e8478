"""The clocks and power limits at which the cards of a case should run: those of its recorded entry, else the
defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.machine.devices import Card, CpuCard
from helpers.machine.environment import CLOCK_FACTS
from helpers.trainers.contract.errors import ConfigError

# A median clock that differs by more than this fraction from the recorded one counts as changed: V100 and A100 hold
# theirs within 1 to 2% under the same load. A processor's clock also depends on its temperature.
GPU_CLOCK_SHARE = 0.05
CPU_CLOCK_SHARE = 0.10
_REMEDY = "Record the case again with --update-baselines"


@dataclass(frozen=True)
class Norm:
    """The clocks and power limits at which the leased cards should run."""

    # Whether the entry was recorded on these same cards; if not, a GPU's defaults count.
    recorded: bool = False
    # The power limits of all cards.
    power_limits_watts: frozenset[int] = frozenset()
    # Medians in MHz by the names of CLOCK_FACTS: one for each GPU, or one for all cores. A clock that is missing here
    # is not compared.
    clocks: Mapping[str, tuple[float, ...]] | None = None

    def clock(self, name: str, place: int = 0) -> float | None:
        found = (self.clocks or {}).get(name, ())
        return found[place] if place < len(found) else None


def norm_of(
    recorded: Mapping[str, str] | None, cards: Sequence[Card], to_record: bool, *, first: int = 0
) -> Norm | None:
    """The norm for a run on the leased ``cards`` of a node, from the environment of the
    case's recorded entry (None without one).

    The entry of a case of several nodes names the cards of all nodes, in node order; those of this node begin at number
    ``first``. The norm is None while a new entry is recorded, so that the old entry cannot prevent it. An entry of
    other cards says nothing about these cards; its result is INCOMPARABLE. Raises ConfigError on a clock that is not a
    number.
    """
    if to_record:
        return None
    uuids = [card.uuid for card in cards if not isinstance(card, CpuCard)]
    end = first + len(uuids)
    if recorded is None or recorded.get("card_ids", "").split()[first:end] != uuids:
        return Norm()
    watts = frozenset(int(word) for word in recorded.get("power_limit_watts", "").split() if word.isdecimal())
    clocks = {name: _numbers(name, recorded[name]) for name in CLOCK_FACTS if recorded.get(name)}
    return Norm(True, watts, {name: found[first:] for name, found in clocks.items()})


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in text.split())
    except ValueError:
        found = ()
    if not found or not all(math.isfinite(each) and each > 0 for each in found):
        raise ConfigError(
            "recorded entry", field=f"environment.{name}", got=text, expected="MHz above 0", remedy=_REMEDY
        )
    return found
