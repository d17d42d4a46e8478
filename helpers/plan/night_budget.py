"""The part of perf.yaml's ``budgets`` that says how long a night may take, and how its time is divided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from helpers.plan.case_patterns import Weight, last_match, read_weights
from helpers.plan.matrix import BUDGET_KEYS
from helpers.plan.yaml_file import YamlValue

MINUTES = "night_minutes"
# The other keys have a meaning only beside night_minutes.
_BESIDE = ("search_minutes", "every_nights", "weights")
NIGHT_KEYS = (MINUTES, *_BESIDE)
_MOST_MINUTES = 7 * 24 * 60.0
_MOST_NIGHTS = 365
# Of the night, at least, where the file does not say how much is kept for bisect and explain.
_SEARCH_SHARE = 0.1


@dataclass(frozen=True)
class NightBudget:
    """How long a night may take, and what has to happen in it."""

    minutes: float
    # The minutes of them that are kept for bisect and explain after a REGRESSION.
    search_minutes: float
    # Every case is measured at least once in so many nights.
    every_nights: int = 7
    weights: tuple[Weight, ...] = ()
    # Whether the file says search_minutes, which then do not depend on the night's.
    search_given: bool = field(default=False, compare=False)

    @staticmethod
    def of(minutes: float, explain_minutes: float = 0.0) -> NightBudget:
        """A night of so many minutes, and everything else as it is if the file does not say it. ``explain_minutes`` are
        explain.night_minutes."""
        return NightBudget(minutes, max(_SEARCH_SHARE * minutes, explain_minutes))

    def with_minutes(self, minutes: float, explain_minutes: float = 0.0) -> NightBudget:
        """The budget of a file that differs in the night's minutes only."""
        usual = NightBudget.of(minutes, explain_minutes).search_minutes
        return replace(self, minutes=minutes, search_minutes=self.search_minutes if self.search_given else usual)

    def weight_of(self, case_id: str, target: str) -> float:
        found = last_match(self.weights, case_id, target)
        return 1.0 if found is None else found.weight


def read_night_budget(section: YamlValue | None, explain_minutes: float = 0.0) -> NightBudget | None:
    """The night's time in ``budgets`` of perf.yaml; None if the file does not limit it.

    ``explain_minutes`` are explain.night_minutes, which are kept if the file does not say how much is. Raises
    ConfigError for a number out of range, and for keys that mean nothing without night_minutes.
    """
    keys = section.mapping(optional=(*BUDGET_KEYS, *NIGHT_KEYS)) if section else {}
    if MINUTES not in keys or keys[MINUTES].value is None:
        for name in _BESIDE:
            if name in keys and keys[name].value not in (None, []):
                raise keys[name].refuse(f"no {name} without {MINUTES}", f"Say how long a night may take: {MINUTES}")
        return None
    usual = NightBudget.of(keys[MINUTES].number(0, _MOST_MINUTES), explain_minutes)
    minutes, search = usual.minutes, usual.search_minutes
    search_given = "search_minutes" in keys and keys["search_minutes"].value is not None
    if search_given:
        given = keys["search_minutes"]
        nothing = type(given.value) in (int, float) and given.value == 0
        search = 0.0 if nothing else given.number(0, minutes)
    if search >= minutes:
        raise keys[MINUTES].refuse(f"more than explain.night_minutes, which are {search:g} of them")
    nights = keys["every_nights"].whole(1, _MOST_NIGHTS) if "every_nights" in keys else NightBudget.every_nights
    return NightBudget(minutes, search, nights, read_weights(keys.get("weights")), search_given)
