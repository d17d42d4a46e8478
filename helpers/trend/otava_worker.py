"""Change points of many series by Apache Otava, in Otava's own environment: ``python -I otava_worker.py``.

Otava pins an old numpy, so nothing of the suite is imported here and the suite imports nothing from here.
Standard input and output are JSON: ``{"window", "max_p", "min_magnitude", "series": [[...], ...]}`` in,
``{"change_points": [[{"index", "before", "after", "p"}, ...], ...]}`` out, a list for each series in order.
``before`` and ``after`` are the means of the pieces on both sides.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from otava.analysis import compute_change_points


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The change points of every series."""
    return {"change_points": [_points(series, question) for series in question["series"]]}


def _points(series: list[float], question: dict[str, Any]) -> list[dict[str, float | int]]:
    # A list on purpose: given an array, Otava 0.8.0 slices it differently.
    found, _ = compute_change_points(
        series,
        window_len=question["window"],
        max_pvalue=question["max_p"],
        min_magnitude=question["min_magnitude"],
    )
    return [
        {
            "index": int(point.index),
            "before": float(point.stats.mean_1),
            "after": float(point.stats.mean_2),
            "p": float(point.stats.pvalue),
        }
        for point in found
    ]


def main() -> int:
    # Pieces without any spread divide by zero inside scipy, which then answers p = 0 as it should.
    warnings.simplefilter("ignore", RuntimeWarning)
    json.dump(answer(json.load(sys.stdin)), sys.stdout, allow_nan=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
