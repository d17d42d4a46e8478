"""A stand-in for a value that could not be found out, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from helpers.trainers.contract.errors import SuiteError

T = TypeVar("T")


@dataclass(frozen=True)
class Unknown:
    """Stands in for a value that is not known. Its text is ``unknown: reason``."""

    reason: str

    def __str__(self) -> str:
        return f"unknown: {self.reason}"


def known(values: Iterable[T | Unknown]) -> list[T]:
    """The values that are known."""
    return [value for value in values if not isinstance(value, Unknown)]


def ask(probe: Callable[[], T]) -> T | Unknown:
    """The probe's answer, or an Unknown with the reason.

    Catches errors of the system and of unexpected text, but not errors in the suite's code (TypeError, AttributeError
    …).
    """
    try:
        return probe()
    except FileNotFoundError as error:
        return Unknown(f"no {error.filename}" if error.filename else str(error))
    except (OSError, ValueError, SuiteError) as error:
        return Unknown(str(error) or type(error).__name__)
    except (LookupError, ArithmeticError) as error:
        return Unknown(f"unexpected text ({type(error).__name__}: {error})")
