"""The verdict and the report on a gate in several jobs, by what its jobs have left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from helpers.commands.submission.command import read_command
from helpers.commands.submission.needs import Shape
from helpers.commands.submission.split import PART, WHOLE, PlannedPart, SplitGate, WholeGate
from helpers.history.results import RunResult
from helpers.judging.night import NightVerdict
from helpers.judging.rules import WALL_CLOCK
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.perf_yaml import GateRule
from helpers.report.explanation import headline
from helpers.report.part import part_json, read_part
from helpers.report.results import SessionReport
from helpers.report.row import row_of
from helpers.session.case_details import CaseDetails
from helpers.session.explain import CaseExplanation
from helpers.session.gate import Gate
from helpers.session.gate import exit_code as exit_code_of
from helpers.session.gate_verdict import GateState, verdict_of
from helpers.session.outcome import CaseEffect, CaseOutcome
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, ResultError
from tests.helpers.judging.test_explanation import explained, slower

PROTOCOL = MeasuringProtocol("cpu", warmup_steps=9, window_steps=5, runs=1)
GATE = Gate(True, (GateRule("*-1x1-*", "recorded"), GateRule("*-1x8-*", "recorded"), GateRule("*-4x8-*", "recorded")))
EFFECTS = {Status.PASS: CaseEffect.PASS, Status.REGRESSION: CaseEffect.FAIL, Status.INFRA_ERROR: CaseEffect.ERROR}


def suite_case(shape: str, batch: int = 128) -> SuiteCase:
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs{batch}-{shape}-dali-static")
    return SuiteCase(case, "a100", PROTOCOL, owner="vision")


ONE, OTHER, EIGHT, FOUR = suite_case("1x1"), suite_case("1x1", 64), suite_case("1x8"), suite_case("4x8")


@dataclass(frozen=True)
class SuiteDouble:
    """The suite of the machine that submits."""

    cases: tuple[SuiteCase, ...] = (ONE, OTHER, EIGHT, FOUR)

    def details_of(self, outcome: CaseOutcome, command: str, session: str) -> CaseDetails:
        return CaseDetails(command=f"{command} # {session}")


@pytest.fixture
def split(tmp_path: Path) -> SplitGate:
    """A gate of three jobs, which have not begun."""
    parts = tuple(
        PlannedPart(Shape.of(cases[0]), cases, f"night-{Shape.of(cases[0])}", tmp_path / str(Shape.of(cases[0])))
        for cases in ((ONE, OTHER), (EIGHT,), (FOUR,))
    )
    again = ("perfgate", "submit", "--", "gate", "--", "-k")
    return SplitGate(SuiteDouble(), GATE, parts, "night", tmp_path, ("perfgate", "submit"), again)  # type: ignore[arg-type]


Leave = Callable[..., None]


@pytest.fixture
def leave(make_run: Callable[..., RunResult], make_plan: Callable[..., Any]) -> Leave:
    """Writes what a job leaves in whose session the cases had these statuses."""

    def write(part: PlannedPart, *statuses: Status, other: tuple[str, ...] = (), **changes: Any) -> None:
        part.output.mkdir(exist_ok=True)
        outcomes = []
        for case, status in zip(part.cases, statuses, strict=False):
            run = replace(make_run(make_plan()), case_id=case.case.id, target=case.target, session=part.session)
            verdict = Verdict(status, Reason("code", "why"))
            outcomes.append(CaseOutcome(case.case, case.target, verdict, EFFECTS[status], rule=WALL_CLOCK, runs=(run,)))
        code = changes.pop("exit_code", exit_code_of(outcomes, 1 if set(statuses) != {Status.PASS} else 0, gate=True))
        chosen = {case.key for case in part.cases}
        report = SessionReport(
            [row_of(each) for each in outcomes],
            session=changes.pop("session", part.session),
            exit_code=code,
            machine={"host": f"node-of-{part.shape}", "found": "8 cards"},
            command=["pytest"],
            not_reached=len(part.cases) - len(outcomes),
            gate=verdict_of(GATE, SuiteDouble.cases, chosen, outcomes, code, other),
            outcomes=outcomes,
            header=lambda: ("build: paddle 3.3.1",),
            **changes,
        )
        (part.output / PART).write_text(part_json(report))
        tests = "".join(f'<testcase name="{each.case.id}"/>' for each in outcomes)
        gate = '<properties><property name="gate" value="GATE PASSED IN PART"/></properties>'
        suites = f'<testsuites><testsuite name="pytest">{gate}{tests}</testsuite></testsuites>'
        (part.output / "junit.xml").write_text(suites)

    return write


def ended(split: SplitGate, *endings: tuple[int, str]) -> WholeGate:
    by_shape = {part.shape: end for part, end in zip(split.parts, endings, strict=False)}
    return split.ended(by_shape, clock=lambda: 0.0, sleep=lambda seconds: pytest.fail("waits"))


def all_pass(split: SplitGate, leave: Leave) -> None:
    for part in split.parts:
        leave(part, *(Status.PASS for _ in part.cases))


def test_a_gate_passes_where_each_of_its_jobs_has_passed(split: SplitGate, leave: Leave) -> None:
    all_pass(split, leave)
    whole = ended(split, (0, ""), (0, ""), (0, ""))
    verdict = whole.verdict()
    # Each job says PASSED IN PART, since the cases of the others are no part of it.
    assert (verdict.line, whole.exit_status(verdict)) == ("GATE PASSED: 4 of 4", 0)


def test_cases_that_no_job_had_are_not_selected(split: SplitGate, leave: Leave) -> None:
    all_pass(split, leave)
    whole = ended(replace(split, parts=split.parts[:2]), (0, ""), (0, ""))
    assert whole.verdict().line == "GATE PASSED IN PART: 3 of 4, 1 not selected"
    assert whole.exit_status(whole.verdict()) == 0


def test_one_regression_fails_the_whole_gate_with_1_and_outranks_a_lost_job(split: SplitGate, leave: Leave) -> None:
    leave(split.parts[0], Status.PASS, Status.REGRESSION)
    leave(split.parts[1], Status.PASS)
    whole = ended(split, (1, ""), (0, ""), (6, "Slurm ended the job: CANCELLED"))
    verdict = whole.verdict()
    assert verdict.line == (
        "GATE FAILED: 4x8: no verdict, exit status 6 (Slurm ended the job: CANCELLED); 1 REGRESSION, 1 not reached of 4"
    )
    assert whole.exit_status(verdict) == 1
    assert [case.text for case in verdict.failed] == [
        f"REGRESSION {OTHER.case.id} [a100], owner vision: why",
        f"not reached {FOUR.case.id} [a100], owner vision: its job (4x8) left no result of it: Slurm ended the job: "
        "CANCELLED",
    ]


@pytest.mark.parametrize(
    ("code", "why", "changes", "line", "status"),
    [
        # The job was cancelled after its session had written everything.
        (6, "Slurm ended the job: TIMEOUT", {}, "1x8: exit status 6 (Slurm ended the job: TIMEOUT); 3 PASS of 3", 6),
        # The session failed, and the job's exit status does not say so.
        (0, "", {"exit_code": 6, "other": ("the session had an error",)}, "1x8: the session had an error; 3 PASS", 6),
        # It is that of another session, as one that was killed leaves it.
        (0, "", {"session": "earlier-1x8"}, "1x8: no verdict, exit status 6; 1 not reached of 3", 6),
        (0, "", {"statuses": ()}, "1 not reached of 3", 6),
    ],
)
def test_what_is_wrong_with_a_job_fails_the_gate_although_its_cases_passed(
    split: SplitGate, leave: Leave, code: int, why: str, changes: dict[str, Any], line: str, status: int
) -> None:
    split = replace(split, suite=SuiteDouble((ONE, OTHER, EIGHT)), parts=split.parts[:2])  # type: ignore[arg-type]
    leave(split.parts[0], Status.PASS, Status.PASS)
    leave(split.parts[1], *changes.pop("statuses", (Status.PASS,)), **{"exit_code": 0, **changes})
    endings = {part.shape: end for part, end in zip(split.parts, ((0, ""), (code, why)), strict=True)}
    moments = iter((0.0, 0.0, 61.0))
    whole = split.ended(endings, lambda: next(moments, 61.0), lambda seconds: None)
    verdict = whole.verdict()
    assert verdict.state is GateState.FAILED
    assert all(part in verdict.line for part in line.split("; ")), verdict.line
    assert whole.exit_status(verdict) == status
    junit = ElementTree.fromstring(whole.junit(verdict))
    assert junit.findall(".//error"), "a reader of the JUnit file would call it green"


@pytest.mark.parametrize("comes", [True, False])
def test_a_part_that_a_network_file_system_shows_late_is_waited_for(
    split: SplitGate, leave: Leave, comes: bool
) -> None:
    leave(split.parts[0], Status.PASS, Status.PASS)
    leave(split.parts[1], Status.PASS)
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if comes and now[0] == 30.0:
            leave(split.parts[2], Status.PASS)

    endings = {part.shape: (0, "") for part in split.parts}
    verdict = split.ended(endings, lambda: now[0], sleep).verdict()
    assert now[0] == (30.0 if comes else 60.0)
    assert verdict.line.startswith("GATE PASSED: 4 of 4" if comes else "GATE FAILED: 4x8: no verdict, exit status 6; ")


def test_the_whole_gate_has_one_report_in_which_nothing_is_missing(split: SplitGate, leave: Leave) -> None:
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", "two cases fell"), 2)
    leave(split.parts[0], Status.PASS, Status.PASS, night=night)
    leave(split.parts[1], Status.PASS, night=replace(night, status=Status.PASS, reason=Reason("c", "quiet"), cases=1))
    whole = ended(split, (0, ""), (0, ""), (6, "Slurm ended the job: NODE_FAIL"))
    verdict = whole.verdict()
    whole.write(verdict)
    results = json.loads((split.output / "results.json").read_text())
    assert (results["session"], results["exit_code"], results["not_reached"]) == ("night", 6, 1)
    assert [each["case_id"] for each in results["cases"]] == [each.case.id for each in (ONE, OTHER, EIGHT)]
    assert results["machine"]["host"] == "node-of-1x1, node-of-1x8"
    assert results["gate"]["state"] == "FAILED" and results["gate"]["line"] == verdict.line
    assert (results["night"]["status"], results["night"]["cases"]) == ("INCONCLUSIVE", 3)
    assert results["night"]["reason"]["message"] == "1x1: two cases fell; 1x8: quiet"
    # The speed-up is that of cases which different jobs measured.
    (scaling,) = results["scaling"]
    assert [each["cards"] for each in scaling["rows"]] == [1, 8]
    page = (split.output / "night.html").read_text()
    assert "<h1>The gate failed: 1 of 4 cases did not pass</h1>" in page
    assert f"perfgate submit -- gate -- -k {EIGHT.case.id} # night-1x8" in page
    assert "left no result of it: Slurm ended the job: NODE_FAIL" in page
    assert verdict.line in (split.output / "results.md").read_text()
    junit = ElementTree.parse(split.output / "junit.xml").getroot()
    assert [each.get("name") for each in junit] == ["1x1", "1x8", "job 4x8"]
    assert {each.get("value") for each in junit.iter("property")} == {verdict.line}
    assert [each.get("name") for each in junit.iter("testcase") if len(each)] == ["gate", FOUR.case.id]


def test_what_a_job_has_explained_is_on_the_page_of_the_whole_gate(split: SplitGate, leave: Leave) -> None:
    all_pass(split, leave)
    part = split.parts[1]
    found = CaseExplanation(EIGHT.case.id, EIGHT.target, "3.3.0", "3.3.1", explained(slower), runs=12)
    leave(part, Status.REGRESSION, explanations={EIGHT.key: found})
    whole = ended(split, (0, ""), (1, ""), (0, ""))
    assert whole.verdict().line == "GATE FAILED: 1 REGRESSION of 4"
    whole.write(whole.verdict())
    page = (split.output / "night.html").read_text()
    assert page.count("Which part of a step is slower") == 1 and headline(found) in page


def test_reports_of_an_earlier_night_are_removed(split: SplitGate, leave: Leave) -> None:
    all_pass(split, leave)
    for name in WHOLE:
        (split.output / name).write_text("an earlier night's")
    split.forget_earlier()
    assert not any((split.output / name).exists() for name in WHOLE)
    assert not any((part.output / PART).exists() for part in split.parts)


def test_a_part_for_which_no_job_was_submitted_has_not_passed(split: SplitGate, leave: Leave) -> None:
    all_pass(split, leave)
    verdict = ended(split, (0, ""), (0, "")).verdict()
    assert verdict.line.startswith("GATE FAILED: 4x8: exit status 6 (no job was submitted for it)")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": "GREEN"}, "field 'state': got 'GREEN'"),
        ({"exit_code": None}, "field 'exit_code'"),
        ({"outcomes": [{}]}, "case outcome"),
        ({"explanations": [{}]}, "explanation"),
        ({"more": 1}, "field 'more'"),
        ({"night": ["PASS", "quiet"]}, "field 'night'"),
    ],
)
def test_a_damaged_part_is_refused(split: SplitGate, leave: Leave, change: dict[str, Any], told: str) -> None:
    part = split.parts[1]
    leave(part, Status.PASS)
    record = json.loads(part.path.read_text())
    part.path.write_text(json.dumps(record | change))
    with pytest.raises(ResultError, match=told):
        read_part(part.path)
    assert part.found() is None
    part.path.write_text("[" * 100_000)
    assert part.found() is None


def test_only_a_gate_has_a_part() -> None:
    with pytest.raises(ResultError, match="only a gate has parts"):
        part_json(SessionReport([], "s", 0, {"host": "h", "found": "f"}, [], 0))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-m", "slow"), "pytest's options: got '-m'"),
        (("--deselect=perf_tests/x.py",), "pytest's options: got '--deselect=perf_tests/x.py'"),
        (("perf_tests/test_a.py::test_b",), "no choice of cases but -k with one text. Or one job: --shape"),
        (("--share-machine", "-n", "auto"), "-n: got 'auto', expected a number with --share-machine"),
        (("--share-machine", "--numprocesses=logical"), "-n: got 'logical'"),
    ],
)
def test_what_a_gate_in_several_jobs_cannot_share_out_is_refused(
    split: SplitGate, options: tuple[str, ...], told: str
) -> None:
    part = split.parts[0]
    with pytest.raises(ConfigError, match=re.escape(told)):
        read_command(("gate", "--", *options)).options_for(part.cases, part.output, 1, part.path)


def test_all_ways_to_write_a_number_of_workers_are_understood() -> None:
    for given in (("-n", "8"), ("-n8",), ("-n=8",), ("--numprocesses=8",), ("--numprocesses", "8")):
        command = read_command(("gate", "--", "--share-machine", *given, "-x"))
        assert command.cards([Shape(1, 1)]) == 8, given
        options = command.options_for((ONE,), Path("o"), 4, Path("p"))
        assert options[-6:] == ("--share-machine", "-n", "4", "-x", "-k", ONE.case.id)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (("--resume", "a", "--build", "b"), ("--build", "b")),
        (("--resume=a", "--output=g", "--", "-k", "--resume"), ("--output=g", "--", "-k", "--resume")),
        (("--build", "b", "--session", "a"), ("--build", "b")),
        ((), ()),
        (("--", "-x"), ("--", "-x")),
        # The name is left out, so the next word is another option.
        (("--resume", "--build=b"), ("--build=b",)),
    ],
)
def test_the_session_is_taken_out_of_a_command_line(options: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert read_command(("gate", *options)).without_session == kept
