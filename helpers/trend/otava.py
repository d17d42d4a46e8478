"""Change points by Apache Otava, asked of its own environment in one process for any number of series."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.errors import SuiteError
from helpers.job import finite

_ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("otava_worker.py")
INTERPRETER = _ROOT / ".venv-trend" / "bin" / "python"
MAKE = "make env-trend"
# A cold scipy takes seconds, a series of a year a tenth of one.
TIMEOUT_SECONDS = 600.0


class TrendError(SuiteError):
    """Otava's environment is missing or gave no answer."""


@dataclass(frozen=True)
class Sensitivity:
    """What counts as a step (VERDICT.md, "Trend"): ``window`` nights are looked at together, ``max_p`` is the
    significance, ``min_magnitude`` the smallest change as a fraction."""

    window: int = 50
    max_p: float = 0.001
    min_magnitude: float = 0.005


@dataclass(frozen=True)
class ChangePoint:
    """The series changes at ``index``, its first value after the step; ``before`` and ``after`` as Otava has them:
    means of what lies between neighbouring change points. ``p`` by its t-test."""

    index: int
    before: float
    after: float
    p: float


# What finds the change points of each series.
Detect = Callable[[Sequence[Sequence[float]]], tuple[tuple[ChangePoint, ...], ...]]


def change_points(
    series: Sequence[Sequence[float]],
    sensitivity: Sensitivity | None = None,
    *,
    interpreter: Path = INTERPRETER,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[tuple[ChangePoint, ...], ...]:
    """The change points of every series, in their order; the values are images/s or ratios, finite and above 0.

    Raises TrendError without Otava's environment and where it gives no answer.
    """
    for place, values in enumerate(series):
        if wrong := [value for value in values if not finite(value) or value <= 0]:
            raise TrendError(f"series {place}", got=wrong[0], expected="numbers above 0, all finite")
    if not series:
        return ()
    if not interpreter.exists():
        raise TrendError(
            "Apache Otava", field="environment", got=f"no {interpreter}", expected="its Python", remedy=f"Call: {MAKE}"
        )
    question = {**asdict(sensitivity or Sensitivity()), "series": [[float(value) for value in each] for each in series]}
    try:
        # -I: neither the caller's folder nor PYTHONPATH may stand before Otava's own packages.
        done = subprocess.run(
            [str(interpreter), "-I", str(WORKER)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _no_answer(str(error)) from error
    if done.returncode != 0:
        raise _no_answer((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    return _read(done.stdout, series)


def _read(text: str, series: Sequence[Sequence[float]]) -> tuple[tuple[ChangePoint, ...], ...]:
    try:
        answers = json.loads(text)["change_points"]
        found = tuple(tuple(ChangePoint(**point) for point in each) for each in answers)
        numbers_are_whole = all(
            0 < point.index < len(values) and finite(point.p) and finite(point.before) and finite(point.after)
            for values, points in zip(series, found, strict=True)
            for point in points
        )
    except (ValueError, TypeError, KeyError) as error:
        raise _no_answer(f"{type(error).__name__}: {error}") from error
    if not numbers_are_whole:
        raise _no_answer("a change point outside its series, or one that is no number")
    return found


def _no_answer(got: str) -> TrendError:
    return TrendError(
        "Apache Otava",
        got=got,
        expected="change points",
        remedy=f"If its environment is incomplete, delete .venv-trend and call: {MAKE}",
    )
