"""What one run of a log comes to: samples/s by every applicable rule, and what is to be doubted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.logs.record import Dropped
from helpers.logs.settings import LogSetting, Stated

HONEST = "honest"


@dataclass(frozen=True)
class RuleFigure:
    """A run's figure by one rule."""

    # With its parameter: ``ngc-tf-mean:skip=5``.
    rule: str
    # Of all cards; None where the rule cannot be computed, and ``reason`` says why.
    samples_per_s: float | None
    # How many records or steps went into it, and which were left out and why (``10 of warm-up``).
    used: int = 0
    unused: tuple[str, ...] = ()
    # The rule in words.
    how: str = ""
    reason: str = ""


@dataclass(frozen=True)
class RateSpread:
    """How the records' rates of all cards are spread after the publisher's warm-up."""

    records: int
    median_samples_per_s: float
    # Coefficient of variation: 0.02 is 2%.
    variation: float
    lowest_samples_per_s: float
    highest_samples_per_s: float


@dataclass(frozen=True)
class Imported:
    """One run of one log, or of the step logs of all ranks. The first fields are those of LogRun."""

    source: str
    sha256: str
    format: str
    number: int
    runs_in_file: int
    first_line: int
    last_line: int
    settings: Mapping[LogSetting, Stated]
    # By every publisher's rule that applies; ``usual`` names the one that its publisher used for such a log.
    figures: tuple[RuleFigure, ...]
    usual: str
    # Samples of all cards / wall time, where the log permits it, else with the reason why not.
    honest: RuleFigure
    # The share of a step that was spent waiting for data; None where ``reader_reason`` says why.
    reader_share: float | None
    reader_reason: str
    # None where there are no records.
    spread: RateSpread | None
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]

    def figure(self, rule: str) -> RuleFigure | None:
        """The figure by a rule's name; None where no such rule applies to the format."""
        every = (*self.figures, self.honest)
        return next((each for each in every if each.rule == rule), None)

    @property
    def usual_figure(self) -> RuleFigure | None:
        return self.figure(self.usual)
