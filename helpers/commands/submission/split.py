"""A gate that is split among jobs: a part for each size of its cases, and one verdict and one report on all of them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

from helpers.commands.gate import JUNIT, PAGE, RESULTS, SUMMARY
from helpers.commands.submission.needs import Shape
from helpers.judging.night import NightVerdict
from helpers.judging.verdict import Reason, Status
from helpers.machine.files import named_by_user, read_limited, write_whole
from helpers.plan.case_plan import SuiteCase
from helpers.report.formats import format_of
from helpers.report.part import GatePart, read_part
from helpers.report.results import SessionReport
from helpers.report.row import row_of
from helpers.report.scaling import scalings
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK, EXIT_SLOWER, Gate
from helpers.session.gate_verdict import GateState, GateVerdict, verdict_of
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ResultError, printable

PART = "gate.part"
WHOLE = (RESULTS, SUMMARY, PAGE, JUNIT)
# A network file system may show a new file of another machine as late as this (nfs(5): acdirmax).
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 1.0
# A gate with one of these exit statuses has written its part.
_JUDGED = (EXIT_OK, EXIT_SLOWER, EXIT_NOT_JUDGED)
# The largest JUnit document that is read.
_MOST_BYTES = 256 * 1024 * 1024
# The worst night first.
_NIGHTS = (Status.REGRESSION, Status.INCONCLUSIVE, Status.PASS)


@dataclass(frozen=True)
class PlannedPart:
    """The cases of one size, which one job measures in a session of its own."""

    shape: Shape
    cases: tuple[SuiteCase, ...]
    session: str
    # Where its reports are.
    output: Path

    @property
    def path(self) -> Path:
        return self.output / PART

    def found(self) -> GatePart | None:
        """What its job has left; None if that is nothing, cannot be read or is of another session."""
        try:
            part = read_part(self.path)
        except (OSError, ResultError):
            return None
        return part if part.session == self.session else None


@dataclass(frozen=True)
class EndedPart:
    """A part whose job has ended."""

    planned: PlannedPart
    # The job's exit status, and why Slurm ended it; empty if the command ended by itself.
    status: int
    why: str
    part: GatePart | None

    @property
    def label(self) -> str:
        return str(self.planned.shape)

    @property
    def exit_status(self) -> int:
        """The job's status, or its session's if the job seems to have succeeded and the session has not."""
        if self.part is None:
            return self.status or EXIT_NOT_JUDGED
        return self.status or self.part.exit_code

    def problems(self) -> Iterator[str]:
        """Why the part fails the gate for a reason other than its cases."""
        ended = f"exit status {self.exit_status}{f' ({self.why})' if self.why else ''}"
        if self.part is None:
            yield f"{self.label}: no verdict, {ended}"
            return
        yield from (f"{self.label}: {text}" for text in self.part.other)
        if self.why or (self.status and self.part.state is not GateState.FAILED):
            yield f"{self.label}: {ended}"

    def lost_reason(self) -> str:
        """Why nothing is known of a case of this part."""
        return f"its job ({self.label}) left no result of it: {self.why or f'exit status {self.exit_status}'}"


@dataclass(frozen=True)
class SplitGate:
    """A gate in several jobs."""

    suite: Suite
    gate: Gate
    parts: tuple[PlannedPart, ...]
    # The name by which ``--resume`` finds all its sessions.
    session: str
    output: Path
    # The command line, and the words that measure one case again, without its id.
    command: tuple[str, ...]
    again: tuple[str, ...]

    def forget_earlier(self) -> None:
        """Remove what an earlier night has left, so that it is not read for this one."""
        for part in self.parts:
            for name in (*WHOLE, PART):
                (part.output / name).unlink(missing_ok=True)
        for name in WHOLE:
            (self.output / name).unlink(missing_ok=True)

    def ended(
        self,
        endings: Mapping[Shape, tuple[int, str]],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> WholeGate:
        """The whole gate once its jobs have ended; ``endings`` has the exit status of each job, and why Slurm ended it.
        Waits for a part that is not there yet, if its job's exit status says that it was written."""
        deadline = clock() + PATIENCE_SECONDS
        ended = []
        for planned in self.parts:
            status, why = endings.get(planned.shape, (EXIT_NOT_JUDGED, "no job was submitted for it"))
            written = status in _JUDGED and not why
            while (part := planned.found()) is None and written and clock() < deadline:
                sleep(_POLL_SECONDS)
            ended.append(EndedPart(planned, status, why, part))
        return WholeGate(self, tuple(ended))


def worst(statuses: Sequence[int]) -> int:
    """The exit status of several jobs: 1 before 6, and both before all others."""
    return next((each for each in (EXIT_SLOWER, EXIT_NOT_JUDGED) if each in statuses), max(statuses))


@dataclass(frozen=True)
class WholeGate:
    """The verdict and the report on all parts."""

    split: SplitGate
    parts: tuple[EndedPart, ...]

    @property
    def outcomes(self) -> tuple[CaseOutcome, ...]:
        return tuple(outcome for each in self.parts if each.part is not None for outcome in each.part.outcomes)

    @property
    def lost(self) -> Mapping[tuple[str, str], EndedPart]:
        """The planned cases of which nothing is known, by their keys, each with its part."""
        known = {each.key for each in self.outcomes}
        return {case.key: each for each in self.parts for case in each.planned.cases if case.key not in known}

    def verdict(self) -> GateVerdict:
        lost = self.lost
        found = verdict_of(
            self.split.gate,
            self.split.suite.cases,
            {each.key for each in self.outcomes} | set(lost),
            self.outcomes,
            worst([each.exit_status for each in self.parts]),
            [problem for each in self.parts for problem in each.problems()],
        )
        failed = (
            replace(case, reason=lost[case.key].lost_reason()) if case.key in lost else case for case in found.failed
        )
        return replace(found, failed=tuple(failed))

    def exit_status(self, verdict: GateVerdict) -> int:
        """The worst of all jobs; never 0 for a gate that is not passed."""
        status = worst([each.exit_status for each in self.parts])
        return EXIT_NOT_JUDGED if status == EXIT_OK and verdict.state is GateState.FAILED else status

    def write(self, verdict: GateVerdict) -> None:
        """Write the reports on the whole gate. Raises OSError and ResultError."""
        report = self.report(verdict)
        self.split.output.mkdir(parents=True, exist_ok=True)
        for name in (RESULTS, SUMMARY, PAGE):
            path = self.split.output / name
            write_whole(path, format_of(path).render(report).encode())
        write_whole(self.split.output / JUNIT, self.junit(verdict))

    def report(self, verdict: GateVerdict) -> SessionReport:
        found = [(each.label, each.part) for each in self.parts if each.part is not None]
        session_of = {outcome.key: part.session for _, part in found for outcome in part.outcomes}
        rows = [row_of(outcome) for outcome in self.outcomes]
        header = dict.fromkeys(line for _, part in found for line in part.header)
        split = self.split
        return SessionReport(
            rows,
            session=split.session,
            exit_code=self.exit_status(verdict),
            machine={
                "host": ", ".join(dict.fromkeys(part.machine["host"] for _, part in found)) or "no node",
                "found": "; ".join(f"{label}: {part.machine['found']}" for label, part in found),
            },
            command=split.command,
            not_reached=len(self.lost),
            scaling=scalings(rows, lambda target, case_id: None),
            night=self._night(),
            gate=verdict,
            outcomes=self.outcomes,
            details=lambda outcome: split.suite.details_of(
                outcome, shlex.join([*split.again, outcome.case.id]), session_of[outcome.key]
            ),
            explanations={(each.target, each.case_id): each for _, part in found for each in part.explanations},
            header=lambda: tuple(header),
        )

    def _night(self) -> NightVerdict | None:
        """The worst of the nights of all parts, with what each of them says."""
        nights = [(each.label, each.part.night) for each in self.parts if each.part is not None and each.part.night]
        if not nights:
            return None
        status = min((night.status for _, night in nights), key=_NIGHTS.index)
        message = "; ".join(f"{label}: {night.message}" for label, night in nights)
        return NightVerdict(status, Reason("parts", message), sum(night.cases for _, night in nights))

    def junit(self, verdict: GateVerdict) -> bytes:
        """The suites of all parts in one document, in which whatever is missing or went wrong is an error."""
        whole = ElementTree.Element("testsuites", name="pytest tests")
        lost = self.lost
        for each in self.parts:
            suites = _suites(each.planned.output / JUNIT) if each.part is not None else []
            for suite in suites:
                suite.set("name", each.label)
                for named in suite.iterfind("./properties/property[@name='gate']"):
                    named.set("value", verdict.line)
                whole.append(suite)
            errors = [(problem, "gate", each.label) for problem in each.problems()]
            for case in each.planned.cases:
                if case.key in lost or not suites:
                    errors.append((each.lost_reason(), case.case.id, case.target))
            if errors:
                whole.append(_error_suite(f"job {each.label}", errors))
        return ElementTree.tostring(whole, encoding="unicode", xml_declaration=True).encode()


def _suites(path: Path) -> list[ElementTree.Element]:
    """The suites of a JUnit document that a job's pytest has written; none if it cannot be read."""
    try:
        root = ElementTree.fromstring(read_limited(named_by_user(path), _MOST_BYTES))
    except (OSError, ElementTree.ParseError):
        return []
    return [root] if root.tag == "testsuite" else root.findall("testsuite")


def _error_suite(name: str, errors: Sequence[tuple[str, str, str]]) -> ElementTree.Element:
    """A suite with an error for each message, test and class of ``errors``."""
    number = str(len(errors))
    suite = ElementTree.Element("testsuite", name=name, tests=number, errors=number, failures="0", skipped="0")
    for message, test, of in errors:
        case = ElementTree.SubElement(suite, "testcase", classname=of, name=test)
        ElementTree.SubElement(case, "error", message=printable(message))
    return suite
