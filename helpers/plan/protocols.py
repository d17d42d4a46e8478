"""perf.yaml, "protocols", "budgets" and "tolerances": the steps of a run, the runs of a case, and what still passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase

from helpers.judging.evidence import Budget
from helpers.plan.yaml_file import YamlValue
from helpers.trainers.contract.job import STEADY_WINDOWS

_MOST_STEPS = 1_000_000
_MOST_RUNS = 100
_MOST_RETRIES = 10
_LEAST = {"screen_runs": 1, "first_runs": 2, "pairs": 3, "rotation": 1, "repeats": 0, "retries": 0}


@dataclass(frozen=True)
class MeasuringProtocol:
    """Steps of every rank in one run, and runs (fresh processes) of a case.

    ``steady_window_steps`` and ``most_warmup_steps`` as in JobSpec: warm-up goes on until its end is steady.
    ``rules`` are the published measuring rules (docs/measuring-rules.md) whose figures this protocol can be held
    against.
    """

    name: str
    warmup_steps: int
    window_steps: int
    runs: int
    rules: tuple[str, ...] = ()
    steady_window_steps: int = 0
    most_warmup_steps: int = 0

    @property
    def steps(self) -> dict[str, int]:
        """How many steps a run has, by the names in perf.yaml."""
        names = ("warmup_steps", "window_steps", "steady_window_steps", "most_warmup_steps")
        return {name: getattr(self, name) for name in names}


def read_protocols(field: YamlValue) -> dict[str, MeasuringProtocol]:
    """``protocols`` of perf.yaml by name; ConfigError on an unknown key, a number out of range, a rule served twice."""
    found: dict[str, MeasuringProtocol] = {}
    served: dict[str, str] = {}
    for name, entry in field.named().items():
        keys = entry.mapping(
            required=("warmup_steps", "window_steps", "runs"),
            optional=("rules", "steady_window_steps", "most_warmup_steps"),
        )
        rules = keys["rules"].sequence() if "rules" in keys else []
        for rule in rules:
            other = served.setdefault(rule.text(), rule.place)
            if other != rule.place:
                raise rule.refuse("each rule under one protocol", f"It stands at {other} already")
        found[name] = MeasuringProtocol(
            name=name,
            warmup_steps=keys["warmup_steps"].whole(0, _MOST_STEPS),
            window_steps=keys["window_steps"].whole(1, _MOST_STEPS),
            runs=keys["runs"].whole(1, 100),
            rules=tuple(rule.text() for rule in rules),
            **_steady(entry, keys),
        )
    return found


def _steady(protocol: YamlValue, keys: Mapping[str, YamlValue]) -> dict[str, int]:
    """How long warm-up may go on and by what windows, if the protocol says so; the numbers must allow for a look."""
    names = ("steady_window_steps", "most_warmup_steps")
    given = [name for name in names if name in keys]
    if not given:
        return {}
    if len(given) == 1:
        raise protocol.refuse("both steady_window_steps and most_warmup_steps, or neither", got=f"{given[0]} alone")
    window_steps = keys["steady_window_steps"].whole(2, _MOST_STEPS)
    warmup_steps = keys["warmup_steps"].whole(0, _MOST_STEPS)
    if warmup_steps < STEADY_WINDOWS * window_steps:
        raise keys["warmup_steps"].refuse(
            f"{STEADY_WINDOWS * window_steps} or more: {STEADY_WINDOWS} windows of steady_window_steps"
        )
    return {
        "steady_window_steps": window_steps,
        "most_warmup_steps": keys["most_warmup_steps"].whole(warmup_steps, _MOST_STEPS),
    }


# ---- budgets


@dataclass(frozen=True)
class Budgets:
    """The general budget, and the numbers of single patterns over case ids; the last match counts."""

    general: Budget = field(default_factory=Budget)
    cases: tuple[tuple[str, Mapping[str, int]], ...] = ()

    def budget_for(self, case_id: str) -> Budget:
        budget = self.general
        for pattern, own in self.cases:
            if fnmatchcase(case_id, pattern):
                budget = replace(budget, **own)
        return budget


def read_budgets(section: YamlValue | None) -> Budgets:
    """``budgets`` of perf.yaml; ConfigError on an unknown key and on a number out of range."""
    if section is None:
        return Budgets()
    names = [item.name for item in dataclass_fields(Budget)]
    keys = section.mapping(optional=(*names, "cases"))
    own = []
    for entry in keys["cases"].sequence() if "cases" in keys else []:
        parts = entry.mapping(required=("pattern",), optional=names)
        values = _numbers(parts)
        if not values:
            raise entry.refuse("a number of runs beside the pattern: " + ", ".join(names))
        own.append((parts["pattern"].pattern(), values))
    return Budgets(Budget(**_numbers(keys)), tuple(own))


def _numbers(keys: Mapping[str, YamlValue]) -> dict[str, int]:
    most = {"retries": _MOST_RETRIES}
    return {name: keys[name].whole(least, most.get(name, _MOST_RUNS)) for name, least in _LEAST.items() if name in keys}


# ---- tolerances


@dataclass(frozen=True)
class CaseTolerance:
    """Tolerances of the cases whose id matches ``pattern``; None leaves the general one in force."""

    pattern: str
    published: float | None = None
    recorded: float | None = None
    unconfirmed: float | None = None


@dataclass(frozen=True)
class Tolerances:
    """Tolerances, as fractions."""

    # The drop below a published figure that still passes: two machines of one card model differ by so much.
    published: float = 0.05
    # The smallest change against the recorded figure that counts; the evidence has a threshold of its own.
    recorded: float = 0.005
    # The drop below the recorded figure from which on a case fails although no good build is at hand
    # (docs/verdicts.md, "No good build").
    unconfirmed: float = 0.05
    cases: tuple[CaseTolerance, ...] = ()

    def published_for(self, case_id: str) -> float:
        """The published tolerance of the last matching pattern that has one, else the general one."""
        own = [each.published for each in self.cases if fnmatchcase(case_id, each.pattern)]
        return next((value for value in reversed(own) if value is not None), self.published)

    def recorded_for(self, case_id: str) -> float:
        """The recorded tolerance of the last matching pattern that has one, else the general one."""
        own = [each.recorded for each in self.cases if fnmatchcase(case_id, each.pattern)]
        return next((value for value in reversed(own) if value is not None), self.recorded)

    def unconfirmed_for(self, case_id: str) -> float:
        """The tolerance of an unconfirmed drop of the last matching pattern that has one, else the general one."""
        own = [each.unconfirmed for each in self.cases if fnmatchcase(case_id, each.pattern)]
        return next((value for value in reversed(own) if value is not None), self.unconfirmed)


def read_tolerances(section: YamlValue | None) -> Tolerances:
    """``tolerances`` of perf.yaml; ConfigError on an unknown key and on a number that is no fraction."""
    names = ("published", "recorded", "unconfirmed")
    keys = section.mapping(optional=(*names, "cases")) if section else {}
    general = {name: keys[name].number(0, 1) for name in names if name in keys}
    own = []
    for entry in keys["cases"].sequence() if "cases" in keys else []:
        parts = entry.mapping(required=("pattern",), optional=names)
        values = {name: parts[name].number(0, 1) for name in names if name in parts}
        if not values:
            raise entry.refuse("published, recorded or unconfirmed beside the pattern")
        own.append(CaseTolerance(parts["pattern"].pattern(), **values))
    return Tolerances(cases=tuple(own), **general)
