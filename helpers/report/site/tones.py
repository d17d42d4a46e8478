"""The state of cases in words and as a tone: ``fail``, ``warn`` or ``pass``."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from helpers.judging.wording import counted
from helpers.report.site.lines import is_bad, is_fine

# A case that was not measured for so many days says nothing about today's builds.
STALE_DAYS = 14


def is_stale(item: Mapping[str, Any], newest: str) -> bool:
    """Whether the case was not measured for STALE_DAYS before ``newest``, so that it says nothing about today's
    builds."""
    return bool(item["last"] < days_before(newest, STALE_DAYS))


def days_before(moment: str, days: int) -> str:
    if not moment:
        return ""
    try:
        return (datetime.datetime.fromisoformat(moment) - datetime.timedelta(days=days)).isoformat()
    except OverflowError:
        return moment


def tone_of_case(item: Mapping[str, Any]) -> str:
    if is_fine(item["status"]):
        return "pass"
    return "fail" if is_bad(item["status"]) and not item["acknowledged"] else "warn"


def tone_of_cases(items: Iterable[Mapping[str, Any]]) -> str:
    tones = {tone_of_case(each) for each in items}
    return next((tone for tone in ("fail", "warn", "pass") if tone in tones), "warn")


def tone_of(statuses: Mapping[str, int]) -> str:
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
        return f"{needing} of {all_of} need{'s' if needing == 1 else ''} someone", tone_of_cases(items)
    if left := _needing(stale):
        return f"None of {all_of} needs anyone; {left} that needed someone {_are(left)} no longer measured", "warn"
    return f"None of {all_of} needs anyone", "pass"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def headline_of(statuses: Mapping[str, int], count: int) -> str:
    passed = sum(times for status, times in statuses.items() if is_fine(status))
    return f"{passed} of {counted(count, 'case')} passed"


def badge_words(items: Sequence[Mapping[str, Any]], stale: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """The same in fewer words."""
    if not items:
        return "no nights", "plain"
    if needing := _needing(items):
        return f"{needing} of {len(items)} need someone", tone_of_cases(items)
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
