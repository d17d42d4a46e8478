"""The parts of perf.yaml that say what is measured and how: the matrix, "protocols", "budgets" and "tolerances".

A matrix consists of blocks of dimensions, which are expanded to cases. A protocol has the steps of a run and the runs
of a case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from helpers.judging.case.evidence import Budget
from helpers.judging.rules.own import RULES
from helpers.plan.yaml_file import YamlValue, close_to
from helpers.trainers.contract.case import FEATURES, Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import STEADY_WINDOWS
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Numbers = TypeVar("Numbers", bound="DataclassInstance")

# "gpu" is any NVIDIA card; the others name a model.
TARGETS = ("cpu", "v100", "a100", "gpu")
# Features of a case that a block switches on.
_SWITCHES = FEATURES
_MOST_STEPS = 1_000_000
# The least and the most of each number of a budget.
_BUDGET = {
    "screen_runs": (1, 100), "first_runs": (2, 100), "pairs": (3, 100), "rotation": (1, 100), "repeats": (0, 100),
    "retries": (0, 10),
}  # fmt: skip
_CASE_MINUTES, _MOST_CASE_MINUTES = "case_minutes", 24 * 60.0
# Every key of ``budgets`` that is read here.
BUDGET_KEYS = (*_BUDGET, _CASE_MINUTES, "cases")
# The published tables have 110 figures. Dimensions multiply, so a few lines could make billions of cases.
_MOST_CASES = 10_000


@dataclass(frozen=True)
class MatrixCase:
    """One case of the matrix."""

    case: Case
    target: str
    # The name of one of Config.protocols.
    protocol: str
    # Whether the case runs if no marker is given.
    short: bool = False


def read_matrix(
    fields: Sequence[YamlValue], short: YamlValue | None, protocols: Sequence[str]
) -> tuple[MatrixCase, ...]:
    """Every case of ``matrix`` and ``cases`` in the files' order, with those of ``short`` marked. Raises ConfigError
    for a case that is there twice."""
    places: dict[tuple[str, str], str] = {}
    found: list[tuple[Case, str, str]] = []
    for target, blocks in (each for field in fields for each in field.mapping(optional=TARGETS).items()):
        for block in blocks.sequence():
            protocol, cases = _block(block, protocols)
            for case in cases:
                other = places.get((target, case.id))
                if other is not None:
                    raise block.refuse("every case once", f"It is already in {other}", got=case.id)
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

# The rule of a published figure whose source does not state it.
UNKNOWN_RULE = "unknown"


@dataclass(frozen=True)
class MeasuringProtocol:
    """The steps of every rank in one run, and the number of runs (fresh processes) of a case.

    ``steady_window_steps`` and ``most_warmup_steps`` are as in JobSpec: warm-up goes on until its end is steady.
    ``rules`` are the published measuring rules (docs/published.md) with whose figures this protocol can be
    compared.
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
    """``protocols`` of perf.yaml by name. Raises ConfigError for an unknown key, a number out of range, a rule that
    does not exist, and a rule in two protocols."""
    found: dict[str, MeasuringProtocol] = {}
    served: dict[str, str] = {}
    known = [*RULES, UNKNOWN_RULE]
    entries = field.named()
    # A user's protocol takes its rules from the shipped one.
    own = {rule for entry in entries.values() if entry.about == field.about for rule in _listed_rules(entry)}
    for name, entry in entries.items():
        keys = entry.mapping(
            required=("warmup_steps", "window_steps", "runs"),
            optional=("rules", "steady_window_steps", "most_warmup_steps"),
        )
        rules = keys["rules"].sequence() if "rules" in keys else []
        rules = [each for each in rules if each.about == field.about or each.value not in own]
        for rule in rules:
            rule.one_of(known)
            other = served.setdefault(rule.text(), rule.place)
            if other != rule.place:
                raise rule.refuse("each rule under one protocol", f"It is already at {other}")
        found[name] = MeasuringProtocol(
            name=name,
            warmup_steps=keys["warmup_steps"].whole(0, _MOST_STEPS),
            window_steps=keys["window_steps"].whole(1, _MOST_STEPS),
            runs=keys["runs"].whole(1, 100),
            rules=tuple(rule.text() for rule in rules),
            **_steady(entry, keys),
        )
    return found


def _listed_rules(entry: YamlValue) -> list[object]:
    rules = entry.value.get("rules") if isinstance(entry.value, dict) else None
    return [each for each in rules if isinstance(each, str)] if isinstance(rules, list) else []


def _steady(protocol: YamlValue, keys: Mapping[str, YamlValue]) -> dict[str, int]:
    """How long warm-up may go on, and the windows of its test, if the protocol says so. The numbers must allow for at
    least one test."""
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


# ---- numbers of single cases


@dataclass(frozen=True)
class ByCase(Generic[Numbers]):
    """The general numbers, and those for patterns over case ids. For each number the last match counts."""

    general: Numbers
    cases: tuple[tuple[str, Mapping[str, float | None]], ...] = ()

    def of(self, case_id: str) -> Numbers:
        numbers = self.general
        for pattern, own in self.cases:
            if fnmatchcase(case_id, pattern):
                numbers = replace(numbers, **own)
        return numbers


@dataclass(frozen=True)
class Tolerances:
    """The tolerances, as fractions."""

    # The drop below a published figure that still passes. Two machines with the same card model differ by so much.
    published: float = 0.05
    # The smallest change against the recorded figure that counts; the evidence has a threshold of its own.
    recorded: float = 0.005
    # From this drop below the recorded figure on, a case fails although no good build is at hand (docs/verdicts.md,
    # "Without a reference build").
    unconfirmed: float = 0.05


def read_budgets(section: YamlValue | None, others: Sequence[str] = ()) -> ByCase[Budget]:
    """``budgets`` of perf.yaml, whose ``others`` are read elsewhere. Raises ConfigError for an unknown key and a number
    out of range."""
    expected = "a number beside the pattern: " + ", ".join([*_BUDGET, _CASE_MINUTES])

    def number(name: str, value: YamlValue) -> float | None:
        if name != _CASE_MINUTES:
            return value.whole(*_BUDGET[name])
        return None if value.value is None else value.number(0, _MOST_CASE_MINUTES)

    return _by_case(Budget(), section, number, expected, others)


def read_tolerances(section: YamlValue | None) -> ByCase[Tolerances]:
    """``tolerances`` of perf.yaml. Raises ConfigError for an unknown key and a number that is no fraction."""
    expected = "published, recorded or unconfirmed beside the pattern"
    return _by_case(Tolerances(), section, lambda name, value: value.number(0, 1), expected)


def _by_case(
    usual: Numbers,
    section: YamlValue | None,
    number: Callable[[str, YamlValue], float | None],
    expected: str,
    others: Sequence[str] = (),
) -> ByCase[Numbers]:
    names = [item.name for item in dataclass_fields(usual)]

    def numbers(keys: Mapping[str, YamlValue]) -> dict[str, float | None]:
        return {name: number(name, keys[name]) for name in names if name in keys}

    keys = section.mapping(optional=(*names, "cases", *others)) if section else {}
    own = []
    for entry in keys["cases"].sequence() if "cases" in keys else []:
        parts = entry.mapping(required=("pattern",), optional=names)
        if not (values := numbers(parts)):
            raise entry.refuse(expected)
        own.append((parts["pattern"].pattern(), values))
    return ByCase(replace(usual, **numbers(keys)), tuple(own))
