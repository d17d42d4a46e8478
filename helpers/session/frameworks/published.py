"""The published ratio to Paddle of the row that is nearest to a configuration, and how that row differs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from helpers.plan.baseline_files import FigureStatus
from helpers.plan.published import PublishedFigure
from helpers.session.frameworks.configurations import Configuration, document_row, precision_class
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework


@dataclass(frozen=True)
class PublishedRatio:
    """``framework`` over Paddle in one row of a document."""

    framework: Framework
    paddle: PublishedFigure
    other: PublishedFigure
    # In what the row differs from the configuration that was measured.
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
    """Of the rows of the documents that have Paddle and ``framework`` with the same model: the one whose precision
    class is the same, then whose number of cards, then whose batch size a card is nearest (by their ratios); then of
    the same card model, then with the fewest other words of the case unlike. None where no row has both.
    """
    mine = configuration.member(framework)
    case = configuration.first if mine is None else mine.case
    rows: dict[tuple[object, ...], dict[Framework, PublishedFigure]] = {}
    for figure in sorted(figures, key=lambda each: (each.source, each.gpu, each.case.id, each.table)):
        if figure.case.model is case.model:
            rows.setdefault(document_row(figure), {}).setdefault(figure.case.framework, figure)
    pairs = [
        (row[Framework.PADDLE], row[framework]) for row in rows.values() if {Framework.PADDLE, framework} <= {*row}
    ]
    if not pairs:
        return None
    # min() keeps the first of equals, which the sorting above makes the same every time.
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
    """Words of a published case that are not this one's, beyond class, cards and batch."""
    words = [(mine.precision.value, theirs.precision.value), (mine.data.value, theirs.data.value)]
    words += [(_execution(mine), _execution(theirs)), (str(mine.nodes), str(theirs.nodes))]
    words += [(str(getattr(mine, name)), str(getattr(theirs, name))) for name in ("compile", "graphs", "xla", "auto")]
    return [then for now, then in words if now != then]


def _execution(case: Case) -> str:
    return case.execution.value if case.execution else ""


def _differences(
    configuration: Configuration, case: Case, paddle: PublishedFigure, other: PublishedFigure
) -> Iterable[str]:
    """``batch size 256 a card, here 4``: every way in which the row is another configuration."""
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
        yield f"{_cards(theirs.cards)}, here {ours.cards}"
    if theirs.batch_size_per_card != ours.batch_size_per_card:
        yield f"batch size {theirs.batch_size_per_card} a card, here {ours.batch_size_per_card}"
    then, now = _both(paddle.case.data.value, theirs.data.value), _both(mine.data.value, ours.data.value)
    if then != now:
        yield f"data {then}, here {now}"
    if mine.framework is Framework.PADDLE and _execution(paddle.case) != _execution(mine):
        yield f"Paddle {_execution(paddle.case)}, here {_execution(mine)}"
    for name in ("compile", "graphs", "xla"):
        if getattr(theirs, name) != getattr(ours, name):
            yield f"{'with' if getattr(theirs, name) else 'without'} {name}"


def _both(paddle: str, other: str) -> str:
    """One word, or Paddle's and the other's."""
    return paddle if paddle == other else f"{paddle} and {other}"


def _cards(count: int) -> str:
    return f"{count} card{'s' if count > 1 else ''}"
