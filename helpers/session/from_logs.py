"""What a case's row tells of runs that were read from logs, where it differs from what a session's runs tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helpers.history.results import LOG_FACT, LOG_WARNINGS_FACT, MEASURED, RunResult
from helpers.judging.rules import CaseFigure, case_figure, over_runs, run_figure
from helpers.judging.statistics import number


def figures_of(runs: Sequence[RunResult]) -> tuple[CaseFigure, ...]:
    """By every rule of ours; of logs by every rule that they were read by, since a log has no steps for ours."""
    figures = [run.figures for run in runs]
    if all(run.origin == MEASURED for run in runs):
        return over_runs(figures)
    names = dict.fromkeys(name for each in figures for name in each)
    # A rule with its parameter stands there under its plain name too.
    told = [name for name in names if not any(other.startswith(f"{name}:") for other in names)]
    return tuple(case_figure(rule, figures) for rule in told)


def sources_of(runs: Iterable[RunResult], rule: str) -> tuple[str, ...]:
    """``a.log, lines 1-90, paddleclas: 389.1 samples/s by paddleclas-mean`` for each run that has a log."""
    return tuple(f"{run.facts[LOG_FACT]}: {_figure(run, rule)}" for run in runs if LOG_FACT in run.facts)


def log_warnings(runs: Sequence[RunResult]) -> tuple[str, ...]:
    """What is to be doubted of the logs; of several logs each with the run that it is."""
    told = [(run.replicate, run.facts[LOG_WARNINGS_FACT]) for run in runs if run.facts.get(LOG_WARNINGS_FACT)]
    return tuple(each if len(runs) == 1 else f"r{replicate}: {each}" for replicate, each in told)


def _figure(run: RunResult, rule: str) -> str:
    figure = run_figure(rule, run.figures)
    return figure if isinstance(figure, str) else f"{number(figure)} images/s by {rule}"
