"""The probes that are no sessions, with stand-ins for Paddle's processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.commands.proof.probing import (
    ProbeAnswer,
    ask_probe,
    look_at_programs,
    program_faults,
)
from helpers.launch.programs import BuildReport, BuildState
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.recipes.published_programs import published_program
from helpers.plan.recipes.recipe import settings_for
from helpers.session.programs import BuiltProgram
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import (
    PRETENDED_FACT,
    PROGRAM_COUNTS_FACT,
    PROGRAM_FACT,
    ProgramKind,
    counts_text,
    pretended_text,
)

PROTOCOL = MeasuringProtocol("p", 4, 6, 1)
ROW = "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static"
PROGRAM = published_program(Case.parse(ROW), "gpu")
assert PROGRAM is not None
# The suite's own cast of the mean logit is one more than the published program's.
PUBLISHED = {**PROGRAM.of(Case.parse(ROW)), "cast": 3}


def built(counts: Mapping[str, int] = PUBLISHED, kind: ProgramKind = ProgramKind.OLD) -> BuildReport:
    facts = {PROGRAM_FACT: kind.value, PROGRAM_COUNTS_FACT: counts_text(counts)}
    return BuildReport(BuildState.BUILT, facts=facts)


def program(report: BuildReport) -> BuiltProgram:
    row = SuiteCase(Case.parse(ROW), "v100", PROTOCOL)
    return BuiltProgram(row, (row, row), report)


@pytest.mark.parametrize(
    ("report", "faults"),
    [
        (built(), []),
        (built(kind=ProgramKind.OLD_WITH_SHIM), []),
        (built(kind=ProgramKind.PIR), ["PIR is not the published program"]),
        (
            built({**PUBLISHED, "merged_momentum": 0, "momentum": 161}),
            ["momentum 161, published 0", "merged_momentum 0, published 2"],
        ),
        (built({**PUBLISHED, "all_reduce": 0}), ["all_reduce 0, published 21"]),
        (BuildReport(BuildState.BUILT), ["the build check states no kind of program, or no operators"]),
        (BuildReport(BuildState.REFUSED, "any() failed"), ["refused: any() failed"]),
    ],
)
def test_a_published_rows_program_has_its_operators(report: BuildReport, faults: list[str]) -> None:
    assert program_faults(program(report)) == faults


def looked_at(reports: Sequence[BuildReport], most_seconds: float = 60.0) -> ProbeAnswer:
    def build(rows: Sequence[SuiteCase], interpreter: str, say: Callable[[str], None]) -> tuple[BuiltProgram, ...]:
        for _ in reports:
            say("a program")
        return tuple(map(program, reports))

    return look_at_programs([program(built()).suite_case] * 4, "python", most_seconds, build)


def test_all_programs_are_told_in_one_line_and_each_fault_with_its_rows() -> None:
    found = looked_at([built(), BuildReport(BuildState.FAILED, "no Paddle")])
    assert found.message == "2 programs of 4 published rows: 1 old, 1 failed"
    assert found.faults == (f"{ROW} and 1 more rows: failed: no Paddle",)


def test_of_a_build_for_cpus_what_it_lacks_is_no_fault_and_what_it_lost_is() -> None:
    unfused = {"batch_norm": 53, "fused_batch_norm_act": 0, "fused_bn_add_activation": 0,
               "fused_elemwise_add_activation": 16, "relu": 33}  # fmt: skip
    lacks = {PRETENDED_FACT: pretended_text(float16=True, several_cards=False, fuses_batch_norm=True)}
    for changed, faults in ({}, 0), ({"merged_momentum": 0, "momentum": 161}, 2):
        report = built({**PUBLISHED, **unfused, **changed})
        assert len(looked_at([report]).faults) > 2
        assert len(looked_at([replace(report, facts={**report.facts, **lacks})]).faults) == faults


def test_programs_that_take_too_long_and_none_at_all_are_errors() -> None:
    assert not looked_at([built()]).faults
    with pytest.raises(LaunchError, match="no end within -1 s"):
        looked_at([built()], -1.0)
    with pytest.raises(LaunchError, match="no row with a program"):
        looked_at([])


def job(folder: Path, case_id: str, device: str = "cpu") -> JobSpec:
    case = SuiteCase(Case.parse(case_id), device, PROTOCOL)
    settings = settings_for(case.case, device)
    return draft_job(case, settings, device=device, run_folder=str(folder), data_root=str(folder), job_id="proof-job")


def python_that(folder: Path, does: str) -> str:
    """A stand-in for an interpreter."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "expected"),
    [
        ('echo noise; echo \'{"faults": ["bad"], "facts": {"cudnn": "8.9.7"}, "not_run": null}\'', None),
        ("echo 'no module named paddle' >&2; exit 1", "exit status 1: no module named paddle"),
        ("echo '[]'", r"exit status 0: \[\]"),
        ("exec sleep 60", "no end within 0.3 s"),
    ],
)
def test_a_probe_answers_or_is_an_error(tmp_path: Path, does: str, expected: str | None) -> None:
    spec = job(tmp_path, "paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic")
    seconds = 0.3 if "sleep" in does else 60.0
    if expected is None:
        found = ask_probe("libraries", spec, python_that(tmp_path, does), seconds)
        assert (found.faults, found.message, found.not_run) == (("bad",), "cudnn 8.9.7", "")
        return
    with pytest.raises(LaunchError, match=expected):
        ask_probe("libraries", spec, python_that(tmp_path, does), seconds)
