"""What to type after a drop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.common.own_folder import program_path
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.report.next_steps import after_a_drop
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating
from helpers.trainers.contract.case import Case
from tests.helpers.history.made import run

CASE = Case.parse("paddle-vgg16-fp32-bs1-1x1-dali-dynamic")
BUILDS = {Build.CANDIDATE: "/builds/to night", Build.REFERENCE: "paddlepaddle==3.3.0"}


def outcome(status: Status, *builds: Build) -> CaseOutcome:
    runs = tuple(run(build.value, role=build.value, build={"source": BUILDS[build]}) for build in builds)
    return CaseOutcome(CASE, "cpu", Verdict(status, Reason("c", "m")), Gating(CaseEffect.FAIL), runs=runs)


@pytest.mark.parametrize("status", [Status.REGRESSION, Status.SLOWER])
def test_a_drop_is_explained_and_searched_with_the_builds_that_ran(status: Status) -> None:
    explain, bisect = after_a_drop(outcome(status, *BUILDS))
    builds = "--build '/builds/to night' --reference-build paddlepaddle==3.3.0"
    assert explain.startswith(f"{program_path()} explain {CASE.id} --target cpu {builds} ")
    assert "--good paddlepaddle==3.3.0 --bad '/builds/to night' --builds FILE" in bisect


def test_a_build_that_no_option_named_is_its_python() -> None:
    usual = run("u", build={"interpreter": "/own/bin/python", "source": ""})
    both = replace(outcome(Status.REGRESSION, *BUILDS), runs=(usual, *outcome(Status.PASS, Build.REFERENCE).runs))
    explain, _ = after_a_drop(both)
    assert "--build /own/bin/python --reference-build paddlepaddle==3.3.0" in explain


def test_nothing_follows_without_a_drop_or_without_a_second_build() -> None:
    assert after_a_drop(outcome(Status.PASS, *BUILDS)) == ()
    assert after_a_drop(outcome(Status.SLOWER, Build.CANDIDATE)) == ()
