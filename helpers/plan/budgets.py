"""perf.yaml, "budgets": how many runs a case may take in one night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase

from helpers.judging.evidence import Budget
from helpers.plan.schema import Field

_MOST_RUNS = 100
_MOST_RETRIES = 10

_LEAST = {"screen_runs": 1, "first_runs": 2, "pairs": 3, "rotation": 1, "repeats": 0, "retries": 0}


@dataclass(frozen=True)
class Budgets:
    """The general budget, and for patterns over case ids what they have of their own; the last match counts."""

    general: Budget = field(default_factory=Budget)
    cases: tuple[tuple[str, Mapping[str, int]], ...] = ()

    def budget_for(self, case_id: str) -> Budget:
        budget = self.general
        for pattern, own in self.cases:
            if fnmatchcase(case_id, pattern):
                budget = replace(budget, **own)
        return budget


def read_budgets(field: Field | None) -> Budgets:
    """``budgets`` of perf.yaml; ConfigError on an unknown key and on a number out of range."""
    if field is None:
        return Budgets()
    names = [item.name for item in dataclass_fields(Budget)]
    keys = field.mapping(optional=(*names, "cases"))
    own = []
    for entry in keys["cases"].sequence() if "cases" in keys else []:
        parts = entry.mapping(required=("pattern",), optional=names)
        values = _numbers(parts)
        if not values:
            raise entry.refuse("a number of runs beside the pattern: " + ", ".join(names))
        own.append((parts["pattern"].pattern(), values))
    return Budgets(Budget(**_numbers(keys)), tuple(own))


def _numbers(keys: Mapping[str, Field]) -> dict[str, int]:
    most = {"retries": _MOST_RETRIES}
    return {name: keys[name].whole(least, most.get(name, _MOST_RUNS)) for name, least in _LEAST.items() if name in keys}
