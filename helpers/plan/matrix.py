"""The parts of perf.yaml that say what is measured and how: the matrix, "protocols" and the numbers of single cases.

A matrix consists of blocks of dimensions, which are expanded to cases. A protocol has the steps of a run and the runs
of a case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from msgspec import Meta

from helpers.common.records import member_of, one_of
from helpers.judging.rules.own import RULES
from helpers.plan.case_patterns import TARGETS as TARGETS
from helpers.plan.case_patterns import Target
from helpers.plan.yaml_file import Pattern, close_to, read_section
from helpers.trainers.contract.case import FEATURES, Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import STEADY_WINDOWS
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Numbers = TypeVar("Numbers", bound="DataclassInstance")

# The published tables have 110 figures. Dimensions multiply, so a few lines could make billions of cases.
_MOST_CASES = 10_000
_MOST_STEPS = 1_000_000
_Steps = Annotated[int, Meta(ge=0, le=_MOST_STEPS)]
_Count = Annotated[int, Meta(ge=1, le=1024)]
_Several = Meta(min_length=1)
_Share = Annotated[float, Meta(gt=0, lt=1)]


@dataclass(frozen=True)
class MatrixCase:
    """One case of the matrix."""

    case: Case
    target: str
    # The name of one of Config.protocols.
    protocol: str
    # Whether the case runs if no marker is given.
    short: bool = False


@dataclass(frozen=True)
class _Block:
    """The dimensions of some cases, in the order of the id's fields, and what all of them have."""

    framework: Annotated[tuple[Annotated[str, member_of(Framework)], ...], _Several]
    model: Annotated[tuple[Annotated[str, member_of(Model)], ...], _Several]
    precision: Annotated[tuple[Annotated[str, member_of(Precision)], ...], _Several]
    batch_size_per_card: Annotated[tuple[Annotated[int, Meta(ge=1, le=1_000_000)], ...], _Several]
    cards: Annotated[tuple[_Count, ...], _Several]
    data: Annotated[tuple[Annotated[str, member_of(DataSource)], ...], _Several]
    protocol: str
    nodes: Annotated[tuple[_Count, ...], _Several] = (1,)
    execution: Annotated[tuple[Annotated[str, member_of(Execution)], ...], _Several] | None = None
    compile: bool = False
    graphs: bool = False
    xla: bool = False
    auto: bool = False

    def cases(self, about: str, place: str) -> list[Case]:
        """The product of the dimensions. Raises ConfigError for a case that cannot be."""
        dimensions = (
            [Framework(each) for each in self.framework],
            [Model(each) for each in self.model],
            [Precision(each) for each in self.precision],
            self.batch_size_per_card,
            self.nodes,
            self.cards,
            [DataSource(each) for each in self.data],
            [Execution(each) for each in self.execution] if self.execution else [None],
        )
        if (product := math.prod(map(len, dimensions))) > _MOST_CASES:
            raise ConfigError(about, field=place, got=f"{product} cases", expected=f"up to {_MOST_CASES} cases")
        switches: dict[str, Any] = {name: getattr(self, name) for name in FEATURES}
        try:
            return [replace(Case(*values), **switches) for values in itertools.product(*dimensions)]
        except ConfigError as error:
            raise ConfigError(
                about, field=f"{place}.{error.field}", got=error.got, expected=error.expected, remedy=error.remedy
            ) from error


def read_matrix(
    sections: Mapping[str, object], short: Sequence[str], protocols: Sequence[str], about: str
) -> tuple[MatrixCase, ...]:
    """Every case of ``matrix`` and ``cases`` in the files' order, with those of ``short`` marked. Raises ConfigError
    for a case that is there twice, and for a model or a framework without its entry."""
    _ = [model.spec for model in Model], [framework.spec for framework in Framework]
    places: dict[tuple[str, str], str] = {}
    found: list[MatrixCase] = []
    for section, content in sections.items():
        targets = read_section(content, dict[Target, list[dict[str, Any]]], about, section)
        for target, block, place in (
            (target, block, f"{section}.{target}[{index}]")
            for target, blocks in targets.items()
            for index, block in enumerate(blocks)
        ):
            read = read_section(_several(block), _Block, about, place)
            if read.protocol not in protocols:
                expected = "one of " + ", ".join(protocols)
                raise ConfigError(about, field=f"{place}.protocol", got=read.protocol, expected=expected)
            for case in read.cases(about, place):
                if other := places.get((target, case.id)):
                    raise ConfigError(about, field=place, got=case.id, expected=f"every case once, and {other} has it")
                places[target, case.id] = place
                found.append(MatrixCase(case, target, read.protocol, case.id in short))
    ids = {each.case.id for each in found}
    for index, case_id in enumerate(short):
        if case_id not in ids:
            remedy = close_to(case_id, sorted(ids))
            expected = "a full case id of the matrix"
            raise ConfigError(about, field=f"short[{index}]", got=case_id, expected=expected, remedy=remedy)
    return tuple(found)


def _several(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block with a list for each dimension."""
    single = {"protocol", *FEATURES}
    return {key: value if key in single or isinstance(value, list) else [value] for key, value in block.items()}


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
    warmup_steps: _Steps
    window_steps: Annotated[int, Meta(ge=1, le=_MOST_STEPS)]
    runs: Annotated[int, Meta(ge=1, le=100)]
    rules: tuple[Annotated[str, one_of(*RULES, UNKNOWN_RULE)], ...] = ()
    steady_window_steps: _Steps = 0
    most_warmup_steps: _Steps = 0

    @property
    def steps(self) -> dict[str, int]:
        """How many steps a run has, by the names in perf.yaml."""
        names = ("warmup_steps", "window_steps", "steady_window_steps", "most_warmup_steps")
        return {name: getattr(self, name) for name in names}


def checked_protocols(
    protocols: Mapping[str, MeasuringProtocol], own: Sequence[str], about: str
) -> dict[str, MeasuringProtocol]:
    """The protocols, of which the user has ``own``; a rule of these is taken from the shipped one. Raises ConfigError
    for a rule in two protocols, and for windows of warm-up that cannot be."""
    taken = {rule for name in own for rule in protocols[name].rules}
    found: dict[str, MeasuringProtocol] = {}
    served: dict[str, str] = {}
    for name, protocol in protocols.items():
        if name not in own:
            protocol = replace(protocol, rules=tuple(rule for rule in protocol.rules if rule not in taken))
        for rule in protocol.rules:
            other = served.setdefault(rule, name)
            if other != name:
                expected = f"each rule under one protocol, and it is under {other}"
                raise ConfigError(about, field=f"protocols.{name}.rules", got=rule, expected=expected)
        _check_warmup(protocol, about)
        found[name] = protocol
    return found


def _check_warmup(protocol: MeasuringProtocol, about: str) -> None:
    """Warm-up that is judged has room for at least one test."""
    window_steps, least, most = protocol.steady_window_steps, protocol.warmup_steps, protocol.most_warmup_steps
    if window_steps == most == 0 or (window_steps > 1 and STEADY_WINDOWS * window_steps <= least <= most):
        return
    raise ConfigError(
        about,
        field=f"protocols.{protocol.name}",
        got=f"warm-up of {least} to {most} steps, judged by {STEADY_WINDOWS} windows of {window_steps}",
        expected=f"steady_window_steps of 2 or more, {STEADY_WINDOWS} times as many warmup_steps or more, and "
        "most_warmup_steps from there on; or neither steady_window_steps nor most_warmup_steps",
    )


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
    published: _Share = 0.05
    # The smallest change against the recorded figure that counts; the evidence has a threshold of its own.
    recorded: _Share = 0.005
    # From this drop below the recorded figure on, a case fails although no reference build is at hand
    # (docs/verdicts.md, "Without a reference build").
    unconfirmed: _Share = 0.05


def read_by_case(section: Mapping[str, Any], kind: type[Numbers], about: str, place: str) -> ByCase[Numbers]:
    """A section of numbers, with those of single cases under ``cases``. Raises ConfigError."""
    general = {name: value for name, value in section.items() if name != "cases"}
    entries = read_section(section.get("cases", []), list[dict[str, Any]], about, f"{place}.cases")
    own = []
    for index, entry in enumerate(entries):
        at = f"{place}.cases[{index}]"
        pattern = read_section(entry.get("pattern"), Pattern, about, f"{at}.pattern")
        numbers = {name: value for name, value in entry.items() if name != "pattern"}
        read_section(numbers, kind, about, at)
        own.append((pattern, numbers))
    return ByCase(read_section(general, kind, about, place), tuple(own))
