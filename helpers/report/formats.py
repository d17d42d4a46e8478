"""The formats of a session's results. ``--results FILE`` chooses by the ending of the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helpers.report.results import SessionReport

# A name with any other ending is written as the first.
ENDINGS = (".json", ".md", ".html")


def rendered(report: SessionReport, path: Path) -> str:
    """The results in the format of the file's name. A renderer is imported only when it is used, since a listing needs
    only the options."""
    if path.suffix == ".md":
        from helpers.report.markdown import results_markdown

        return results_markdown(report)
    if path.suffix == ".html":
        from helpers.report.html.page import night_page

        return night_page(report)
    from helpers.report.results import results_json

    return results_json(report)
