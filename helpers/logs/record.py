"""The contents of a training log: its runs with their configuration, and their records as columns."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.judging.rules.rates import rate_unit_of_model
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.models import Model

if TYPE_CHECKING:
    from helpers.logs.formats.common import Facts


class RecordField(enum.StrEnum):
    """The fields of a record (one line that states a speed). A format's pattern names its groups by these values."""

    EPOCH = "epoch"
    STEP = "step"
    # As printed; of one card or of all cards, by ``FormatSpec.rate_of``.
    IMAGES_PER_S = "images_per_s"
    # As printed, without the time spent waiting for data.
    COMPUTE_IMAGES_PER_S = "compute_images_per_s"
    # Seconds of a step as printed; in PaddleClas' logs a running mean (``FormatSpec.running_mean``).
    STEP_SECONDS = "step_seconds"
    # The seconds of a step that were spent waiting for data.
    READER_SECONDS = "reader_seconds"
    # The seconds of the steps from SPAN_START to SPAN_END (TimeHistory).
    SPAN_SECONDS = "span_seconds"
    SPAN_START = "span_start"
    SPAN_END = "span_end"
    # Kept as STEP_SECONDS, the reciprocal.
    STEPS_PER_S = "steps_per_s"


# The group of a record pattern for the line's time stamp. Only those of the first records and of the last are kept.
TIME_GROUP = "time"


class RateOf(enum.Enum):
    """Whose rate a record's images/s are."""

    CARD = "one card"
    JOB = "all cards"


@dataclass(frozen=True)
class Line:
    """One line of a log, cleaned and without its line end. ``number`` is that of the original file, from 1."""

    number: int
    text: str


@dataclass(frozen=True)
class Dropped:
    """Lines that look like records but were not used: how many, why, and the first of them."""

    count: int
    reason: str
    first: Line


@dataclass(frozen=True)
class Printed:
    """A figure that the script itself printed, at its end or after an epoch; ``epoch`` is None if it names none."""

    # 0 if the script printed no figure above 0.
    samples_per_s: float
    line: int
    epoch: int | None = None


Settings = Mapping[LogSetting, Stated | None]


@dataclass(frozen=True)
class FormatSpec:
    """One format of logs as data; ``reader`` has the code."""

    # The name for ``--log-format``: ``paddleclas``.
    name: str
    # A text that is in every record's line and in few others. It is searched for first, since that is fast.
    marker: bytes
    # The pattern of one record. Its groups are named by RecordField values and TIME_GROUP.
    record: re.Pattern[bytes]
    # Whose rate it is: by the format, or by the settings of the run. The function raises LogError if nobody knows.
    rate_of: RateOf | Callable[[Mapping[LogSetting, Stated]], RateOf]
    # The settings that a run's lines state. Its name and what follows from both are added.
    configure: Callable[[Facts], Settings]
    # The names of the publishers' rules that apply, the usual one first.
    rules: tuple[str, ...]
    # Patterns of the lines that begin a new run. None of them may match a record, except ``record`` itself in a format
    # where every record is a run.
    starts: tuple[re.Pattern[bytes], ...] = ()
    # Patterns of the figures that the script prints itself, by name: ``average``, ``train_throughput``,
    # ``summary_total``, ``summary_compute``, ``summary_ips`` and ``epoch``. Each has a group ``images_per_s``, and may
    # have a group ``epoch``.
    printed: Mapping[str, re.Pattern[bytes]] = field(default_factory=dict)
    # If a record's rate is the mean since a certain step of the epoch: that step (PaddleClas: 5).
    running_mean: int | None = None
    # Whether some versions reset that mean at every record; the records tell which (series.py).
    may_reset: bool = False
    # How many steps a record covers, if the log's step numbers do not show it.
    record_covers: int | None = None
    # Whether each record is a figure for a whole run, without step and seconds (TIPC's JSON line).
    is_summary: bool = False
    # The unit of its rates for a model that the suite does not know.
    unit: str = "images/s"


@dataclass(frozen=True, kw_only=True)
class RunOfLog:
    """What is said of a run besides its records and figures."""

    # The file's path as it was given.
    source: str
    # The hash of the log's bytes, in hexadecimal.
    sha256: str
    # From 1 to ``runs_in_file``.
    number: int
    runs_in_file: int
    # Line numbers in the file, from 1.
    first_line: int
    last_line: int
    settings: Mapping[LogSetting, Stated]
    # Lines that look like records and were not used.
    dropped: tuple[Dropped, ...] = ()
    # When its first record was printed, by the log's clock: ISO 8601 without a zone; empty if no line has a year.
    began: str = ""


@dataclass(frozen=True, kw_only=True)
class LogRun(RunOfLog):
    """One training run of a log, with its records."""

    format: FormatSpec
    # The column of each field that the format has: one number for each record, NaN if the record lacks the field.
    columns: Mapping[str, Sequence[float]]
    rate_of: RateOf = RateOf.JOB
    # When the first 256 records and the last were printed, by index (from 0), in seconds; empty if the lines have no
    # time. The clock has no zone, so only differences have a meaning.
    stamps: Mapping[int, float] = field(default_factory=dict)
    printed: Mapping[str, tuple[Printed, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    # Says in words that the last line has no end or that the last epoch is incomplete; empty for a whole log.
    cut: str = ""

    @property
    def records(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def unit(self) -> str:
        """The unit of its rates: that of the model's samples, or the format's for a model that the suite does not
        know."""
        model = self.stated(LogSetting.MODEL) or ""
        return rate_unit_of_model(model) if model in {each.value for each in Model} else self.format.unit

    def stated(self, setting: LogSetting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None


HONEST = "honest"


@dataclass(frozen=True)
class RuleFigure:
    """A run's figure by one rule."""

    # The rule's name with its parameter, if any: ``ngc-tf-mean:skip=5``.
    rule: str
    # Of all cards; None if the rule cannot be computed, and then ``reason`` says why.
    samples_per_s: float | None
    # How many records or steps were used, and which were left out and why (``10 of warm-up``).
    used: int = 0
    unused: tuple[str, ...] = ()
    # The rule in words.
    how: str = ""
    reason: str = ""


@dataclass(frozen=True)
class RateSpread:
    """The spread of the records' rates (of all cards) after the publisher's warm-up."""

    records: int
    median_samples_per_s: float
    # Coefficient of variation, as a fraction: 0.02 is 2%.
    variation: float
    lowest_samples_per_s: float
    highest_samples_per_s: float


@dataclass(frozen=True, kw_only=True)
class Imported(RunOfLog):
    """One run with its figures."""

    format: str
    # Figures by all rules that apply; ``usual`` names the rule that the publisher used for such logs.
    figures: tuple[RuleFigure, ...]
    usual: str
    # Samples of all cards / wall time; if the log does not allow it, the reason.
    honest: RuleFigure
    # By the rule by which sessions are compared; only records of single steps allow it.
    median_step: RuleFigure
    # The share of the time that was spent waiting for data (0 to 1); None if the log does not say it.
    reader_share: float | None
    # None if there are no records.
    spread: RateSpread | None
    warnings: tuple[str, ...]
    unit: str = "images/s"

    def figure(self, rule: str) -> RuleFigure | None:
        """The figure by a rule's name; None if the rule does not apply to the format."""
        every = (*self.figures, self.honest)
        return next((each for each in every if each.rule == rule), None)

    @property
    def usual_figure(self) -> RuleFigure | None:
        return self.figure(self.usual)
