"""What a session says as soon as it has its first figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helpers.judging.rules.rates import rate_unit
from helpers.plan.case_plan import SuiteCase
from helpers.plan.published import PublishedFigure
from helpers.report.row import CaseRow, ReferenceAnswer
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError


def first_figure_text(row: CaseRow, cases: Iterable[SuiteCase]) -> str:
    """One line: the figure of ``row``, and what it can be compared with. ``cases`` are all of the matrix. Empty if the
    case has no figure."""
    if row.samples_per_s is None:
        return ""
    own = _case_of(row)
    here = "this machine" if own is None or own.nodes == 1 else f"these {own.nodes} nodes"
    figure = f"{here}: {row.samples_per_s:.4g} {rate_unit(row.case_id)} in {row.case_id}"
    compared = [_ratio(answer) for answer in row.published if answer.ratio is not None]
    if row.recorded is not None and row.recorded.ratio is not None:
        compared.append(f"recorded here: {_ratio(row.recorded)}")
    if not compared:
        compared = ["nothing is recorded here yet", *(() if own is None else _of_one_card(own, cases))]
    return f"{figure}; {'; '.join(compared)}"


def _ratio(answer: ReferenceAnswer) -> str:
    return f"{answer.reference_samples_per_s:.4g}, {answer.label} (ratio {answer.ratio:.3f})"


def _case_of(row: CaseRow) -> Case | None:
    try:
        return Case.parse(row.case_id)
    except ConfigError:
        return None


def _of_one_card(own: Case, cases: Iterable[SuiteCase]) -> Sequence[str]:
    """The published figures of one card that come nearest: the same framework, model and precision, the fastest. None
    for a case of several nodes."""
    if own.nodes > 1:
        return ()
    fastest: dict[str, PublishedFigure] = {}
    for figure in (each for suite_case in cases for each in suite_case.figures):
        alike = (figure.case.framework, figure.case.model, figure.case.precision) == (
            own.framework, own.model, own.precision,
        )  # fmt: skip
        if alike and figure.case.cards == 1:
            known = fastest.get(figure.target)
            if known is None or figure.samples_per_s > known.samples_per_s:
                fastest[figure.target] = figure
    return [
        f"published of one {figure.gpu}: {figure.samples_per_s:.4g} ({figure.case.id})" for figure in fastest.values()
    ]
