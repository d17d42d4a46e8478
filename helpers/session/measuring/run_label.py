"""Says with each line of progress which build runs and why, and why a run is made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from helpers.history.results import RunResult
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import NeedRuns
from helpers.judging.finding import Code, Finding
from helpers.launch.tail import Progress
from helpers.plan.case_plan import CasePlan


def made_again(run: RunResult) -> Progress:
    """The report that another run is made in the place of this one, which does not count."""
    return Progress(run.case_id, 0, again_text(run), 0, 0, None, None, stays=True)


def again_text(run: RunResult) -> str:
    return f"run {run.replicate + 1} is made again: {run.invalid or run.failure}"


@dataclass
class RunLabel:
    """Passes a job's progress on, with what was asked for: ``begin`` is called before each run."""

    plan: CasePlan
    on_progress: Callable[[Progress], None]
    build: str = ""
    why: Finding | None = None

    def begin(self, build: Build, request: NeedRuns, made: int) -> None:
        """Label the reports to come as those of this run of ``build``; ``made`` runs were made before it."""
        named, record = (
            ("new build", self.plan.build) if build is Build.CANDIDATE else ("reference build", self.plan.reference)
        )
        if not self.plan.reference:
            named = "build"
        self.build = f"{named} {record.get('version', '')}".rstrip()
        # Of a planned run its number says enough.
        planned = made < self.plan.planned_runs or request.why.code is Code.PLANNED
        self.why = None if planned else request.why

    def wait(self, obstacle: str) -> None:
        """Report that no run is made yet, and why."""
        self.on_progress(Progress(self.plan.case.id, 0, obstacle, 0, 0, None, None))

    def __call__(self, progress: Progress) -> None:
        # A case that waits for its cards makes no run yet.
        self.on_progress(replace(progress, build=self.build, why=self.why) if progress.steps else progress)
