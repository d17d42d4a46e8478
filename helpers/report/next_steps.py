"""What to type next: after a first session, and after a drop."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from helpers.common.own_folder import program_path
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Status
from helpers.session.outcome import CaseOutcome

_DROPS = (Status.REGRESSION, Status.SLOWER)


def after_the_first(configured: bool) -> tuple[str, ...]:
    """The commands for a machine that has a perf.yaml already, or has none."""
    program = program_path()
    init = f"{program} init                         writes perf.yaml: what a gate judges here, and who is asked"
    record = f"{program} gate -- --update-baselines   measures again and records; from then on it is judged"
    judge = f"{program} gate --build BUILD           judges a build; docs/results.md says how to read the result"
    lines = (record, judge) if configured else (init, record, judge)
    return tuple(f"{'next: ' if each is lines[0] else '      '}{each}" for each in lines)


def after_a_drop(outcome: CaseOutcome) -> tuple[str, ...]:
    """Two commands with what each says: which part of the step is slower, and which of many builds was the first such
    one. Empty for a case that is not slower, or of which only one build was run."""
    if outcome.status not in _DROPS:
        return ()
    # A build that no option named is known by its Python.
    named = {run.role: run.build.get("source") or run.build.get("interpreter", "") for run in outcome.runs if run.build}
    build, reference = (named.get(each.value, "") for each in (Build.CANDIDATE, Build.REFERENCE))
    if not (build and reference):
        return ()
    explain = ["explain", outcome.case.id, "--target", outcome.target, "--build", build, "--reference-build", reference]
    bisect = ["bisect", "--case", outcome.case.id, "--target", outcome.target, "--good", reference, "--bad", build]
    program = shlex.quote(program_path())
    return (
        f"{program} {shlex.join(explain)}    # which part of a step is slower",
        f"{program} {shlex.join(bisect)} --builds FILE    # which of the builds in FILE was the first slow one",
    )


def after_drops(outcomes: Iterable[CaseOutcome]) -> tuple[str, ...]:
    """The commands for the first case that is slower."""
    return next(filter(None, (after_a_drop(each) for each in outcomes)), ())
