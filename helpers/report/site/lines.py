"""The nights of a site's pages as entries of lists and as records for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from helpers.history.listing import BuildKey, CaseKey, ListedNight, SessionKey, build_of
from helpers.history.stored import Acknowledgement, SegmentStart
from helpers.judging.rates import key_of, rate_unit
from helpers.judging.verdict import Status
from helpers.report.html.night_drawings import Level, draw_small
from helpers.report.nights import CALIBRATED, NightLine, build_text, lines_of_nights
from helpers.report.sentences import badness
from helpers.report.site import names
from helpers.report.site.folder import MARKER, Item
from helpers.session.gate import SLOWER

# 1: first format.
SITE_SCHEMA_VERSION = 1
_FIELDS = [each.name for each in fields(NightLine)]
_KEYS = [key_of(name) for name in _FIELDS]
_VALUES = attrgetter(*_FIELDS)
# How many nights the small picture of a list shows.
_SMALL_NIGHTS = 30
_FINE = (Status.PASS.value, Status.IMPROVEMENT.value, Status.NOT_RUN.value, CALIBRATED)
_REGRESSIONS = tuple(each.value for each in SLOWER)
_BAD = (*_REGRESSIONS, Status.INFRA_ERROR.value, Status.INVALID.value)
# A fall of this fraction below an acknowledged night is a new one, even if their intervals overlap.
_SECOND_DROP = 0.05


def is_bad(status: str) -> bool:
    """Whether the build or the machine is slow, or the case has no usable run."""
    return status in _BAD


def is_fine(status: str) -> bool:
    """Whether a case with this status needs nobody."""
    return status in _FINE


@lru_cache(maxsize=2**16)
def _unit_of(case_id: str) -> str:
    return rate_unit(case_id)


def unit_of(case_ids: Iterable[str]) -> str:
    """As ``rate_unit``, but cached, since the same cases occur many times."""
    units = set(map(_unit_of, case_ids))
    return units.pop() if len(units) == 1 else rate_unit(*case_ids)


def lines_of(
    nights: Sequence[ListedNight],
    acknowledgements: Sequence[Acknowledgement] = (),
    starts: Sequence[SegmentStart] = (),
) -> tuple[NightLine, ...]:
    """A line for each night of one case, oldest first."""
    stored = [each.night for each in nights]
    return lines_of_nights(stored, lambda night: night.record.log_rates, acknowledgements, starts)


def record_of(line: NightLine) -> dict[str, Any]:
    """A night's record, as in ``perfgate history --json``."""
    return dict(zip(_KEYS, _VALUES(line), strict=True))


def json_page(kind: str, content: dict[str, Any]) -> str:
    """The JSON file of a page, in ASCII."""
    record = {"made_by": MARKER, "schema_version": SITE_SCHEMA_VERSION, "kind": kind, **content}
    return json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"


def levels_of(lines: Iterable[NightLine]) -> tuple[Level, ...]:
    """The good build's newest level; empty if the nights have none."""
    newest = next((each for each in reversed(tuple(lines)) if each.good_samples_per_s is not None), None)
    if newest is None or newest.good_samples_per_s is None:
        return ()
    return (Level("good", "good build", f"the good build's runs, {newest.date}", newest.good_samples_per_s),)


def newest_first(items: Iterable[Item]) -> list[Item]:
    """Entries of sessions or builds, by their first night."""
    return sorted(items, key=lambda each: (each["first"], each["page"]), reverse=True)


def counts_of(statuses: Iterable[str]) -> dict[str, int]:
    """How many nights have each status, the worst first."""
    found = Counter(statuses)
    return {status: found[status] for status in sorted(found, key=lambda each: (badness(each), each))}


# ---- entries of lists


def case_item(key: CaseKey, count: int, first: str, nights: Sequence[ListedNight], lines: Sequence[NightLine]) -> Item:
    """A case's entry, by its newest ``nights`` and their ``lines``, oldest first. ``count`` is the number of all its
    nights."""
    shown = list(zip(nights, lines, strict=True))
    shown_counting = [each for each in shown if not each[1].excluded] or shown
    counting = [line for _, line in shown_counting]
    newest_night, newest = shown_counting[-1]
    since = newest
    for each in reversed(counting):
        if each.status != newest.status:
            break
        since = each
    drops = ((each.night.record.standing, each.night.record.created) for each, _ in reversed(shown_counting))
    found = next(((found.smallest_drop, when) for found, when in drops if found and found.smallest_drop), (None, ""))
    small = draw_small(key.case_id, lines[-_SMALL_NIGHTS:], levels_of(lines))
    return {
        "case_id": key.case_id,
        "target": key.target,
        "host": key.host,
        "page": names.case_page(key),
        "nights": count,
        "first": first,
        "last": newest.created,
        "status": newest.status,
        "since": since.created,
        # Whether all nights shown have this status; then it may have begun earlier.
        "since_or_before": since is counting[0] and count > len(lines),
        "before": next((each.status for each in reversed(counting) if each.status != newest.status), ""),
        "acknowledged": any(_covers(each, newest) for each in counting[counting.index(since) :]),
        "reason": newest.reason[:2000],
        "build": newest.build,
        "build_page": names.build_page(build_of(newest_night.night.record)),
        "session_page": names.row_in_session(newest_night.session, key),
        "images_per_s": newest.samples_per_s,
        "low": newest.low,
        "high": newest.high,
        "effect": newest.effect,
        "smallest_drop": found[0],
        "smallest_drop_of": found[1],
        "picture": "" if small is None else str(small),
    }


def _covers(earlier: NightLine, newest: NightLine) -> bool:
    """Whether ``earlier`` was acknowledged, and ``newest`` is not slower still: a second drop needs someone again."""
    if not earlier.acknowledged or newest.acknowledged:
        return newest.acknowledged
    if earlier.samples_per_s is None or newest.samples_per_s is None:
        return earlier.samples_per_s is newest.samples_per_s
    apart = earlier.low is not None and newest.high is not None and newest.high < earlier.low
    return not apart and newest.samples_per_s >= earlier.samples_per_s * (1.0 - _SECOND_DROP)


def session_item(key: SessionKey, nights: Sequence[ListedNight], lines: Sequence[NightLine]) -> Item:
    """A session's entry, by its nights and their lines."""
    builds = dict.fromkeys(build_of(each.night.record) for each in nights)
    return {
        "session": key.session,
        "host": key.host,
        "page": names.session_page(key),
        "first": min(each.created for each in lines),
        "last": max(each.created for each in lines),
        "cases": len(lines),
        "statuses": counts_of(each.status for each in lines),
        "excluded": sum(each.excluded for each in lines),
        "builds": [{"text": build_words(each), "page": names.build_page(each)} for each in builds],
    }


def build_words(key: BuildKey) -> str:
    """Such as ``paddle 3.3.1 @0123456``."""
    return f"{key.framework} {build_text({'version': key.version, 'commit': key.commit})}".strip()


def regressions_of(key: CaseKey, nights: Sequence[ListedNight], lines: Sequence[NightLine], before: str) -> list[Item]:
    """The nights on which a regression began; ``before`` is the status of the last night before them that counts."""
    found = []
    for night, line in zip(nights, lines, strict=True):
        if line.excluded:
            continue
        if line.status in _REGRESSIONS and line.status != before:
            found.append(
                {
                    "uuid": line.uuid,
                    "created": line.created,
                    "case_id": key.case_id,
                    "target": key.target,
                    "host": key.host,
                    "page": names.case_page(key),
                    "status": line.status,
                    "effect": line.effect,
                    "build": build_words(build_of(night.night.record)),
                    "reason": line.reason[:2000],
                    "acknowledged": line.acknowledged,
                }
            )
        before = line.status
    return found


def case_record(key: CaseKey, lines: Iterable[NightLine]) -> Item:
    """A case's record for programs, with its nights if there are lines."""
    own: Item = {"case_id": key.case_id, "target": key.target, "host": key.host}
    found = [record_of(line) for line in lines]
    return {**own, "nights": found} if found else own


def without_picture(item: Mapping[str, Any]) -> Item:
    """A case's entry for programs, which need no picture."""
    return {name: value for name, value in item.items() if name != "picture"}
