"""This machine's recorded baselines: what a session may record, why it may not, and the write at its end."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.common.wall_clock import utc_now
from helpers.common.words import counted
from helpers.history.results import (
    RunResult,
    interleaved_pairs,
)
from helpers.judging.case.evidence import Past
from helpers.judging.case.noise import entry_scatter, most_scatter, pair_scatter
from helpers.judging.case.verdict import Status
from helpers.judging.rules.own import MEDIAN_STEP, case_figure
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import hodges_lehmann, number
from helpers.machine.devices import Machine
from helpers.machine.environment import CPU, GPU, Environment, clocks_of, differences
from helpers.plan.matrix import Tolerances
from helpers.plan.overrides import segment_of
from helpers.plan.proposals import Accepted, AgainstEntry, Candidate, Proposal, ProposalKind, propose, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.session.outcome import CaseOutcome, Tell, code_of
from helpers.session.suite_history import start_segments

if TYPE_CHECKING:
    from helpers.session.suite import Suite

# What the answer to the recorded question means for the entry. A status that is not here was not judged.
_ANSWERS = {
    Status.NO_BASELINE: AgainstEntry.NOTHING_RECORDED,
    Status.PASS: AgainstEntry.NO_WORSE,
    Status.IMPROVEMENT: AgainstEntry.FASTER,
    Status.REGRESSION: AgainstEntry.SLOWER,
    Status.SLOWER: AgainstEntry.SLOWER_UNCONFIRMED,
    Status.INCONCLUSIVE: AgainstEntry.UNSETTLED,
    Status.INCOMPARABLE: AgainstEntry.INCOMPARABLE,
}
# A case's nights before this session in a segment.
PastOf = Callable[[CaseOutcome, Mapping[str, str]], Past]


@dataclass(frozen=True)
class RecordedBaselines:
    """The files of one machine in ``folder``, one for each device (``cpu``, ``gpu``). Raises BaselineError."""

    folder: Path
    machine: Machine

    def path(self, device: str) -> Path:
        return self._path(self.key(device))

    def key(self, device: str) -> str:
        """The machine's own key, or one of its former keys if only that one has a file."""
        own = self.machine.machine_key(device)
        known = [own, *(self.machine.machine_key(device, each) for each in self.machine.former_ids)]
        return next((each for each in known if self._path(each).exists()), own)

    def load(self, device: str) -> RecordedSet:
        return load_recorded(self.path(device), self.key(device), self._places)

    def describe(self) -> str:
        """One line that says which file is read and written for the machine's GPUs, else for its cores, and why."""
        device = GPU if self.machine.gpus else CPU
        own, path = self.machine.machine_key(device), self.path(device)
        state = "" if path.exists() else " (not there yet)"
        if path != self._path(own):
            state = f" (as this machine was known before; {own}.json, which comes first, is not there)"
        return f"{path}{state}, {self.machine.known_by}"

    @property
    def _places(self) -> dict[str, str]:
        return dict.fromkeys(self.machine.former_ids, self.machine.place)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def write(self, device: str, proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
        """Write the proposals of one device; returns what was written."""
        path = self.path(device)
        path.parent.mkdir(parents=True, exist_ok=True)
        return tuple(write_recorded(path, self.key(device), proposals, places=self._places))


@dataclass(frozen=True)
class Recorder:
    """Records the cases of a session."""

    suite: Suite

    def propose(
        self, outcomes: Iterable[CaseOutcome], accepted: Sequence[Accepted] = (), tell: Tell = code_of
    ) -> tuple[Proposal, ...]:
        """What ``--update-baselines`` would write for the cases of this session, device by device. ``accepted`` are the
        reasons given for worse figures; ``tell`` makes the sentences."""
        suite = self.suite
        proposals: list[Proposal] = []
        measured = [each for each in outcomes if each.status is not Status.NOT_RUN]
        # One moment for all, after each night of this session: what entries have in common stands once in their file.
        begins, began = utc_now(), suite.options.record.moment
        for device in sorted({each.device for each in measured}):
            mine = [each for each in measured if each.device == device]
            machine = suite.machine.device_name(device)
            tolerances = {each.case.id: suite.config.tolerances.of(each.case.id).recorded for each in mine}
            proposals += propose(
                suite.baselines.load(device),
                [candidate(each, machine, began, begins, tolerances[each.case.id], self._past, tell) for each in mine],
                measured_case_ids={each.case.id for each in mine},
                known_case_ids={case.case.id for case in suite.cases},
                accepted=accepted,
            )
        return tuple(proposals)

    def write(self, outcomes: Iterable[CaseOutcome], proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
        """Write the proposals, each file once, and begin a segment of the history for each entry that changed;
        returns what was written. Raises BaselineError, and HistoryError once the files are written."""
        outcomes, proposals = tuple(outcomes), tuple(proposals)
        device_of = {each.case.id: each.device for each in outcomes}
        written: list[Proposal] = []
        for device in sorted(set(device_of.values())):
            mine = [each for each in proposals if device_of.get(each.case_id, device) == device]
            written += self.suite.baselines.write(device, mine)
        start_segments(self.suite.memory, written, {each.case.id: each.target for each in outcomes})
        return tuple(written)

    def files(self, outcomes: Iterable[CaseOutcome], written: Iterable[Proposal]) -> tuple[Path, ...]:
        """The files that ``write`` has changed for these cases."""
        new = {each.case_id for each in written if each.kind in (ProposalKind.CREATED, ProposalKind.UPDATED)}
        devices = sorted({each.device for each in outcomes if each.case.id in new})
        return tuple(self.suite.baselines.path(device) for device in devices)

    def _past(self, outcome: CaseOutcome, segment: Mapping[str, str]) -> Past:
        case = outcome.case
        return self.suite.memory.past(case.id, outcome.target, segment, case.cards, self.suite.options.session)


def candidate(
    outcome: CaseOutcome,
    machine: str,
    now: datetime.datetime | None = None,
    begins: datetime.datetime | None = None,
    tolerance: float = Tolerances.recorded,
    past_of: PastOf = lambda outcome, segment: Past(),
    tell: Tell = code_of,
) -> Candidate:
    """The case as an entry for ``baselines/recorded``. It is refused if it is no honest reference.

    Only the screening runs of the build under test count, each as one replicate, by the rule ``median-step``: runs that
    were made to confirm a suspicion are no fair sample. A case is refused if it crashed or was invalid, or if its runs
    have marks (contended, shared machine) or changed settings. It is doubted if it is below its published figure, or if
    its runs, or its pairs with a reference build, scatter far more than its nights in the segment do (``past_of``). The
    verdict decides on everything else.
    """
    case_id, recorded = outcome.case.id, outcome.verdict.recorded
    measured = [run for run in outcome.runs if run.measured]
    counted = [run for run in measured if run.is_screening]
    figure = case_figure(MEDIAN_STEP, [run.figures for run in counted])
    if not counted or recorded is None or recorded.status not in _ANSWERS:
        return Candidate(None, _verdict_text(outcome, tell), case_id)
    if figure.samples_per_s is None:
        return Candidate(None, figure.reason, case_id)
    segments = [segment_of(run.environment, run.settings, case_id) for run in counted]
    environment = Environment.from_mapping(counted[-1].environment, f"environment of {case_id}")
    digest = {"framework_digest": counted[-1].build["digest"]} if counted[-1].build.get("digest") else {}
    beside = _beside(outcome)
    entry = RecordedEntry(
        case_id=case_id,
        samples_per_s=five_digits(figure.samples_per_s),
        rule=MEDIAN_STEP,
        replicates=tuple(map(five_digits, figure.run_samples_per_s)),
        tolerance=None,
        environment={**environment.to_mapping(), **clocks_of(counted[-1].facts), **digest},
        segment=segments[-1],
        provenance=Provenance(
            commit=environment.framework_commit or f"{environment.framework} {environment.framework_version}",
            date=(now or utc_now()).isoformat(timespec="seconds"),
            machine=machine,
            reason="; ".join(filter(None, ("recorded with --update-baselines", beside))),
            begins=(begins or utc_now()).isoformat(),
        ),
        protocol={**counted[-1].protocol, "runs": len(figure.run_samples_per_s)},
    )
    return Candidate(
        entry,
        _refusal(outcome, measured, segments, tell),
        case_id,
        _ANSWERS[recorded.status],
        tell(recorded.reason),
        doubts=_doubts(outcome, entry, past_of, tell),
        tolerance=tolerance,
        beside=beside,
    )


def five_digits(samples_per_s: float) -> float:
    """The figure as a baseline file holds it, which people review; the history has the runs with all digits.

    It is rounded before anything is compared with it, so no verdict is by other digits than the file's. It moves by
    0.005% at most, a hundredth of the smallest change that counts (0.5%).
    """
    return float(f"{samples_per_s:.5g}")


def _doubts(outcome: CaseOutcome, entry: RecordedEntry, past_of: PastOf, tell: Tell) -> tuple[str, ...]:
    """What speaks against the figure as a reference, until a user gives a reason why it is right."""
    found = [_verdict_text(outcome, tell)] if outcome.status is Status.BELOW_PUBLISHED else []
    past = past_of(outcome, entry.segment)
    rates = ", ".join(map(number, entry.replicates))
    pairs = _differences(outcome)
    percents = " ".join(f"{math.expm1(each):+.1%}" for each in pairs)
    scattering = (
        (entry_scatter(entry.replicates, past), f"{len(entry.replicates)} runs ({rates} {rate_unit(outcome.case.id)})"),
        (pair_scatter(pairs, past), f"{len(pairs)} pairs with {outcome.good.name} ({percents})"),
    )
    most = most_scatter(past)
    found += [
        f"its {what} scatter {scatter:.1f} times as far as is usual for the case, more than {most:g}: find out why, "
        f"or measure again; where it varies so, perfgate calibrate {outcome.case.id} tells what is usual"
        for scatter, what in scattering
        if scatter > most
    ]
    return tuple(found)


def _differences(outcome: CaseOutcome) -> list[float]:
    """The differences of log rates of the session's pairs, build under test minus reference build."""
    pairs = interleaved_pairs(outcome.runs)
    return [(new.log_rate or 0.0) - (good.log_rate or 0.0) for good, new in pairs]


def _beside(outcome: CaseOutcome) -> str:
    """Where the figure lies against the reference build beside it, for people who review it; empty without pairs. The
    history keeps the pairs themselves, from which later nights learn the level."""
    if not (differences := _differences(outcome)):
        return ""
    return (
        f"{math.expm1(hodges_lehmann(differences)):+.2%} against {outcome.good.name} beside it, "
        f"{counted(len(differences), 'pair')}"
    )


def _refusal(
    outcome: CaseOutcome, runs: Sequence[RunResult], segments: Sequence[dict[str, str]], tell: Tell
) -> str | None:
    """Why the case is no honest reference. ``runs`` are all runs behind its verdict, ``segments`` those of the runs
    that count."""
    if outcome.status in (Status.INFRA_ERROR, Status.INVALID):
        return _verdict_text(outcome, tell)
    if any(run.marks for run in runs):
        return "; ".join(outcome.marks)
    changed = sorted({key for run in runs for key in run.overrides})
    if changed:
        return f"settings changed: {', '.join(changed)}"
    different = sorted({each for other in segments for each in differences(segments[0], other)})
    if different:
        return f"its runs were made in different environments ({'; '.join(different)})"
    return None


def _verdict_text(outcome: CaseOutcome, tell: Tell) -> str:
    return f"{outcome.status.value}: {outcome.told(tell)}"
