"""Nights as history gives them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from helpers.history.records import NightRecord
from helpers.history.stored import StoredNight
from helpers.judging.verdict import Standing

CASE = "paddle-vgg16-fp32-bs8-1x1-dali-static"
FIRST = datetime.date(2026, 9, 1)


def night(number: int, images_per_s: float | Sequence[float] = 100.0, **values: Any) -> StoredNight:
    """Night ``number`` of the case; ``ratio`` and ``pairs`` give it an A/B, else ``values`` are NightRecord's or
    StoredNight's."""
    several = [images_per_s] if isinstance(images_per_s, float) else images_per_s
    rates = tuple(math.log(rate) for rate in several)
    standing = Standing(rates[0], 1.0, 1.0, True, 0.003, 0.001, 20, len(rates))
    if "ratio" in values:
        standing = replace(standing, effect=values.pop("ratio") - 1, pairs=values.pop("pairs", 4))
    day = FIRST + datetime.timedelta(number)
    record: dict[str, Any] = {
        "session": f"s{number}",
        "case_id": CASE,
        "target": "cpu",
        "created": f"{day}T02:00:00+00:00",
        "segment": {"host": "h", "driver": "1"},
        "status": "PASS",
        "code": "c",
        "reason": "r",
        "cards": 1,
        "log_rates": rates,
        "run_uuids": (f"u{number}",),
        "standing": standing,
        "build": {"framework": "paddle", "version": "3.3.1", "commit": f"{number:040x}"},
    }
    stored: dict[str, Any] = {"uuid": f"n{number}", "rates": rates, "segment_digest": "d"}
    for name, value in values.items():
        (record if name in record else stored)[name] = value
    return StoredNight(record=NightRecord(**record), **stored)


@pytest.fixture
def make_night() -> Callable[..., StoredNight]:
    return night
