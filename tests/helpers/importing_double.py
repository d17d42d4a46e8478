"""What a reader of logs would have found, without a log: runs with the figures and the settings that a test says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from helpers.judging.rules.own import MEDIAN_STEP
from helpers.logs.record import HONEST, Imported, RateSpread, RuleFigure
from helpers.logs.settings import LogSetting, Stated

# Of a published V100 row: 1471.9 images/s by ngc-mxnet-epochs, a reference.
MXNET = {"framework": "mxnet", "model": "resnet50v1.5", "precision": "amp", "batch_size_per_card": "256", "cards": "1"}
# Of a published V100 row that gates: 393.561 images/s by paddleclas-trimmed.
PADDLE = {**MXNET, "framework": "paddle", "precision": "fp32", "data": "native", "execution": "static"}


def imported(
    settings: Mapping[str, str] | None = None,
    figures: Mapping[str, float | str] | None = None,
    content: str = "a log",
    **changes: Any,
) -> Imported:
    """``settings`` by the names of LogSetting, ``figures`` by rule: images/s, or why there is none."""
    told = {"ngc-mxnet-epochs": 1460.0} if figures is None else figures
    every = tuple(figure(rule, value) for rule, value in told.items() if rule not in (HONEST, MEDIAN_STEP))
    said = {
        LogSetting(name): Stated(value, "line 7") for name, value in (MXNET if settings is None else settings).items()
    }
    made = Imported(
        source="folder/a.log",
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        format="nvidia-mxnet",
        number=1,
        runs_in_file=1,
        first_line=1,
        last_line=90,
        settings=said,
        figures=every,
        usual=every[0].rule if every else HONEST,
        honest=figure(HONEST, told.get(HONEST, "the log has no time stamps")),
        median_step=figure(MEDIAN_STEP, told.get(MEDIAN_STEP, "a record every 20 steps")),
        reader_share=None,
        spread=RateSpread(80, 1460.0, 0.01, 1400.0, 1500.0),
        dropped=(),
        warnings=("few records: 80",),
    )
    return replace(made, **changes)


def figure(rule: str, value: float | str) -> RuleFigure:
    if isinstance(value, str):
        return RuleFigure(rule, None, reason=value)
    return RuleFigure(rule, value, used=80, unused=("10 of warm-up",), how="the mean")
