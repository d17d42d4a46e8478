"""What the session's tests share: two builds, and a runner that answers instead of training."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.case.verdict import Standing
from helpers.plan.case_plan import CasePlan

MakeRun = Callable[..., RunResult]

GOOD = {"interpreter": "/envs/good/bin/python", "framework": "paddle", "version": "3.3.1", "commit": "abcdef"}
NEW = {**GOOD, "interpreter": "/envs/new/bin/python", "commit": "123456"}
WHEN = datetime.datetime(2026, 11, 21, 3, 4, 5, tzinfo=datetime.UTC)
STANDING = Standing(4.6, 1.0, 1.0, accepted=True, sigma=0.002, tau=0.001, nights=20, runs=1, new_segment=True)


@dataclass
class FakeRunner:
    """Answers each request with the next of ``answers`` and keeps the result, as a runner does."""

    store: ResultStore
    make_run: MakeRun
    answers: list[dict[str, Any]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    made: list[tuple[Build, Stage]] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        self.before()
        values = self.answers[len(self.asked)] if len(self.asked) < len(self.answers) else {}
        self.asked.append(replicate)
        self.made.append((build, stage))
        result = self.make_run(plan, replicate, **{**roles(plan, build, stage), **values})
        self.store.new_run_folder(plan.case.id, replicate)
        self.store.write(result)
        return result


def roles(plan: CasePlan, build: Build, stage: Stage) -> dict[str, Any]:
    """What a result says of the build that it was made with."""
    record = plan.build if build is Build.CANDIDATE else plan.reference
    return {"role": build.value, "stage": stage.value, "build": dict(record)}


def finish(store: ResultStore, *runs: RunResult) -> None:
    """Put finished runs on disk, as an earlier part of the session left them."""
    for run in runs:
        store.new_run_folder(run.case_id, run.replicate)
        store.write(run)


def named_build(interpreter: str, source: str = "good", version: str = "3.0.0", **values: str) -> dict[str, str]:
    """A build of SuiteOptions.builds, as if it had been made ready."""
    return {
        "interpreter": interpreter, "digest": f"digest of {source}", "name": f"paddlepaddle {version}",
        "version": version, "commit": "abcdef", "source_text": source, "framework": "paddle", "made": "yes",
        "frameworks": "paddle", "pinned": "", **values,
    }  # fmt: skip
