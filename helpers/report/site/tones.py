"""The state of cases in words and as a tone: ``fail``, ``warn`` or ``pass``."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from helpers.judging.wording import counted
from helpers.report.site.lines import is_bad, is_fine

# After so many days without a night, a case says nothing about today's builds.
STALE_DAYS = 14


def is_stale(item: Mapping[str, Any], newest: str) -> bool:
    """Whether the case was not measured in the STALE_DAYS before ``newest``."""
    return bool(item["last"] < days_before(newest, STALE_DAYS))


def days_before(moment: str, days: int) -> str:
    """The moment so many days before ``moment``, both in ISO 8601. It is ``moment`` itself if no year is so early, and
    empty if ``moment`` is."""
    if not moment:
        return ""
    try:
        return (datetime.datetime.fromisoformat(moment) - datetime.timedelta(days=days)).isoformat()
    except OverflowError:
        return moment


def tone_of_case(item: Mapping[str, Any]) -> str:
    """The tone of a case. One that is bad and acknowledged is no failure any more."""
    if is_fine(item["status"]):
        return "pass"
    return "fail" if is_bad(item["status"]) and not item["acknowledged"] else "warn"


def tone_of_cases(items: Iterable[Mapping[str, Any]]) -> str:
    """The worst tone of the cases; ``warn`` if there is none."""
    tones = {tone_of_case(each) for each in items}
    return next((tone for tone in ("fail", "warn", "pass") if tone in tones), "warn")


def tone_of(statuses: Mapping[str, int]) -> str:
    """The tone of a session or build by the number of its cases with each status."""
    if any(map(is_bad, statuses)):
        return "fail"
    return "pass" if all(map(is_fine, statuses)) else "warn"


def _needing(items: Iterable[Mapping[str, Any]]) -> int:
    return sum(not is_fine(each["status"]) and not each["acknowledged"] for each in items)


def headline(items: Sequence[Mapping[str, Any]], stale: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """The state of the cases in words, and its tone. ``stale`` are further cases, which are no longer measured: the
    state is not good if one of them needed someone."""
    if not items:
        return "The history has no nights yet", "warn"
    needing, all_of = _needing(items), counted(len(items), "case")
    if needing:
        return f"{needing} of {all_of} {_need(needing)} someone", tone_of_cases(items)
    if left := _needing(stale):
        return f"None of {all_of} needs anyone; {left} that needed someone {_are(left)} no longer measured", "warn"
    return f"None of {all_of} needs anyone", "pass"


def _need(count: int) -> str:
    return "needs" if count == 1 else "need"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def headline_of(statuses: Mapping[str, int], count: int) -> str:
    """How many of a session's ``count`` cases passed."""
    passed = sum(times for status, times in statuses.items() if is_fine(status))
    return f"{passed} of {counted(count, 'case')} passed"


def badge_words(items: Sequence[Mapping[str, Any]], stale: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """The same as ``headline`` in fewer words, for a badge."""
    if not items:
        return "no nights", "plain"
    if needing := _needing(items):
        return f"{needing} of {len(items)} {_need(needing)} someone", tone_of_cases(items)
    left = _needing(stale)
    return (f"passing; {left} no longer measured", "warn") if left else ("passing", "pass")


def extent_of(items: Sequence[Mapping[str, Any]], machines: int, newest: str, stale: int) -> str:
    """How much the site shows, in words."""
    nights = sum(each["nights"] for each in items)
    text = f"{counted(nights, 'night')} of {counted(len(items), 'case')} on {counted(machines, 'machine')}"
    text += f", the newest {newest[:16].replace('T', ' ')} UTC" if newest else ""
    if not stale:
        return text
    were = "was" if stale == 1 else "were"
    return f"{text}; {counted(stale, 'case')} {were} not measured in the {STALE_DAYS} days before that"
