"""How much of a case's window went into waiting for data, and when that makes it reader-bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from helpers.plan.case_plan import CPU
from helpers.report.row import CaseRow
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import ConfigError


@dataclass(frozen=True)
class ReaderBound:
    """When a case counts as reader-bound."""

    # From this fraction of the window on.
    share: float
    # Why from there.
    source: str


READER_BOUND = ReaderBound(
    0.10,
    'docs/measuring-rules.md, "Reader (data) share": 14% to 48% where the reader is known to hold up the published '
    "runs, at most 4% elsewhere; 10% lies between",
)

_REMEDIES: Mapping[DataSource, str] = MappingProxyType(
    {
        DataSource.NATIVE: "raise --set native.workers=N, or take dali as the data source",
        DataSource.DALI: "raise --set dali.threads=N, or put the images on a faster disk",
        DataSource.DALI_CPU: "raise --set dali.threads=N, or decode on the card (data source dali)",
        DataSource.SYNTHETIC: "no data is read here, so look for what else used this machine",
        DataSource.UNSTATED: "name the data source in the case",
    }
)


def share_cell(row: CaseRow) -> str:
    """The reader's share in at most 4 columns: ``12%``, ``<1%``, ``-`` where it is not known."""
    if row.reader_share is None:
        return "-"
    share = f"{row.reader_share:.0%}"
    return "<1%" if share == "0%" else share


def is_reader_bound(row: CaseRow) -> bool:
    return row.reader_share is not None and row.reader_share >= READER_BOUND.share


def reader_note(row: CaseRow) -> str | None:
    """Why the case is reader-bound and what to do about it; None for one that is not.

    On a GPU the share is the host's: while it waits, the device may still compute what was queued before.
    """
    if row.reader_share is None or not is_reader_bound(row):
        return None
    loader = f" ({row.loader})" if row.loader else ""
    note = f"reader-bound: the rank that waited longest spent {row.reader_share:.0%} of its window waiting for data"
    if row.target != CPU:
        note += " on the host, while the card may still have computed"
    return f"{note}{loader}; {_remedy(row.case_id)}"


def _remedy(case_id: str) -> str:
    synthetic = "a synthetic case shows what the loader costs"
    try:
        source = Case.parse(case_id).data
    except ConfigError:
        # A row may come from a file of another version, and what it measured is shown all the same.
        return synthetic
    return _REMEDIES[source] if source is DataSource.SYNTHETIC else f"{_REMEDIES[source]}; {synthetic}"
