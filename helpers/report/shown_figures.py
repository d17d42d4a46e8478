"""Which reference of a case is shown, and the measuring rule of each figure that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from helpers.report.row import CaseRow, ReferenceAnswer


def shown_published(row: CaseRow) -> ReferenceAnswer | None:
    """The comparison that decides: the lowest ratio of those that set the status, else the first that is only shown."""
    deciding = [each for each in row.published if each.sets_status]
    lowest = min(deciding, key=lambda each: -1.0 if each.ratio is None else each.ratio, default=None)
    return lowest or next(iter(row.published), None)


def measured_rule(row: CaseRow) -> str:
    """The measuring rule of the case's figure; empty if it has none."""
    return row.rule if row.samples_per_s is not None or row.invalid_samples_per_s is not None else ""


def published_rule(row: CaseRow) -> str:
    """The measuring rule of the published figure that is shown, and of the ratio to it; empty without one."""
    return _reference_rule(shown_published(row))


def recorded_rule(row: CaseRow) -> str:
    """The measuring rule of the recorded figure and of the ratio to it; empty without one."""
    return _reference_rule(row.recorded)


def _reference_rule(comparison: ReferenceAnswer | None) -> str:
    return comparison.rule if comparison is not None and comparison.reference_samples_per_s is not None else ""


def common_rule(rows: Iterable[CaseRow], rule: Callable[[CaseRow], str]) -> str:
    """The rule of all figures of a column; empty if there are several, or no figure."""
    found = {each for row in rows if (each := rule(row))}
    return found.pop() if len(found) == 1 else ""
