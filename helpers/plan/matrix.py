"""perf.yaml: what is measured and how: the matrix, "protocols", "budgets" and "tolerances".

A matrix is blocks of dimensions, expanded to cases. A protocol has the steps of a run and the runs of a case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase
from typing import Any

from helpers.judging.evidence import Budget
from helpers.plan.yaml_file import YamlValue, close_to
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import STEADY_WINDOWS
from helpers.trainers.contract.models import Model

# "gpu" is any NVIDIA card; the others name a model.
TARGETS = ("cpu", "v100", "a100", "gpu")
# Features of a case that a block switches on.
_SWITCHES = ("compile", "graphs", "auto")
# The published tables have 110 figures; dimensions multiply, so that a few lines could ask for billions.
_MOST_CASES = 10_000


@dataclass(frozen=True)
class MatrixCase:
    """One case of the matrix."""

    case: Case
    target: str
    # The name of one of Config.protocols.
    protocol: str
    # Whether the case runs where no marker is given.
    short: bool = False


def read_matrix(field: YamlValue, short: YamlValue | None, protocols: Sequence[str]) -> tuple[MatrixCase, ...]:
    """Every case of ``matrix:`` in the file's order, with ``short:`` marked; ConfigError on one given twice."""
    places: dict[tuple[str, str], str] = {}
    found: list[tuple[Case, str, str]] = []
    for target, blocks in field.mapping(optional=TARGETS).items():
        for block in blocks.sequence():
            protocol, cases = _block(block, protocols)
            for case in cases:
                other = places.get((target, case.id))
                if other is not None:
                    raise block.refuse("every case once", f"It stands in {other} already", got=case.id)
                places[target, case.id] = block.place
                found.append((case, target, protocol))
            if len(found) > _MOST_CASES:
                raise block.refuse(f"a matrix of up to {_MOST_CASES} cases", got=f"{len(found)} cases up to here")
    chosen = _short(short, [case.id for case, _, _ in found])
    return tuple(MatrixCase(case, target, protocol, case.id in chosen) for case, target, protocol in found)


def _block(block: YamlValue, protocols: Sequence[str]) -> tuple[str, list[Case]]:
    """A block's protocol and the product of its dimensions, in the order of the id's fields."""
    keys = block.mapping(
        required=("framework", "model", "precision", "batch_size_per_card", "cards", "data", "protocol"),
        optional=("nodes", "execution", *_SWITCHES),
    )
    dimensions = (
        [item.member(Framework) for item in keys["framework"].one_or_many()],
        [item.member(Model) for item in keys["model"].one_or_many()],
        [item.member(Precision) for item in keys["precision"].one_or_many()],
        [item.whole(1, 1_000_000) for item in keys["batch_size_per_card"].one_or_many()],
        [item.whole(1, 1024) for item in keys["nodes"].one_or_many()] if "nodes" in keys else [1],
        [item.whole(1, 1024) for item in keys["cards"].one_or_many()],
        [item.member(DataSource) for item in keys["data"].one_or_many()],
        [item.member(Execution) for item in keys["execution"].one_or_many()] if "execution" in keys else [None],
    )
    switches: dict[str, Any] = {name: keys[name].truth() for name in _SWITCHES if name in keys}
    protocol = keys["protocol"].one_of(protocols)
    product = math.prod(len(values) for values in dimensions)
    if product > _MOST_CASES:
        raise block.refuse(f"up to {_MOST_CASES} cases", got=f"a product of {product} cases")
    try:
        return protocol, [replace(Case(*values), **switches) for values in itertools.product(*dimensions)]
    except ConfigError as error:
        raise ConfigError(
            block.about,
            field=f"{block.place}.{error.field}",
            got=error.got,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _short(field: YamlValue | None, ids: list[str]) -> frozenset[str]:
    chosen: set[str] = set()
    known = set(ids)
    for entry in field.sequence() if field else []:
        case_id = entry.text()
        if case_id not in known:
            raise entry.refuse("a full case id of the matrix", close_to(case_id, ids))
        if case_id in chosen:
            raise entry.refuse("every id once")
        chosen.add(case_id)
    return frozenset(chosen)


# ---- protocols


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
