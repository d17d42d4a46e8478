"""A history in memory: keeps what it is told, answers with the ``Past`` that the test gave it, fails where it is to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helpers.history.nights import NightRecord
from helpers.history.results import RunResult
from helpers.history.stored import CaseNights, SegmentStart
from helpers.judging.case.evidence import Past
from helpers.trainers.contract.errors import HistoryError


@dataclass
class MemoryDouble:
    """Implements Memory. ``fails`` names the calls that raise HistoryError."""

    known: Past = field(default_factory=Past)
    fails: tuple[str, ...] = ()
    results: list[RunResult] = field(default_factory=list)
    nights: list[NightRecord] = field(default_factory=list)
    starts: list[SegmentStart] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], int, str]] = field(default_factory=list)

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        self._check("past")
        self.asked.append((case_id, target, dict(segment), cards, session))
        return self.known

    def nights_so_far(self, case_id: str, target: str, session: str, last: int) -> CaseNights:
        self._check("nights_so_far")
        return CaseNights(unknown="a double keeps no nights")

    def add_case(self, results: Sequence[RunResult], night: NightRecord) -> None:
        self._check("add_case")
        self.results += results
        self.nights.append(night)

    def start_segment(self, start: SegmentStart) -> None:
        self._check("start_segment")
        self.starts.append(start)

    def take_in_decisions(self) -> tuple[str, ...]:
        return ()

    def start(self) -> str:
        return ""

    def finish(self) -> tuple[str, ...]:
        return ()

    def lacking(self, session: str) -> int:
        return 0

    def _check(self, call: str) -> None:
        if call in self.fails:
            raise HistoryError("history", field=call, got="disk full", expected="room")
