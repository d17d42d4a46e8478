"""What is known of each case before a night of limited time: how long a run takes, how it varies, when it was last
measured."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.history.stored import StoredNight
from helpers.judging.evidence import Budget, Night, Past
from helpers.judging.night_plan import GUESSED, CaseNeed
from helpers.judging.noise import KNOWN_NIGHTS, Noise, learn_nights, usual_sigma
from helpers.judging.verdict import Status
from helpers.machine.environment import POOL
from helpers.plan.case_plan import SuiteCase, published_references, runs_in_any_case
from helpers.plan.perf_yaml import Config
from helpers.plan.recorded import RecordedEntry
from helpers.plan.run_time import published_run_seconds

if TYPE_CHECKING:
    from helpers.history.history import History

# As many nights as noise is learned from, and the nights whose runs tell how long a run takes.
_NIGHTS = 40
_TIMED_NIGHTS = 4
_NOT_MEASURED = (Status.INFRA_ERROR.value, Status.INVALID.value, Status.NOT_RUN.value)
# docs/verdicts.md, "learn": of a case without nights, the offset of a night beside the spread between runs.
_NIGHT_SHARE = 0.4


@dataclass(frozen=True)
class KnownNights:
    """What the history has of the cases on this machine."""

    # By SuiteCase.key, oldest first; without the nights of the session that is planned.
    nights: Mapping[tuple[str, str], Sequence[StoredNight]] = field(default_factory=dict)
    # The seconds of runs, by uuid.
    seconds: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(
        history: History, cases: Iterable[SuiteCase], place: str, session: str, tonight: datetime.date
    ) -> KnownNights:
        """The nights of ``place`` (Machine.place) before ``tonight``. A second session of the same date is planned as
        the first one was."""
        found = {}
        for case in cases:
            stored = history.nights_here(case.case.id, case.target, place, _NIGHTS)
            found[case.key] = [each for each in stored if each.record.session != session and _day(each) < tonight]
        uuids = [
            uuid for nights in found.values() for each in nights[-_TIMED_NIGHTS:] for uuid in each.record.run_uuids
        ]
        return KnownNights(found, history.wall_seconds(uuids))


@dataclass(frozen=True)
class NeedsOf:
    """Makes the needs of cases on one machine."""

    config: Config
    # Machine.place of the machine, and the model of its first card of a target.
    place: str
    card_name: Callable[[str], str]
    entry_of: Callable[[SuiteCase], RecordedEntry | None]
    # Whether a good build is at hand.
    has_good: bool
    # Whether settings are changed.
    overridden: bool = False

    def needs(self, cases: Sequence[SuiteCase], known: KnownNights) -> tuple[CaseNeed, ...]:
        measured = {case.key: _measured(known.nights.get(case.key, ())) for case in cases}
        nights = sorted({day for each in measured.values() for day in map(_day, each)})
        seconds = {case.key: _usual_seconds(known, case.key) for case in cases}
        return tuple(
            self._need(case, cases, measured, nights, *self._run_seconds(case, cases, seconds)) for case in cases
        )

    def _need(
        self,
        case: SuiteCase,
        cases: Sequence[SuiteCase],
        measured: Mapping[tuple[str, str], Sequence[StoredNight]],
        nights: Sequence[datetime.date],
        run_seconds: float,
        seconds_from: str,
    ) -> CaseNeed:
        budget, entry = self.config.budgets.of(case.case.id), self.entry_of(case)
        mine = measured[case.key]
        accepted = _accepted(mine)
        siblings = [
            tuple(night.log_rates[0] for night in _accepted(measured[each.key]))
            for each in cases
            if each.key != case.key and (each.target, each.case.cards) == (case.target, case.case.cards)
        ]
        noise = self._noise(accepted, entry, [series for series in siblings if series])
        young = len(accepted) < KNOWN_NIGHTS
        last = _day(mine[-1]) if mine else None
        tolerances, weights = self.config.tolerances.of(case.case.id), self.config.night
        return CaseNeed(
            case.case.id,
            case.target,
            run_seconds,
            seconds_from,
            noise.sigma,
            noise.tau,
            least_runs=self._least_runs(case, entry, budget, young),
            most_runs=budget.screen_runs,
            pairs=budget.pairs if self.has_good and entry is not None else 0,
            tolerance=entry.tolerance if entry is not None and entry.tolerance is not None else tolerances.recorded,
            unasked=1 / budget.rotation if young and self.has_good else 0.0,
            recorded=entry is not None,
            weight=1.0 if weights is None else weights.weight_of(case.case.id, case.target),
            waited=1 + sum(last is None or day > last for day in nights),
            last_measured="" if last is None else last.isoformat(),
        )

    def _least_runs(self, case: SuiteCase, entry: RecordedEntry | None, budget: Budget, young: bool) -> int:
        tolerance = self.config.tolerances.of(case.case.id).published
        published = published_references(case.figures, self.card_name(case.target), tolerance)
        least = runs_in_any_case(case.protocol, entry is not None and not (published or self.overridden))
        return max(least, budget.first_runs) if young and entry is not None and not self.has_good else least

    def _noise(
        self, accepted: Sequence[Night], entry: RecordedEntry | None, siblings: Sequence[tuple[float, ...]]
    ) -> Noise:
        past = Past(tuple(accepted), tuple(siblings), pool=self.place.startswith(POOL))
        replicates = (
            () if entry is None or len(accepted) >= KNOWN_NIGHTS else entry.replicates or (entry.samples_per_s,)
        )
        if accepted or replicates:
            return learn_nights(accepted, past, [math.log(rate) for rate in replicates])
        sigma = usual_sigma((), siblings)
        return Noise(0.0, sigma, _NIGHT_SHARE * sigma, 0.0, 0)

    def _run_seconds(
        self, case: SuiteCase, cases: Sequence[SuiteCase], seconds: Mapping[tuple[str, str], float | None]
    ) -> tuple[float, str]:
        """The seconds of one run, and where the number comes from."""
        if (own := seconds[case.key]) is not None:
            return own, "its last runs"
        if (estimate := published_run_seconds(case, self.config.limits)) is not None:
            return estimate, "its published figure"
        same = [each for each in cases if (each.target, each.case.model) == (case.target, case.case.model)]
        for others, what in ((same, f"of {case.case.model.value}"), (cases, "of any model")):
            known = [
                value for each in others if each.target == case.target and (value := seconds[each.key]) is not None
            ]
            if known:
                return statistics.median(known), f"{len(known)} other cases {what}"
        return self.config.limits.start_up_seconds, GUESSED


def _day(night: StoredNight) -> datetime.date:
    return datetime.date.fromisoformat(night.record.date)


def _measured(nights: Iterable[StoredNight]) -> list[StoredNight]:
    return [each for each in nights if each.record.status not in _NOT_MEASURED]


def _accepted(nights: Iterable[StoredNight]) -> list[Night]:
    """The accepted nights of the newest segment."""
    found = []
    for each in nights:
        standing = each.record.standing
        if each.current and each.rates and standing is not None and standing.accepted:
            found.append(Night(each.rates, date=each.record.date, node=each.record.host))
    return found


def _usual_seconds(known: KnownNights, key: tuple[str, str]) -> float | None:
    """The median of the runs of the newest nights; None if none is known."""
    newest = _measured(known.nights.get(key, ()))[-_TIMED_NIGHTS:]
    uuids = [uuid for each in newest for uuid in each.record.run_uuids]
    found = [seconds for uuid in uuids if (seconds := known.seconds.get(uuid, 0.0)) > 0]
    return statistics.median(found) if found else None
