"""The terminal's table: golden at two widths, and what a reader can rely on in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.judging.case.verdict import Reason, Status
from helpers.judging.night.verdict import NightVerdict
from helpers.judging.rules.own import CaseFigure
from helpers.plan.proposals import (
    AgainstEntry,
    Candidate,
    how_to_accept,
)
from helpers.report.row import CaseRow, Pair, ReferenceAnswer
from helpers.report.text import (
    case_table,
    format_proposals,
    night_lines,
    pairs_line,
    render,
    rules_line,
    summary_line,
)
from tests.helpers.plan.recorded_entries import A, B, entry, proposed, recorded

RESNET = "paddle-resnet50v1.5-fp32-bs8-1x1-dali-static"
VGG = "paddle-vgg16-amp_o1-bs4-1x2-native-dynamic"


def comparison(
    reference: float | None, measured: float | None, *, status: str = "PASS", sets_status: bool = True, label: str = "t"
) -> ReferenceAnswer:
    ratio = measured / reference if measured and reference else None
    return ReferenceAnswer(status, "median-step", label, reference, measured, ratio, 0.05, sets_status, "because")


PASSED = CaseRow(
    RESNET,
    "cpu",
    "PASS",
    "pass",
    "within-recorded",
    "3.412 images/s is +0.4% against the recorded 3.4 (recorded 2024-05-06, abc; by wall-clock; n=2; band ±5.0%)",
    rule="wall-clock",
    samples_per_s=3.412,
    spread=0.012,
    runs=2,
    recorded=comparison(3.4, 3.412),
    reader_share=0.001,
    figures=(
        CaseFigure("wall-clock", 3.412, 3.4121, (3.4, 3.424)),
        CaseFigure("dlperf-log", 3.5, 3.6, (3.4, 3.5, 3.9)),
        CaseFigure("paddleclas-mean", None, None, (), "rule paddleclas-mean: got '8 steps', expected 110. Lengthen it"),
        CaseFigure("fleetx-20-100-median7", None, None, (), "rule fleetx-20-100-median7 is the median of 7 runs"),
        CaseFigure("dlperf-time", None, None, (), "rule dlperf-time: got '8 steps', expected 110. Lengthen it"),
    ),
    warnings=("2 runs: the interval is wide, 3 or more narrow it",),
)
SLOWER = CaseRow(
    VGG,
    "cpu",
    "REGRESSION",
    "fail",
    "slower-than-recorded",
    "0.9123 images/s is -30.0% against the recorded 1.303",
    rule="wall-clock",
    samples_per_s=0.9123,
    runs=1,
    recorded=comparison(1.303, 0.9123, status="REGRESSION"),
    marks=("contention allowed",),
    resumed=1,
    reader_share=0.137,
    loader="paddle.io.DataLoader, 1 worker processes",
)
BELOW = CaseRow(
    RESNET.replace("bs8", "bs256"),
    "v100",
    "BELOW_PUBLISHED",
    "fail",
    "below-published",
    "too slow",
    samples_per_s=10000.0,
    spread=0.001,
    runs=3,
    published=(
        comparison(10936.815, 10000.0, status="BELOW_PUBLISHED"),
        comparison(393.561, None, sets_status=False, label="draft"),
    ),
)
CRASHED = CaseRow(VGG, "a100", "INFRA_ERROR", "error", "run-failed", "rank 1 was killed (exit 137)")
NO_CARD = CaseRow("a-case", "a100", "not run", "skip", "not-run", "needs an A100, found 2 CPU cards")
NO_FRAMEWORK = CaseRow("c-case", "cpu", "not run", "skip", "not-run", "paddle is not installed")
ROWS = (PASSED, SLOWER, BELOW, CRASHED, NO_CARD, replace(NO_CARD, case_id="b-case"), NO_FRAMEWORK)


def test_the_table_is_the_golden_one() -> None:
    golden = (Path(__file__).parent / "table_100.txt").read_text(encoding="utf-8")
    assert render(ROWS, 100) + "\n" == golden


def test_every_rule_s_figure_is_told_on_demand_and_the_reasons_of_the_others() -> None:
    line = rules_line(PASSED)
    assert line == (
        "by rule: wall-clock 3.412; dlperf-log 3.5 (average 3.6);"
        " paddleclas-mean, dlperf-time: got '8 steps', expected 110; fleetx-20-100-median7: is the median of 7 runs"
    )
    for width in (60, 100, 200):
        assert "by rule" not in render((PASSED,), width)
        assert line in " ".join(render((PASSED,), width, details=True).split())
    assert (rules_line(CRASHED), "by rule" in render((CRASHED,), 100, details=True)) == ("", False)


def test_each_figure_has_its_rule_below_the_heading_or_beside_it_where_there_are_several() -> None:
    published = replace(comparison(360.1, 353.6), rule="fleetx-20-100-median7")
    row = replace(PASSED, samples_per_s=2.23, recorded=comparison(2.361, 2.389), published=(published,))
    _, headings, rules, _, _, line, *_ = render((row,), 200).splitlines()
    for text, rule in (("± spread", "wall-clock"), ("published  ratio", "fleetx-20-100-median7")):
        assert rules.index(rule) + len(rule) == headings.index(text) + len(text)
    assert rules.endswith("median-step") and headings[: len(rules)].endswith("recorded  ratio")
    assert "2.361  1.012" in line and "median-step" not in line
    logs = replace(row, case_id=VGG, rule="dlperf-log", samples_per_s=7.5)
    several = render((row, logs), 200).splitlines()
    assert "wall-clock" not in several[2] and "median-step" in several[2]
    assert "2.23 ± 1.2% (n=2) wall-clock" in several[5] and any("7.5 ± 1.2% (n=2) dlperf-log" in x for x in several)


def test_the_figures_in_a_row_are_those_of_the_ratio_beside_them() -> None:
    row = replace(PASSED, samples_per_s=5.182, spread=None, runs=1)
    slower = replace(row, recorded=comparison(5.505, 5.131), published=(comparison(6.0, 5.0),))
    for text in (render((slower,), 200), str(case_table((slower,)))):
        assert "5.131 of 5.505" in text and "0.932" in text
        assert "5 of 6" in text and "0.833" in text
    # Where the row's own figure gives the ratio, it is enough.
    as_told = replace(row, recorded=comparison(5.505, 5.1822), published=())
    assert "5.505  0.941" in render((as_told,), 200) and " of 5.505" not in render((as_told,), 200)


def test_with_a_short_status_the_table_fits_a_terminal_of_80_columns() -> None:
    rows = [replace(row, status="REGRESSION") for row in (PASSED, SLOWER, BELOW)]
    assert max(len(line) for line in render(rows, 80).splitlines()) <= 80


CONFIRMED = replace(
    SLOWER,
    reason="slower: -2.1% (-2.3% to -1.9%) against paddle 3.3.0 in envs/good, n=2 interleaved pairs",
    pairs=(Pair("candidate", 1.303, 1.2753), Pair("reference", 46200.0, 45180.0)),
    set_aside=("r3 (reference build): throttled: SW power cap for 12% of the window",),
    reference_build="paddle 3.3.0 in envs/good",
    run_folders=("r0", "r1", "r2", "r3", "r4", "r5"),
)


def test_a_confirmation_is_one_line_of_differences() -> None:
    assert pairs_line(CONFIRMED) == "A/B, new against reference, 2 pairs: -2.1 -2.2%"
    assert pairs_line(replace(CONFIRMED, pairs=CONFIRMED.pairs[:1])).endswith("1 pair: -2.1%")
    assert pairs_line(SLOWER) == ""
    text = render((CONFIRMED,), 80)
    assert "    A/B, new against reference, 2 pairs: -2.1 -2.2%\n" in text
    assert "46200" not in text
    assert "A/B" not in render(ROWS, 80)


def test_a_session_without_a_measured_case_says_why_in_one_line() -> None:
    assert render((NO_CARD, NO_CARD), 80) == ("not run: 2 cases: needs an A100, found 2 CPU cards\n2 cases: 2 not run")


def test_the_sum_counts_each_status_worst_first() -> None:
    assert summary_line(ROWS) == "7 cases: 1 INFRA_ERROR, 1 REGRESSION, 1 BELOW_PUBLISHED, 1 PASS, 3 not run"
    assert summary_line((PASSED,)) == "1 case: 1 PASS"


def test_colour_stands_on_the_status_alone() -> None:
    plain, coloured = render(ROWS, 200), render(ROWS, 200, colour=True)
    escape = re.compile(r"\x1b\[(\d+)m([^\x1b]*)\x1b\[0m")
    assert escape.findall(coloured) == [
        ("32", "PASS"), ("31", "REGRESSION"), ("31", "BELOW_PUBLISHED"), ("31", "INFRA_ERROR"),
    ]  # fmt: skip
    assert escape.sub(r"\2", coloured) == plain
    assert "\x1b" not in plain


def test_of_several_deciding_figures_the_lowest_ratio_is_shown() -> None:
    row = replace(BELOW, published=(comparison(5000.0, 10000.0), comparison(20000.0, 10000.0)))
    assert "20000  0.500" in render((row,), 200).splitlines()[5]


def test_a_deciding_figure_that_could_not_be_computed_is_shown_before_one_that_passed() -> None:
    row = replace(BELOW, published=(comparison(5000.0, 10000.0), comparison(7000.0, None)))
    assert re.search(r"7000 +- ", render((row,), 200).splitlines()[5])


def test_figures_that_are_only_shown_carry_a_star() -> None:
    shown = comparison(5333.558, 4412.0, sets_status=False, label="A100 table")
    line = render((replace(PASSED, published=(shown,), recorded=shown),), 200).splitlines()[5]
    assert line.count("5334*  0.827") == 2
    text = " ".join(render((replace(BELOW, published=(shown,)),), 200).split())
    assert "* shown only: 5334 by median-step (A100 table, ratio 0.827)" in text


@pytest.mark.parametrize("width", [60, 80])
def test_the_night_is_a_line_and_its_reason_below_it(width: int) -> None:
    reason = "all amp cases fell together; " * 4 + "give --reference-build BUILD \x1b[31m"
    night = NightVerdict(Status.INCONCLUSIVE, Reason("c", reason), cases=12, suspect="machine")
    first, *rest = night_lines(night, width)
    assert first == "the night: INCONCLUSIVE, suspect: the machine (12 cases)"
    assert all(line.startswith("    ") and len(line) <= width and line.isprintable() for line in rest)
    assert " ".join(" ".join(rest).split()) == reason.replace("\x1b", "\\x1b")


def test_the_table_shows_old_new_change_and_reason() -> None:
    old = recorded(entry(100.0, A), entry(2.0, B), entry(7.25, "paddle-old-case"))
    faster = Candidate(entry(112.5, A), answer=AgainstEntry.FASTER, why="+12.5% in 3 pairs")
    proposals = proposed(old, faster, Candidate(entry(1.0, B), answer=AgainstEntry.SLOWER, why="-50.0% in 2 pairs"))

    assert format_proposals(proposals).splitlines() == [
        "case                                       old → new images/s  change %  what     reason",
        "paddle-old-case                          7.250 → -                       unused   "
        "no such case any more; delete the entry by hand if it is not coming back",
        "paddle-vgg16-fp32-bs16-1x1-dali-static   2.000 → 1.000           -50.00  refused  "
        f"confirmed slower: -50.0% in 2 pairs; {how_to_accept(B)}",
        "paddle-vgg16-fp32-bs8-1x1-dali-static   100.00 → 112.50          +12.50  updated  "
        "confirmed faster: +12.5% in 3 pairs",
        "Baselines: 1 updated, 1 refused, 1 unused",
    ]
