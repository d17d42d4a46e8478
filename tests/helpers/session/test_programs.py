"""Programs that are built ahead: which, how often, and what is said of a build that cannot build one."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.builds.naming import BuildUnavailable, Why
from helpers.launch.programs import BuildReport, BuildState
from helpers.plan.case_plan import SuiteCase
from helpers.session import programs
from helpers.session.programs import (
    OnReport,
    build_programs,
    built_ahead,
    cases_to_check,
    program_lines,
    refuse_broken,
)
from helpers.session.suite import Suite
from helpers.trainers.contract.program import (
    COMPANION_FACT,
    PROGRAM_COUNTS_FACT,
    PROGRAM_FACT,
    counts_text,
)
from tests.helpers.session.workshop import CPU_MACHINE, ONE_RUN, SXM2, Bench, case_of, machine_with, rule

ERROR = "exit status 1: TypeError: any(): argument 'x' (position 0) must be Value"
BROKEN = BuildReport(BuildState.FAILED, ERROR)


class Answers:
    """In the place of build_programs: notes what it is asked, and answers a case's report by its precision."""

    def __init__(self, **by_precision: BuildReport) -> None:
        self.by_precision = by_precision
        self.asked: list[str] = []

    def __call__(
        self, cases: Sequence[SuiteCase], interpreter: str, on_report: OnReport | None = None
    ) -> tuple[BuildReport, ...]:
        self.asked += [each.case.id for each in cases]
        return tuple(self.by_precision.get(each.case.precision.value, built()) for each in cases)


def built(kind: str = "old", **counts: int) -> BuildReport:
    facts = {PROGRAM_FACT: kind, **({PROGRAM_COUNTS_FACT: counts_text(counts)} if counts else {})}
    return BuildReport(BuildState.BUILT, facts=facts)


@pytest.fixture
def suite(bench: Bench) -> Suite:
    return bench.suite(machine_with(SXM2), real_runner=True)


def published(suite: Suite) -> list[SuiteCase]:
    return cases_to_check(suite.cases, lambda each: False)


def test_each_published_program_is_built_once(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "build_programs", answers := Answers())
    found = built_ahead(published(suite), "python", lambda line: None)
    assert len(answers.asked) == len(found) == 8
    assert all("-static" in each and "-auto" not in each for each in answers.asked)
    # TF32's are in FP32's.
    assert sum(len(each.cases) for each in found) == len({each.key for each in published(suite) if _static(each)})


def _static(suite_case: SuiteCase) -> bool:
    return programs.is_built_ahead(suite_case)


def test_kind_and_differences_of_each_program_are_told(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    pir = built("PIR", operators=900, conv2d=53, float16_conv2d=53, nhwc_conv2d=53, batch_norm=37, cast=3)
    monkeypatch.setattr(programs, "build_programs", Answers(amp_o2=pir))
    found = built_ahead([case_of(suite, ONE_RUN, "v100")], "python", lambda line: None)
    lines = program_lines(found)
    assert lines[0] == "programs     1 built (PIR)"
    assert "batch_norm 37, published 4; fused_batch_norm_act 0, published 33" in lines[1]
    record = found[0].to_record()
    assert (record["kind"], record["counts"]["operators"]) == ("PIR", 900)
    assert record["differences"][0] == "batch_norm 37, published 4"


def test_a_gate_is_refused_by_a_broken_program_and_measures_cpu_cases_without_building(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "build_programs", answers := Answers(amp_o2=BROKEN))
    suite = bench.suite(machine_with(SXM2), gate=[rule(ONE_RUN, target="v100")], real_runner=True)
    with pytest.raises(BuildUnavailable, match=r"paddlepaddle-gpu 3\.0\.0 does not build a program"):
        suite.measurer.check_programs([case_of(suite, ONE_RUN, "v100")], lambda line: None)
    assert answers.asked == [ONE_RUN]
    on_cpu = bench.suite(CPU_MACHINE, gate=[rule("*")], real_runner=True)
    on_cpu.measurer.check_programs([each for each in on_cpu.cases if each.target == "cpu"], lambda line: None)
    assert answers.asked == [ONE_RUN]


def test_each_program_is_built_by_its_own_process_and_reported(suite: Suite, tmp_path: Path) -> None:
    facts = {COMPANION_FACT: "protobuf"}
    answer = json.dumps({"built": False, "reason": ERROR, "facts": facts, "operators": None, "parameters": None})
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport sys\nprint({answer!r})\nsys.exit(1)\n")
    script.chmod(0o755)
    lines: list[str] = []
    (found,) = built_ahead([case_of(suite, ONE_RUN, "v100")], str(script), lines.append)
    assert (found.report.state, ERROR in found.report.reason) == (BuildState.FAILED, True)
    assert lines == [f"program of {ONE_RUN}: failed"]
    with pytest.raises(BuildUnavailable) as caught:
        refuse_broken("night.whl", [found])
    assert caught.value.kind is Why.BAD_COMPANION
    assert build_programs([], str(script), print) == ()
