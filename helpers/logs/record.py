"""What is found in a training log: runs, what the log says of their configuration, and their records as columns."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from helpers.logs.column import NumberColumn
from helpers.logs.settings import LogSetting, Stated


class RecordField(enum.Enum):
    """What a record (one throughput line) may tell; a format's record pattern names its groups by these values.

    - ``IMAGES_PER_S``: as printed; ``FormatSpec.rate_of`` says of how many cards.
    - ``COMPUTE_IMAGES_PER_S``: as printed, without waiting for data.
    - ``STEP_SECONDS``: seconds of a step as printed; of PaddleClas a running mean (``FormatSpec.running_mean``).
    - ``READER_SECONDS``: the part of them spent waiting for data.
    - ``SPAN_SECONDS``, ``SPAN_START``, ``SPAN_END``: a record over the steps from one to another (TimeHistory).
    - ``STEPS_PER_S``: kept as STEP_SECONDS, 1 / it.
    """

    EPOCH = "epoch"
    STEP = "step"
    IMAGES_PER_S = "images_per_s"
    COMPUTE_IMAGES_PER_S = "compute_images_per_s"
    STEP_SECONDS = "step_seconds"
    READER_SECONDS = "reader_seconds"
    SPAN_SECONDS = "span_seconds"
    SPAN_START = "span_start"
    SPAN_END = "span_end"
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
    """What configuration is read from: ``name`` is the file's (or the archive member's) path as it was given, with
    ``/``; ``lines`` the run's lines that are no records, the first few thousand; ``ranks`` those that mpirun's prefixes
    or the launcher's lines name in the run; ``runs_in_file`` so many runs share the name; ``first_record`` the run's
    first record, which of a summary line is all there is."""

    name: str
    lines: Sequence[Line]
    ranks: frozenset[int] = frozenset()
    runs_in_file: int = 1
    first_record: Line | None = None


Configure = Callable[[RunContext], Mapping[LogSetting, Stated]]


@dataclass(frozen=True)
class FormatSpec:
    """One format as a table; reading does the rest.

    - ``name``: as in ``--format`` (``paddleclas``); ``title`` for people.
    - ``marker``: a literal that stands in every record line and hardly anywhere else: found first, since it is fast.
    - ``record``: the pattern of one record, groups named by RecordField values and TIME_GROUP, within a line. It is
      searched in blocks of many lines, so nothing in it may match a line's end.
    - ``starts``: patterns (multi-line mode) of the lines that begin a new run, none of them a record's; ``record``
      itself where every record is a run.
    - ``printed``: by name, patterns with a group ``images_per_s`` (and ``epoch`` where there is one) of the figures the
      script prints itself: ``average``, ``train_throughput``, ``summary_total``, ``summary_compute``, ``epoch``.
    - ``proofs``: patterns of which a log of this format has at least one, beside its records.
    - ``looked_for``: in words, for the error of an unknown log.
    - ``rate_of``: one card's or the job's images/s.
    - ``running_mean``: a record's rate is the mean since the epoch's step ``running_mean`` (PaddleClas: 5), else None.
    - ``record_covers``: steps of one record where the log's own step numbers do not tell, else None.
    - ``is_summary``: its records tell no step and no seconds; each is a figure for a whole run (TIPC's JSON line).
    - ``rules``: names of the publishers' rules that apply, the usual one first.
    """

    name: str
    title: str
    marker: bytes
    record: re.Pattern[bytes]
    looked_for: str
    rate_of: RateOf
    configure: Configure
    rules: tuple[str, ...]
    starts: tuple[re.Pattern[bytes], ...] = ()
    printed: Mapping[str, re.Pattern[bytes]] = field(default_factory=dict)
    proofs: tuple[re.Pattern[bytes], ...] = ()
    running_mean: int | None = None
    record_covers: int | None = None
    is_summary: bool = False


@dataclass(frozen=True)
class LogRun:
    """One training run of a log.

    - ``source``: the file as given, ``archive.zip!member`` within an archive; ``sha256`` of the file's bytes.
    - ``number`` of the ``runs_in_file`` runs, from 1; ``first_line`` to ``last_line`` of the file.
    - ``columns``: every field the format has, each with one number a record (NaN where a record lacks it).
    - ``stamps``: of the first 256 records and of the last, where the lines have a time.
    - ``dropped``: lines that look like records and are not among the columns.
    - ``cut``: the last line has no end or the last epoch did not finish, in words; empty where the log is whole.
    """

    format: FormatSpec
    source: str
    sha256: str
    number: int
    runs_in_file: int
    first_line: int
    last_line: int
    settings: Mapping[LogSetting, Stated]
    columns: Mapping[RecordField, NumberColumn]
    stamps: tuple[Stamp, ...] = ()
    printed: Mapping[str, tuple[Printed, ...]] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    cut: str = ""

    @property
    def records(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, wanted: RecordField) -> NumberColumn:
        """The column; KeyError where the format has none."""
        return self.columns[wanted]

    def stated(self, setting: LogSetting) -> str | None:
        return self.settings[setting].value if setting in self.settings else None
