"""What a page shows of a case beside its outcome: its nights so far, where each setting comes from, its environment and
what is new in it, every step of tonight's runs, and the command that measures it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.history.results import RunResult
from helpers.history.stored import CaseNights
from helpers.launch.steplog_reader import read_step_log
from helpers.plan.perf_yaml import Config
from helpers.plan.recipes.recipe import sourced_settings
from helpers.session.night import EnvironmentChange, changes_between
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import ConfigError, StepLogError

NIGHTS = 90
# The section of what a run's own environment holds beside the machine's tables.
RUN_SECTION = "run"


@dataclass(frozen=True)
class CaseDetails:
    """Details of one case of a session."""

    nights: CaseNights = field(default_factory=CaseNights)
    # The source of each setting, by its dotted key; "--set" for a changed one.
    sources: Mapping[str, str] = field(default_factory=dict)
    # Measures the case again.
    command: str = ""


def environment_of(run: RunResult) -> dict[str, dict[str, str]]:
    """The machine's tables and the run's own environment, by section; what is empty is left out."""
    own = {name: value for name, value in run.environment.items() if value}
    return {**{section: dict(table) for section, table in run.system.items()}, **({RUN_SECTION: own} if own else {})}


def environment_changes(before: RunResult, now: RunResult) -> tuple[EnvironmentChange, ...]:
    """The differences between the environment of an earlier run and that of the run."""
    return tuple(changes_between(environment_of(before), environment_of(now)))


@dataclass(frozen=True)
class RunSteps:
    """The steps of one run; a step's time is the longest of all ranks, in seconds."""

    warmup: tuple[float, ...]
    window: tuple[float, ...]
    # Why the warm-up is not known; empty if it is.
    unknown: str = ""


def steps_of(run: RunResult, folder: str) -> RunSteps:
    """The run's steps by the logs of its ranks in ``folder``. If a log is gone or damaged, the warm-up is not known;
    the steps of the window are in the result."""
    try:
        logs = [read_step_log(path) for path in sorted(Path(folder).glob("rank*.jsonl"))]
    except StepLogError as error:
        return RunSteps((), run.step_seconds, str(error))
    if not logs:
        return RunSteps((), run.step_seconds, f"{folder} holds no step log")
    warmups = [[step.step_seconds for step in log.warmup] for log in logs]
    return RunSteps(tuple(map(max, zip(*warmups, strict=False))), run.step_seconds)


def sources_of(outcome: CaseOutcome, config: Config) -> dict[str, str]:
    """The source of each setting of the case, by its dotted key."""
    try:
        table = sourced_settings(outcome.case, outcome.device, launcher=config.launcher_for(outcome.case))
    except ConfigError:
        # A case without a recipe has no settings either, and its outcome says why it was not run.
        return {}
    return {key: str(setting.source) for key, setting in table.items()}
