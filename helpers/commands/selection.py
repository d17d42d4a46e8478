"""Chooses the runs of one side of a comparison: those that a selector names in the history, or the recorded
baseline."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.common.words import counted
from helpers.history.results import IMPORTED, RunResult
from helpers.history.stored import StoredNight, StoredResult
from helpers.judging.case.compare_sides import KeptRun
from helpers.judging.case.evidence import Build, CaseKey, Stage
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK, run_figure
from helpers.judging.rules.rates import rate_unit
from helpers.logs.record import HONEST
from helpers.logs.results import SOURCE_FACT
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import RecordedEntry, compared_steps
from helpers.trainers.contract.errors import ConfigError, HistoryError

if TYPE_CHECKING:
    from helpers.history.history import History

BASELINE = "baseline"
KINDS = ("commit", "date", "build", "session", "log")


@dataclass(frozen=True)
class Selector:
    """One side of a comparison as the user gave it."""

    value: str
    # One of KINDS; empty if no prefix was given.
    kind: str = ""

    @staticmethod
    def parse(text: str) -> Selector:
        """Raises ConfigError on an empty text and on an unknown prefix."""
        kind, colon, value = text.partition(":")
        if not colon:
            kind, value = "", text
        if not value or (colon and kind not in KINDS):
            raise ConfigError(
                "what to compare",
                got=text,
                expected="a commit, a date, dates with '..' between, a version, a session, log:FILE, or 'baseline'",
                remedy="Before a colon: " + ", ".join(KINDS),
            )
        return Selector(value, kind)

    @property
    def is_baseline(self) -> bool:
        return self.value == BASELINE and not self.kind

    @property
    def is_of_logs(self) -> bool:
        return self.kind == "log"

    def is_build_of(self, build: Mapping[str, str]) -> bool:
        """Whether it names this build, by commit or by version."""
        commit = len(self.value) >= 4 and build.get("commit", "").startswith(self.value)
        version = build.get("version", "") == self.value
        return {"commit": commit, "build": version, "": commit or version}.get(self.kind, False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}" if self.kind else self.value


@dataclass(frozen=True)
class Selection:
    """The runs of one side; sentences on what was left out; and the cases that cannot be compared, with the reasons."""

    selector: Selector
    runs: tuple[KeptRun, ...] = ()
    left_out: tuple[str, ...] = ()
    refused: Mapping[CaseKey, str] = field(default_factory=dict)
    # Why a log has no figure by the rule; empty if each has one.
    lacks: str = ""

    def beside(self, other: Selection) -> Selection:
        """With the targets of the other side where a log names another one: it states its card, if at all, in words of
        its own. A case that the other side has on several targets keeps them."""
        targets: dict[str, set[str]] = {}
        for run in other.runs:
            targets.setdefault(run.case_id, set()).add(run.target)
        runs = [
            replace(run, target=next(iter(targets[run.case_id])))
            if run.is_log and len(targets.get(run.case_id, ())) == 1
            else run
            for run in self.runs
        ]
        return replace(self, runs=tuple(runs))


def select(
    history: History,
    selector: Selector,
    other: Selector,
    pattern: str,
    *,
    allow_marked: bool,
    rule: str = MEDIAN_STEP,
) -> Selection:
    """The runs of the nights of ``selector``, and the runs of its build as reference build in the nights of ``other``,
    with their figures by ``rule``: MEDIAN_STEP, or HONEST, which is the WALL_CLOCK of a measured run.

    Raises HistoryError if nothing matches.
    """
    if selector.is_of_logs:
        return _logs(history, selector, pattern, rule)
    found = _nights(history, selector, pattern)
    opposite = () if other.is_baseline or other.is_of_logs else _nights(history, other, pattern)
    judged = [night for night in found if night.exclusion is None]
    stored = [
        each for night in judged for each in _results(history, night) if each.result.role == Build.CANDIDATE.value
    ]
    beside = [
        each
        for night in opposite
        for each in _results(history, night)
        if each.result.role == Build.REFERENCE.value and selector.is_build_of(each.result.build)
    ]
    if not found and not beside:
        raise HistoryError(
            f"selection {selector}",
            got=f"no night of a case like {pattern!r}",
            expected="a commit, a day, days, a build's version or a session of the history",
            remedy="perfgate history CASE lists the nights, with their sessions and builds",
        )
    kept = {each.result.uuid: each for each in (*stored, *beside)}
    runs = [run for each in kept.values() if (run := _kept(each, allow_marked, rule)) is not None]
    excluded = [
        f"the night {night.record.session} of {night.record.case_id} left out: excluded ({night.exclusion.reason})"
        for night in found
        if night.exclusion is not None
    ]
    return Selection(selector, tuple(runs), (*excluded, *_left_out(kept.values(), allow_marked, rule)))


def _logs(history: History, selector: Selector, pattern: str, rule: str) -> Selection:
    """The imported logs whose file matches the selector. Raises HistoryError if there is none."""
    of_file = [
        each
        for each in history.results_of(session=IMPORTED)
        if each.result.origin == IMPORTED and _is_file(each.result.facts.get(SOURCE_FACT, ""), selector.value)
    ]
    stored = [each for each in of_file if fnmatch.fnmatchcase(each.result.case_id, pattern)]
    if not stored:
        first = f"Import it first: perfgate import-log {selector.value} --store"
        raise HistoryError(
            f"selection {selector}",
            got=f"no imported log of a case like {pattern!r}" if of_file else "not stored",
            expected="a log in the history, by its name or by the path with which it was imported",
            remedy="Name another --case" if of_file else first,
        )
    runs = [run for each in stored if (run := _kept(each, True, rule)) is not None]
    figures = [_figure(each.result, rule) for each in stored if each.exclusion is None]
    lacks = next((each for each in figures if isinstance(each, str)), "")
    return Selection(selector, tuple(runs), tuple(_left_out(stored, True, rule)), lacks=lacks)


def _is_file(source: str, named: str) -> bool:
    """``source`` may be a path."""
    return fnmatch.fnmatchcase(source, named) or fnmatch.fnmatchcase(Path(source).name, named)


def baseline_runs(others: Sequence[KeptRun], entry_of: Callable[[str, str], RecordedEntry | None]) -> Selection:
    """This machine's recorded entries for the cases of the other side's runs. ``refused`` has the cases without an
    entry, and those whose figures are by another rule than MEDIAN_STEP, with the reasons."""
    runs: list[KeptRun] = []
    refused: dict[CaseKey, str] = {}
    protocols = {run.key: run.protocol for run in sorted(others, key=lambda run: run.created)}
    for (target, case_id), protocol in sorted(protocols.items()):
        entry = entry_of(target, case_id)
        if entry is None:
            refused[target, case_id] = "nothing is recorded of this case on this machine: --update-baselines records it"
            continue
        if entry.rule != MEDIAN_STEP:
            refused[target, case_id] = f"recorded by {entry.rule}, compared by {MEDIAN_STEP}: record it again"
            continue
        # A number that the entry does not state is no difference.
        runs += _recorded(entry, target, {**protocol, **compared_steps(entry.protocol)})
    return Selection(Selector(BASELINE), tuple(runs), refused=refused)


def _recorded(entry: RecordedEntry, target: str, protocol: Mapping[str, int]) -> list[KeptRun]:
    date = entry.provenance.date
    return [
        KeptRun(
            uuid=f"recorded {target} {entry.case_id} {number}",
            case_id=entry.case_id,
            target=target,
            session=f"recorded {date}",
            created=date,
            log_rate=math.log(rate),
            segment=entry.segment,
            replicate=number,
            protocol=protocol,
        )
        for number, rate in enumerate(entry.replicates)
    ]


def _nights(history: History, selector: Selector, pattern: str) -> tuple[StoredNight, ...]:
    """The nights of a selector. There may be none, since its build may occur only as reference build of the other
    side."""
    try:
        return history.nights_of(str(selector), pattern)
    except HistoryError as error:
        if error.field == "commit":
            raise
        return ()


def _results(history: History, night: StoredNight) -> tuple[StoredResult, ...]:
    record = night.record
    return history.results_of(session=record.session, case_id=record.case_id, target=record.target)


def _figure(result: RunResult, rule: str) -> float | str:
    """Its samples/s by the rule, or why there are none."""
    is_by_time = rule == HONEST and result.origin != IMPORTED
    return run_figure(WALL_CLOCK if is_by_time else rule, result.figures)


def _kept(stored: StoredResult, allow_marked: bool, rule: str) -> KeptRun | None:
    result = stored.result
    rate = _figure(result, rule)
    if not result.measured or isinstance(rate, str) or stored.exclusion is not None:
        return None
    is_log = result.origin == IMPORTED
    if not is_log and stored.unlearned and not (allow_marked and result.marks and not result.overrides):
        return None
    return KeptRun(
        uuid=result.uuid,
        case_id=result.case_id,
        target=result.target,
        # Each log is a night of its own.
        session=f"log {result.facts.get(SOURCE_FACT, result.uuid)}" if is_log else result.session,
        created=result.created,
        log_rate=math.log(rate),
        segment={} if is_log else segment_of(result.environment, result.settings, result.case_id),
        role=Build(result.role),
        stage=Stage(result.stage),
        replicate=result.replicate,
        protocol=compared_steps(result.protocol),
        is_log=is_log,
    )


def _left_out(stored: Iterable[StoredResult], allow_marked: bool, rule: str) -> list[str]:
    counts: dict[str, int] = {}
    for each in stored:
        if _kept(each, allow_marked, rule) is None:
            result, figure = each.result, _figure(each.result, rule)
            is_log = result.origin == IMPORTED
            why = f"excluded ({each.exclusion.reason})" if each.exclusion else "" if is_log else each.unlearned
            no_figure = figure if isinstance(figure, str) else f"without {rate_unit(result.case_id)} by {rule}"
            why = why or result.failure or result.invalid or result.refusal or no_figure
            counts[why] = counts.get(why, 0) + 1
    return [f"{counted(count, 'run')} left out: {why}" for why, count in counts.items()]
