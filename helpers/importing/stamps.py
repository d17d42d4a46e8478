"""Time stamps of log lines, in seconds of a clock without a zone: only differences mean something."""

from __future__ import annotations

import re
from datetime import datetime

_DATE = re.compile(
    rb"(?:(?P<year>\d{4})[-/]?)?(?P<month>\d\d)[-/]?(?P<day>\d\d)[ T]+"
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
)
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d+)?")
# glog prints no year; in a leap year every date of it exists.
_ANY_YEAR = b"2000"
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_ZERO = datetime(1970, 1, 1)


def seconds_of(text: bytes) -> float | None:
    """``2022/12/02 18:10:52``, ``2022-11-24 04:01:45.487468``, ``2020-12-16 08:21:31,031``, ``0826 15:13:29.256137``
    or seconds since 1970; None for anything else."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[name] or _ANY_YEAR) for name in _PARTS)
    try:
        whole = (datetime(year, month, day, hour, minute, second) - _ZERO).total_seconds()
    except ValueError:
        return None
    return whole + float(b"0." + (found["fraction"] or b"0"))
