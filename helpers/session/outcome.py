"""A case's outcome: the gate, the recording of baselines and the verdict on the night decide on this object.

A report's row is a view of it (helpers.report.row). A worker of pytest-xdist sends it to the controller as a record,
which is checked before anything is decided by it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from helpers.common.records import Count, WrongRecord, read_as
from helpers.history.nights import check_numbers
from helpers.history.results import (
    CONTENDED,
    LEAST_SAMPLES_PER_S,
    MOST_SAMPLES_PER_S,
    RunResult,
    result_of_record,
)
from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.machine.environment import device_of
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, ResultError

_ABOUT = "case outcome"

# Makes the sentences of a reason (helpers/report/reasons.py).
Tell = Callable[[Reason], str]

# The code of a verdict on a case for which the night had no time left.
OUT_OF_TIME = "out-of-time"


def code_of(reason: Reason) -> str:
    """For where no sentence is needed."""
    return reason.text or reason.code


class CaseEffect(enum.Enum):
    """What a status does to its case's test (docs/reference.md, "Statuses")."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"


@dataclass(frozen=True)
class Gating:
    """What a verdict does to its case's test, with the gate taken into account."""

    effect: CaseEffect
    # False for a case outside the gate.
    judged: bool = True
    # The rule by which the gate gives the case another effect than its status has; empty if it does not.
    rule: str = ""
    # Until when and why the case cannot fail this session's gate; empty if it can.
    quarantine: str = ""


@dataclass(frozen=True)
class GoodBuild:
    """The reference build at hand."""

    # Empty if there is none, and ``why_none`` says why.
    name: str = ""
    why_none: str = ""


@dataclass(frozen=True)
class CaseOutcome:
    """How one case of a session ended."""

    case: Case
    target: str
    # The verdict, with each reference that the case was compared with and the answer about it.
    verdict: Verdict
    gating: Gating
    # The measuring rule of the figure that is shown first.
    rule: str = ""
    # Every run of both builds in the order of measuring, also those without a throughput.
    runs: tuple[RunResult, ...] = ()
    # Where each run's files are, in the order of ``runs``.
    run_folders: tuple[str, ...] = ()
    # How many of the runs were taken from the session that is resumed.
    resumed: Count = 0
    good: GoodBuild = GoodBuild()
    # The case's owner by perf.yaml; empty if it names none.
    owner: str = ""

    @property
    def key(self) -> CaseKey:
        """SuiteCase.key of the case."""
        return self.target, self.case.id

    @property
    def device(self) -> str:
        """SuiteCase.device of the case."""
        return device_of(self.target)

    @property
    def status(self) -> Status:
        return self.verdict.status

    def told(self, tell: Tell) -> str:
        """The verdict's reason, and after it the gate's rule."""
        return "; ".join(filter(None, (tell(self.verdict.reason), self.gating.rule)))

    @property
    def marks(self) -> tuple[str, ...]:
        """Each mark once, with the number of runs that have it and, for contention, who disturbed the worst run."""
        texts = []
        for mark in sorted({mark for run in self.runs for mark in run.marks}):
            marked = [run for run in self.runs if mark in run.marks]
            worst = max(marked, key=lambda run: run.foreign_share or 0.0)
            detail = f": {worst.contention}" if mark == CONTENDED and worst.contention else ""
            texts.append(f"{mark} in {len(marked)} of {len(self.runs)} runs{detail}")
        return tuple(texts)

    @property
    def foreign_share(self) -> float | None:
        """The largest share of the leased cores that others used in a run; None if it is not known."""
        return max((run.foreign_share for run in self.runs if run.foreign_share is not None), default=None)

    def to_record(self) -> dict[str, Any]:
        """Plain values, except for mappings that are no dict, which json.dumps needs a ``default`` for."""
        record: dict[str, Any] = asdict(replace(self, runs=()), dict_factory=_plain)
        return {**record, "runs": [run.to_record() for run in self.runs]}

    @staticmethod
    def from_record(record: object) -> CaseOutcome:
        """The outcome of a record that ``to_record`` made and that JSON has carried. Raises ResultError on anything
        else, with the field."""
        try:
            if not isinstance(record, dict):
                raise WrongRecord("", type(record).__name__, "a JSON object")
            if not isinstance(runs := record.get("runs"), list):
                raise WrongRecord("runs", type(runs).__name__, "a list of runs")
            # The runs are checked by the reader of result files.
            found = read_as({**record, "runs": []}, CaseOutcome)
            _check_verdict(found.verdict)
        except WrongRecord as wrong:
            raise ResultError(_ABOUT, field=wrong.field or None, got=wrong.got, expected=wrong.expected) from wrong
        except ConfigError as error:
            raise ResultError(_ABOUT, field="case", got=str(error), expected="a case") from error
        return replace(found, runs=tuple(result_of_record(run, f"{_ABOUT}, runs[{at}]") for at, run in enumerate(runs)))


def _plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in items}


def _check_verdict(verdict: Verdict) -> None:
    """Raises WrongRecord for a number that no measurement gives."""
    check_numbers(verdict.standing, "verdict.standing")
    rates = {"measured.centre": None if verdict.measured is None else verdict.measured.centre}
    answers = {f"published[{at}]": each for at, each in enumerate(verdict.published)} | {"recorded": verdict.recorded}
    for name, answer in answers.items():
        if answer is not None:
            rates |= {f"{name}.measured": answer.measured, f"{name}.reference": answer.reference}
    for name, rate in rates.items():
        if rate is not None and not LEAST_SAMPLES_PER_S <= rate <= MOST_SAMPLES_PER_S:
            raise WrongRecord(f"verdict.{name}", rate, f"{LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g} samples/s")
