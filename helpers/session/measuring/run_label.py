"""Says with each line of progress which build runs, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import NeedRuns
from helpers.judging.finding import Code, Finding
from helpers.launch.tail import Progress
from helpers.plan.case_plan import CasePlan


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
        # Of a planned run, and of one in the place of a run that did not count, its number says enough.
        planned = made < self.plan.planned_runs or request.why.code is Code.PLANNED
        self.why = None if planned else request.why

    def wait(self, obstacle: str) -> None:
        """Report that no run is made yet, and why."""
        self.on_progress(Progress(self.plan.case.id, 0, obstacle, 0, 0, None, None))

    def __call__(self, progress: Progress) -> None:
        # A case that waits for its cards makes no run yet.
        self.on_progress(replace(progress, build=self.build, why=self.why) if progress.steps else progress)
