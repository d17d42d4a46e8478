"""The two printed forms, as the source documents have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.row import CaseRow
from helpers.report.scaling import Scaling, dlperf_table, fleetx_table, scaling_tables, scalings, to_text


def row(batch: int, shape: str, samples_per_s: float | None, *, rest: str = "native-static", **values: Any) -> CaseRow:
    case_id = f"paddle-vgg16-fp32-bs{batch}-{shape}-{rest}"
    return replace(
        CaseRow(case_id, "v100", "PASS", "pass", "c", "fine", rule="wall-clock", samples_per_s=samples_per_s, runs=7),
        **values,
    )


def scaled(*rows: CaseRow, recorded: float | None = None) -> tuple[Scaling, ...]:
    provenance = Provenance("0123456789abcdef", "2024-05-06", "here", "because")

    def find(target: str, case_id: str) -> RecordedEntry | None:
        if recorded is None:
            return None
        return RecordedEntry(case_id, recorded, "wall-clock", (recorded,), None, {}, {"cards": "1 x V"}, provenance)

    return scalings(rows, find)


# FleetX, VGG16 FP32: what the document prints.
FLEETX = {
    32: (252.68, 1888.20, 2873.18, 5548.48),
    64: (261.33, 1980.04, 3900.12, 7617.47),
    128: (266.24, 2027.06, 4028.78, 7848.70),
}
SHAPES = ("1x1", "1x8", "2x8", "4x8")


def test_fleetx_s_table_comes_out_as_printed() -> None:
    found = scaled(
        *(row(batch, shape, rate) for batch in FLEETX for shape, rate in zip(SHAPES, FLEETX[batch], strict=True))
    )
    assert fleetx_table(found).markdown() == [
        "| batch / node | 1 x 1 | 1 x 8 | 2 x 8 | 4 x 8 |",
        "| :----: | :----: | :----: | :----: | :----: |",
        "| 32 | 252.68 | 1888.20 | 2873.18 | 5548.48 |",
        "| 64 | 261.33 | 1980.04 | 3900.12 | 7617.47 |",
        "| 128 | 266.24 | 2027.06 | 4028.78 | 7848.70 |",
    ]


def test_dlperf_s_table_comes_out_as_printed_with_the_efficiency_beside_it() -> None:
    rates = {"1x1": 362.44, "1x4": 1391.28, "1x8": 2721.98, "2x8": 5099.42, "4x8": 9514.64}
    (found,) = scaled(*(row(128, shape, rate) for shape, rate in rates.items()))
    assert dlperf_table(found).markdown(padded=True) == [
        "| nodes | cards | images/s | speed-up | efficiency |",
        "| ----- | ----- | -------- | -------- | ---------- |",
        "| 1     | 1     | 362.44   | 1.00     | 100.0%     |",
        "| 1     | 4     | 1391.28  | 3.84     | 96.0%      |",
        "| 1     | 8     | 2721.98  | 7.51     | 93.9%      |",
        "| 2     | 16    | 5099.42  | 14.07    | 87.9%      |",
        "| 4     | 32    | 9514.64  | 26.25    | 82.0%      |",
    ]


def test_nothing_found_is_no_text() -> None:
    assert (to_text((), 80), scaling_tables(())) == ("", ())


def test_small_rates_keep_four_digits() -> None:
    (found,) = scaled(row(1, "1x1", 0.30342), row(1, "1x2", 0.66991))
    assert dlperf_table(found).markdown(padded=True)[2:] == [
        "| 1     | 1     | 0.3034   | 1.00     | 100.0%     |",
        "| 1     | 2     | 0.6699   | 2.21     | 110.4%     |",
    ]


def test_a_batch_without_a_case_of_that_shape_is_told_as_not_measured() -> None:
    found = scaled(row(32, "1x1", 1.0), row(32, "1x8", 8.0), row(64, "1x1", 1.0), row(64, "2x8", 16.0))
    assert fleetx_table(found).markdown()[2:] == ["| 32 | 1 | 8 | not measured |", "| 64 | 1 | not measured | 16 |"]


def test_an_empty_cell_says_why_below_the_table() -> None:
    text = to_text(scaled(row(32, "1x8", 1888.2), row(32, "4x8", None, status="not run", reason="needs 4 nodes")), 200)
    assert "| 1     | 8     | 1888.20  | -*       | -*         |" in text
    assert "| 4     | 32    | not run  | -*       | -*         |" in text
    assert "* 1 x 8: no speed-up: the 1-card case paddle-vgg16-fp32-bs32-1x1-native-static is not measured" in text
    assert "* 4 x 8: no speed-up: not run: needs 4 nodes" in text
    assert "| 32 | not measured | 1888.20 | not run |" in text


def test_one_case_with_nothing_to_hold_it_against_is_told_in_a_sentence() -> None:
    alone = scaled(row(32, "1x8", 1888.2))
    text = to_text(alone, 400)
    told = (
        "batch size = 32: 1 x 8: no speed-up: the 1-card case paddle-vgg16-fp32-bs32-1x1-native-static is not measured"
    )
    assert told in text
    assert "|" not in text and scaling_tables(alone)[0].table is None


def test_a_recorded_reference_is_a_line_of_its_own_and_labelled() -> None:
    several = row(32, "1x8", 1888.2, segment={"cards": "8 x V"})
    for found in (
        scaled(several, recorded=250.0),
        scaled(row(32, "1x1", None, status="INVALID"), several, recorded=250.0),
    ):
        text = to_text(found, 200)
        assert "| 1     | 1     | 250.00*  | 1.00     | 100.0%     |" in text
        assert text.count("| 1     | 1     |") == 1
        assert "* 1 x 1: recorded 2024-05-06, 0123456789ab; not measured in this session" in text
        assert "| 32 | 250.00* | 1888.20 |" in text


def test_a_marked_side_has_its_star_and_its_note() -> None:
    contended = {"marks": ("contended in 1 of 7 runs: 9% by make",)}
    text = to_text(scaled(row(32, "1x1", 250.0, **contended), row(32, "1x8", 1888.2, status="INVALID")), 200)
    assert "| 1     | 1     | 250.00*  | 1.00*    | 100.0%*    |" in text
    assert "| 1     | 8     | 1888.20* | 7.55*    | 94.4%*     |" in text
    assert "* 1 x 1: CONTENDED in 1 of 7 runs\n" in text
    assert "* 1 x 8: INVALID" in text
    assert "every speed-up here rests on the marked 1-card figure" in text


def test_automatic_parallel_says_what_its_source_says() -> None:
    assert "its speed-up is no reference" in " ".join(
        to_text(
            scaled(row(32, "1x1", 1.0, rest="dali-static-auto"), row(32, "1x8", 8.0, rest="dali-static-auto")), 80
        ).split()
    )
    assert "no reference" not in to_text(scaled(row(32, "1x1", 1.0), row(32, "1x8", 8.0)), 80)


@pytest.mark.parametrize("width", [0, 80, 120])
def test_notes_are_wrapped_and_ids_stay_whole(width: int) -> None:
    text = to_text(scaled(row(32, "1x8", 1888.2)), width)
    assert "paddle-vgg16-fp32-bs32-1x1-native-static" in text
    if width:
        assert max(len(line) for line in text.splitlines()[1:]) <= width


def test_nothing_told_can_forge_terminal_output_or_markup() -> None:
    forged = row(32, "1x8", 8.0, marks=("contended by \x1b[31m<script>|`*\n# x",))
    found = scaled(row(32, "1x1", 1.0), forged)
    assert all(line.isprintable() for line in to_text(found, 80).split("\n"))
