"""Screening: tonight's runs of the build under test against the nights before. It suspects; it never fails a case."""

from __future__ import annotations

import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.evidence import Build, Evidence, Night, RunEvidence
from helpers.judging.estimate import Effect, effect_of
from helpers.judging.evalue import Direction, evalue
from helpers.judging.noise import KNOWN_NIGHTS, Noise, learn
from helpers.verdict import NeedRuns

# VERDICT.md, "Judge".
AMBIGUOUS_FROM, AMBIGUOUS_BELOW = 0.7, 2.0
CLEARLY_NO_DROP = 0.3
SUSPECT_DROP, SUSPECT_GAIN = 2.0, 20.0
ACCEPT_UP_TO = 3.0
CARRIED_LEAST, CARRIED_MOST = 0.2, 1e6
# Stalls: a share of the window this much above all earlier nights', and this many times their spread.
STALL_MARGIN, STALL_SPREADS = 0.02, 3.0
_STALL_RUNS = 2
_SIGMA_PER_MAD = 1.4826


@dataclass(frozen=True)
class Screening:
    """What tonight's runs alone say.

    ``differences``: log rates less the learned centre, first run first. ``known`` accepted nights of the segment;
    ``dates`` of the first and the last of them. ``carry`` is the evidence brought from last night, ``evidence``
    what is carried on; ``stalls`` says how tonight stalls more than any night before, empty where it does not.
    ``after_entry``: whether the recorded entry counts as one night more.
    """

    differences: tuple[float, ...]
    noise: Noise
    known: int
    dates: tuple[str, ...]
    carry: float
    e_drop: float
    e_gain: float
    effect: Effect
    stalls: str = ""
    after_entry: bool = False

    @property
    def evidence(self) -> float:
        return min(max(self.e_drop * self.carry, CARRIED_LEAST), CARRIED_MOST)

    @property
    def mature(self) -> bool:
        return self.known >= KNOWN_NIGHTS

    @property
    def drop_suspected(self) -> bool:
        return self.evidence >= SUSPECT_DROP

    @property
    def gain_suspected(self) -> bool:
        return self.e_gain >= SUSPECT_GAIN

    @property
    def log_rate(self) -> float:
        """Of the first run."""
        return self.noise.centre + self.differences[0]


def screen(evidence: Evidence, runs: Sequence[RunEvidence], log_rates: Sequence[float]) -> Screening:
    """``runs`` are the usable screening runs, ``log_rates`` theirs; there is a recorded entry."""
    nights = [night for night in evidence.past.nights if night.accepted and night.log_rates]
    known = len(nights)
    entry = recorded_night(evidence) if known < KNOWN_NIGHTS else ()
    if nights and not _continues(entry, nights[0], evidence.past.siblings):
        entry = ()
    noise = learn([night.log_rates for night in nights], evidence.past.siblings, entry)
    differences = tuple(rate - noise.centre for rate in log_rates)
    return Screening(
        differences,
        noise,
        known,
        _dates(nights),
        max(1.0, evidence.past.nights[-1].evidence) if evidence.past.nights else 1.0,
        evalue(differences, noise.sigma, noise.tau),
        evalue(differences, noise.sigma, noise.tau, Direction.GAIN),
        effect_of(differences, noise.sigma, noise.degrees, night=noise.tau),
        _stalls(nights, runs),
        after_entry=bool(entry),
    )


def recorded_night(evidence: Evidence) -> tuple[float, ...]:
    """The recorded entry's log rates: one earlier accepted night, while too few others are known."""
    recorded = evidence.recorded
    if recorded is None:
        return ()
    return tuple(math.log(rate) for rate in recorded.replicates or (recorded.images_per_s,))


def _continues(entry: Sequence[float], night: Night, siblings: Sequence[Sequence[float]]) -> bool:
    """Whether the segment's first night would have been accepted, and not taken for a gain, after the entry.

    A segment that began where the machine has a new state, or a confirmed gain, has left the entry behind: held
    against the old level none of its nights would ever be accepted.
    """
    if not entry:
        return False
    before = learn((), siblings, entry)
    x = [night.log_rates[0] - before.centre]
    drop, gain = (evalue(x, before.sigma, before.tau, direction) for direction in Direction)
    return drop <= ACCEPT_UP_TO and gain < SUSPECT_GAIN


def more_screening(evidence: Evidence, screening: Screening) -> NeedRuns | None:
    """The runs that screening still needs, one at a time while the answer is open; None when it has settled."""
    made = len(screening.differences)
    if not screening.mature and evidence.reference_build is None and made < evidence.budget.first_runs:
        missing = evidence.budget.first_runs - made
        why = f"{screening.known} of {KNOWN_NIGHTS} nights known: run {made + 1} of {evidence.budget.first_runs}"
        return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,) * missing, missing, why)
    if made >= evidence.budget.screen_runs or due(evidence, screening) or evidence.suspicion:
        return None
    if screening.stalls and made < _STALL_RUNS:
        return _one_more(f"{screening.stalls}: once more")
    weighed = screening.e_drop * screening.carry
    if AMBIGUOUS_FROM <= weighed < AMBIGUOUS_BELOW and screening.e_drop >= CLEARLY_NO_DROP:
        return _one_more(f"open after {made} of at most {evidence.budget.screen_runs} runs: evidence {weighed:.2g}")
    return None


def due(evidence: Evidence, screening: Screening) -> bool:
    """Whether tonight is the case's turn to be confirmed unsuspected: a reference is at hand, and too few nights are
    known or nothing explains the segment's beginning."""
    if evidence.reference_build is None or (screening.mature and not evidence.past.unexplained):
        return False
    turn = zlib.crc32(evidence.case_id.encode()) + len(evidence.past.nights)
    return turn % evidence.budget.rotation == 0


def unaccepted_in_a_row(nights: Sequence[Night]) -> int:
    """How many of the newest nights were not accepted, a confirmed regression ending the row."""
    row = 0
    for night in reversed(nights):
        if night.accepted or night.confirmed_regression:
            break
        row += 1
    return row


def _one_more(why: str) -> NeedRuns:
    return NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,), 1, why)


def _dates(nights: Sequence[Night]) -> tuple[str, ...]:
    created = [night.created[:10] for night in nights if night.created]
    return tuple(dict.fromkeys((created[0], created[-1]))) if created else ()


def _stalls(nights: Sequence[Night], runs: Sequence[RunEvidence]) -> str:
    """How the stalls of tonight's runs exceed every earlier night's; what only one run of two shows is chance."""
    before = [night.stall_share for night in nights if night.stall_share is not None]
    tonight = [run.stall_share for run in runs if run.stall_share is not None]
    if not before or not tonight:
        return ""
    share, most = statistics.median_low(tonight), max(before)
    if share <= most + max(STALL_MARGIN, STALL_SPREADS * spread(before)):
        return ""
    return f"stalls take {share:.1%} beyond the median step, at most {most:.1%} on {len(before)} nights before"


def spread(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation."""
    middle = statistics.median(values)
    return _SIGMA_PER_MAD * statistics.median(abs(value - middle) for value in values)
