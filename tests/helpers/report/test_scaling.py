"""Speed-up and efficiency: against which figure, by which rule, why there is none, and the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.rules.own import WALL_CLOCK
from helpers.report.row import CaseRow
from helpers.report.scaling import Scaling, scalings, to_text


def row(
    shape: str, samples_per_s: float | None, *, batch: int = 8, rest: str = "dali-static", **values: Any
) -> CaseRow:
    given = {
        "target": "cpu",
        "status": "PASS",
        "effect": "pass",
        "code": "c",
        "reason": "fine",
        "rule": WALL_CLOCK,
        "samples_per_s": samples_per_s,
        "runs": 3,
    }
    return CaseRow(f"paddle-vgg16-fp32-bs{batch}-{shape}-{rest}", **{**given, **values})


def only(*rows: CaseRow) -> Scaling:
    (found,) = scalings(rows)
    return found


# DLPerf, ResNet50 v1.5 FP32, batch size 128: node_num, gpu_num, samples/s, speedup as printed.
DLPERF = [
    (1, 1, 362.44, 1.00),
    (1, 4, 1391.28, 3.84),
    (1, 8, 2721.98, 7.51),
    (2, 16, 5099.42, 14.07),
    (4, 32, 9514.64, 26.25),
]


def test_dlperf_s_own_speed_ups_come_out_of_its_own_medians_in_any_order() -> None:
    found = only(*(row(f"{nodes}x{cards // nodes}", rate) for nodes, cards, rate, _ in reversed(DLPERF)))
    told = [(each.nodes, each.cards, each.samples_per_s, round(each.speed_up or 0, 2)) for each in found.rows]
    assert told == DLPERF
    assert found.rows[-1].efficiency == pytest.approx(9514.64 / 362.44 / 32)
    assert found.title == "paddle-vgg16-fp32-dali-static [cpu], batch size = 8"
    assert found.table.markdown(padded=True)[:3] == [
        "| nodes | cards | images/s | speed-up | efficiency |",
        "| ----- | ----- | -------- | -------- | ---------- |",
        "| 1     | 1     | 362.4    | 1.00     | 100.0%     |",
    ]


@given(one=st.floats(1e-3, 1e5), factor=st.floats(1e-3, 64), cards=st.integers(2, 64))
def test_efficiency_is_speed_up_over_cards_and_one_card_is_one(one: float, factor: float, cards: int) -> None:
    first, second = only(row("1x1", one), row(f"1x{cards}", one * factor)).rows
    assert (first.speed_up, first.efficiency) == (1.0, 1.0)
    assert second.speed_up == pytest.approx(factor)
    assert second.efficiency == pytest.approx(factor / cards)


@pytest.mark.parametrize(
    "other",
    [
        {"batch": 4},
        {"rest": "native-static"},
        {"rest": "dali-dynamic"},
        {"rest": "dali-static-auto"},
        {"target": "v100"},
        {"rule": "dlperf-log"},
    ],
    ids=["batch", "data", "execution", "features", "target", "rule"],
)
def test_another_configuration_s_one_card_figure_is_no_reference(other: dict[str, Any]) -> None:
    found = only(row("1x1", 5.0, **other), row("1x2", 9.0))
    assert found.rows[-1].speed_up is None
    assert "paddle-vgg16-fp32-bs8-1x1-dali-static has no figure" in found.rows[-1].reason


def test_two_nodes_of_one_card_are_two_cards_and_no_reference() -> None:
    found = only(row("2x1", 9.0))
    assert [(each.nodes, each.cards, each.speed_up) for each in found.rows] == [(2, 2, None)]


def test_without_a_case_of_several_cards_there_is_no_table() -> None:
    odd = replace(row("1x2", 9.0), case_id="from elsewhere")
    assert scalings([row("1x1", 5.0), row("1x2", None, status="INFRA_ERROR"), odd]) == ()
    assert to_text((), 80) == ""


def test_a_case_without_a_figure_keeps_its_line_and_says_why() -> None:
    lost = row("1x4", None, status="INFRA_ERROR", reason="rank 1 was killed")
    found = only(row("1x1", 5.0), row("1x2", 9.0), lost, row("1x8", 18.0, rule="dlperf-log"))
    assert [each.speed_up for each in found.rows[2:]] == [None, None]
    text = to_text([found], 200)
    assert "| 1     | 4     | INFRA_ERROR | -*       | -*         |" in text
    assert "* 1 x 4: no speed-up: INFRA_ERROR: rank 1 was killed" in text
    assert "* 1 x 8: no speed-up: measured by dlperf-log, not by wall-clock" in text


@pytest.mark.parametrize(
    ("values", "mark"),
    [
        ({"marks": ("contended in 1 of 3 runs: 7% by python",)}, "CONTENDED in 1 of 3 runs"),
        ({"status": "INVALID"}, "INVALID"),
        ({"overrides": ("dali.threads", "layout")}, "OVERRIDDEN: dali.threads, layout"),
    ],
)
def test_a_figure_to_be_doubted_has_a_star_and_its_note(values: dict[str, Any], mark: str) -> None:
    found = only(row("1x1", 5.0), row("1x2", 9.0, **values))
    assert (found.rows[0].marks, found.rows[1].marks) == ((), (mark,))
    text = to_text([found], 200)
    assert "| 1     | 2     | 9*       | 1.80*    | 90.0%*     |" in text
    assert f"* 1 x 2: {mark}" in text


def test_automatic_parallel_says_what_its_source_says() -> None:
    auto = only(row("1x1", 1.0, rest="dali-static-auto"), row("1x8", 8.0, rest="dali-static-auto"))
    assert "its speed-up is no reference" in " ".join(to_text([auto], 80).split())
