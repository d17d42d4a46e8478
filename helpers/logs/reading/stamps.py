"""Time stamps of log lines, in seconds of a clock without a zone: only differences mean something."""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

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


def seconds_of_rows(texts: NDArray[np.uint8]) -> NDArray[np.float64] | None:
    """``seconds_of`` each row of a matrix of characters, at once; None where the rows are not all dates, written digit
    for digit like the first one."""
    found = _DATE.fullmatch(texts[0].tobytes())
    if found is None:
        return None
    digits = np.ascontiguousarray(texts.T) - np.uint8(ord("0"))
    if not all(bool((each <= 9).all() if each[0] <= 9 else (each == each[0]).all()) for each in digits):
        return None

    def number(name: str, default: bytes = b"0") -> NDArray[np.int64]:
        if found[name] is None:
            return np.full(len(texts), int(default), dtype=np.int64)
        begin, end = found.span(name)
        whole: NDArray[np.int64] = digits[begin].astype(np.int64)
        for each in digits[begin + 1 : end]:
            whole *= 10
            whole += each
        return whole

    year, month, day, hour, minute, second = (number(name, _ANY_YEAR) for name in _PARTS)
    if not all(
        bool(np.all((low <= part) & (part <= most)))
        for part, low, most in ((year, 1, 9999), (month, 1, 12), (hour, 0, 23), (minute, 0, 59), (second, 0, 59))
    ):
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    if not (days.astype("datetime64[M]") == months).all():
        return None
    fraction = number("fraction") / 10.0 ** len(found["fraction"] or b"")
    return ((days.astype(np.int64) * 24 + hour) * 60 + minute) * 60.0 + second + fraction
