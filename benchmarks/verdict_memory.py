"""A history in memory. helpers.history gives the same answers about the same nights, in a thousand times the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.history.nights import NightRecord
from helpers.history.past import ACCEPTED_NIGHTS, COMPARED_NIGHTS, SIBLINGS
from helpers.history.results import RunResult
from helpers.judging.case.evidence import Compared, Night, Past
from helpers.judging.case.verdict import Status

# The only fact of a segment that changes on a simulated machine.
_CHANGES = "cuDNN"


@dataclass(frozen=True)
class _Nights:
    """What is known of one case."""

    # By stack, the newest stack last: the newest 40 accepted nights, what lies between and after.
    of_stack: Mapping[str, tuple[Night, ...]] = field(default_factory=dict)
    # With their stacks, oldest first, since the last confirmed gain.
    compared: tuple[tuple[str, Compared], ...] = ()
    gained: bool = False

    def past(self, stack: str) -> Past:
        here, elsewhere = (
            tuple(pairs for of, pairs in self.compared if (of == stack) is same) for same in (True, False)
        )
        return Past(self.of_stack.get(stack, ()), compared=here, elsewhere=elsewhere, gained=self.gained)


@dataclass(frozen=True)
class _Tonight:
    """A case's newest night, which a confirmation may replace."""

    stack: str
    night: Night
    # Whether a segment begins with it, and its pairs.
    starts: bool
    compared: Compared | None

    def after(self, before: _Nights) -> _Nights:
        kept = () if self.starts else before.of_stack.get(self.stack, ())
        nights = (*kept, self.night) if self.night.accepted or not self.starts else kept
        accepted = [index for index, night in enumerate(nights) if night.accepted]
        newest = nights[accepted[-ACCEPTED_NIGHTS] :] if len(accepted) >= ACCEPTED_NIGHTS else nights
        others = {stack: found for stack, found in before.of_stack.items() if stack != self.stack}
        compared = () if self.starts else before.compared
        if self.compared is not None:
            compared = (*compared, (self.stack, self.compared))[:COMPARED_NIGHTS]
        return _Nights({**others, self.stack: newest}, compared, self.starts or before.gained)


@dataclass(frozen=True)
class _Held:
    """One case: what was known before its newest night, and that night."""

    cards: int
    before: _Nights = field(default_factory=_Nights)
    newest: _Tonight | None = None

    def until(self, session: str) -> _Nights:
        if self.newest is None or self.newest.night.session == session:
            return self.before
        return self.newest.after(self.before)

    def firsts(self, session: str) -> tuple[float, ...]:
        """The first log rates of the accepted nights before ``session``, on the newest stack that has any."""
        known = self.until(session).of_stack
        newest = [self.newest.stack] if self.newest is not None else []
        for stack in (*newest, *reversed(known)):
            if series := tuple(night.log_rates[0] for night in known.get(stack, ()) if night.accepted):
                return series
        return ()


class HeldNights:
    """A history that several futures may follow; benchmarks.verdicts checks it against a SQLite history."""

    def __init__(self, held: Mapping[str, _Held] | None = None) -> None:
        self._held = dict(held or {})

    def fork(self) -> HeldNights:
        return HeldNights(self._held)

    def past(self, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str) -> Past:
        """Without a ``segment``, the past of the case's newest one."""
        siblings = [
            series
            for other, held in self._held.items()
            if other != case_id and held.cards == cards and (series := held.firsts(session))
        ]
        mine = self._held.get(case_id, _Held(cards)).until(session)
        stack = segment.get(_CHANGES, next(reversed(mine.of_stack), ""))
        return replace(mine.past(stack), siblings=tuple(siblings[:SIBLINGS]))

    def add_case(self, results: Sequence[RunResult], night: NightRecord) -> None:
        """The past is made of nights alone."""
        self.add_night(night)

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
        newest = _Tonight(night.segment.get(_CHANGES, ""), tonight, standing.new_segment, night.compared)
        self._held[night.case_id] = _Held(night.cards, before, newest)
