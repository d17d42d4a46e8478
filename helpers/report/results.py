"""The report of a session, and its results as JSON (helpers/report/formats.py has the other formats)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.judging.case.evidence import CaseKey
from helpers.judging.night.verdict import NightVerdict
from helpers.report.row import READER_BOUND_SHARE, CaseRow, is_reader_bound
from helpers.report.scaling import Scaling
from helpers.session.case_details import CaseDetails
from helpers.session.explain.case import CaseExplanation
from helpers.session.gate_verdict import GateVerdict
from helpers.session.outcome import CaseOutcome
from helpers.session.side_by_side.comparison import ConfigurationOutcome
from helpers.trainers.contract.errors import ResultError

RESULTS_SCHEMA_VERSION = 1
# The keys at the top of the file.
_FIRST = ("schema_version", "gate", "exit_code", "totals")


@dataclass(frozen=True)
class SessionReport:
    """Everything that the reports of a session show."""

    rows: Sequence[CaseRow]
    session: str
    # The exit code of pytest.
    exit_code: int
    # ``host``, and the devices ``found`` on it.
    machine: Mapping[str, str]
    # The command line, word by word.
    command: Sequence[str]
    # How many selected cases have no record, because the session ended before them or they were skipped.
    not_reached: int
    scaling: Sequence[Scaling] = ()
    # None if too few cases could be compared with earlier nights, and for a session that ended early.
    night: NightVerdict | None = None
    # None for a session without ``--gate``.
    gate: GateVerdict | None = None
    # The outcomes behind the rows, and a function for the details of each, which is called only for an HTML page.
    outcomes: Sequence[CaseOutcome] = ()
    details: Callable[[CaseOutcome], CaseDetails] = lambda outcome: CaseDetails()
    # Which part of a step is slower in the cases that were explained, by the cases' keys.
    explanations: Mapping[CaseKey, CaseExplanation] = field(default_factory=dict)
    # Comparisons of frameworks (``-m frameworks``).
    frameworks: Sequence[ConfigurationOutcome] = ()
    # When the session began: ISO 8601 in the time zone of its machine; empty where several machines are reported.
    began: str = ""
    # Who kept the machine busy, so that nothing was measured; else empty.
    busy: str = ""
    # Lines on machine, builds, baselines and history.
    header: Callable[[], Sequence[str]] = tuple


def results_json(report: SessionReport) -> str:
    """The terminal's table with all numbers behind it, as JSON.

    An object with the keys

    - ``schema_version``: RESULTS_SCHEMA_VERSION
    - ``gate``: the gate's verdict (GateVerdict): ``state`` (PASSED, PARTLY_PASSED, RECORDED, FAILED), its ``line``,
      how many ``cases`` can fail it, how many ``passed``, those that ``failed``, are ``quarantined``, ``not_tonight``
      or ``recorded``, each with status, reason and owner; null without ``--gate``
    - ``session``, ``exit_code``: the session's name and pytest's exit code
    - ``machine``: ``host``, the devices ``found`` on it and the ``suite``'s version; ``command``: the command line,
      word by word
    - ``cases``: a record for each case (CaseRow, and ``reader_bound``: whether it waited for data for
      ``reader_bound_share`` of its window or more); ``totals``: the number of cases by status
    - ``scaling``: speed-up and efficiency, a record for each configuration (Scaling)
    - ``night``: the verdict on the night as a whole (NightVerdict): ``status``, ``reason``, ``suspect``, the ``groups``
      of cases that fell together, and ``common`` (how most cases moved, if they moved alike); null if too few cases
      could be compared with earlier nights, and for a session that ended early
    - ``not_reached``: how many selected cases have no record, because the session ended before them or they were
      skipped; if there are any, the document does not cover the whole session

    Raises ResultError on a number that is not finite.
    """
    record: dict[str, Any] = {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "gate": report.gate.to_record() if report.gate else None,
        "session": report.session,
        "exit_code": report.exit_code,
        "machine": dict(report.machine),
        "command": list(report.command),
        "totals": dict(Counter(row.status for row in report.rows)),
        "not_reached": report.not_reached,
        "reader_bound_share": READER_BOUND_SHARE,
        "cases": [{**row.to_record(), "reader_bound": is_reader_bound(row)} for row in report.rows],
        "night": report.night.to_record() if report.night else None,
        "scaling": [each.to_record() for each in report.scaling],
    }
    try:
        in_order = json.loads(json.dumps(record, sort_keys=True, allow_nan=False))
        return json.dumps({key: in_order[key] for key in _FIRST} | in_order, indent=1) + "\n"
    except ValueError as error:
        raise ResultError(f"results of session {report.session}", got=str(error), expected="finite numbers") from error
