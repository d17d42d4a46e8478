"""Functions that check the value of an option for several commands. Each raises argparse.ArgumentTypeError, which
argparse prints as a usage error, with what was expected."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_MOST_HOURS = 1000


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """``parse`` for argparse: its ValueError becomes a usage error."""

    def checked(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked


def count_of(what: str, least: int, most: int) -> Callable[[str], int]:
    """A function that reads a whole number of ``what`` (a plural), from ``least`` to ``most``."""

    def checked(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number of {what} from {least} to {most}")
        return int(text)

    return checked


def hours(text: str) -> float:
    """Hours that a command may take."""
    with contextlib.suppress(ValueError):
        if 0 < (found := float(text)) <= _MOST_HOURS:
            return found
    raise argparse.ArgumentTypeError(f"{text!r}: expected hours, above 0 and at most {_MOST_HOURS}")


def time_is_over(limit_hours: float | None, clock: Callable[[], float]) -> Callable[[], bool]:
    """A function that says whether ``limit_hours`` from now are over; None is no limit."""
    if limit_hours is None:
        return lambda: False
    end = clock() + 3600 * limit_hours
    return lambda: clock() >= end
