"""Why a run was never steady: the plot, its data and their files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from helpers.launch.steadiness_plot import plot, plot_data, write_plot
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from tests.helpers.launch.test_steadiness import CASE, FALLING, STEADY, job, log

SVG = "{http://www.w3.org/2000/svg}"


def test_the_plots_data_hold_every_step_and_what_was_judged(tmp_path: Path) -> None:
    record = json.loads(plot_data(job(tmp_path), [log(0, *STEADY), log(1, *FALLING)]))
    assert (record["schema_version"], record["case_id"], record["replicate"]) == (1, CASE.id, 1)
    assert (record["steady_window_steps"], record["warmup_steps"], record["most_warmup_steps"]) == (2, 8, 8)
    first, second = record["ranks"]
    assert second["step_seconds"] == pytest.approx([*FALLING, 1.0, 1.0, 1.0])
    assert second["window_mean_seconds"] == pytest.approx([1.4, 1.2, 1.0])
    assert (first["steady"], second["steady"], second["limit"]) == (True, False, 0.003)
    assert second["spread"] == pytest.approx(1 / 3)


def test_the_plot_has_a_line_a_rank_a_bar_a_window_and_clips_the_first_steps(tmp_path: Path) -> None:
    root = ElementTree.fromstring(plot(job(tmp_path), [log(0, *STEADY), log(1, *FALLING)]))
    steps = _of_class(root, "steps")
    assert [each.count("L") for each in steps] == [10, 10]
    heights = [float(point.split()[1]) for point in steps[1].replace("M", "L").split("L")[1:]]
    # The first two, of 9 and 3 s, end at the frame's upper edge, above the highest that is judged.
    assert heights[0] == heights[1] < heights[2] < heights[4] < heights[6]
    assert len(_of_class(root, "mean")) == 6
    text = _texts(root)
    assert CASE.id in text and "rank 1: 33.33% apart, limit 0.30%" in text
    # The axes: what they show, in what unit, and where warm-up and the run end.
    assert all(each in text.split("\n") for each in ("step", "s a step", "0", "8", "11", "measured"))


def test_of_many_ranks_the_plot_names_and_colours_the_worst_alone_and_draws_it_last(tmp_path: Path) -> None:
    case = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x8-synthetic-dynamic")
    worse = (*FALLING[:2], 1.8, *FALLING[3:])
    logs = [log(rank, *({2: FALLING, 5: worse}.get(rank, STEADY))) for rank in range(8)]
    root = ElementTree.fromstring(plot(replace(job(tmp_path), case=case), logs))
    text = _texts(root)
    assert "rank 5: " in text and "rank 2" not in text
    assert "2 of 8 ranks are not steady" in text
    kinds = [each.attrib["class"] for each in root.iter(f"{SVG}path") if "steps" in each.attrib["class"]]
    assert kinds == ["steps other"] * 7 + ["steps run0"]
    assert len(_of_class(root, "mean run0")) == 3


def _of_class(root: ElementTree.Element, kind: str) -> list[str]:
    """The lines of paths whose class begins so."""
    return [each.attrib["d"] for each in root.iter(f"{SVG}path") if each.attrib["class"].startswith(kind)]


def _texts(root: ElementTree.Element) -> str:
    return "\n".join("".join(each.itertext()) for each in root.iter(f"{SVG}text"))


def test_a_plot_of_equal_steps_is_one_too(tmp_path: Path) -> None:
    drawn = plot(job(tmp_path), [log(0, *[1.0] * 8), log(1, *[1.0] * 8)])
    root = ElementTree.fromstring(drawn)
    assert _texts(root)
    values = [each for element in root.iter() for each in element.attrib.values()]
    assert not [each for each in values if re.search(r"\b(nan|inf)\b", each)]


def test_both_files_lie_in_the_run_folder(tmp_path: Path) -> None:
    spec, logs = job(tmp_path), [log(0, *FALLING), log(1, *FALLING)]
    write_plot(spec, logs)
    assert (tmp_path / "steadiness.json").read_text() == plot_data(spec, logs)
    assert (tmp_path / "steadiness.svg").read_text() == plot(spec, logs)


def test_a_plot_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"gone.steadiness\.json.*Free the disk"):
        write_plot(job(tmp_path / "gone"), [log(0, *FALLING), log(1, *FALLING)])
