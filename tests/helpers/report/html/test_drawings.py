"""Pictures of a case: every night has its place, mark, interval and build; pairs and steps are all there."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from helpers.judging.case.evidence import Build
from helpers.report.html.comparison_drawings import draw_efficiency, draw_ratios
from helpers.report.html.night_drawings import LevelLine, draw_nights, draw_small
from helpers.report.html.run_drawings import MOST_POINTS, DrawnRun, draw_pairs, draw_steps
from helpers.report.nights import NightLine
from helpers.report.row import Pair
from helpers.report.scaling import Scaling, ScalingRow
from helpers.session.case_details import RunSteps
from helpers.session.side_by_side.comparison import Ratio
from tests.helpers.commands.test_history_text import LINE as NIGHT
from tests.helpers.report.test_side_by_side import PADDLE, PYTORCH, ROW

CASE = "paddle-vgg16-fp32-bs8-1x2-dali-static"
LINE = replace(NIGHT, low=99.0, high=101.0)
LEVELS = (LevelLine("recorded", "recorded", "r", 100.0), LevelLine("published", "published", "p", 300.0))


def picture(*nights: NightLine, levels: tuple[LevelLine, ...] = ()) -> str:
    return str(draw_nights(CASE, nights, levels))


def marks(drawn: str) -> int:
    return drawn.count("<use ")


def paths(drawn: str, kind: str) -> list[str]:
    return re.findall(rf'<path class="{kind}" d="([^"]*)"', drawn)


def test_each_night_has_a_mark_and_an_interval() -> None:
    nights = [replace(LINE, samples_per_s=100.0 + at % 3) for at in range(90)]
    drawn = picture(*nights)
    assert marks(drawn) == 90
    (interval,) = paths(drawn, "interval")
    assert interval.count("V") == 90


def test_a_night_without_a_figure_is_at_the_bottom_and_an_excluded_one_is_grey_and_without_an_interval() -> None:
    lost = replace(LINE, samples_per_s=None, low=None, high=None, status="INFRA_ERROR")
    out = replace(LINE, samples_per_s=50.0, excluded=True)
    drawn = picture(LINE, lost, out)
    assert marks(drawn) == 3 and 'class="s-pass excluded"' in drawn and "s-infra-error" in drawn
    assert drawn.count(" V ") == 1
    assert draw_nights(CASE, [lost], ()) is None and draw_small(CASE, [lost], ()) is None


def test_a_segment_and_a_build_are_marked_where_they_begin() -> None:
    drawn = picture(LINE, replace(LINE, segment=2, build="3.4.0"), replace(LINE, segment=2))
    assert drawn.count('class="segment"') == 1 and ">segment 2<" in drawn
    assert drawn.count("band even") == drawn.count("band odd") - 1 == 1


def test_a_level_beyond_the_nights_is_at_the_edge_and_says_so_and_labels_keep_apart() -> None:
    near = (*LEVELS, LevelLine("good", "reference build", "g", 100.1))
    drawn = picture(LINE, LINE, levels=near)
    assert ">published 300 ↑<" in drawn and ">recorded 100<" in drawn
    places = [
        float(each) for each in re.findall(r'<text class="(?:recorded|good|published)" x="\d+" y="([\d.]+)"', drawn)
    ]
    assert len(places) == 3 and all(b - a > 12 for a, b in zip(sorted(places), sorted(places)[1:], strict=False))


def test_an_interval_is_whole_unless_it_is_far_wider_than_the_others() -> None:
    alone = replace(LINE, low=20.0, high=180.0)
    assert ">180<" in picture(alone) or ">150<" in picture(alone)
    assert ">150<" not in picture(LINE, LINE, LINE, alone)


def test_a_pair_is_two_marks_and_the_line_between_them_and_the_first_run_stands_first() -> None:
    pairs = [Pair(Build.REFERENCE.value, 100.0, 97.0), Pair(Build.CANDIDATE.value, 101.0, 98.0)]
    drawn = str(draw_pairs(pairs, "REGRESSION", "images/s"))
    assert drawn.count("s-reference-build") == 2 * 2 and drawn.count('class="between"') == 2
    good, new = re.findall(r'<use href="#s-(?:reference-build|regression)" class="[^"]*" x="([\d.]+)"', drawn)[:2]
    assert float(good) < float(new)
    assert "2 pairs with the reference build: the new one is slower in 2" in drawn
    assert draw_pairs([], "PASS", "images/s") is None


def run(warmup: int, window: int, kind: str = "run0") -> DrawnRun:
    return DrawnRun("run 0", RunSteps((0.3,) * warmup, (0.1,) * window), kind)


def test_steps_are_drawn_with_warm_up_and_window_apart() -> None:
    drawn = str(draw_steps([run(12, 5), run(24, 5, "of-good")]))
    assert ">warm-up: 24 steps<" in drawn and ">window: 5 steps<" in drawn
    assert len(re.findall('class="steps run0"', drawn)) == 2 and 'class="steps of-good"' in drawn
    assert draw_steps([run(0, 0)]) is None and "slowest" not in drawn


@pytest.mark.parametrize("steps", [MOST_POINTS + 1, 10_000])
def test_a_long_run_has_the_medians_of_neighbours(steps: int) -> None:
    drawn = str(draw_steps([run(0, steps)]))
    (path,) = paths(drawn, "steps run0")
    assert path.count("L") == MOST_POINTS - 1


def test_the_efficiency_of_each_number_of_cards_is_a_bar_and_a_doubtful_one_has_a_star() -> None:
    one = ScalingRow("c", 1, 1, 100.0, "PASS", 1.0, 1.0)
    two = replace(one, cards=2, speed_up=1.9, efficiency=0.95)
    lost = replace(one, cards=4, speed_up=None, efficiency=None)
    eight = replace(one, cards=8, speed_up=4.0, efficiency=0.5, marks=("contended",))
    scaling = Scaling("c", "v100", 8, (one, two, lost, eight))
    drawn = str(draw_efficiency(scaling))
    assert ">1.90×<" in drawn and ">4.00×*<" in drawn and ">4 cards<" not in drawn
    heights = [float(each) for each in re.findall(r'class="bar[^"]*"[^>]* height="([\d.]+)"', drawn)]
    assert heights == pytest.approx([heights[0], heights[0] * 0.95, heights[0] / 2], rel=0.01)
    assert ">1 card<" in drawn and drawn.count("bar doubtful") == 1
    assert "8 cards 4.00 times as fast as one, 50.0%" in drawn
    assert draw_efficiency(replace(scaling, rows=(one, lost))) is None


def test_the_ratio_of_each_framework_has_its_interval_and_its_published_one() -> None:
    row = replace(ROW, cells=(PADDLE, replace(PYTORCH, ratio=Ratio(0.9, 0.5, 1.1))))
    drawn = str(draw_ratios([row]))
    assert ">0.900 [0.500, 1.100]<" in drawn and ">as fast as Paddle<" in drawn
    assert drawn.count('class="interval"') == 1
    assert draw_ratios([replace(row, cells=(PADDLE,))]) is None
