"""What a reader of logs would have found, without a log: runs with the figures and the settings that a test says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers.logs.importer import ImportBatch, Unread
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
    every = tuple(figure(rule, value) for rule, value in told.items() if rule != HONEST)
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
        reader_share=None,
        reader_reason="the log does not tell",
        spread=RateSpread(80, 1460.0, 0.01, 1400.0, 1500.0),
        dropped=(),
        warnings=("few records: 80",),
    )
    return replace(made, **changes)


def figure(rule: str, value: float | str) -> RuleFigure:
    if isinstance(value, str):
        return RuleFigure(rule, None, reason=value)
    return RuleFigure(rule, value, used=80, unused=("10 of warm-up",), how="the mean")


def write_log(path: Path, settings: Mapping[str, str], figures: Mapping[str, float | str] | None = None) -> Path:
    """A log that ``read_double`` reads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"settings": settings, "figures": figures}))
    return path


def read_double(path: Path, said: Mapping[LogSetting, Stated]) -> ImportBatch:
    """Stands where a reader of logs stands: a file that ``write_log`` wrote is one run, any other is not read.

    As the real one it refuses a log that does not tell its precision, unless that is said.
    """
    try:
        told = json.loads(path.read_text())
    except ValueError:
        return ImportBatch((), (Unread(str(path), "no format is known"),))
    settings = {**told["settings"], **{setting.value: each.value for setting, each in said.items()}}
    if "precision" not in settings:
        return ImportBatch((), (Unread(str(path), "precision: give --precision"),))
    return ImportBatch((imported(settings, told["figures"], content=path.name, source=str(path)),))
