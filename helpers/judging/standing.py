"""What a judged night leaves to the nights after it (verdict.Standing)."""

from __future__ import annotations

import math
from dataclasses import replace

from helpers.judging.answer import Found
from helpers.judging.confirm import Confirmation, Outcome
from helpers.judging.evidence import Evidence
from helpers.judging.paired import BELOW_GOOD, GOOD_SLOWER, LEVEL_UNKNOWN, MACHINE_SLOW
from helpers.judging.screen import ACCEPT_UP_TO, CARRIED_LEAST, CARRIED_MOST, Screening, unaccepted_in_a_row
from helpers.judging.verdict import Standing, Status

# So many nights in a row that nobody could explain are the new state of the machine (docs/verdicts.md, "Judge").
UNEXPLAINED_NIGHTS = 5


def standing_of(
    evidence: Evidence, screening: Screening, confirmation: Confirmation | None, found: Found, smallest: float
) -> Standing:
    stalled = bool(screening.stalls or (confirmation is not None and confirmation.stalls))
    # A night of stalls must not become what later nights' stalls are held against.
    refused = stalled or found.status is Status.REGRESSION or found.code == LEVEL_UNKNOWN
    accepted = not (screening.e_drop > ACCEPT_UP_TO or refused)
    row = 0 if found.status is Status.REGRESSION or accepted else unaccepted_in_a_row(evidence.past.nights) + 1
    why = ""
    if found.status is Status.IMPROVEMENT:
        why = "a confirmed improvement"
    elif row >= UNEXPLAINED_NIGHTS:
        why = f"{row} nights in a row stand apart and no regression was confirmed"
    effect = screening.effect if confirmation is None else confirmation.effect
    # That the machine is slow settles what was suspected of one night, and explains no fall that stays.
    explained = found.settled and found.status is not Status.INCONCLUSIVE and found.code != MACHINE_SLOW
    carried = screening.evidence
    if found.settled or why:
        carried = 1.0
    elif confirmation is not None and found.code != LEVEL_UNKNOWN:
        # The pairs know more than the screening: the next night goes on from them.
        carried = min(max(confirmation.e_drop, CARRIED_LEAST), CARRIED_MOST)
    standing = Standing(
        log_rate=screening.log_rate,
        e_drop=screening.e_drop,
        evidence=carried,
        accepted=accepted or bool(why),
        sigma=screening.noise.sigma,
        tau=screening.noise.tau,
        nights=screening.known,
        runs=len(screening.differences),
        shift=screening.effect.point,
        effect=effect.point,
        low=effect.low,
        high=effect.high,
        smallest_drop=smallest,
        new_segment=bool(why),
        segment_reason=why,
        unexplained=(evidence.past.unexplained or row >= UNEXPLAINED_NIGHTS) and not explained,
    )
    if confirmation is None:
        return standing
    return _with_pairs(standing, evidence, confirmation, found)


def _with_pairs(standing: Standing, evidence: Evidence, confirmation: Confirmation, found: Found) -> Standing:
    level, beside = confirmation.level, found.beside
    explained = not standing.unexplained and not evidence.past.unexplained
    as_before = confirmation.outcome in (Outcome.SAME, Outcome.NO_DROP, Outcome.MEASURED) and (
        found.status is Status.PASS or found.code == BELOW_GOOD
    )
    # Pairs that leave the question open teach as well, where the new build ran as before: were it only those that end
    # early, the level would be the lucky ones', and no night could ever put it right.
    open_though_usual = confirmation.outcome is Outcome.OPEN and beside is not None and not beside.below
    good_usual = beside is not None and not (beside.below and beside.good_below)
    return replace(
        standing,
        pairs=confirmation.pairs,
        e_confirm=confirmation.evidence,
        machine_slow=found.code in (MACHINE_SLOW, GOOD_SLOWER),
        level=math.expm1(level.offset) if level.known else None,
        level_error=level.error if level.known else None,
        good_shift=None if beside is None or beside.good_shift is None else math.expm1(beside.good_shift),
        teaches_level=found.status is Status.IMPROVEMENT
        or (explained and standing.accepted and (as_before or open_though_usual)),
        teaches_good=explained and good_usual and (standing.accepted or found.status is Status.REGRESSION),
    )
