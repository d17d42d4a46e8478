"""The verdict on a night from rows: which cases take part, what is told, and what differs from the night before."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.night import NightVerdict
from helpers.judging.verdict import Reason, Standing, Status
from helpers.plan.case_plan import CasePlan
from helpers.report.night import night_case, night_cases, night_clues, night_lines
from helpers.session.rows import CaseRow, Comparison

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

STANDING = Standing(4.6, 3.0, 2.5, True, 0.001, 0.0007, 40, 1, effect=-0.02)
RECORDED = Comparison("PASS", "median-step", "l", 100.0, 99.0, 0.99, 0.008, True, "m")
ROW = CaseRow(
    "paddle-vgg16-fp32-bs8-1x2-dali-static", "cpu", "BELOW_PUBLISHED", "fail", "c", "m",
    standing=STANDING, recorded=RECORDED, reference_build="paddle 3.3.0 in envs/good", run_folders=("r0",),
)  # fmt: skip


def test_a_row_takes_part_with_its_answer_to_the_recorded_question() -> None:
    case = night_case(ROW)
    assert case is not None
    assert (case.key, case.status, case.standing) == (("cpu", ROW.case_id), Status.PASS, STANDING)
    assert (case.tolerance, case.can_confirm) == (0.008, True)
    assert "all vgg16 cases" in case.labels


def test_a_row_without_a_reference_build_says_why_it_cannot_be_confirmed() -> None:
    case = night_case(replace(ROW, reference_build="", why_no_reference="no paddle there"))
    assert case is not None
    assert (case.can_confirm, case.why_not) == (False, "no paddle there")


@pytest.mark.parametrize(
    "changes", [{"standing": None}, {"judged": False}, *({"status": each} for each in ("INVALID", "INFRA_ERROR"))]
)
def test_what_was_not_judged_takes_no_part(changes: dict[str, object]) -> None:
    assert night_cases((replace(ROW, **changes), ROW)) == (night_case(ROW),)


@pytest.mark.parametrize("width", [60, 80])
def test_the_night_is_a_line_and_its_reason_below_it(width: int) -> None:
    reason = "all amp cases fell together; " * 4 + "give --reference-env PATH \x1b[31m"
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", reason), cases=12, suspect="machine")
    first, *rest = night_lines(night, width)
    assert first == "the night: INCONCLUSIVE, suspect: the machine (12 cases)"
    assert all(line.startswith("    ") and len(line) <= width and line.isprintable() for line in rest)
    assert " ".join(" ".join(rest).split()) == reason.replace("\x1b", "\\x1b")


def test_no_suspect_is_named_where_there_is_none() -> None:
    night = NightVerdict(Status.PASS, Reason("quiet", "nothing fell"), cases=3)
    assert night_lines(night, 80) == ["the night: PASS (3 cases)", "    nothing fell"]


@pytest.fixture
def measured(tmp_path: Path, make_plan: MakePlan, make_run: MakeRun) -> Callable[..., Path]:
    """``measured(session, age, gpu=…)`` leaves a session with one run, ``age`` seconds old, and gives its folder."""

    def leave(session: str, age: int, **system: dict[str, str]) -> Path:
        store = ResultStore(tmp_path, session)
        store.new_run_folder(ROW.case_id, 0)
        store.write(make_run(make_plan(), 0, session=session, system=system))
        os.utime(store.folder, (1e9 - age, 1e9 - age))
        return store.folder

    return leave


def test_what_differs_from_the_newest_session_before_is_told_with_its_name(measured: Callable[..., Path]) -> None:
    measured("oldest", 9, GPU={"driver": "0"})
    measured("before", 5, GPU={"driver": "1", "ECC": "on"}, system={"suite": "a"})
    tonight = measured("tonight", 1, GPU={"driver": "2", "ECC": "on"}, system={"suite": "b"})
    assert night_clues((ROW,), tonight) == ("GPU: driver: 1 → 2", "all since session before")


def test_only_the_first_few_differences_are_told(measured: Callable[..., Path]) -> None:
    measured("before", 5, GPU={str(number): "1" for number in range(8)})
    tonight = measured("tonight", 1, GPU={str(number): "2" for number in range(8)})
    assert night_clues((ROW,), tonight)[5:] == ("and 3 more", "all since session before")


def test_nothing_is_told_where_nothing_differs_or_nothing_is_known(measured: Callable[..., Path]) -> None:
    tonight = measured("tonight", 1, GPU={"driver": "2"})
    assert night_clues((ROW,), tonight) == ()
    before = measured("before", 5, GPU={"driver": "2"})
    assert night_clues((ROW,), tonight) == ()
    (before / ROW.case_id / "r0" / "result.json").write_text("{")
    assert night_clues((ROW,), tonight) == ()


def test_others_on_the_machine_are_told(measured: Callable[..., Path]) -> None:
    contended = replace(ROW, foreign_share=0.123, marks=("contended in 1 of 1 runs",))
    quiet = replace(ROW, foreign_share=0.9)
    assert night_clues((contended, quiet, ROW), measured("tonight", 1)) == (
        "others used up to 12% of the cores while 1 of the cases ran",
    )
