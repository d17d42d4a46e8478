"""The line of a session's first figure."""

from __future__ import annotations

from helpers.plan.baseline_files import PUBLISHED
from helpers.plan.case_plan import matrix
from helpers.plan.perf_yaml import SHIPPED, load_config
from helpers.plan.published import load_all_published
from helpers.report.first_figure import first_figure_text
from helpers.report.row import CaseRow

CASE = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"


def test_a_figure_without_a_baseline_stands_beside_the_published_one_of_a_card() -> None:
    figures = {target: each.figures for target, each in load_all_published(PUBLISHED, ("v100",)).items()}
    row = CaseRow(CASE, "cpu", "NO_BASELINE", "warn", "no-baseline", "", samples_per_s=0.7416)
    text = first_figure_text(row, matrix(load_config(SHIPPED), figures))
    assert "0.7416 images/s" in text and CASE in text
    assert "published of one V100-SXM2: 266.2 (paddle-vgg16-fp32-bs128-1x1-native-static)" in text


def test_a_case_without_a_figure_says_nothing() -> None:
    assert first_figure_text(CaseRow(CASE, "cpu", "INFRA_ERROR", "error", "crash", ""), ()) == ""
