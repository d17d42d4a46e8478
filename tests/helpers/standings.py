"""A standing from flat values: those of its effect and of its pairs are named as in a table."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from helpers.judging.case.verdict import PairStanding, Standing
from helpers.judging.statistics import EffectSize

_PAIRS = {each.name: each.name for each in fields(PairStanding)} | {"pairs": "count", "e_confirm": "evidence"}
del _PAIRS["evidence"]
NAMES = {each.name for each in fields(Standing)} - {"log_rate"} | {"low", "high", *_PAIRS}


def with_values(standing: Standing, **values: Any) -> Standing:
    """``pairs`` is their number, and ``effect`` the point of the effect, with ``low`` and ``high`` about it."""
    point = values.pop("effect", None)
    low, high = values.pop("low", point), values.pop("high", point)
    paired = {_PAIRS[name]: values.pop(name) for name in list(values) if name in _PAIRS}
    if point is not None:
        values["effect"] = EffectSize(point, point if low is None else low, point if high is None else high)
    elif low is not None and standing.effect is not None:
        values["effect"] = EffectSize(standing.effect.point, low, high)
    if paired:
        values["pairs"] = PairStanding(**{"count": 4, "evidence": 1e4, **paired})
    return replace(standing, **values)
