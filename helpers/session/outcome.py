"""A case's outcome: the one object on which the gate, the recording of baselines and the night decide. Below it: the
cases of a session that its night judges.

A report's row is a view of it (helpers.report.row). A worker of pytest-xdist sends it to the controller as a record,
which is checked before anything is decided by it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
from helpers.history.run_folders import RESULT_FILE, read_result, sessions
from helpers.judging.night_groups import NightCase, labels_of
from helpers.judging.statistics import Summary
from helpers.judging.verdict import Question, Reason, Standing, Status, SubVerdict, Verdict
from helpers.machine.records_check import Checker, Schema
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, ResultError

_ABOUT = "case outcome"


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
    # Holds what the case was compared with: each reference, and the answer to it.
    verdict: Verdict
    # What the verdict does to the case's test; the gate is considered.
    effect: CaseEffect
    # False for a case outside the gate.
    judged: bool = True
    # The measuring rule of the images/s that is shown first.
    rule: str = ""
    # Every run of both builds, in the order in which they were made, also those that hold no throughput.
    runs: tuple[RunResult, ...] = ()
    # Where each run's files are, in the order of ``runs``.
    run_folders: tuple[str, ...] = ()
    # How many of the runs were taken from the session that is resumed.
    resumed: int = 0
    # What the good build at hand is called; empty where there is none, and ``why_no_reference`` says why.
    reference_build: str = ""
    why_no_reference: str = ""
    # RunResult.origin of its runs, also where the case has none.
    origin: str = MEASURED

    @property
    def key(self) -> tuple[str, str]:
        """SuiteCase.key of the case."""
        return self.target, self.case.id

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def reason(self) -> str:
        return self.verdict.reason.message

    @property
    def marks(self) -> tuple[str, ...]:
        """Each mark once, with the number of runs that bear it and, for contention, who it was in the worst one."""
        texts = []
        for mark in sorted({mark for run in self.runs for mark in run.marks}):
            marked = [run for run in self.runs if mark in run.marks]
            worst = max(marked, key=lambda run: run.foreign_share or 0.0)
            detail = f": {worst.contention}" if mark == CONTENDED and worst.contention else ""
            texts.append(f"{mark} in {len(marked)} of {len(self.runs)} runs{detail}")
        return tuple(texts)

    @property
    def foreign_share(self) -> float | None:
        """The largest share of the leased cores that others used in a run; None where it is not known."""
        return max((run.foreign_share for run in self.runs if run.foreign_share is not None), default=None)

    def to_record(self) -> dict[str, Any]:
        """Plain values, except for mappings that JSON has to be told how to write."""
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


def _object(properties: Schema, words: str) -> Schema:
    """Every property is required, and there are no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "description": words,
    }


def _or_null(schema: Schema, words: str) -> Schema:
    return {"anyOf": [{"type": "null"}, schema], "description": words}


_MOST_CHARACTERS = 100_000
_MOST_ITEMS = 100_000
_TEXT: Schema = {"type": "string", "maxLength": _MOST_CHARACTERS, "description": "a text"}
_TEXTS: Schema = {"type": "array", "maxItems": _MOST_ITEMS, "items": _TEXT, "description": "a list of texts"}
_FLAG: Schema = {"type": "boolean", "description": "true or false"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": "a whole number"}
_STATUS: Schema = {"enum": [each.value for each in Status], "description": "a known status"}
_REASON = _object({"code": _TEXT, "message": _TEXT}, "a reason")
_RATE: Schema = {
    "type": ["number", "null"],
    "minimum": LEAST_SAMPLES_PER_S,
    "maximum": MOST_SAMPLES_PER_S,
    "description": f"images/s from {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g}, or null",
}
# Of the interval about a mean: that of a handful of runs may reach below 0.
_BOUND: Schema = {"type": ["number", "null"], "description": "a finite number or null"}
_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "description": "a share, not negative, or null"}
_SUMMARY = _object(
    {"centre": _RATE, "low": _BOUND, "high": _BOUND, "spread": _SHARE, "n": _COUNT, "warnings": _TEXTS},
    "a summary of runs",
)
_ANSWER = _object(
    {
        "question": {"enum": [each.value for each in Question], "description": "a known question"},
        "status": _STATUS,
        "reason": _REASON,
        "rule": _TEXT,
        "measured": _RATE,
        "reference": _RATE,
        "tolerance": _SHARE,
        "label": _TEXT,
        "sets_status": _FLAG,
    },
    "an answer",
)
_VERDICT = _object(
    {
        "status": _STATUS,
        "reason": _REASON,
        "measured": _or_null(_SUMMARY, "null, or a summary of runs"),
        "published": {"type": "array", "maxItems": _MOST_ITEMS, "items": _ANSWER, "description": "a list of answers"},
        "recorded": _or_null(_ANSWER, "null, or an answer"),
        "standing": _or_null(
            _object(STANDING_FIELDS, "a standing"), "null, or a standing with finite numbers in their ranges"
        ),
    },
    "a verdict",
)
# The runs are checked by the reader of result files.
_OUTCOME = Checker(
    _object(
        {
            "case_id": _TEXT,
            "target": _TEXT,
            "verdict": _VERDICT,
            "effect": {"enum": [each.value for each in CaseEffect], "description": "a known effect"},
            "judged": _FLAG,
            "rule": _TEXT,
            "runs": {"type": "array", "maxItems": _MOST_ITEMS, "description": "a list of runs"},
            "run_folders": _TEXTS,
            "resumed": _COUNT,
            "reference_build": _TEXT,
            "why_no_reference": _TEXT,
            "origin": {"enum": [MEASURED, REPLAYED, IMPORTED], "description": "a known origin"},
        },
        "a JSON object",
    )
)


# ---- the night


_WITHOUT_FIGURES = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
_DEFAULT_TOLERANCE = 0.005
# The suite's own commit changes with every commit of it, and the report shows it elsewhere.
_NOT_THE_MACHINE = (("system", "suite"),)
# A machine that was set up anew differs in everything; the first few differences say so.
_MOST_CHANGES = 5


def night_case(outcome: CaseOutcome) -> NightCase | None:
    """The case as the night's verdict takes it. None for a case that is compared with no earlier night, and for one
    that the gate does not judge."""
    standing, recorded = outcome.verdict.standing, outcome.verdict.recorded
    if standing is None or not outcome.judged or outcome.status in _WITHOUT_FIGURES:
        return None
    tolerance = recorded.tolerance if recorded is not None else None
    return NightCase(
        case_id=outcome.case.id,
        target=outcome.target,
        labels=labels_of(outcome.case, outcome.target),
        # The answer to the other question may be the worse one.
        status=recorded.status if recorded is not None else outcome.status,
        standing=standing,
        tolerance=_DEFAULT_TOLERANCE if tolerance is None else tolerance,
        can_confirm=bool(outcome.reference_build),
        why_not=outcome.why_no_reference,
    )


def night_cases(outcomes: Iterable[CaseOutcome]) -> tuple[NightCase, ...]:
    return tuple(case for outcome in outcomes if (case := night_case(outcome)) is not None)


def night_clues(outcomes: Sequence[CaseOutcome], session_folder: Path) -> tuple[str, ...]:
    """What may have moved many cases at once: what disturbed them, and in what the machine differs from the last
    session beside ``session_folder`` that measured one of them."""
    clues = []
    if shares := [share for each in outcomes if each.marks and (share := each.foreign_share)]:
        clues.append(f"others used up to {max(shares):.0%} of the cores while {len(shares)} of the cases ran")
    earlier = [session_folder.parent / name for name in sessions(session_folder.parent) if name != session_folder.name]
    for each in outcomes:
        tonight = next((run for run in each.runs if run.replicate == 0), None)
        if tonight is None:
            continue
        before = next(filter(None, (_first_run(folder, each.case.id) for folder in reversed(earlier))), None)
        if before is not None:
            return (*clues, *_machine_changes(before, tonight))
    return tuple(clues)


def _first_run(session_folder: Path, case_id: str) -> RunResult | None:
    """None for what cannot be read: a clue is no evidence."""
    try:
        return read_result(session_folder / case_id / "r0" / RESULT_FILE)
    except ResultError:
        return None


def _machine_changes(before: RunResult, tonight: RunResult) -> tuple[str, ...]:
    """``GPU: power limit: 250 W → 200 W`` and since when; empty where nothing differs."""
    changes = list(_differences(before.system, tonight.system))
    if not changes:
        return ()
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    return (*changes[:_MOST_CHANGES], *more, f"all since session {before.session}")


def _differences(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for section in sorted(before.keys() & after.keys()):
        for name in sorted(before[section].keys() | after[section].keys()):
            old, new = before[section].get(name, "nothing"), after[section].get(name, "nothing")
            if old != new and (section, name) not in _NOT_THE_MACHINE:
                yield f"{section}: {name}: {old} → {new}"
