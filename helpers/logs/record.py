"""What is found in a training log: runs, what the log states of their configuration, and their records as columns."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helpers.logs.column import NumberColumn
from helpers.logs.settings import LogSetting, Stated


class RecordField(enum.Enum):
    """What a record (one throughput line) may hold; a format's record pattern names its groups by these values."""

    EPOCH = "epoch"
    STEP = "step"
    # As printed; ``FormatSpec.rate_of`` says of how many cards.
    IMAGES_PER_S = "images_per_s"
    # As printed, without waiting for data.
    COMPUTE_IMAGES_PER_S = "compute_images_per_s"
    # Seconds of a step as printed; in PaddleClas' logs a running mean (``FormatSpec.running_mean``).
    STEP_SECONDS = "step_seconds"
    # The part of a step's seconds that was spent waiting for data.
    READER_SECONDS = "reader_seconds"
    # A record over the steps from SPAN_START to SPAN_END (TimeHistory).
    SPAN_SECONDS = "span_seconds"
    SPAN_START = "span_start"
    SPAN_END = "span_end"
    # Kept as STEP_SECONDS: 1 / it.
    STEPS_PER_S = "steps_per_s"


# A group of a record pattern beside the fields: the line's time stamp. Kept of the first records and of the last.
TIME_GROUP = "time"
# What a record pattern has between these two comments only looks back at that stamp, where the line has one.
STAMP_BEGINS, STAMP_ENDS = "(?#stamp)", "(?#end)"


class RateOf(enum.Enum):
    """Whose images/s a record prints."""

    CARD = "one card"
    JOB = "all cards"


@dataclass(frozen=True)
class Line:
    """One line of a log, cleaned and without its end; ``number`` counts from 1 in the file as it is."""

    number: int
    text: str


@dataclass(frozen=True)
class Dropped:
    """Lines that look like records and were not used: how many, why, the first one."""

    count: int
    reason: str
    first: Line


@dataclass(frozen=True)
class Printed:
    """A figure that the script itself printed at its end or after an epoch, with the epoch where it names one."""

    samples_per_s: float
    line: int
    epoch: int | None = None


@dataclass(frozen=True)
class Stamp:
    """When record ``index`` (from 0) was printed, in seconds of a clock without a zone; only differences mean
    something."""

    index: int
    seconds: float


@dataclass(frozen=True)
class RunContext:
    """What a run's configuration is read from."""

    # The path of the file or of the archive's member as it was given, with ``/``.
    name: str
    # The run's lines that are no records, the first few thousand.
    lines: Sequence[Line]
    # Those that mpirun's prefixes name in the run.
    ranks: frozenset[int] = frozenset()
    # How many runs share the name.
    runs_in_file: int = 1
    # The run's first record, which is all there is of a summary line.
    first_record: Line | None = None


Configure = Callable[[RunContext], Mapping[LogSetting, Stated]]


@dataclass(frozen=True)
class FormatSpec:
    """One format as a table; reading does the rest."""

    # As in ``--format`` (``paddleclas``), and for people.
    name: str
    title: str
    # A literal that stands in every record line and hardly anywhere else; searched for first, since that is fast.
    marker: bytes
    # The pattern of one record, its groups named by RecordField values and TIME_GROUP. It is searched in blocks of many
    # lines, so nothing in it may match a line's end.
    record: re.Pattern[bytes]
    # A record in words, for the error of an unknown log.
    looked_for: str
    rate_of: RateOf
    configure: Configure
    # The names of the publishers' rules that apply, the usual one first.
    rules: tuple[str, ...]
    # Patterns of the lines that begin a new run. None of them matches a record, but for ``record`` itself where every
    # record is a run.
    starts: tuple[re.Pattern[bytes], ...] = ()
    # Patterns of the figures that the script prints itself, with a group ``images_per_s``, and ``epoch`` where there is
    # one. By name: ``average``, ``train_throughput``, ``summary_total``, ``summary_compute``, ``summary_ips`` and
    # ``epoch``.
    printed: Mapping[str, re.Pattern[bytes]] = field(default_factory=dict)
    # Patterns of which a log of this format has at least one, beside its records.
    proofs: tuple[re.Pattern[bytes], ...] = ()
    # Where a record's rate is the mean since a step of the epoch, that step (PaddleClas: 5).
    running_mean: int | None = None
    # The steps of one record, where the log's own step numbers do not give them.
    record_covers: int | None = None
    # Its records hold no step and no seconds; each is a figure for a whole run (TIPC's JSON line).
    is_summary: bool = False


@dataclass(frozen=True)
class LogRun:
    """One training run of a log."""

    format: FormatSpec
    # The file as given; ``archive.zip!member`` within an archive.
    source: str
    # Of the file's bytes.
    sha256: str
    # From 1, of the ``runs_in_file`` runs.
    number: int
    runs_in_file: int
    # Lines of the file.
    first_line: int
    last_line: int
    settings: Mapping[LogSetting, Stated]
    # Every field that the format has, with one number a record; NaN where a record lacks it.
    columns: Mapping[RecordField, NumberColumn]
    # Of the first 256 records and of the last, where the lines have a time.
    stamps: tuple[Stamp, ...] = ()
    printed: Mapping[str, tuple[Printed, ...]] = field(default_factory=dict)
    # Lines that look like records and are not among the columns.
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    # That the last line has no end or the last epoch did not finish, in words; empty where the log is whole.
    cut: str = ""

    @property
    def records(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def stated(self, setting: LogSetting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None


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
