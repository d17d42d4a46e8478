"""The numbers of a record: as printed, and why some cannot be used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from helpers.logs.record import RecordField

# A record of any format has at least one of these fields. The first one that a format has must be in each record.
_MAIN = (RecordField.IMAGES_PER_S, RecordField.STEP_SECONDS, RecordField.SPAN_SECONDS)
_POSITIVE = (*_MAIN, RecordField.COMPUTE_IMAGES_PER_S, RecordField.STEPS_PER_S)
# A number outside these limits is not a measurement. Within them, squares and reciprocals are still finite numbers.
SMALLEST, LARGEST = 1e-100, 1e100
# Separators that can mean one thing only: thousands if there are several groups or a point behind them, decimals if
# what is before or behind a single comma is no group of thousands.
_THOUSANDS = re.compile(rb"[-+]?\d{1,3}(?:(?:,\d{3}){2,}(?:\.\d+)?|,\d{3}\.\d+)")
_DECIMALS = re.compile(rb"[-+]?(?:\d{4,}|0|\d{1,3}(?=,(?!\d{3}$))),\d+")


def number_of(text: bytes) -> float:
    """A number as printed, also with separators where only one reading is possible (``2,899.125``, ``2899,125``);
    infinite for anything else."""
    try:
        number = float(text)
    except ValueError:
        if _THOUSANDS.fullmatch(text):
            return float(text.replace(b",", b""))
        return float(text.replace(b",", b".")) if _DECIMALS.fullmatch(text) else math.inf
    # Python reads nan, and 1_0 as 10.
    return math.inf if number != number or b"_" in text else number


def fault_of(record: Mapping[str, float]) -> str:
    """Why a record cannot be used; empty if it can."""
    main = next((each for each in _MAIN if each in record), None)
    for each, number in record.items():
        if number != number:
            if each == main:
                return f"no {each}"
        elif abs(number) > LARGEST:
            return f"{each}: no finite number"
        elif each in _POSITIVE and number < SMALLEST:
            return f"{each}: 0 or less"
        elif each == RecordField.READER_SECONDS and number < 0:
            return f"{each}: below 0"
    return ""
