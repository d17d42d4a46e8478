"""How the steps of ``perfgate prove-gpu`` ended: records, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.commands.proof.plan import ProofStep
from helpers.common.files import read_text_limited, write_whole
from helpers.common.records import WrongRecord, parse, read_as
from helpers.judging.case.verdict import Status
from helpers.trainers.contract.errors import ResultError

STATE_FILE = "state.json"
_MOST_STATE_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class StepRecord:
    """How a step ended."""

    key: str
    # A status of the suite, or the step's own word.
    status: str
    # Whether the result is right; False also for a step that was not run.
    right: bool
    # Whether a second call need not repeat it, because the result would be the same.
    settled: bool
    # For people.
    message: str
    # The figure of a measured case, in words.
    figure: str = ""
    # Relative to the proof's folder.
    run_folders: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def ran(self) -> bool:
        return self.status != Status.NOT_RUN.value

    @property
    def wrong(self) -> bool:
        return self.ran and not self.right


@dataclass(frozen=True)
class _StateFile:
    # Facts that must be the same for a second call to continue.
    about: Mapping[str, str]
    records: tuple[StepRecord, ...]


def not_run(step: ProofStep, reason: str) -> StepRecord:
    """The record of a step that cannot run with the installed software; the next call tries it again. It counts as not
    reached, never as right."""
    return StepRecord(step.key, Status.NOT_RUN.value, False, False, reason)


def write_state(folder: Path, about: Mapping[str, str], records: Iterable[StepRecord]) -> None:
    state = _StateFile(about, tuple(records))
    write_whole(folder / STATE_FILE, f"{json.dumps(asdict(state), indent=1, allow_nan=False)}\n".encode())


def read_state(folder: Path, about: Mapping[str, str]) -> dict[str, StepRecord]:
    """The records in ``folder`` by their keys; none without a file. Raises ResultError if the file is another machine's
    or damaged."""
    path = folder / STATE_FILE
    remedy = "Name another folder with --out, or move this one away"
    if not path.exists():
        return {}
    try:
        found = read_as(parse(read_text_limited(path, _MOST_STATE_BYTES)), _StateFile)
    except (OSError, ValueError, RecursionError, WrongRecord) as error:
        raise ResultError(str(path), got=str(error), expected="a state of prove-gpu", remedy=remedy) from error
    if found.about != about:
        raise ResultError(str(path), field="about", got=found.about, expected=str(about), remedy=remedy)
    return {record.key: record for record in found.records}
