"""The nights of a case as lines, for texts, pictures and pages."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from helpers.common.words import first_few
from helpers.history.stored import SegmentStart, StoredNight
from helpers.judging.case.verdict import Reason
from helpers.judging.finding import Code
from helpers.judging.statistics import median_interval, theil_sen
from helpers.machine.environment import differences
from helpers.report.reasons import reason_text

# In place of the status of a night that calibrated the case; also the code of such a verdict.
CALIBRATED = Code.CALIBRATED.value
_SHOWN_DIFFERENCES = 3
# The smallest change over a segment that is worth a line, as a fraction: the smallest that a tolerance can have.
SHOWN_SLOPE = 0.005

Rates = Callable[[StoredNight], Sequence[float]]


@dataclass(frozen=True)
class NightLine:
    """One night of a case, ready to be shown."""

    uuid: str
    # The local date on which its session began, and when it was judged (UTC).
    date: str
    created: str
    session: str
    build: str
    # The median of its screening runs.
    samples_per_s: float | None
    runs: int
    status: str
    reason: str
    # The difference from its reference, as a fraction (-0.02 is 2% slower).
    effect: float | None
    # The evidence for a drop that is carried to the next night.
    evidence: float | None
    # The number of its segment, from 1.
    segment: int
    excluded: bool = False
    # Notes on a new segment, on why nothing is learned from the night, on an exclusion.
    notes: tuple[str, ...] = ()
    # The 95% interval of ``samples_per_s`` (``interval_of``); None if the spread between runs is not known.
    low: float | None = None
    high: float | None = None
    # The geometric mean of the reference build's runs in the pairs of that night, in samples/s; None without pairs.
    good_samples_per_s: float | None = None


def lines_of_nights(
    nights: Sequence[StoredNight],
    rates: Rates,
    starts: Sequence[SegmentStart] = (),
) -> tuple[NightLine, ...]:
    """Lines for ``nights``, oldest first. ``rates`` returns the log rates of a night's runs."""
    lines = []
    numbers: dict[tuple[str, int], int] = {}
    segment = 1
    before: StoredNight | None = None
    for place, night in enumerate(nights):
        begun = [each for each in starts if _since(each, night)]
        # A night without a run has no segment; it is put into that of the previous night.
        if night.record.segment or before is None:
            segment = numbers.setdefault((night.segment_digest, len(begun)), len(numbers) + 1)
        found = list(rates(night))
        record, standing = night.record, night.record.standing
        low, high = interval_of(found, standing.sigma if standing else None)
        lines.append(
            NightLine(
                uuid=night.uuid,
                date=record.date,
                created=record.created,
                session=record.session,
                build=build_text(record.build),
                samples_per_s=math.exp(statistics.median(found)) if found else None,
                runs=len(found),
                status=CALIBRATED if record.code == CALIBRATED else record.status,
                reason=reason_text(Reason(record.code, record.reason, record.findings)),
                effect=standing.effect.point if standing and standing.effect else None,
                evidence=standing.evidence if standing else None,
                segment=segment,
                excluded=night.exclusion is not None,
                notes=(
                    *_notes(night, before, begun),
                    *(f"recorded: {each.reason}" for each in recorded_from(nights[place : place + 2], starts)),
                ),
                low=low,
                high=high,
                good_samples_per_s=good_rate(night),
            )
        )
        before = night if night.record.segment or before is None else before
    return tuple(lines)


def by_machine(every: Sequence[StoredNight]) -> dict[str, list[StoredNight]]:
    """A case's nights by their machine, in the order of the machines' first nights.

    A night on which nothing ran has no segment. It belongs to the machine that judged it, by the name that the segments
    give to that machine (its own, or its pool's); a night that names no machine belongs to the only one that there is.
    """
    names = {each.record.host: name for each in every if (name := each.record.segment.get("host", ""))}
    only = next(iter(names.values())) if len(set(names.values())) == 1 else ""
    found: dict[str, list[StoredNight]] = {}
    for each in every:
        judge = each.record.host
        found.setdefault(each.record.segment.get("host") or names.get(judge, judge) or only, []).append(each)
    return found


def recorded_from(nights: Sequence[StoredNight], starts: Sequence[SegmentStart]) -> tuple[SegmentStart, ...]:
    """The starts that were made by recording the first of these nights: after it, and before the one that follows."""
    night, *following = nights
    return tuple(
        each
        for each in starts
        if dict(each.segment) == dict(night.record.segment)
        and _is_before(night.record.created, each.created)
        and not any(_is_before(later.record.created, each.created) for later in following)
    )


def slope_text(lines: Sequence[NightLine]) -> tuple[str, str] | None:
    """How much the rates of the newest segment change from its first night to its last, and by how much a night, in
    words. None unless the 95% interval excludes 0 and the change is above SHOWN_SLOPE.

    Lines are oldest first; excluded nights do not count. A slow slide is in no single night's verdict.
    """
    newest = [line for line in lines if line.segment == lines[-1].segment and not line.excluded]
    rates = [math.log(line.samples_per_s) for line in newest if line.samples_per_s]
    found = theil_sen(rates)
    if found is None or found.low <= 0 <= found.high:
        return None
    change, low, high = (math.expm1(each * (len(rates) - 1)) for each in found)
    if abs(change) <= SHOWN_SLOPE:
        return None
    whole = f"95%: {low:+.2%} to {high:+.2%}; {math.expm1(found.slope):+.3%} a night"
    return f"{change:+.2%}", f"in {len(rates)} nights of this segment ({whole})"


def interval_of(log_rates: Sequence[float], sigma: float | None) -> tuple[float | None, float | None]:
    """The 95% interval of a night's samples/s, from the log rates of its runs.

    ``sigma`` is the standard deviation of log rates between runs, as the judge knew it that night (Standing). Without
    it, Student's t over the runs is used. A single run without ``sigma`` has no interval.
    """
    if not log_rates or (sigma is None and len(log_rates) == 1):
        return None, None
    low, high = median_interval(log_rates, sigma)
    return math.exp(low), math.exp(high)


def good_rate(night: StoredNight) -> float | None:
    """The geometric mean of the reference build's samples/s on a night; None if it did not run."""
    compared = night.record.compared
    return math.exp(statistics.fmean(compared.reference)) if compared is not None and compared.reference else None


def build_text(build: Mapping[str, str]) -> str:
    """Version and commit of the build, such as ``3.3.1 @0123456``; a dash if it is not known."""
    commit = f"@{build['commit'][:7]}" if build.get("commit") else ""
    return " ".join(each for each in (build.get("version", ""), commit) if each) or "-"


def _notes(
    night: StoredNight,
    before: StoredNight | None,
    begun: Sequence[SegmentStart],
) -> list[str]:
    """``begun`` are the segments that users had begun."""
    record, notes = night.record, []
    if before is not None and record.segment and before.segment_digest != night.segment_digest:
        apart = differences(before.record.segment, record.segment)
        notes.append(f"other segment: {first_few(apart, _SHOWN_DIFFERENCES)}")
    notes += [f"new segment: {each.reason}" for each in begun if before is None or not _since(each, before)]
    if record.standing is not None and record.standing.new_segment:
        notes.append("new segment from here: a confirmed improvement")
    if record.standing is not None and record.standing.pairs and record.standing.pairs.machine_slow:
        notes.append("the machine was slow: the reference build was as slow as the new one")
    if night.unlearned and night.exclusion is None:
        notes.append(f"not learned from: {night.unlearned}")
    if (out := night.exclusion) is not None:
        notes.append(f"excluded by {out.who} on {out.created[:10]}: {out.reason}")
    return notes


def _since(start: SegmentStart, night: StoredNight) -> bool:
    return _is_before(start.created, night.record.created) and dict(start.segment) == dict(night.record.segment)


def _is_before(one: str, other: str) -> bool:
    """Whether ``one`` is not after ``other``. Both are moments or days in ISO 8601 and UTC, with or without
    microseconds."""
    return _moment(one) <= _moment(other)


def _moment(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
