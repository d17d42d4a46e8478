"""Reads a run of this suite from its folder, to be judged again: ``session/case/rN/{spec.json, rank*.jsonl}``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from helpers.history.results import MEASURED, RunResult
from helpers.history.run_folders import read_result
from helpers.judging.rules import figures, samples_per_step, window_seconds
from helpers.judging.rules_publishers import cards_of
from helpers.launch.steplog_reader import read_step_log
from helpers.logs.settings import card_of_folders
from helpers.machine.environment import GPU
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LogError
from helpers.trainers.contract.steplog import COMPLETE, StepLog

_RESULT = "result.json"
_SPEC = "spec.json"
_RUN = re.compile(r"r[0-9]+", re.ASCII)
_RANK_LOG = re.compile(r"rank([0-9]+)\.jsonl", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,9} x ", re.ASCII)


@dataclass(frozen=True)
class OwnRun:
    """One run of this suite."""

    name: str
    session: str
    case_id: str
    # ``cpu`` or ``gpu``.
    device: str
    # The card model; empty if nothing names it.
    gpu: str
    # The logs of all ranks; empty if the result says that the run failed, was invalid or was refused.
    logs: tuple[StepLog, ...]
    # None if there is no result beside the step logs.
    result: RunResult | None
    # When the logs were written, in seconds since 1970.
    modified: float

    @property
    def job_id(self) -> str:
        return self.result.uuid if self.result else self.logs[0].header.job_id


def is_rank_log(name: str) -> bool:
    return _RANK_LOG.fullmatch(name) is not None


def is_run_folder(folder: Path, names: Collection[str]) -> bool:
    """Whether a folder that contains these names is that of a run. A run that failed at its start has no step log."""
    return any(map(is_rank_log, names)) or (_SPEC in names and _RUN.fullmatch(folder.resolve().name) is not None)


def read_own_run(folder: Path, name: str, gpu: str | None = None) -> OwnRun:
    """The run in ``folder``; ``gpu`` is the card model to use if nothing there names one.

    Raises LogError or StepLogError if the run is not whole: a rank is missing, the logs are of two jobs, or there are
    neither logs nor a result that explains it.
    """
    paths = {int(match[1]): each for each in folder.iterdir() if (match := _RANK_LOG.fullmatch(each.name))}
    result = _result_of(folder, name)
    broken_off = result is not None and not result.measured
    if not paths and not broken_off:
        beside = "no result.json either: it was killed" if result is None else "a result.json that calls it measured"
        raise LogError(name, got=f"no step log, and {beside}", expected="the step logs of all ranks")
    logs = () if broken_off else tuple(read_step_log(paths[rank]) for rank in sorted(paths))
    _check(name, logs, result)
    header = logs[0].header if logs else None
    device = header.device if header else "" if result is None else result.environment.get("device", "")
    session = result.session if result else folder.resolve().parent.parent.name
    case_id = header.case_id if header else "" if result is None else result.case_id
    modified = max(path.stat().st_mtime for path in paths.values() or (folder / _RESULT,))
    card = _card(folder, logs, result, gpu) if device == GPU else ""
    return OwnRun(name, session, case_id, device, card, logs, result, modified)


def _result_of(folder: Path, name: str) -> RunResult | None:
    if not (folder / _RESULT).is_file():
        return None
    result = read_result(folder / _RESULT)
    if result.origin != MEASURED:
        raise LogError(name, field="origin", got=result.origin, expected=f"{MEASURED}: only what ran is judged again")
    return result


def _check(name: str, logs: tuple[StepLog, ...], result: RunResult | None) -> None:
    for log in logs:
        if log.footer.status != COMPLETE:
            got = f"{log.footer.status}: {log.footer.reason}"
            raise LogError(log.path, field="status", got=got, expected="a complete run")
    if not logs:
        return
    # Raises StepLogError if a rank is missing or the logs are of two jobs.
    figures(logs)
    header = logs[0].header
    if len({log.header.case_id for log in logs}) > 1:
        raise LogError(name, field="case_id", got=[log.header.case_id for log in logs], expected="one case")
    if result is not None and (result.uuid, result.case_id) != (header.job_id, header.case_id):
        got = f"{result.case_id} {result.uuid}"
        raise LogError(name, field=_RESULT, got=got, expected=f"the result of these logs, {header.job_id}")
    _check_window(name, logs, result)


def _check_window(name: str, logs: tuple[StepLog, ...], result: RunResult | None) -> None:
    """Raises LogError unless the images fit the case, and images and seconds equal those of the run's own result.

    Otherwise a log that was changed or mixed up later would be judged as a run that never took place.
    """
    case = Case.parse(logs[0].header.case_id)
    if (cards := cards_of(logs)) != case.cards:
        raise LogError(
            name, field="cards", got=f"{cards} in {len(logs)} step logs", expected=f"the {case.cards} of {case}"
        )
    batch = case.batch_size_per_card
    for log in logs:
        most = batch * log.header.cards_per_process
        if larger := next((step for step in log.window if step.samples > most), None):
            expected = f"at most the {most} of its case"
            raise LogError(log.path, field="samples", got=f"{larger.samples} images in a step", expected=expected)
    if result is None:
        return
    seconds, images = window_seconds(logs), sum(samples_per_step(logs))
    if images != sum(result.samples_per_step) or not math.isclose(seconds, result.window_seconds, rel_tol=1e-9):
        got = f"{images} images in {seconds:.6g} s"
        expected = f"the {sum(result.samples_per_step)} in {result.window_seconds:.6g} s of its {_RESULT}"
        raise LogError(name, field="window", got=got, expected=expected, remedy="Take both from the same run")


def _card(folder: Path, logs: tuple[StepLog, ...], result: RunResult | None, given: str | None) -> str:
    """The card model: by the result ("8 x NAME"), else by the step logs, else by a folder's name, else ``given``."""
    if result is not None and result.environment.get("cards"):
        return _COUNT.sub("", result.environment["cards"])
    if logs and logs[0].header.facts.get("device_name"):
        return logs[0].header.facts["device_name"]
    named = card_of_folders(folder.resolve() / "rank0.jsonl")
    return named[0] if named else given or ""
