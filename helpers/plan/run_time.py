"""How long a run of a case may take, before one was made."""

from __future__ import annotations

from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import TimeLimits


def published_run_seconds(case: SuiteCase, limits: TimeLimits) -> float | None:
    """By the slowest published figure of the case: the longest start-up and all steps. None without a figure."""
    if not case.figures:
        return None
    slowest = min(figure.samples_per_s for figure in case.figures)
    protocol = case.protocol
    steps = max(protocol.warmup_steps, protocol.most_warmup_steps) + protocol.window_steps
    images = steps * case.case.batch_size_per_card * case.case.cards
    return min(limits.run_seconds, limits.start_up_seconds + images / slowest)
