"""What ``perfgate calibrate`` prints of a case: its noise, what that lets be found, and the tolerance that fits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from helpers.judging.calibrate import CaseNoise, Deviation
from helpers.judging.statistics import number
from helpers.report.text import hanging, printable

_INDENT = "  "
# Beyond it a drop is no matter of statistics, and the search for it ended.
_LARGEST_TOLD = 0.45


def render_noise(noise: CaseNoise, width: int) -> str:
    """A case's calibration as text, its warnings last."""
    rates = [math.exp(rate) for rate in noise.log_rates]
    found = _by_pairs(noise)
    lines = [
        f"{noise.case_id} [{noise.target}]",
        f"{_INDENT}{len(rates)} runs, {number(min(rates))} … {number(max(rates))} images/s, "
        f"median {number(statistics.median(rates))}, by the median step",
        f"{_INDENT}between runs:   {_spread(noise.run)}",
        f"{_INDENT}between nights: {_spread(noise.night)}{_nights(noise)}",
    ]
    if (effect := noise.effect) is not None:
        lines.append(
            f"{_INDENT}the two interpreters: {effect.point:+.2%} [{effect.low:+.2%}, {effect.high:+.2%}], "
            f"{'which includes' if effect.low <= 0 <= effect.high else 'which does NOT include'} no difference"
        )
    text = (
        f"smallest regression found with 80% power at evidence {noise.threshold:.0f}, by the number of interleaved "
        f"pairs: {', '.join(found)}; by a night that screens first: {_drop(noise.night_drop)}"
    )
    lines += _wrapped(text, width)
    lines += _wrapped(_tolerance(noise), width)
    for warning in noise.warnings:
        lines += _wrapped(f"WARNING: {warning}", width)
    return "\n".join(printable(line) for line in lines)


def tolerance_lines(found: Sequence[CaseNoise]) -> str:
    """Lines for perf.yaml, for the cases whose tolerance is finer than their noise allows; empty without any."""
    wanted = [each for each in found if each.recommended > each.tolerance + 1e-9]
    if not wanted:
        return ""
    lines = ["# perf.yaml: tolerances that these cases' noise allows", "tolerances:", "  cases:"]
    for each in wanted:
        lines += [f'    - pattern: "{each.case_id}"', f"      recorded: {each.recommended:.3f}"]
    return "\n".join(lines)


def _by_pairs(noise: CaseNoise) -> list[str]:
    """``up to 4: none below 45%`` for the numbers of pairs that find nothing, then each with its drop."""
    none = [pairs for pairs, drop in noise.by_pairs if drop > _LARGEST_TOLD]
    parts = [f"up to {none[-1]}: {_drop(1.0)}"] if none else []
    return parts + [f"{pairs}: {_drop(drop)}" for pairs, drop in noise.by_pairs if pairs not in none]


def _tolerance(noise: CaseNoise) -> str:
    if noise.recommended > noise.tolerance + 1e-9:
        return f"tolerance: {noise.tolerance:.1%} in use, {noise.recommended:.1%} recommended"
    return f"tolerance: {noise.tolerance:.1%} in use, which this noise allows"


def _spread(spread: Deviation | None) -> str:
    if spread is None:
        return "not known"
    return (
        f"{spread.value:.2%} [{spread.low:.2%}, {spread.high:.2%}], "
        f"{spread.degrees_of_freedom} degree{'s' if spread.degrees_of_freedom != 1 else ''} of freedom"
    )


def _nights(noise: CaseNoise) -> str:
    if noise.night is None:
        return ": one night so far"
    return f", {noise.nights} nights"


def _drop(drop: float) -> str:
    return f"none below {_LARGEST_TOLD:.0%}" if drop > _LARGEST_TOLD else f"{drop:.1%}"


def _wrapped(text: str, width: int) -> list[str]:
    return hanging(text, width, _INDENT, _INDENT * 2)
