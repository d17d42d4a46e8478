"""What one run of a log comes to: images/s by every applicable rule, and what is to be doubted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.logs.record import Dropped
from helpers.logs.settings import LogSetting, Stated

HONEST = "honest"


@dataclass(frozen=True)
class RuleFigure:
    """A run's images/s (of all cards) by ``rule`` (with its parameter, ``ngc-tf-mean:skip=5``); None where the rule
    cannot be computed, and ``reason`` says why. ``used`` records or steps went into it, ``unused`` says which were
    left out and why (``10 of warm-up``). ``how`` is the rule in words."""

    rule: str
    samples_per_s: float | None
    used: int = 0
    unused: tuple[str, ...] = ()
    how: str = ""
    reason: str = ""


@dataclass(frozen=True)
class RateSpread:
    """Of the records' rates of all cards after the publisher's warm-up: how many, median, coefficient of variation
    (0.02 is 2%), lowest and highest."""

    records: int
    median_samples_per_s: float
    variation: float
    lowest_samples_per_s: float
    highest_samples_per_s: float


@dataclass(frozen=True)
class Imported:
    """One run of one log (or of the step logs of all ranks).

    - ``source``, ``sha256``, ``format``, ``number`` of ``runs_in_file``, ``first_line`` to ``last_line``: see LogRun.
    - ``figures``: every applicable publisher's rule; ``usual`` names the one its publisher used for such a log.
    - ``honest``: samples of all cards / wall time, where the log permits it (rule HONEST), else with its reason.
    - ``reader_share``: share of a step spent waiting for data; None where ``reader_reason`` says why.
    - ``spread``: None where there are no records.
    """

    source: str
    sha256: str
    format: str
    number: int
    runs_in_file: int
    first_line: int
    last_line: int
    settings: Mapping[LogSetting, Stated]
    figures: tuple[RuleFigure, ...]
    usual: str
    honest: RuleFigure
    reader_share: float | None
    reader_reason: str
    spread: RateSpread | None
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]

    def figure(self, rule: str) -> RuleFigure | None:
        """The figure by a rule's name; None where no such rule applies to the format."""
        every = (*self.figures, self.honest)
        return next((each for each in every if each.rule == rule), None)
