"""Configurations that several frameworks have: the rows of the documents' comparison tables. Pure.

A configuration is a case without its framework and its execution; a framework's own compiler (features compile, graphs,
xla) belongs to the execution. The documents also compare cases that differ in more (Paddle's AMP O2 and another
framework's AMP, its own loader and DALI). Such a row is a configuration too, but only for the published targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from helpers.machine.environment import CPU
from helpers.plan.case_plan import SuiteCase
from helpers.plan.published import PublishedFigure
from helpers.trainers.contract.case import Case, Execution, Precision
from helpers.trainers.contract.frameworks import Framework

SINGLE, HALF = "FP32", "AMP"
# The documents have two tables for each card: what an A100 computes in TF32 stands under FP32.
_CLASS_OF: Mapping[Precision, str] = {Precision.FP32: SINGLE, Precision.TF32: SINGLE, Precision.UNSTATED: "unstated"}
# The framework that the documents compare the others with.
COMPARED_WITH = Framework.PADDLE
# How often each framework of a configuration runs, in turn with the others.
PAIRS = 3
# The other frameworks train step by step from Python, as Paddle's dynamic execution does. Paddle's compiled execution
# is second.
_NEAREST_EXECUTION = (Execution.DYNAMIC, Execution.TO_STATIC, Execution.STATIC)
# Paddle's dynamic execution has no mixed precision on a CPU, and its trainer refuses it.
_NEAREST_OF_HALF_ON_CPU = (Execution.TO_STATIC, Execution.STATIC, Execution.DYNAMIC)


@dataclass(frozen=True)
class Configuration:
    """One row: at most one case of each framework."""

    # Paddle's first.
    members: tuple[SuiteCase, ...]
    # The documents' figures of one row, if this is such a row.
    figures: Mapping[Framework, PublishedFigure] | None = None

    @property
    def target(self) -> str:
        return self.members[0].target

    @property
    def first(self) -> Case:
        """Paddle's case. The row's name is taken from it."""
        return self.members[0].case

    @property
    def name(self) -> str:
        """``cpu-resnet50v1.5-fp32-bs4-1x1-synthetic``."""
        return f"{self.target}-{configuration_of(self.first)}"


def configuration_of(case: Case) -> str:
    """The case's id without framework and execution: ``resnet50v1.5-fp32-bs4-1x1-synthetic``."""
    _, *words = replace(case, compile=False, graphs=False, xla=False).id.split("-")
    return "-".join(word for word in words if case.execution is None or word != case.execution.value)


def configurations(cases: Iterable[SuiteCase]) -> tuple[Configuration, ...]:
    """Every configuration that a target has in Paddle and in another framework, in the order of the cases.

    If a framework has it in several executions, the one without a compiler is taken (for Paddle dynamic, else
    to_static). No case is in two rows.
    """
    cases = tuple(cases)
    found = _documented(cases)
    taken = {case.key for row in found for case in row.members}
    groups: dict[tuple[str, str], list[SuiteCase]] = {}
    for each in cases:
        if each.key not in taken:
            groups.setdefault((each.target, configuration_of(each.case)), []).append(each)
    found += [Configuration(_one_each(group)) for group in groups.values()]
    place = {case.key: number for number, case in enumerate(cases)}
    return tuple(sorted(filter(_is_comparison, found), key=lambda each: place[each.members[0].key]))


def _documented(cases: Iterable[SuiteCase]) -> list[Configuration]:
    """The documents' rows. A row is what one document prints for one card model, precision class, number of cards and
    batch."""
    rows: dict[tuple[object, ...], dict[Framework, tuple[SuiteCase, PublishedFigure]]] = {}
    for suite_case in cases:
        for figure in suite_case.figures:
            rows.setdefault(_document_row(figure), {}).setdefault(figure.case.framework, (suite_case, figure))
    found = []
    for row in rows.values():
        members = tuple(row[each][0] for each in Framework if each in row)
        found.append(Configuration(members, {each: figure for each, (_, figure) in row.items()}))
    return [each for each in found if _is_comparison(each)]


def _is_comparison(configuration: Configuration) -> bool:
    """Ratios are to Paddle, which stands first."""
    return len(configuration.members) > 1 and configuration.first.framework is COMPARED_WITH


def _document_row(figure: PublishedFigure) -> tuple[object, ...]:
    """A key that the figures of one row of a document's comparison share."""
    case = figure.case
    return (
        figure.source, figure.gpu, case.model, _CLASS_OF.get(case.precision, HALF), case.batch_size_per_card,
        case.nodes, case.cards_per_node,
    )  # fmt: skip


def _one_each(group: Sequence[SuiteCase]) -> tuple[SuiteCase, ...]:
    return tuple(
        min(mine, key=_execution_rank)
        for framework in Framework
        if (mine := [each for each in group if each.case.framework is framework])
    )


def _execution_rank(suite_case: SuiteCase) -> tuple[int, int]:
    case = suite_case.case
    half_on_cpu = suite_case.device == CPU and _CLASS_OF.get(case.precision, HALF) == HALF
    nearest = _NEAREST_OF_HALF_ON_CPU if half_on_cpu else _NEAREST_EXECUTION
    return len(case.compilers), nearest.index(case.execution) if case.execution else 0
