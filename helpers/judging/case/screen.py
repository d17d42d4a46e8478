"""Screening: tonight's runs of the build under test against the nights before. It can only suspect a case, never fail
it."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging.case.evalue import Direction, evalue
from helpers.judging.case.evidence import Build, Evidence, Night, RunEvidence
from helpers.judging.case.noise import KNOWN_NIGHTS, Noise, learn, learn_nights
from helpers.judging.case.verdict import NeedRuns
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import EffectSize, effect_of, robust_sigma

# E-values of a drop (docs/verdicts.md, "One case, one night"). Between these two the answer is open, and another run is
# made.
AMBIGUOUS_FROM, AMBIGUOUS_BELOW = 0.45, 2.0
CLEARLY_NO_DROP = 0.3
SUSPECT_DROP, SUSPECT_GAIN = 2.0, 20.0
# A gain between this and SUSPECT_GAIN is looked at again: one that no night notices becomes the nights' level, and its
# loss looks like a bad night.
OPEN_GAIN = 4.0
# After the last run of screening, a case that is still open goes to confirmation from this e-value on.
STILL_OPEN = 1.0
# Up to this a night is accepted.
ACCEPT_UP_TO = 3.0
CARRIED_LEAST, CARRIED_MOST = 0.2, 1e6
# A night stalls too much if its share of the window lies this far above all earlier nights' shares, and this many times
# their spread.
STALL_MARGIN, STALL_SPREADS = 0.02, 3.0
_STALL_RUNS = 2
# Where no recorded figure stands for the nights before, so many nights are compared in pairs: the median of three
# resists one slow night.
_ANCHORED_NIGHTS = 3


@dataclass(frozen=True)
class Screening:
    """What tonight's runs alone show."""

    # The case's evidence.
    case: Evidence
    # Log rates minus the learned centre, first run first.
    differences: tuple[float, ...]
    noise: Noise
    # How many accepted nights of the segment there are, and the dates of the first and the last of them.
    known: int
    dates: tuple[str, ...] = ()
    # The evidence that last night carried on.
    carry: float = 1.0
    # How much more tonight stalls than any earlier night; None if it does not.
    stalls: Finding | None = None
    # Whether the recorded entry counts as one more night.
    after_entry: bool = False

    @property
    def e_drop(self) -> float:
        """Tonight's e-value for a drop."""
        return evalue(self.differences, self.noise.sigma, self.noise.tau)

    @property
    def e_gain(self) -> float:
        """Tonight's e-value for a gain."""
        return evalue(self.differences, self.noise.sigma, self.noise.tau, Direction.GAIN)

    @property
    def evidence(self) -> float:
        """The evidence for a drop: tonight's times the carried one. A suspicion needs it, and it is carried on."""
        return min(max(self.e_drop * self.carry, CARRIED_LEAST), CARRIED_MOST)

    @property
    def suspect_from(self) -> float:
        """From this evidence on a drop is suspected."""
        last = len(self.differences) >= self.case.budget.screen_runs > 1
        return STILL_OPEN if last and self.case.reference_build is not None else SUSPECT_DROP

    @property
    def effect(self) -> EffectSize:
        """The change of tonight's runs against the learned centre."""
        return effect_of(self.differences, self.noise.sigma, self.noise.tau)

    @property
    def mature(self) -> bool:
        return self.known >= KNOWN_NIGHTS

    @property
    def drop_suspected(self) -> bool:
        return self.evidence >= self.suspect_from

    @property
    def gain_suspected(self) -> bool:
        return self.e_gain >= SUSPECT_GAIN

    @property
    def log_rates(self) -> tuple[float, ...]:
        """The log rates of tonight's screening runs, first run first."""
        return tuple(self.noise.centre + each for each in self.differences)

    @property
    def suspected_drop(self) -> Finding | None:
        """Why a drop of the case is suspected; None if none is."""
        if self.case.suspicion is not None or not self.drop_suspected:
            return self.case.suspicion
        return found(Code.DROP_SUSPECTED, evidence=self.evidence, suspect_from=self.suspect_from)

    @property
    def asked(self) -> Finding | None:
        """Why tonight's runs ask for a confirmation; None if they do not."""
        if (why := self.suspected_drop) is not None:
            return why
        if self.gain_suspected:
            return found(Code.GAIN_SUSPECTED, evidence=self.e_gain, suspect_from=SUSPECT_GAIN)
        return self.stalls

    @property
    def unanchored(self) -> bool:
        """Whether only pairs can tell: no comparable figure is recorded, and too few nights of this stack are known, or
        they may be of another protocol, or tonight's figure is to be recorded."""
        few = self.known < _ANCHORED_NIGHTS
        return not self.case.entry.comparable and (few or self.case.entry.other_protocol or self.case.to_record)

    @property
    def young(self) -> bool:
        """Whether the nights are few and no comparable figure is recorded, so that pairs say more than they do."""
        return not (self.case.entry.comparable or self.mature)

    def due(self, level_settled: bool) -> bool:
        """Whether the case is to be confirmed tonight without a suspicion.

        It is on the first nights of a stack for which nothing is recorded. It also has turns while the level of the
        nights against the reference build is too uncertain (not ``level_settled``).
        """
        if self.case.reference_build is None or self.unanchored:
            return self.case.reference_build is not None
        return not level_settled and _has_turn(self.case.case_id, self.case.day, self.case.budget.rotation)


def screen(evidence: Evidence, log_rates: Sequence[float]) -> Screening:
    """``log_rates`` are those of the usable screening runs.

    Where neither a night nor a comparable entry is known, tonight's own runs are the centre: then only pairs say
    something.
    """
    nights = [night for night in evidence.past.nights if night.accepted and night.log_rates]
    known = len(nights)
    entry = recorded_night(evidence) if known < KNOWN_NIGHTS else ()
    if nights and not _continues(entry, nights[0], evidence.past.siblings):
        entry = ()
    noise = learn_nights(nights, evidence.past, entry or (() if nights else tuple(log_rates)))
    return Screening(
        evidence,
        tuple(rate - noise.centre for rate in log_rates),
        noise,
        known,
        _dates(nights),
        max(1.0, evidence.past.nights[-1].evidence) if evidence.past.nights else 1.0,
        _stalls(nights, evidence.screened),
        after_entry=bool(entry),
    )


def recorded_night(evidence: Evidence) -> tuple[float, ...]:
    """The recorded entry's log rates, which count as one earlier accepted night while too few others are known."""
    entry = evidence.entry
    return tuple(map(math.log, entry.replicates or (entry.samples_per_s,))) if entry.comparable else ()


def _continues(entry: Sequence[float], night: Night, siblings: Sequence[Sequence[float]]) -> bool:
    """Whether the segment's first night, compared with the entry, would have been accepted and not taken for a gain.

    A segment that began with a new state of the machine, or with a confirmed gain, no longer has the entry's level:
    compared with that level, none of its nights would ever be accepted.
    """
    if not entry:
        return False
    before = learn((), siblings, entry)
    x = [night.log_rates[0] - before.centre]
    drop, gain = (evalue(x, before.sigma, before.tau, direction) for direction in Direction)
    return drop <= ACCEPT_UP_TO and gain < SUSPECT_GAIN


def more_screening(screening: Screening, due_tonight: bool) -> NeedRuns | None:
    """A request for the runs that screening still needs, one at a time while the answer is open; None when it is
    settled.

    ``due_tonight`` says whether the reference build runs tonight, whatever screening shows.
    """
    evidence, budget, made = screening.case, screening.case.budget, len(screening.differences)
    if not screening.mature and evidence.reference_build is None and made < budget.first_runs:
        why = found(Code.FEW_NIGHTS, known=screening.known, needed=KNOWN_NIGHTS, runs=budget.first_runs)
        return NeedRuns((Build.CANDIDATE,) * (budget.first_runs - made), why)
    if made >= budget.screen_runs or due_tonight or evidence.suspicion:
        return None
    if screening.stalls and made < _STALL_RUNS:
        return one_more(screening.stalls)
    weighed = screening.e_drop * screening.carry
    if AMBIGUOUS_FROM <= weighed < AMBIGUOUS_BELOW and screening.e_drop >= CLEARLY_NO_DROP:
        return one_more(found(Code.DROP_OPEN, made=made, most=budget.screen_runs, evidence=weighed))
    if evidence.reference_build is not None and OPEN_GAIN <= screening.e_gain < SUSPECT_GAIN:
        return one_more(found(Code.GAIN_OPEN, made=made, most=budget.screen_runs))
    return None


def records(evidence: Evidence) -> bool:
    """Whether tonight's figure becomes the case's first one on this stack. Then its pairs are the first that teach the
    level."""
    return evidence.to_record and not evidence.entry.comparable


def _has_turn(case_id: str, day: int, rotation: int) -> bool:
    """Once in ``rotation`` days, on another day of each such block, so that a machine that measures only every second
    day, or once a week, leaves no case out for ever."""
    block, place = divmod(day, rotation)
    return zlib.crc32(f"{case_id} {block}".encode()) % rotation == place


def unaccepted_in_a_row(nights: Sequence[Night]) -> int:
    """How many of the newest nights were not accepted; a confirmed regression ends the row."""
    ends = (at for at, night in enumerate(reversed(nights)) if night.accepted or night.confirmed_regression)
    return next(ends, len(nights))


def one_more(why: Finding) -> NeedRuns:
    return NeedRuns((Build.CANDIDATE,), why)


def _dates(nights: Sequence[Night]) -> tuple[str, ...]:
    dates = [night.date for night in nights if night.date]
    return tuple(dict.fromkeys((dates[0], dates[-1]))) if dates else ()


def _stalls(nights: Sequence[Night], runs: Sequence[RunEvidence]) -> Finding | None:
    """How much more tonight's runs stall than those of every earlier night; None if they do not stall more.

    Stalls in only one of two runs are chance.
    """
    before = [night.stall_share for night in nights if night.stall_share is not None]
    tonight = [run.stall_share for run in runs if run.stall_share is not None]
    if not before or not tonight:
        return None
    share, most = statistics.median_low(tonight), max(before)
    if share <= most + max(STALL_MARGIN, STALL_SPREADS * robust_sigma(before)):
        return None
    return found(Code.STALLS, share=share, most=most, nights=len(before))
