"""The formats of a session's results. ``--results FILE`` chooses by the ending of the file's name. A renderer is
imported only when it is used, since a listing needs only the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.report.results import SessionReport


@dataclass(frozen=True)
class ResultsFormat:
    """A format of a session's results."""

    # The ending of the file names for which ``--results`` uses this format.
    ending: str
    render: Callable[[SessionReport], str]


@dataclass(frozen=True)
class ResultsFile:
    """A file that the command line asks for."""

    path: Path
    format: ResultsFormat


def _json(report: SessionReport) -> str:
    from helpers.report.results import results_json

    return results_json(report)


def _markdown(report: SessionReport) -> str:
    from helpers.report.markdown import results_markdown

    return results_markdown(report)


def _html(report: SessionReport) -> str:
    from helpers.report.html.page import night_page

    return night_page(report)


# The first format is used for names with any other ending.
RESULTS_FORMATS = (
    ResultsFormat(".json", _json),
    ResultsFormat(".md", _markdown),
    ResultsFormat(".html", _html),
)


def format_of(path: Path) -> ResultsFormat:
    """The format that ``--results`` uses for a file of this name."""
    return next((each for each in RESULTS_FORMATS if each.ending == path.suffix), RESULTS_FORMATS[0])
