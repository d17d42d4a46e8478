"""What a site shows: each case on each machine with all of its nights, and each session with all of its cases."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from helpers.common.words import counted
from helpers.history.stored import StoredNight
from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.report.nights import CALIBRATED, NightLine, build_text, by_machine, lines_of_nights
from helpers.report.sentences import badness
from helpers.session.gate import SLOWER

if TYPE_CHECKING:
    from helpers.history.history import History

_FINE = (Status.PASS.value, Status.IMPROVEMENT.value, Status.NOT_RUN.value, CALIBRATED)
_REGRESSIONS = tuple(each.value for each in SLOWER)
_BAD = (*_REGRESSIONS, Status.INFRA_ERROR.value, Status.INVALID.value)
# After so many days without a night, a case says nothing about today's builds.
STALE_DAYS = 14
_ODD = re.compile(r"[^a-z0-9._]+")
_LONGEST_NAME, _DIGEST = 80, 10


@dataclass(frozen=True)
class SiteNight:
    """A night of a case on a machine."""

    case_id: str
    target: str
    host: str
    night: StoredNight
    line: NightLine

    @property
    def unit(self) -> str:
        return rate_unit(self.case_id)

    @property
    def build(self) -> str:
        """Framework, version and commit in words."""
        build = self.night.record.build
        return f"{build.get('framework', '')} {build_text(build)}".strip()

    @property
    def case_page(self) -> str:
        return f"cases/{_name(f'{self.case_id}-{self.target}', self.case_id, self.target, self.host)}"

    @property
    def session_page(self) -> str:
        return f"nights/{_name(self.line.session, self.line.session, self.host)}"

    @property
    def anchor(self) -> str:
        """The anchor of the case on the page of its session."""
        return f"c-{_digest(self.case_id, self.target, self.host)}"


@dataclass(frozen=True)
class SiteCase:
    """A case on a target and a machine with all of its nights, oldest first."""

    nights: tuple[SiteNight, ...]

    @cached_property
    def counting(self) -> tuple[SiteNight, ...]:
        """The nights that are not excluded; all, if each is."""
        return tuple(each for each in self.nights if not each.line.excluded) or self.nights

    @property
    def newest(self) -> SiteNight:
        return self.counting[-1]

    @property
    def page(self) -> str:
        return self.newest.case_page

    @property
    def badge(self) -> str:
        """The path of its badge."""
        return f"badges/{self.page.partition('/')[2]}.svg"

    @property
    def status(self) -> str:
        return self.newest.line.status

    @cached_property
    def since(self) -> SiteNight:
        """The first of the newest nights with this status."""
        found = self.newest
        for each in reversed(self.counting):
            if each.line.status != self.status:
                break
            found = each
        return found

    @property
    def smallest_drop(self) -> tuple[float, str] | None:
        """The drop that the newest night with pairs or a reference would have found with 80% power, as a fraction, and
        that night's date."""
        for each in reversed(self.counting):
            standing = each.night.record.standing
            if standing is not None and standing.smallest_drop:
                return standing.smallest_drop, each.line.date
        return None

    @property
    def tone(self) -> str:
        return "pass" if is_fine(self.status) else "fail" if self.status in _BAD else "warn"

    def regressions(self) -> Iterator[SiteNight]:
        """The nights on which a regression began."""
        before = ""
        for each in self.counting:
            if each.line.status in _REGRESSIONS and each.line.status != before:
                yield each
            before = each.line.status


@dataclass(frozen=True)
class SiteSession:
    """A session on a machine, with its nights, the worst first."""

    nights: tuple[SiteNight, ...]

    @property
    def worst(self) -> SiteNight:
        return self.nights[0]

    @cached_property
    def began(self) -> str:
        """The local date, and when its first case was judged."""
        return min((each.line.date, each.line.created) for each in self.nights)[0]

    @cached_property
    def builds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.build for each in self.nights))

    @cached_property
    def statuses(self) -> dict[str, int]:
        return counts_of(each.line.status for each in self.nights)

    @property
    def tone(self) -> str:
        if any(status in _BAD for status in self.statuses):
            return "fail"
        return "pass" if all(map(is_fine, self.statuses)) else "warn"

    @property
    def headline(self) -> str:
        passed = sum(count for status, count in self.statuses.items() if is_fine(status))
        return f"{passed} of {counted(len(self.nights), 'case')} passed"


@dataclass(frozen=True)
class Site:
    """Everything that a site shows."""

    # The worst first.
    cases: tuple[SiteCase, ...]
    # The newest first.
    sessions: tuple[SiteSession, ...]

    @cached_property
    def newest(self) -> str:
        """The date of the newest night; empty without nights."""
        return max((each.newest.line.date for each in self.cases), default="")

    @cached_property
    def current(self) -> tuple[SiteCase, ...]:
        """The cases that were measured in the last STALE_DAYS days."""
        bound = days_before(self.newest, STALE_DAYS)
        return tuple(each for each in self.cases if each.newest.line.date >= bound)

    def headline(self) -> tuple[str, str]:
        """The state of the cases in words, and its tone. It is not good if a case that is no longer measured needed
        someone."""
        if not self.current:
            return "The history has no nights yet", "warn"
        needing, all_of = _needing(self.current), counted(len(self.current), "case")
        if needing:
            tone = "fail" if any(each.tone == "fail" for each in self.current) else "warn"
            return f"{needing} of {all_of} {'needs' if needing == 1 else 'need'} someone", tone
        left = _needing(each for each in self.cases if each not in self.current)
        if left:
            are = "is" if left == 1 else "are"
            return f"None of {all_of} needs anyone; {left} that needed someone {are} no longer measured", "warn"
        return f"None of {all_of} needs anyone", "pass"

    def extent(self) -> str:
        """How much the site shows, in words."""
        machines, stale = {each.newest.host for each in self.cases}, len(self.cases) - len(self.current)
        text = f"{counted(len(self.sessions), 'night')} of {counted(len(self.cases), 'case')}"
        text += f" on {counted(len(machines), 'machine')}" + (f", the newest {self.newest}" if self.newest else "")
        if not stale:
            return text
        were = "was" if stale == 1 else "were"
        return f"{text}; {counted(stale, 'case')} {were} not measured in the {STALE_DAYS} days before that"


def site_of(history: History) -> Site:
    """Reads every night of the history. Raises HistoryError."""
    cases = []
    for case_id, target in history.cases():
        starts = history.segment_starts(case_id, target)
        for host, nights in by_machine(history.series(case_id, target)).items():
            lines = lines_of_nights(nights, lambda night: night.record.log_rates, starts)
            pairs = zip(nights, lines, strict=True)
            cases.append(SiteCase(tuple(SiteNight(case_id, target, host, night, line) for night, line in pairs)))
    sessions: dict[str, list[SiteNight]] = {}
    for each in (night for case in cases for night in case.nights):
        sessions.setdefault(each.session_page, []).append(each)
    made = [SiteSession(tuple(sorted(nights, key=_by_badness))) for nights in sessions.values()]
    return Site(
        tuple(sorted(cases, key=lambda case: (*_by_badness(case.newest), case.page))),
        tuple(sorted(made, key=_order, reverse=True)),
    )


def is_fine(status: str) -> bool:
    """Whether a case with this status needs nobody."""
    return status in _FINE


def counts_of(statuses: Iterable[str]) -> dict[str, int]:
    """How many nights have each status, the worst first."""
    found = Counter(statuses)
    return {status: found[status] for status in sorted(found, key=lambda each: (badness(each), each))}


def days_before(date: str, days: int) -> str:
    """The date so many days before ``date``; empty if that is empty or no date has so small a year."""
    try:
        return (datetime.date.fromisoformat(date) - datetime.timedelta(days=days)).isoformat() if date else ""
    except OverflowError:
        return ""


def _needing(cases: Iterable[SiteCase]) -> int:
    return sum(not is_fine(each.status) for each in cases)


def _order(session: SiteSession) -> tuple[str, str]:
    return min(each.line.created for each in session.nights), session.worst.session_page


def _by_badness(night: SiteNight) -> tuple[int, str, str]:
    return badness(night.line.status), night.case_id, night.target


def _name(readable: str, *key: str) -> str:
    """A file's name: readable, safe in file systems and addresses, and unique by its digest."""
    shown = _ODD.sub("-", readable.lower().encode("ascii", "replace").decode()).strip("-._")
    return f"{shown[:_LONGEST_NAME].strip('-._') or 'x'}-{_digest(*key)}"


def _digest(*key: str) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:_DIGEST]
