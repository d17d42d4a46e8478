"""The suite of ``--replay``: the same cases, baselines and gate, with logs in place of runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from helpers.history import Memory
from helpers.history.results import REPLAYED
from helpers.history.stored import CaseNights
from helpers.judging.night_plan import NightPlan
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.logs.importer import ImportBatch, import_files
from helpers.logs.replay.fit import LogsByCase, fit
from helpers.logs.replay.judging import ReplayTerms, replay_case
from helpers.logs.replay.logs import LogFolder, ReadLog, read_folder
from helpers.logs.settings import LogSetting, Stated
from helpers.plan.case_plan import CasePlan, SuiteCase, refuse_two_targets
from helpers.plan.proposals import Accepted, Proposal
from helpers.plan.recorded import RecordedEntry
from helpers.session.measure import CaseResult, not_run
from helpers.session.measuring import OnProgress
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite
from helpers.session.suite_history import is_there
from helpers.trainers.contract.errors import BaselineError, SuiteError

_SHOWN = 10


def read_log(path: Path, stated: Mapping[LogSetting, Stated]) -> ImportBatch:
    """All runs of one file, whatever its format."""
    return import_files((path,), stated)


class ReplaySuite(Suite):
    """A suite that judges logs. It needs no device, framework or data, and starts no process."""

    reader: ReadLog = staticmethod(read_log)

    @cached_property
    def logs(self) -> LogFolder:
        """The folder's logs, read on first use. Raises LogError if INDEX.csv cannot be read."""
        return read_folder(Path(self.options.replay or "."), self.reader, self.options.replay_gpu)

    @cached_property
    def fits(self) -> LogsByCase:
        return fit(self.cases, self.logs)

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why there is nothing to judge, in one line."""
        return self.fits.why_none(suite_case)

    def prepare(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str | None:
        """Check that INDEX.csv, the gate's rules and the baselines can be read, and that no case is chosen on two
        targets."""
        chosen = tuple(chosen)
        judged = self.expect(chosen)
        refuse_two_targets(judged)
        for device in sorted({case.device for case in judged}):
            self.baselines.load(device)
        self.gate.check(self.cases, self.config, self.machine.host)
        return self.gate.summary(chosen, self.cases)

    def check_imports(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Logs are read, and no build is needed."""

    def check_programs(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Logs are read, and nothing is trained."""

    def disturbance(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str:
        """Always empty: nothing runs that could be disturbed."""
        return ""

    def selection_here(self) -> tuple[frozenset[tuple[str, str]], str]:
        """The cases that are chosen without a marker: those that have logs, or with ``--gate`` those of the gate; and a
        line about them."""
        here = [case.key for case in self.cases if self.why_not(case) is None]
        what = f"the {len(here)} cases that {self.logs.root} has logs of"
        if self.options.gate:
            here = [case.key for case in self.cases if self.gate.rule_for(case) is not None]
            what = f"the gate's {len(here)} cases"
        left = len(self.cases) - len(here)
        return frozenset(here), f"no marker given: {what}; {left} left out (-m v100, -m a100, -m cpu …)"

    def lay_out_night(self, here: Collection[tuple[str, str]]) -> NightPlan | None:
        """Always None: judging logs takes no time of the night."""
        return None

    def header_lines(self) -> list[str]:
        """Lines on what is judged, and on files without a run."""
        logs, options = self.logs, self.options
        fitting = sum(len(each.runs) for each in self.fits.found.values())
        return [
            f"{REPLAYED.upper()}: nothing is trained; {len(logs.runs)} runs of {logs.files} files in {logs.root} are "
            f"judged again, {fitting} of them as one of {len(self.fits.found)} cases",
            f"session: {options.session} in {options.runs_folder}; config: {self.config.path}",
            *_few("not read", logs.unread),
            *_few("left out", logs.notes),
        ]

    def history_notes(self) -> tuple[str, ...]:
        """Empty: nothing goes into the history."""
        return ()

    def _nights_of(self, outcome: CaseOutcome, session: str) -> CaseNights:
        return CaseNights(unknown="logs were judged, which go into no history")

    def recorded_entry(self, target: str, case_id: str) -> RecordedEntry | None:
        """Always None: figures recorded here must not enter a speed-up that was measured elsewhere."""
        return None

    def propose(self, outcomes: Iterable[CaseOutcome], accepted: Sequence[Accepted] = ()) -> tuple[Proposal, ...]:
        raise _no_baseline()

    def write_baselines(self, outcomes: Iterable[CaseOutcome], proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
        raise _no_baseline()

    def _judged(
        self, suite_case: SuiteCase, suspicion: str, on_progress: OnProgress | None, again: bool = False
    ) -> CaseOutcome:
        """The outcome by the logs. It stays the same when a suspicion is to be confirmed, since nothing can be run for
        that."""
        return replace(self._outcome(self._replayed(suite_case)), origin=REPLAYED)

    def _replayed(self, suite_case: SuiteCase) -> CaseResult:
        plan = CasePlan(suite_case)
        if (why := self.why_not(suite_case)) is not None:
            return not_run(plan, why)
        terms = ReplayTerms(
            self.config,
            lambda case: self.baselines.load(case.device).entries.get(case.case.id),
            self._memory_to_ask,
            allow_disturbed=self.gate.gated(plan) is None,
            cases_tonight=self._cases_tonight,
            recorded_required=self.gate.recorded_required,
        )
        try:
            return replay_case(suite_case, self.fits.found[suite_case.key], self.store, terms)
        except (SuiteError, OSError) as error:
            return CaseResult(plan, Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, str(error))))

    def _memory_to_ask(self) -> Memory | None:
        """The history; None if there is none yet."""
        opened = "memory" in self.__dict__
        return self.memory if opened or is_there(self.options, self.config) else None


def _few(what: str, messages: Sequence[str]) -> list[str]:
    lines = [f"{what}: {each}" for each in messages[:_SHOWN]]
    return [*lines, f"{what}: {len(messages) - _SHOWN} more"] if len(messages) > _SHOWN else lines


def _no_baseline() -> BaselineError:
    return BaselineError(
        "baselines", got=f"{REPLAYED} results", expected="measured ones", remedy="Leave out --update-baselines"
    )
