"""The data and the folder of a site's pages, as one object for each publishing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from helpers.history.listing import CaseKey, ListedNight, Listing
from helpers.history.stored import Acknowledgement, Calibration, SegmentStart
from helpers.report.nights import NightLine
from helpers.report.site import rendering
from helpers.report.site.folder import Folder, State
from helpers.report.site.lines import lines_of
from helpers.report.site.rendering import Look

if TYPE_CHECKING:
    from helpers.history.history import History


@dataclass
class Site:
    """One publishing."""

    history: History
    known: Listing
    acknowledgements: tuple[Acknowledgement, ...]
    # The number of nights of each case.
    counts: Mapping[CaseKey, int]
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

    def put_in_parts(
        self, page_of: Callable[[int], str], template: str, rows: Sequence[str], *, beside: int = 0, **values: Any
    ) -> None:
        """Write a page with a list of ``rows``, in as many parts as their size needs. ``page_of`` returns the page of a
        part by its number, from 1; the first part has ``beside`` bytes besides its rows."""
        parts = rendering.in_parts(rows, beside)
        links = [f"{page_of(number).rpartition('/')[2]}.html" for number in range(1, len(parts) + 1)]
        for here, own in enumerate(parts, 1):
            page = page_of(here)
            html = rendering.page(
                self.look, page, template, json=here == 1, list_rows=own, pages=links, here=here, **values
            )
            self.put(page, html)
        self.forget_pages(page_of, len(parts))

    def forget_pages(self, page_of: Callable[[int], str], last: int) -> None:
        """Mark the pages after number ``last`` of numbered pages as no longer needed, and so their records."""
        number = last + 1
        while self.folder.forget(f"{page_of(number)}.html"):
            self.folder.forget(f"{page_of(number)}.json")
            number += 1

    def lines_of(self, nights: Sequence[ListedNight]) -> list[NightLine]:
        """A line for each night on its own, whichever case it is of."""
        return [lines_of([each], self.acknowledged(each.case.case_id))[0] for each in nights]

    def starts_of(self, key: CaseKey) -> tuple[SegmentStart, ...]:
        """The starts of segments that users made for the case. The history is asked only if there are any."""
        if (key.case_id, key.target) not in self._begun:
            return ()
        return self.history.segment_starts(key.case_id, key.target)

    def calibration_of(self, key: CaseKey, segment: Mapping[str, str]) -> Calibration | None:
        """The case's newest calibration in that segment. The history is asked only if the case has one at all."""
        if (key.case_id, key.target) not in self._calibrated:
            return None
        return self.history.calibration(key.case_id, key.target, segment)

    @cached_property
    def _begun(self) -> set[tuple[str, ...]]:
        return {row[:2] for row in self.state.revision.starts}

    @cached_property
    def _calibrated(self) -> set[tuple[str, ...]]:
        return {row[:2] for row in self.state.revision.calibrations}

    def acknowledged(self, case_id: str) -> list[Acknowledgement]:
        """The acknowledgements whose pattern fits the case."""
        return [each for each in self.acknowledgements if fnmatchcase(case_id, each.pattern)]
