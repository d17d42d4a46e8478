"""Configurations that several frameworks have: the rows of the documents' comparison tables. Pure.

A configuration is a case without its framework and its execution; a framework's own compiler (features compile, graphs,
xla) belongs to the execution. The documents also compare cases that differ in more (Paddle's AMP O2 and another
framework's AMP, its own loader and DALI). Such a row is a configuration too, but only for the published targets.

The recipes are imported only where they are used, since a listing of the matrix imports this module and needs none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from helpers.judging.wording import counted
from helpers.launch.launchers.launcher import trainer_module
from helpers.machine.environment import CPU, GPU
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import SuiteCase
from helpers.plan.published import PublishedFigure
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import COMPILERS, FEATURES, Case, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

# The cases of a configuration, by target and configuration_of().
Groups = dict[tuple[str, str], list[SuiteCase]]

SINGLE, HALF = "FP32", "AMP"
# The documents have two tables for each card: what an A100 computes in TF32 stands under FP32.
_CLASS_OF: Mapping[Precision, str] = {Precision.FP32: SINGLE, Precision.TF32: SINGLE, Precision.UNSTATED: "unstated"}
# The framework that the documents compare the others with.
REFERENCE = Framework.PADDLE
# How often each framework of a configuration runs.
LEAST_PAIRS, MOST_PAIRS, USUAL_PAIRS = 2, 50, 3
# The other frameworks train step by step from Python, as Paddle's dynamic execution does. Paddle's compiled execution
# is second.
_NEAREST_EXECUTION = (Execution.DYNAMIC, Execution.TO_STATIC, Execution.STATIC)
# Paddle's dynamic execution has no mixed precision on a CPU, and its trainer refuses it.
_NEAREST_OF_HALF_ON_CPU = (Execution.TO_STATIC, Execution.STATIC, Execution.DYNAMIC)


def precision_class(precision: Precision) -> str:
    """Which of the documents' tables a precision belongs to: ``FP32``, ``AMP`` or ``unstated``."""
    return _CLASS_OF.get(precision, HALF)


def configuration_of(case: Case) -> str:
    """The case's id without framework and execution: ``resnet50v1.5-fp32-bs4-1x1-synthetic``."""
    _, *words = replace(case, compile=False, graphs=False, xla=False).id.split("-")
    return "-".join(word for word in words if case.execution is None or word != case.execution.value)


def _plain(case: Case, framework: Framework, device: str = GPU) -> Case:
    """The configuration in a framework, in the precision that it has for it and in the execution that it uses if none
    is requested."""
    from helpers.plan.recipes.recipe import RECIPES

    precision = RECIPES[framework].in_place_of.get(case.precision, case.precision)
    execution = _executions(device, precision)[0] if framework.spec.names_execution else None
    return replace(
        case, framework=framework, precision=precision, execution=execution, compile=False, graphs=False, xla=False
    )


def _executions(device: str, precision: Precision) -> tuple[Execution, ...]:
    """Paddle's executions. The one that is most like the other frameworks' comes first."""
    half_on_cpu = device == CPU and precision_class(precision) == HALF
    return _NEAREST_OF_HALF_ON_CPU if half_on_cpu else _NEAREST_EXECUTION


@dataclass(frozen=True)
class Configuration:
    """One row: at most one case of each framework."""

    # Paddle's first.
    members: tuple[SuiteCase, ...]
    # Whether its cases differ in more than framework and execution, as in a row of a document.
    documented: bool = False

    @property
    def target(self) -> str:
        return self.members[0].target

    @property
    def first(self) -> Case:
        """Paddle's case if there is one. The row's name and headings are taken from it."""
        return self.members[0].case

    @property
    def name(self) -> str:
        """``cpu-resnet50v1.5-fp32-bs4-1x1-synthetic``."""
        return f"{self.target}-{configuration_of(self.first)}"

    def member(self, framework: Framework) -> SuiteCase | None:
        return next((each for each in self.members if each.case.framework is framework), None)


def configurations(cases: Iterable[SuiteCase]) -> tuple[Configuration, ...]:
    """Every configuration that a target has in Paddle and in another framework, in the order of the cases.

    If a framework has it in several executions, the one without a compiler is taken (for Paddle dynamic, else
    to_static). No case is in two rows.
    """
    cases = tuple(cases)
    found = documented(cases)
    taken = {case.key for row in found for case in row.members}
    groups = _groups([case for case in cases if case.key not in taken])
    found += [Configuration(members) for group in groups.values() if _is_comparison(members := _one_each(group))]
    place = {case.key: number for number, case in enumerate(cases)}
    return tuple(sorted(found, key=lambda each: place[each.members[0].key]))


def documented(cases: Iterable[SuiteCase]) -> list[Configuration]:
    """The documents' rows. A row is what one document prints for one card model, precision class, number of cards and
    batch."""
    rows: dict[tuple[object, ...], dict[Framework, SuiteCase]] = {}
    for suite_case in cases:
        for figure in suite_case.figures:
            rows.setdefault(document_row(figure), {}).setdefault(figure.case.framework, suite_case)
    found = [Configuration(tuple(row[each] for each in Framework if each in row), True) for row in rows.values()]
    return [each for each in found if _is_comparison(each.members)]


def _is_comparison(members: Sequence[SuiteCase]) -> bool:
    """Ratios are to Paddle, which stands first."""
    return len(members) > 1 and members[0].case.framework is REFERENCE


def document_row(figure: PublishedFigure) -> tuple[object, ...]:
    """A key that the figures of one row of a document's comparison share."""
    case = figure.case
    return (
        figure.source, figure.gpu, case.model, precision_class(case.precision), case.batch_size_per_card,
        case.nodes, case.cards_per_node,
    )  # fmt: skip


def named(cases: Sequence[SuiteCase], wanted: Sequence[SuiteCase]) -> tuple[Configuration, ...]:
    """The configurations of the ``wanted`` cases, whatever their framework. Each has a case of every framework that has
    a trainer and settings for it: the matrix's case, else one with the protocol of the wanted case.

    Raises ConfigError if two executions of one configuration are wanted, or if a case would be in two rows, because
    they would share its runs.
    """
    known = configurations(cases)
    groups = _groups(tuple(cases))
    found: dict[tuple[str, str], Configuration] = {}
    asked: dict[tuple[str, str], dict[Framework, SuiteCase]] = {}
    for each in wanted:
        documents = next((row for row in known if row.documented and each in row.members), None)
        if documents is not None:
            found[documents.target, documents.name] = documents
            continue
        key = each.target, configuration_of(each.case)
        mine = asked.setdefault(key, {})
        other = mine.setdefault(each.case.framework, each)
        if other.case != each.case:
            raise _one_after_another(f"{other.case.id} and {each.case.id}", "one execution of a configuration")
        found[key] = _completed(mine, groups)
    rows = tuple(found.values())
    shared = Counter(member.key for row in rows for member in row.members)
    for (_, case_id), times in shared.items():
        if times > 1:
            raise _one_after_another(f"{case_id} in {times} rows", "cases that stand in one row each")
    return rows


def _one_after_another(got: str, expected: str) -> ConfigError:
    return ConfigError("cases to compare", got=got, expected=expected, remedy="Compare them one after another")


def has_trainer(framework: Framework) -> bool:
    return (ROOT / f"{trainer_module(framework).replace('.', '/')}.py").is_file()


def twin_of(cases: Iterable[SuiteCase], case: Case, target: str | None) -> SuiteCase | None:
    """A case that is not in the matrix, with the protocol of the same configuration in another framework or execution;
    None if the matrix has none."""
    for each in cases:
        if target in (None, each.target) and configuration_of(each.case) == configuration_of(case):
            return _in_place_of(each, case)
    return None


def _in_place_of(suite_case: SuiteCase, case: Case) -> SuiteCase:
    """A case that is not in the matrix, with the protocol of one that is."""
    return replace(suite_case, case=case, short=False, figures=(), models=())


def _groups(cases: Sequence[SuiteCase]) -> Groups:
    groups: Groups = {}
    for each in cases:
        groups.setdefault((each.target, configuration_of(each.case)), []).append(each)
    return groups


def _one_each(group: Iterable[SuiteCase]) -> tuple[SuiteCase, ...]:
    by_framework: dict[Framework, list[SuiteCase]] = {}
    for each in group:
        by_framework.setdefault(each.case.framework, []).append(each)
    return tuple(min(by_framework[each], key=_execution_rank) for each in Framework if each in by_framework)


def _execution_rank(suite_case: SuiteCase) -> tuple[int, int]:
    case = suite_case.case
    nearest = _executions(suite_case.device, case.precision)
    return len(case.compilers), nearest.index(case.execution) if case.execution else 0


def _completed(wanted: Mapping[Framework, SuiteCase], groups: Groups) -> Configuration:
    """The wanted cases with their configuration's in the other frameworks."""
    first = next(iter(wanted.values()))
    group = groups.get((first.target, configuration_of(first.case)), ())
    members = {**{each.case.framework: each for each in _one_each(group)}, **wanted}
    for framework in Framework:
        if framework not in members and has_trainer(framework):
            other = _case_in(first, framework, groups)
            if _is_taken(other):
                members[framework] = other
    precisions = {each.case.precision for each in members.values()}
    return Configuration(tuple(members[each] for each in Framework if each in members), len(precisions) > 1)


def _is_taken(suite_case: SuiteCase) -> bool:
    """Whether the framework's recipe has settings for the case."""
    from helpers.plan.recipes.recipe import sourced_settings

    try:
        sourced_settings(suite_case.case, suite_case.device)
    except ConfigError:
        return False
    return True


def _case_in(suite_case: SuiteCase, framework: Framework, groups: Groups) -> SuiteCase:
    """The case's configuration in a framework that has it under another precision or not at all."""
    case = _plain(suite_case.case, framework, suite_case.device)
    group = groups.get((suite_case.target, configuration_of(case)), ())
    mine = [each for each in group if each.case.framework is framework]
    return min(mine, key=_execution_rank) if mine else _in_place_of(suite_case, case)


def pairs_of(text: str) -> int:
    """The number of pairs that an option gives. Raises ValueError."""
    if not (text.isascii() and text.isdecimal()) or not LEAST_PAIRS <= int(text) <= MOST_PAIRS:
        raise ValueError(f"{text!r}: expected a number of pairs from {LEAST_PAIRS} to {MOST_PAIRS}")
    return int(text)


# ---- the published ratio of the nearest row


@dataclass(frozen=True)
class PublishedRatio:
    """``framework`` over Paddle in one row of a document."""

    framework: Framework
    paddle: PublishedFigure
    other: PublishedFigure
    # How the row differs from the configuration that was measured.
    differs: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.other.samples_per_s / self.paddle.samples_per_s

    @property
    def disputed(self) -> bool:
        """Whether the row has a figure that its own logs contradict."""
        return FigureStatus.DISPUTED in (self.paddle.status, self.other.status)

    @property
    def row(self) -> str:
        """``V100-FP32 comparison, GPU=8,BS=256``."""
        case = self.paddle.case
        return f"{self.other.table}, GPU={case.cards},BS={case.batch_size_per_card}"


def nearest(
    configuration: Configuration, framework: Framework, figures: Iterable[PublishedFigure]
) -> PublishedRatio | None:
    """The nearest row of the documents that has Paddle and ``framework`` with the same model; None if no row has both.
    The order is: the same precision class; the nearest number of cards; the nearest batch size a card (both by their
    ratios); the same card model; the fewest other differences in the case id.
    """
    mine = configuration.member(framework)
    case = configuration.first if mine is None else mine.case
    rows: dict[tuple[object, ...], dict[Framework, PublishedFigure]] = {}
    for figure in sorted(figures, key=lambda each: (each.source, each.gpu, each.case.id, each.table)):
        if figure.case.model is case.model:
            rows.setdefault(document_row(figure), {}).setdefault(figure.case.framework, figure)
    pairs = [(row[REFERENCE], row[framework]) for row in rows.values() if {REFERENCE, framework} <= {*row}]
    if not pairs:
        return None
    # min() returns the first of equals; the sorting above makes that the same one every time.
    paddle, other = min(pairs, key=lambda pair: _distance(configuration, case, *pair))
    return PublishedRatio(framework, paddle, other, tuple(_differences(configuration, case, paddle, other)))


def _distance(
    configuration: Configuration, case: Case, paddle: PublishedFigure, other: PublishedFigure
) -> tuple[float, ...]:
    theirs = other.case
    unlike = len(_unlike(configuration.first, paddle.case)) + len(_unlike(case, theirs))
    return (
        precision_class(theirs.precision) != precision_class(case.precision),
        _apart(theirs.cards, case.cards),
        _apart(theirs.batch_size_per_card, case.batch_size_per_card),
        other.target != configuration.target,
        unlike,
    )


def _apart(one: int, other: int) -> float:
    return abs(math.log(one / other))


def _unlike(mine: Case, theirs: Case) -> list[str]:
    """The words of a published case's id that differ from this one's, except for class, cards and batch."""
    words = [(mine.precision.value, theirs.precision.value), (mine.data.value, theirs.data.value)]
    words += [(_execution(mine), _execution(theirs)), (str(mine.nodes), str(theirs.nodes))]
    words += [(str(getattr(mine, name)), str(getattr(theirs, name))) for name in FEATURES]
    return [then for now, then in words if now != then]


def _execution(case: Case) -> str:
    return case.execution.value if case.execution else ""


def _differences(
    configuration: Configuration, case: Case, paddle: PublishedFigure, other: PublishedFigure
) -> Iterable[str]:
    """Every way in which the row differs from the configuration: ``batch size 256 a card, here 4``."""
    mine, ours, theirs = configuration.first, case, other.case
    if other.target != configuration.target:
        yield f"card {other.gpu}, here {configuration.target}"
    then, now = (
        _both(paddle.case.precision.value, theirs.precision.value),
        _both(mine.precision.value, ours.precision.value),
    )
    if then != now:
        yield f"precision {then}, here {now}"
    if theirs.cards != ours.cards:
        yield f"{counted(theirs.cards, 'card')}, here {ours.cards}"
    if theirs.batch_size_per_card != ours.batch_size_per_card:
        yield f"batch size {theirs.batch_size_per_card} a card, here {ours.batch_size_per_card}"
    then, now = _both(paddle.case.data.value, theirs.data.value), _both(mine.data.value, ours.data.value)
    if then != now:
        yield f"data {then}, here {now}"
    if mine.framework is REFERENCE and _execution(paddle.case) != _execution(mine):
        yield f"Paddle {_execution(paddle.case)}, here {_execution(mine)}"
    for name in COMPILERS:
        if getattr(theirs, name) != getattr(ours, name):
            yield f"{'with' if getattr(theirs, name) else 'without'} {name}"


def _both(paddle: str, other: str) -> str:
    """The word itself if both have the same one, else both words joined by "and"."""
    return paddle if paddle == other else f"{paddle} and {other}"
