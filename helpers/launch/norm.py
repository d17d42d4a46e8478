"""What the cards of a case should run at: what they ran at when its entry was recorded, else their defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.environment import CLOCK_FACTS
from helpers.errors import ConfigError

# A median clock so far below the recorded one is another clock and not the card's own play: V100 and A100 hold
# theirs within 1 to 2% under one load. A processor's boost depends on its temperature too.
GPU_CLOCK_SHARE = 0.05
CPU_CLOCK_SHARE = 0.10
_REMEDY = "Record the case again with --update-baselines"


@dataclass(frozen=True)
class Norm:
    """Of a recorded entry of the very cards, or of no entry (``recorded`` False): then a GPU's own defaults count.

    ``power_limits_watts`` of all cards; ``clocks``: by CLOCK_FACTS name the medians in MHz, one a card or one for
    all cores. A clock that the entry does not hold is not compared.
    """

    recorded: bool = False
    power_limits_watts: frozenset[int] = frozenset()
    clocks: Mapping[str, tuple[float, ...]] | None = None

    def clock(self, name: str, place: int = 0) -> float | None:
        found = (self.clocks or {}).get(name, ())
        return found[place] if place < len(found) else None


def norm_of(recorded: Mapping[str, str] | None, cards: Sequence[str], to_record: bool) -> Norm | None:
    """The norm for a run on ``cards`` (UUIDs; none on a CPU), from the recorded entry's environment.

    None while a new entry is recorded: what was there before must not stop it. An entry of other cards says nothing
    about these; its result is INCOMPARABLE. ConfigError on a clock that is no number.
    """
    if to_record:
        return None
    # Of several nodes the entry names the cards of all, this node's first.
    if recorded is None or recorded.get("card_ids", "").split()[: len(cards)] != list(cards):
        return Norm()
    watts = frozenset(int(word) for word in recorded.get("power_limit_watts", "").split() if word.isdecimal())
    clocks = {name: _numbers(name, recorded[name]) for name in CLOCK_FACTS if recorded.get(name)}
    return Norm(True, watts, clocks)


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
