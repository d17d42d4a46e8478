"""The machine-readable results of a session: ``--results FILE.json``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.judging.night import NightVerdict
from helpers.report.reader import READER_BOUND, is_reader_bound
from helpers.report.row import CaseRow
from helpers.report.scaling import Scaling
from helpers.trainers.contract.errors import ResultError

# 1: first format.
# 2: a case has "figures" by rule, "loader", "overrides", "segment" and "reader_bound"; its "reader_share" is the
#    median over runs, before it was the largest. New: "scaling", "reader_bound_share".
# 3: a case has "standing", "pairs", "set_aside", "reference_build" and "why_no_reference"; its figures are of the
#    screening runs of the build under test alone. New: "night".
# 4: a case has "attempts" and "failure_class".
# 5: a case has "utilisation", "origin" and "sources".
# 6: a case's status may be SLOWER; its standing has "level", "level_error", "good_shift", "teaches_level" and
#    "teaches_good".
# 7: a case has "invalid_images_per_s".
RESULTS_SCHEMA_VERSION = 7


def document(
    rows: Sequence[CaseRow],
    *,
    session: str,
    exit_code: int,
    machine: Mapping[str, str],
    command: Sequence[str],
    not_reached: int,
    scaling: Sequence[Scaling] = (),
    night: NightVerdict | None = None,
) -> str:
    """The same table as the terminal's, with every number behind it, as JSON text.

    An object with the keys

    - ``schema_version``: RESULTS_SCHEMA_VERSION
    - ``session``, ``exit_code``: the session's name and what pytest ended with
    - ``machine``: ``host`` and what was ``found`` on it; ``command``: the command line, word by word
    - ``cases``: a record a case (CaseRow, and whether it is ``reader_bound``: waited for data for
      ``reader_bound_share`` of its window or more); ``totals``: their number by status
    - ``scaling``: speed-up and efficiency, a record a configuration (Scaling)
    - ``night``: the verdict on the night as a whole (NightVerdict): ``status``, ``reason``, ``suspect``, the
      ``groups`` of cases that fell together and, where most cases moved alike, how (``common``); null where too few
      cases could be held against earlier nights, and for a session that ended early
    - ``not_reached``: selected cases without a record, since the session ended before them or they were
      skipped; with any, the document does not tell the whole session

    Raises ResultError on a number that is not finite.
    """
    record: dict[str, Any] = {
        "schema_version": RESULTS_SCHEMA_VERSION,
        "session": session,
        "exit_code": exit_code,
        "machine": dict(machine),
        "command": list(command),
        "totals": dict(Counter(row.status for row in rows)),
        "not_reached": not_reached,
        "reader_bound_share": READER_BOUND.share,
        "cases": [{**row.to_record(), "reader_bound": is_reader_bound(row)} for row in rows],
        "night": night.to_record() if night else None,
        "scaling": [each.to_record() for each in scaling],
    }
    try:
        return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise ResultError(f"results of session {session}", got=str(error), expected="finite numbers") from error
