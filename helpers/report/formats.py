"""The formats of a session's results: ``--results FILE`` chooses by the ending of the file's name, and a format may
have an option of its own. A renderer is imported when it writes: a listing needs the options alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.report.results import SessionReport


@dataclass(frozen=True)
class ResultsFormat:
    """One format."""

    # Of the file names for which ``--results`` takes it.
    ending: str
    render: Callable[[SessionReport], str]
    # ``--OPTION FILE`` writes it whatever the name's ending; empty for a format that only --results writes.
    option: str = ""
    # Of the option.
    help: str = ""


@dataclass(frozen=True)
class ResultsFile:
    """A file that the command line asks for."""

    # By which it was asked for, for messages: ``--results``.
    option: str
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


# The first is taken for a name with any other ending.
RESULTS_FORMATS = (
    ResultsFormat(".json", _json),
    ResultsFormat(
        ".md",
        _markdown,
        "markdown",
        "Write the verdict to FILE as Markdown, all else folded",
    ),
    ResultsFormat(".html", _html, "html", "Write one page with pictures to FILE, which fetches nothing"),
)


def format_of(path: Path) -> ResultsFormat:
    """The format that ``--results`` takes for a file of that name."""
    return next((each for each in RESULTS_FORMATS if each.ending == path.suffix), RESULTS_FORMATS[0])
