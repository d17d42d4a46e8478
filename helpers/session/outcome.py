"""A case's outcome: the gate, the recording of baselines and the verdict on the night decide on this object.

A report's row is a view of it (helpers.report.row). A worker of pytest-xdist sends it to the controller as a record,
which is checked before anything is decided by it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from helpers.history.nights import STANDING_FIELDS
from helpers.history.results import (
    CONTENDED,
    IMPORTED,
    LEAST_SAMPLES_PER_S,
    MEASURED,
    MOST_SAMPLES_PER_S,
    REPLAYED,
    RunResult,
    result_of_record,
)
from helpers.judging.statistics import Summary
from helpers.judging.verdict import Question, Reason, Standing, Status, SubVerdict, Verdict
from helpers.machine.environment import device_of
from helpers.machine.records_check import (
    COUNT,
    FLAG,
    TEXT,
    TEXTS,
    Checker,
    Schema,
    list_of,
    object_of,
    one_of,
    or_null,
)
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, ResultError

_ABOUT = "case outcome"

# The code of a verdict on a case that was planned tonight and for which the night had no time left.
OUT_OF_TIME = "out-of-time"


class CaseEffect(enum.Enum):
    """What a status does to its case's test (docs/reference.md, "Statuses")."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    ERROR = "error"
    SKIP = "skip"


@dataclass(frozen=True)
class CaseOutcome:
    """How one case of a session ended."""

    case: Case
    target: str
    # The verdict, with each reference that the case was compared with and the answer about it.
    verdict: Verdict
    # What the verdict does to the case's test, with the gate taken into account.
    effect: CaseEffect
    # False for a case outside the gate.
    judged: bool = True
    # The measuring rule of the figure that is shown first.
    rule: str = ""
    # Every run of both builds in the order of measuring, also those without a throughput.
    runs: tuple[RunResult, ...] = ()
    # Where each run's files are, in the order of ``runs``.
    run_folders: tuple[str, ...] = ()
    # How many of the runs were taken from the session that is resumed.
    resumed: int = 0
    # The name of the good build at hand. It is empty if there is none, and ``why_no_reference`` says why.
    reference_build: str = ""
    why_no_reference: str = ""
    # RunResult.origin of its runs. It is set also for a case without runs.
    origin: str = MEASURED
    # The case's owner by perf.yaml; empty if it names none.
    owner: str = ""
    # Until when and why the case cannot fail this session's gate; empty if it can.
    quarantine: str = ""
    # The rule by which the gate gives the case another effect than its status has; empty if it does not.
    gate_rule: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """SuiteCase.key of the case."""
        return self.target, self.case.id

    @property
    def device(self) -> str:
        """SuiteCase.device of the case."""
        return device_of(self.target)

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def reason(self) -> str:
        """The verdict's reason, and after it the gate's rule."""
        return "; ".join(filter(None, (self.verdict.reason.message, self.gate_rule)))

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
        return {
            "case_id": self.case.id,
            "target": self.target,
            "verdict": asdict(self.verdict, dict_factory=_plain),
            "effect": self.effect.value,
            "judged": self.judged,
            "rule": self.rule,
            "runs": [run.to_record() for run in self.runs],
            "run_folders": self.run_folders,
            "resumed": self.resumed,
            "reference_build": self.reference_build,
            "why_no_reference": self.why_no_reference,
            "origin": self.origin,
            "owner": self.owner,
            "quarantine": self.quarantine,
            "gate_rule": self.gate_rule,
        }

    @staticmethod
    def from_record(record: object) -> CaseOutcome:
        """The outcome of a record that ``to_record`` made and that JSON has carried. Raises ResultError on anything
        else, with the field."""
        if (wrong := _OUTCOME.violation(record)) is not None:
            raise ResultError(_ABOUT, field=wrong.field, got=wrong.got, expected=wrong.expected)
        assert isinstance(record, dict)
        values = dict(record)
        try:
            case = Case.parse(values.pop("case_id"))
        except ConfigError as error:
            raise ResultError(_ABOUT, field="case_id", got=str(error), expected="a case's id") from error
        runs = tuple(result_of_record(run, f"{_ABOUT}, runs[{at}]") for at, run in enumerate(values.pop("runs")))
        return CaseOutcome(
            case,
            verdict=_verdict_of(values.pop("verdict")),
            effect=CaseEffect(values.pop("effect")),
            runs=runs,
            run_folders=tuple(values.pop("run_folders")),
            **values,
        )


def _plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.value if isinstance(value, enum.Enum) else value for name, value in items}


def _verdict_of(record: Mapping[str, Any]) -> Verdict:
    measured, recorded, standing = record["measured"], record["recorded"], record["standing"]
    return Verdict(
        Status(record["status"]),
        Reason(**record["reason"]),
        None if measured is None else Summary(**{**measured, "warnings": tuple(measured["warnings"])}),
        tuple(map(_answer_of, record["published"])),
        None if recorded is None else _answer_of(recorded),
        None if standing is None else Standing(**standing),
    )


def _answer_of(record: Mapping[str, Any]) -> SubVerdict:
    known = {
        "question": Question(record["question"]),
        "status": Status(record["status"]),
        "reason": Reason(**record["reason"]),
    }
    return SubVerdict(**{**record, **known})


_STATUS = one_of(Status, "a known status")
_REASON = object_of({"code": TEXT, "message": TEXT}, "a reason")
_RATE: Schema = {
    "type": ["number", "null"],
    "minimum": LEAST_SAMPLES_PER_S,
    "maximum": MOST_SAMPLES_PER_S,
    "description": f"images/s from {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g}, or null",
}
# The bounds of the interval about a median. Those of two runs far apart are no rate that was ever measured.
_BOUND: Schema = {"type": ["number", "null"], "minimum": 0, "description": "a finite number from 0, or null"}
_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "description": "a share, not negative, or null"}
_SUMMARY = object_of(
    {"centre": _RATE, "low": _BOUND, "high": _BOUND, "spread": _SHARE, "n": COUNT, "warnings": TEXTS},
    "a summary of runs",
)
_ANSWER = object_of(
    {
        "question": one_of(Question, "a known question"),
        "status": _STATUS,
        "reason": _REASON,
        "rule": TEXT,
        "measured": _RATE,
        "reference": _RATE,
        "tolerance": _SHARE,
        "label": TEXT,
        "sets_status": FLAG,
    },
    "an answer",
)
_VERDICT = object_of(
    {
        "status": _STATUS,
        "reason": _REASON,
        "measured": or_null(_SUMMARY, "null, or a summary of runs"),
        "published": list_of(_ANSWER, "a list of answers"),
        "recorded": or_null(_ANSWER, "null, or an answer"),
        "standing": or_null(
            object_of(STANDING_FIELDS, "a standing"), "null, or a standing with finite numbers in their ranges"
        ),
    },
    "a verdict",
)
# The runs are checked by the reader of result files.
_OUTCOME = Checker(
    object_of(
        {
            "case_id": TEXT,
            "target": TEXT,
            "verdict": _VERDICT,
            "effect": one_of(CaseEffect, "a known effect"),
            "judged": FLAG,
            "rule": TEXT,
            "runs": list_of({}, "a list of runs"),
            "run_folders": TEXTS,
            "resumed": COUNT,
            "reference_build": TEXT,
            "why_no_reference": TEXT,
            "origin": {"enum": [MEASURED, REPLAYED, IMPORTED], "description": "a known origin"},
            "owner": TEXT,
            "quarantine": TEXT,
            "gate_rule": TEXT,
        },
        "a JSON object",
    )
)
