"""The data and the folder of a site's pages, as one object for each publishing."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from helpers.history.listing import Listing
from helpers.history.stored import Acknowledgement
from helpers.report.site import names
from helpers.report.site.folder import Folder, State
from helpers.report.site.rendering import Look

if TYPE_CHECKING:
    from helpers.history.history import History


@dataclass
class Site:
    """One publishing."""

    history: History
    known: Listing
    acknowledgements: tuple[Acknowledgement, ...]
    look: Look
    folder: Folder
    # The entries of the lists; they are updated while the pages of cases, sessions and builds are made.
    state: State
    # The pages of cases that were made.
    made_cases: set[str] = field(default_factory=set)
    # The hosts of which a case or a session got new pages.
    touched_machines: set[str] = field(default_factory=set)
    # By host: time and uuid of the newest run of the sessions that got new pages.
    newest_run: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, page: str, html: str, json: str | None = None) -> None:
        """Write a page and its record."""
        self.folder.put(f"{page}.html", html)
        if json is not None:
            self.folder.put(f"{page}.json", json)

    def forget_parts(self, page: str, last: int) -> None:
        """Mark the parts of the page after ``last`` as no longer needed."""
        after = last + 1
        while self.folder.forget(f"{names.part(page, after)}.html"):
            after += 1

    def acknowledged(self, case_id: str) -> list[Acknowledgement]:
        """The acknowledgements whose pattern fits the case."""
        return [each for each in self.acknowledgements if fnmatchcase(case_id, each.pattern)]
