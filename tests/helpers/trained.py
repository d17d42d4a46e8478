"""Training that is only said: a Paddle that is installed everywhere, and runs whose images/s are given.

Step logs are written as a trainer writes them, and what a result says follows from them.
"""

from __future__ import annotations

import hashlib
import random

from helpers.common.wall_clock import utc_now
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.rules.own import figures, reader_share, samples_per_step, step_seconds, window_seconds
from helpers.launch.steplog_reader import read_step_log
from helpers.machine.framework_builds import BuildIdentity, FrameworkBuild
from helpers.plan.case_plan import CasePlan
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.history.made import ENVIRONMENT
from tests.helpers.session_double import roles
from tests.helpers.written_run import write_run

# In place of a rate: somebody ends the session during the run.
INTERRUPT = 0.0


class PaddleBuilds:
    """In the place of ``BuildFinder``: Paddle is installed in every Python, and nothing else is."""

    def __init__(self, named_in: str = "") -> None:
        self.named_in = named_in

    def commit_of(self, python: str) -> str:
        """The commit of a Python's Paddle."""
        return "abcdef"

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        if framework is not Framework.PADDLE:
            return f"{framework.value} is not installed"
        python = interpreter or "python"
        return FrameworkBuild(python, framework, "paddlepaddle", "3.3.1", self.commit_of(python))

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        digest = hashlib.sha256(build.interpreter.encode()).hexdigest()
        return BuildIdentity(build.interpreter, build.interpreter, digest)

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return {"python": "3.11.7"}


def drawn(store: ResultStore, case_id: str, build: Build, spread: float) -> float:
    """A factor about 1 for the next run of the build in the session. It follows from the numbers of the session and of
    the run: the time in a session's name also decides which build of a pair runs first."""
    session = sum(each.is_dir() for each in store.root.iterdir())
    run = sum(each.role == build.value for each in store.results(case_id))
    return random.Random(f"{session} {case_id} {build} {run}").gauss(1.0, spread)


def trained_run(
    store: ResultStore, plan: CasePlan, replicate: int, build: Build, stage: Stage, *, uuid: str, images_per_s: float
) -> RunResult:
    """A run with step logs and result on disk; ``images_per_s`` is that of one card."""
    case = plan.case
    store.begin()
    folder, ranks = store.run_folder(case.id, replicate), case.cards_per_node
    seconds = case.batch_size_per_card / images_per_s
    write_run(folder, case.id, seconds, batch=case.batch_size_per_card, ranks=ranks, job_id=uuid, replicate=replicate)
    logs = [read_step_log(folder / f"rank{rank}.jsonl") for rank in range(ranks)]
    record = plan.build if build is Build.CANDIDATE else plan.reference
    framework = {f"framework_{each}": record[each] for each in ("version", "commit")}
    result = RunResult(
        uuid=uuid,
        session=store.session,
        case_id=case.id,
        target=plan.suite_case.target,
        replicate=replicate,
        created=utc_now().isoformat(),
        settings=plan.settings,
        overrides=plan.overrides,
        protocol=plan.protocol.steps,
        environment={
            **ENVIRONMENT,
            "framework": case.framework.value,
            **framework,
            "data": plan.data,
            **plan.environment,
        },
        figures=figures(logs),
        step_seconds=step_seconds(logs),
        samples_per_step=samples_per_step(logs),
        window_seconds=window_seconds(logs),
        reader_share=reader_share(logs),
        **roles(plan, build, stage),
    )
    store.write(result)
    return result
