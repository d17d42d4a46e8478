"""What history keeps beside the results themselves: a case's night, and what people said of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from helpers.history.results import RunResult
from helpers.judging.evidence import Compared, Past
from helpers.judging.verdict import Standing


@dataclass(frozen=True)
class NightRecord:
    """One judged case of one session.

    - ``segment``: the facts within which results are compared (segments.segment_of); ``properties`` what cases are
      grouped by: framework, model, precision, cards. ``host``: where it was judged, also where nothing ran.
    - ``created``: UTC, ISO 8601, when it was judged; ``run_uuids`` the runs it rests on, in the order they were made.
    - ``log_rates``: of its screening runs of the build under test, first run first; empty where nothing was usable.
    - ``status``, ``code``, ``reason``: the verdict's; ``standing`` its numbers, None where there are none.
    - ``build``: the build under test. ``compared``: its interleaved runs beside the good build, None without.
    """

    session: str
    case_id: str
    target: str
    created: str
    segment: Mapping[str, str]
    status: str
    code: str
    reason: str
    cards: int
    log_rates: tuple[float, ...] = ()
    stall_share: float | None = None
    run_uuids: tuple[str, ...] = ()
    standing: Standing | None = None
    build: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    compared: Compared | None = None


class Memory(Protocol):
    """History as a session uses it. Every call is durable when it returns; raises HistoryError."""

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """The nights of the case in ``segment`` before ``session``, and of its siblings on the same host."""

    def add_result(self, result: RunResult) -> None:
        """Keep a run the moment it exists; the same uuid again replaces what is kept."""

    def add_night(self, night: NightRecord) -> None:
        """Keep a verdict; the same session, target and case again replaces it."""
