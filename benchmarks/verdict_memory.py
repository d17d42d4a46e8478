"""A history in memory. helpers.history gives the same answers about the same nights, in a thousand times the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from helpers.history.nights import NightRecord
from helpers.history.past import ACCEPTED_NIGHTS, COMPARED_NIGHTS, SIBLINGS
from helpers.history.results import RunResult
from helpers.judging.evidence import Compared, Night, Past
from helpers.judging.verdict import Status


@dataclass(frozen=True)
class _Held:
    """One case's nights."""

    cards: int
    # What was known before the newest night, which a confirmation may replace.
    before: Past = field(default_factory=Past)
    newest: Night | None = None
    # Whether a segment begins with the newest night, and its pairs.
    starts: bool = False
    compared: Compared | None = None

    def until(self, session: str) -> Past:
        """The nights of the segment before ``session``: the newest 40 accepted ones, what lies between and after."""
        if self.newest is None or self.newest.session == session:
            return self.before
        kept = () if self.starts else self.before.nights
        nights = (*kept, self.newest) if self.newest.accepted or not self.starts else kept
        accepted = [index for index, night in enumerate(nights) if night.accepted]
        newest = nights[accepted[-ACCEPTED_NIGHTS] :] if len(accepted) >= ACCEPTED_NIGHTS else nights
        gain = self.starts
        compared = () if gain else self.before.compared
        if self.compared is not None:
            compared = (*compared, self.compared)[:COMPARED_NIGHTS]
        return Past(newest, compared=compared, gained=gain or self.before.gained)


class HeldNights:
    """A history that several futures may follow; benchmarks.verdicts checks it against a SQLite history."""

    def __init__(self, held: Mapping[str, _Held] | None = None) -> None:
        self._held = dict(held or {})

    def fork(self) -> HeldNights:
        return HeldNights(self._held)

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        siblings = [
            tuple(night.log_rates[0] for night in held.until(session).nights if night.accepted)
            for other, held in self._held.items()
            if other != case_id and held.cards == cards
        ]
        known = [series for series in siblings if series]
        return replace(self._held.get(case_id, _Held(cards)).until(session), siblings=tuple(known[:SIBLINGS]))

    def add_result(self, result: RunResult) -> None:
        """The past is made of nights alone."""

    def add_night(self, night: NightRecord) -> None:
        before = self._held.get(night.case_id, _Held(night.cards)).until(night.session)
        standing = night.standing
        if standing is None or not night.log_rates:
            self._held[night.case_id] = _Held(night.cards, before)
            return
        tonight = Night(
            night.log_rates,
            standing.accepted,
            standing.evidence,
            night.status == Status.REGRESSION.value,
            night.stall_share,
            night.date,
            night.session,
        )
        self._held[night.case_id] = _Held(night.cards, before, tonight, standing.new_segment, night.compared)
