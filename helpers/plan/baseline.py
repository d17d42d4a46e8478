"""Baselines: the published figures and this machine's recorded entries, as the rest of the suite imports them."""

from helpers.plan.baseline_files import BASELINES, PUBLISHED, RECORDED, UNIT, FigureStatus
from helpers.plan.published import (
    PUBLISHED_VERSION,
    PublishedEnvironment,
    PublishedFigure,
    PublishedSet,
    load_published,
)
from helpers.plan.recorded import (
    LEAST_RUNS,
    RECORDED_VERSION,
    Provenance,
    RecordedEntry,
    RecordedSet,
    load_recorded,
)

__all__ = [
    "BASELINES",
    "LEAST_RUNS",
    "PUBLISHED",
    "PUBLISHED_VERSION",
    "RECORDED",
    "RECORDED_VERSION",
    "UNIT",
    "FigureStatus",
    "Provenance",
    "PublishedEnvironment",
    "PublishedFigure",
    "PublishedSet",
    "RecordedEntry",
    "RecordedSet",
    "load_published",
    "load_recorded",
]
