"""What one run of a log comes to: every figure, the reader's share, the spread, and what is to be doubted."""

from __future__ import annotations

import math

from helpers.judging.rules import RULES as OWN_RULES
from helpers.judging.rules import RuleError
from helpers.logs.figures.doubts import doubts
from helpers.logs.figures.honest import honest
from helpers.logs.figures.order import median, sum_of
from helpers.logs.figures.rules import RULES, figure, figures, usual_rule, warm_up_records
from helpers.logs.figures.series import Rates, running_seconds
from helpers.logs.imported import HONEST, Imported, RuleFigure, Spread
from helpers.logs.record import Field, LogRun

AUTO = "auto"


def analyse(run: LogRun, rule: str = AUTO) -> Imported:
    """The run's figures; ``rule`` is the one that is asked for, AUTO the one its publisher used for such a log.

    Raises LogError for a rule that is not known.
    """
    by_rule = figures(run)
    # Where no publisher has a rule for such logs, the honest figure is the one.
    usual = usual_rule(by_rule) or HONEST
    if rule == HONEST:
        usual = HONEST
    elif rule != AUTO:
        asked = _asked(run, rule)
        usual = asked.rule
        if asked.rule not in {each.rule for each in by_rule}:
            by_rule = (*by_rule, asked)
    honestly = honest(run)
    spread = _spread(run)
    share, reason = reader_share(run)
    return Imported(
        source=run.source,
        sha256=run.sha256,
        format=run.format.name,
        number=run.number,
        runs_in_file=run.runs_in_file,
        first_line=run.first_line,
        last_line=run.last_line,
        settings=run.settings,
        figures=by_rule,
        usual=usual,
        honest=honestly,
        reader_share=share,
        reader_reason=reason,
        spread=spread,
        dropped=run.dropped,
        warnings=doubts(run, by_rule, honestly, spread),
    )


def _asked(run: LogRun, rule: str) -> RuleFigure:
    if rule in OWN_RULES and rule not in RULES:
        return RuleFigure(rule, None, reason=f"rule {rule} is for this suite's step logs")
    return figure(run, rule)


def _after_warm_up(run: LogRun) -> int:
    """The first record after warm-up; the very first one where the log ends within it."""
    start = warm_up_records(run)
    return start if start < run.records else 0


def _spread(run: LogRun) -> Spread | None:
    """Of the printed rates after warm-up; of all where the log ends within it."""
    if not run.records or run.format.is_summary:
        return None
    start = _after_warm_up(run)
    try:
        rates = Rates(run)
    except RuleError:
        return None
    mean = rates.mean(start)
    squares, lowest, highest = [], math.inf, -math.inf
    for block in rates.blocks(start):
        squares.append(sum_of((block - mean) ** 2))
        lowest, highest = min(lowest, float(block.min())), max(highest, float(block.max()))
    count = run.records - start
    deviation = math.sqrt(math.fsum(squares) / (count - 1)) if count > 1 else 0.0
    return Spread(count, median(rates, start), deviation / mean, lowest, highest)


def reader_share(run: LogRun) -> tuple[float | None, str]:
    """The share of the records' time spent waiting for data, or why the log does not tell it."""
    columns = run.columns.keys()
    if run.records and {Field.READER_SECONDS, Field.STEP_SECONDS} <= columns:
        waited, total = _waited(run)
        if total > 0 and math.isfinite(waited):
            return waited / total, ""
    if run.records and {Field.COMPUTE_IMAGES_PER_S, Field.IMAGES_PER_S} <= columns:
        start = _after_warm_up(run)
        total, computing = (
            math.fsum(sum_of(1 / block) for block in run.column(each).blocks(start))
            for each in (Field.IMAGES_PER_S, Field.COMPUTE_IMAGES_PER_S)
        )
        if total > 0 and math.isfinite(computing):
            return 1 - computing / total, ""
    return None, f"the records of {run.format.name} do not tell how long a step waited for data"


def _waited(run: LogRun) -> tuple[float, float]:
    """Seconds waited and seconds in all."""
    columns = (Field.READER_SECONDS, Field.STEP_SECONDS)
    if run.format.running_mean is not None and Field.STEP in run.columns:
        waited, total = (running_seconds(run, each) for each in columns)
        return waited, total
    start = _after_warm_up(run)
    waited, total = (math.fsum(sum_of(block) for block in run.column(each).blocks(start)) for each in columns)
    return waited, total
