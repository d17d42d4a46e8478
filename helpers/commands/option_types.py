"""What several commands let argparse make of an option's word. Each raises argparse.ArgumentTypeError, which argparse
prints as a usage error, with what was expected."""

from __future__ import annotations

import argparse
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


def count_of(what: str, text: str, least: int, most: int) -> int:
    """A whole number of ``what`` (a plural), from ``least`` to ``most``."""
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of {what} from {least} to {most}")
    return int(text)


def hours(text: str) -> float:
    """Hours that a command may take."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found <= _MOST_HOURS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected hours, above 0 and at most {_MOST_HOURS}")
    return found
