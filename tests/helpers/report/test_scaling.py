"""Speed-up and efficiency: against which figure, by which rule, and why there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK, CaseFigure
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.row import CaseRow
from helpers.report.scaling import THIS_SESSION, Scaling, apart_from_cards, scalings
from helpers.trainers.contract.errors import BaselineError

SEGMENT = {"host": "h", "cards": "2 x 1 core", "framework line": "paddle 3.3", "flags": "", "data": "d", "cpu": "c"}
ONE_CARD_SEGMENT = {**SEGMENT, "cards": "1 x 1 core"}


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
        "segment": ONE_CARD_SEGMENT if shape == "1x1" else SEGMENT,
    }
    return CaseRow(f"paddle-vgg16-fp32-bs{batch}-{shape}-{rest}", **{**given, **values})


def entry(samples_per_s: float = 10.0, **values: Any) -> RecordedEntry:
    provenance = Provenance("0123456789abcdef", "2024-05-06", "here", "because")
    given: dict[str, Any] = {"rule": WALL_CLOCK, "segment": ONE_CARD_SEGMENT, **values}
    return RecordedEntry("x", samples_per_s, given["rule"], (samples_per_s,), None, {}, given["segment"], provenance)


def nothing_recorded(target: str, case_id: str) -> None:
    return None


def only(rows: list[CaseRow], find: Callable[[str, str], RecordedEntry | None] = nothing_recorded) -> Scaling:
    (found,) = scalings(rows, find)
    return found


# DLPerf, ResNet50 v1.5 FP32, batch size 128: node_num, gpu_num, samples/s, speedup as printed.
DLPERF = [
    (1, 1, 362.44, 1.00),
    (1, 4, 1391.28, 3.84),
    (1, 8, 2721.98, 7.51),
    (2, 16, 5099.42, 14.07),
    (4, 32, 9514.64, 26.25),
]


def test_dlperf_s_own_speed_ups_come_out_of_its_own_medians() -> None:
    found = only([row(f"{nodes}x{cards // nodes}", rate, segment={}) for nodes, cards, rate, _ in DLPERF])
    told = [(each.nodes, each.cards, each.samples_per_s, round(each.speed_up or 0, 2)) for each in found.rows]
    assert told == DLPERF
    assert found.rows[-1].efficiency == pytest.approx(9514.64 / 362.44 / 32)
    assert (found.configuration, found.batch_size_per_card, found.rule) == (
        "paddle-vgg16-fp32-dali-static",
        8,
        WALL_CLOCK,
    )


@given(one=st.floats(1e-3, 1e5), factor=st.floats(1e-3, 64), cards=st.integers(2, 64))
def test_efficiency_is_speed_up_over_cards_and_one_card_is_one(one: float, factor: float, cards: int) -> None:
    first, second = only([row("1x1", one), row(f"1x{cards}", one * factor)]).rows
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
    ],
    ids=["batch", "data", "execution", "features", "target"],
)
def test_another_configuration_s_one_card_figure_is_no_reference(other: dict[str, Any]) -> None:
    found = only([row("1x1", 5.0, **other), row("1x2", 9.0)])
    assert found.reference.samples_per_s is None
    assert [each.speed_up for each in found.rows] == [None]


def test_another_precision_s_one_card_figure_is_no_reference() -> None:
    one = row("1x1", 5.0)
    found = only([replace(one, case_id=one.case_id.replace("fp32", "amp_o1")), row("1x2", 9.0)])
    assert found.rows[0].speed_up is None


def test_two_nodes_of_one_card_are_two_cards_and_no_reference() -> None:
    found = only([row("2x1", 9.0)])
    assert found.reference.samples_per_s is None
    assert [(each.nodes, each.cards, each.speed_up) for each in found.rows] == [(2, 2, None)]


def test_without_a_case_of_several_cards_there_is_no_table() -> None:
    assert scalings([row("1x1", 5.0), row("1x2", None, status="INFRA_ERROR")], nothing_recorded) == ()
    assert scalings([], nothing_recorded) == ()


def test_a_row_that_is_no_case_is_left_out() -> None:
    odd = replace(row("1x2", 9.0), case_id="from elsewhere")
    assert scalings([odd], nothing_recorded) == ()


def test_cases_come_in_the_order_of_nodes_and_cards() -> None:
    found = only([row("2x8", 90.0), row("1x16", 80.0), row("1x8", 50.0), row("1x1", 8.0)])
    assert [(each.nodes, each.cards) for each in found.rows] == [(1, 1), (1, 8), (1, 16), (2, 16)]


def test_a_case_that_measured_nothing_keeps_its_line_and_says_why() -> None:
    lost = row("1x4", None, status="INFRA_ERROR", reason="rank 1 was killed")
    found = only([row("1x1", 5.0), row("1x2", 9.0), lost])
    assert (found.rows[2].speed_up, found.rows[2].reason) == (None, "INFRA_ERROR: rank 1 was killed")


def test_a_figure_by_another_rule_is_not_divided_by_one_by_wall_clock() -> None:
    found = only([row("1x1", 5.0), row("1x2", 9.0), row("1x4", 18.0, rule="dlperf-log")])
    assert found.rows[2].speed_up is None
    assert found.rows[2].reason == "measured by dlperf-log, the 1-card median by wall-clock"


# --- the recorded figure as the reference


def test_the_session_s_own_figure_comes_before_the_recorded_one() -> None:
    found = only([row("1x1", 5.0), row("1x2", 9.0)], lambda target, case_id: entry(1.0))
    assert (found.reference.samples_per_s, found.reference.origin) == (5.0, THIS_SESSION)


@pytest.mark.parametrize("one_card", [[], [row("1x1", None, status="INVALID")], [row("1x1", None, status="not run")]])
def test_without_one_the_recorded_figure_of_the_segment_serves_and_is_labelled(one_card: list[CaseRow]) -> None:
    asked = []

    def find(target: str, case_id: str) -> RecordedEntry:
        asked.append((target, case_id))
        return entry(4.5)

    found = only([*one_card, row("1x2", 9.0)], find)
    assert asked == [("cpu", "paddle-vgg16-fp32-bs8-1x1-dali-static")]
    assert (found.reference.samples_per_s, found.reference.origin) == (4.5, "recorded 2024-05-06, 0123456789ab")
    assert (found.rows[-1].speed_up, found.rows[-1].efficiency) == (2.0, 1.0)


def test_nothing_measured_and_nothing_recorded_is_no_speed_up_and_says_so() -> None:
    found = only([row("1x2", 9.0)])
    assert found.rows[0].speed_up is None
    assert "1x1-dali-static is not measured in this session and not recorded on this machine" in found.rows[0].reason


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ({"segment": {**ONE_CARD_SEGMENT, "framework line": "paddle 2.6"}}, "framework line: paddle 2.6 → paddle 3.3"),
        ({"segment": {**ONE_CARD_SEGMENT, "cards": "1 x 4 cores"}}, "cards: 4 cores → 1 core"),
        ({"rule": "dlperf-log"}, "by dlperf-log, not by wall-clock"),
    ],
)
def test_a_recorded_figure_that_cannot_be_compared_is_refused(recorded: dict[str, Any], why: str) -> None:
    found = only([row("1x2", 9.0)], lambda target, case_id: entry(**recorded))
    assert found.rows[0].speed_up is None
    assert why in found.rows[0].reason


def test_against_a_figure_by_the_median_step_both_sides_are_by_the_median_step() -> None:
    two = replace(row("1x2", 9.0), figures=(CaseFigure(MEDIAN_STEP, 8.0, 8.0, (8.0,)),))
    found = only([two, row("1x4", 18.0)], lambda target, case_id: entry(5.0, rule=MEDIAN_STEP))
    assert found.reference.origin == "recorded 2024-05-06, 0123456789ab, by median-step"
    assert (found.rows[0].samples_per_s, found.rows[0].speed_up) == (9.0, 1.6)
    assert (found.rows[1].speed_up, found.rows[1].reason) == (
        None,
        "no figure by median-step, which the 1-card median is by",
    )


def test_a_recorded_figure_is_no_reference_for_changed_settings() -> None:
    found = only([row("1x2", 9.0, overrides=("dali.threads",))], lambda target, case_id: entry())
    assert "without the changed settings (dali.threads)" in found.rows[0].reason


def test_a_row_of_unknown_segment_is_held_against_nothing_recorded() -> None:
    assert only([row("1x2", 9.0, segment={})], lambda target, case_id: entry()).rows[0].speed_up is None


def test_a_recorded_file_that_cannot_be_read_is_told_and_not_guessed() -> None:
    def broken(target: str, case_id: str) -> RecordedEntry:
        raise BaselineError("recorded.json", got="half a file")

    assert "half a file" in only([row("1x2", 9.0)], broken).rows[0].reason


@pytest.mark.parametrize(
    ("one", "several", "apart"),
    [
        ({"cards": "1 x V100", "card ids": "a"}, {"cards": "8 x V100", "card ids": "a b"}, 0),
        ({"cards": "1 x V100", "card ids": "c"}, {"cards": "8 x V100", "card ids": "a b"}, 1),
        ({"cards": "1 x V100"}, {"cards": "4 x A100 + 4 x V100"}, 0),
        ({"cards": "1 x V100"}, {"cards": "8 x V100", "nodes": "a + b"}, 0),
        ({"cards": "1 x T4"}, {"cards": "4 x A100 + 4 x V100"}, 1),
        ({"cards": "1 x 1 core", "threads": "1"}, {"cards": "2 x 1 core", "threads": "2"}, 1),
    ],
)
def test_segments_differ_only_beyond_the_number_of_cards(
    one: dict[str, str], several: dict[str, str], apart: int
) -> None:
    assert len(apart_from_cards(one, several)) == apart


# --- marks


@pytest.mark.parametrize(
    ("values", "mark"),
    [
        ({"marks": ("contended in 1 of 3 runs: 7% by python",)}, "CONTENDED in 1 of 3 runs"),
        ({"marks": ("machine shared in 3 of 3 runs",)}, "machine shared in 3 of 3 runs"),
        ({"status": "INVALID"}, "INVALID"),
        ({"status": "INFRA_ERROR"}, "INFRA_ERROR"),
        ({"overrides": ("dali.threads", "layout")}, "OVERRIDDEN: dali.threads, layout"),
    ],
)
def test_a_side_to_be_doubted_is_marked(values: dict[str, Any], mark: str) -> None:
    found = only([row("1x1", 5.0, **values), row("1x2", 9.0)])
    assert (found.reference.marks, found.rows[0].marks, found.rows[1].marks) == ((mark,), (mark,), ())
    assert only([row("1x1", 5.0), row("1x2", 9.0, **values)]).rows[1].marks == (mark,)


def test_sides_of_two_segments_are_marked() -> None:
    found = only([row("1x1", 5.0, segment={**ONE_CARD_SEGMENT, "flags": "X=1"}), row("1x2", 9.0)])
    assert found.rows[1].marks == ("other segment: flags: X=1 → none",)


def test_a_record_survives_json() -> None:
    record = json.loads(json.dumps(only([row("1x1", 5.0), row("1x2", 9.0)]).to_record()))
    assert record["reference"]["origin"] == THIS_SESSION
    assert record["rows"][1]["speed_up"] == 1.8
