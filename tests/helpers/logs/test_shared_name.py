"""Runs of one file that share its name's settings and differ too much to share them in truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.logs.importer import import_file
from helpers.logs.settings import LogSetting, Stated
from tests.helpers.logs.made_logs import tensorflow_lines, write

RATES = [500.0] * 30


def told(log: Path, cards: str | None = None) -> list[list[str]]:
    asked = {} if cards is None else {LogSetting.CARDS: Stated(cards, "--cards")}
    return [[line for line in each.warnings if "name alone" in line] for each in import_file(log, asked)]


@pytest.mark.parametrize(("times", "warned"), [(1.0, False), (1.09, False), (1.11, True), (8.0, True), (0.5, True)])
def test_runs_that_differ_share_no_name(times: float, warned: bool, tmp_path: Path) -> None:
    lines = [*tensorflow_lines(RATES), *tensorflow_lines([times * each for each in RATES])]
    warnings = told(write(tmp_path / "tf_gpu2.txt", lines))
    assert [bool(each) for each in warnings] == [warned, warned]
    if warned:
        assert "the log's name alone tells cards of 2 runs in it that differ by" in warnings[0][0]


def test_what_the_content_tells_apart_may_differ(tmp_path: Path) -> None:
    faster = [each.replace("batch_size : 96", "batch_size : 48") for each in tensorflow_lines([800.0] * 30)]
    assert told(write(tmp_path / "tf_gpu2.txt", [*tensorflow_lines(RATES), *faster])) == [[], []]


def test_what_an_option_tells_is_not_the_names(tmp_path: Path) -> None:
    lines = [*tensorflow_lines(RATES), *tensorflow_lines([800.0] * 30)]
    assert told(write(tmp_path / "tf.txt", lines), "2") == [[], []]
