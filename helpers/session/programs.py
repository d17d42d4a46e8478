"""Builds the static programs of Paddle's cases, without training: for ``perfgate builds check``, and when a gate
starts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.builds.naming import BuildUnavailable, Why
from helpers.launch.programs import BuildReport, BuildState, check_builds
from helpers.plan.case_plan import CPU, SuiteCase, draft_job
from helpers.plan.recipes.published_programs import differences_of
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import COMPANION_FACT, PRETENDED_FACT, counts_of, kind_of

# A broken build is named by the errors of its first cases.
_MOST_NAMED = 3

OnReport = Callable[[SuiteCase, BuildReport], None]


def build_programs(cases: Sequence[SuiteCase], interpreter: str, on_report: OnReport) -> tuple[BuildReport, ...]:
    """Build each case's program with ``interpreter``; the reports are in the order of ``cases``. Raises LaunchError if
    the interpreter cannot be started."""
    with tempfile.TemporaryDirectory(prefix="perfgate-build-") as folder:
        jobs = []
        for place, each in enumerate(cases):
            (own := Path(folder) / f"{place}").mkdir()
            jobs.append(draft_of(each, str(own)))
        by_id = {job.job_id: each for job, each in zip(jobs, cases, strict=True)}
        return check_builds(jobs, interpreter, on_report=lambda job, report: on_report(by_id[job.job_id], report))


def draft_of(suite_case: SuiteCase, run_folder: str) -> JobSpec:
    """The job that trains the case in ``run_folder``. Raises ConfigError for a case that its recipe refuses."""
    settings = settings_for(suite_case.case, suite_case.device)
    # The processes of a build are found and ended by the job's id, so no other session may use the same id.
    job_id = "-".join(Path(run_folder).parts[-2:])
    return draft_job(suite_case, settings, device=suite_case.device, run_folder=run_folder, job_id=job_id)


@dataclass(frozen=True)
class BuiltProgram:
    """A program as a build made it, for one case and those that differ from it in batch and data alone."""

    suite_case: SuiteCase
    # The cases that have it, the first one included.
    cases: tuple[SuiteCase, ...]
    report: BuildReport

    @property
    def counts(self) -> dict[str, int] | None:
        """By the names of contract.program.COUNTED; None if it was not built."""
        return counts_of(self.report.facts)

    @property
    def note(self) -> str:
        """Why it was not built, or what the build check pretended, since a build for CPUs lacks it."""
        return self.report.reason or self.report.facts.get(PRETENDED_FACT, "")

    @property
    def differences(self) -> tuple[str, ...]:
        """In what it differs from the published program; empty if it does not, or if none is known."""
        return differences_of(self.suite_case.case, self.report.facts)

    def to_record(self) -> dict[str, Any]:
        kind = kind_of(self.report.facts)
        return {
            "cases": [each.case.id for each in self.cases],
            "state": self.report.state.value,
            "note": self.note,
            "kind": kind and kind.value,
            "counts": self.counts,
            "differences": list(self.differences),
            "owners": sorted({each.owner for each in self.cases if each.owner}),
        }


def is_built_ahead(suite_case: SuiteCase) -> bool:
    """Whether a gate and ``builds check`` build the case's program: a static one for a GPU, which Paddle alone has.

    That of automatic parallelism is made together with its first step; on a CPU the first run builds it in seconds.
    """
    case = suite_case.case
    static = case.framework is Framework.PADDLE and case.execution is Execution.STATIC
    return static and suite_case.device != CPU and not case.auto


def built_ahead(cases: Iterable[SuiteCase], interpreter: str, say: Callable[[str], None]) -> tuple[BuiltProgram, ...]:
    """The programs of those of ``cases`` that can be built ahead; each is built once, however many cases have it.

    ``say`` gets one line a program. Raises LaunchError if the interpreter cannot be started.
    """
    same: dict[tuple[object, ...], list[SuiteCase]] = {}
    for each in cases:
        if is_built_ahead(each):
            same.setdefault(_program_key(each), []).append(each)
    first = [group[0] for group in same.values()]
    if not first:
        return ()

    def told(suite_case: SuiteCase, report: BuildReport) -> None:
        say(f"program of {suite_case.case.id}: {report.state.value}")

    reports = build_programs(first, interpreter, told)
    return tuple(
        BuiltProgram(group[0], tuple(group), report) for group, report in zip(same.values(), reports, strict=True)
    )


def _program_key(suite_case: SuiteCase) -> tuple[object, ...]:
    """What a program depends on: neither on batch, data and how many several cards are, nor on TF32, a switch."""
    case = suite_case.case
    precision = Precision.FP32 if case.precision is Precision.TF32 else case.precision
    return case.model, precision, case.features, case.cards > 1


def refuse_broken(build: str, programs: Iterable[BuiltProgram]) -> None:
    """Raises BuildUnavailable if a program failed to build, with the framework's own error, the cases and their owner.

    A program that the build refuses is not broken: the case's own run says the same.
    """
    programs = tuple(programs)
    broken = [each for each in programs if each.report.state is BuildState.FAILED]
    if not broken:
        return
    told = [
        f"{each.suite_case.case.id}{_others(each)}{_owner(each)}: {each.report.reason}" for each in broken[:_MOST_NAMED]
    ]
    left = len(broken) - len(told)
    companions = [each.report.facts.get(COMPANION_FACT) for each in broken]
    raise BuildUnavailable(
        build,
        Why.BAD_COMPANION if all(companions) else Why.NO_PROGRAM,
        f"{len(broken)} of {len(programs)} programs failed",
        "a program for each static case",
        # Whole: what was got is cut to one line's length.
        remedy="; ".join([*told, *([f"and {left} more"] if left else [])]),
    )


def _others(program: BuiltProgram) -> str:
    others = len(program.cases) - 1
    return f" and {others} more with its program" if others else ""


def _owner(program: BuiltProgram) -> str:
    owners = sorted({each.owner for each in program.cases if each.owner})
    return f" (owner: {', '.join(owners)})" if owners else ""


def program_lines(programs: Sequence[BuiltProgram]) -> list[str]:
    """What ``perfgate builds check`` says of the programs: how many were built, of which kind, and what differs."""
    if not programs:
        return ["programs     none: no static case of a GPU"]
    kinds: Mapping[str, int] = _counted(programs)
    lines = ["programs     " + ", ".join(f"{count} {what}" for what, count in kinds.items())]
    for each in programs:
        name = each.suite_case.case.id + _others(each) + _owner(each)
        if each.report.state is not BuildState.BUILT:
            lines.append(f"  {each.report.state.value}: {name}: {each.report.reason}")
        elif each.differences:
            pretended = f" ({each.note})" if each.note else ""
            lines.append(f"  not the published program's operators{pretended}: {name}: {'; '.join(each.differences)}")
    # A build for CPUs shows a GPU's program only as far as this is said beside it.
    notes = {each.note for each in programs if each.report.state is BuildState.BUILT and each.note}
    return [*lines, *(f"  built with {note}" for note in sorted(notes))]


def _counted(programs: Iterable[BuiltProgram]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in programs:
        kind = kind_of(each.report.facts)
        what = each.report.state.value + (f" ({kind.value})" if kind else "")
        found[what] = found.get(what, 0) + 1
    return found


def cases_to_check(cases: Iterable[SuiteCase], runs_here: Callable[[SuiteCase], bool]) -> list[SuiteCase]:
    """The cases whose programs ``builds check`` builds: the GPU cases that run here; without any, published rows."""
    cases = tuple(cases)
    here = [each for each in cases if each.device != CPU and runs_here(each)]
    return here or [each for each in cases if each.figures]
