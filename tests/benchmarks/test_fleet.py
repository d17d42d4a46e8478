"""The simulated fleets: what is written past the API is what the history reads."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fleet import CASES, FLEET, WORLDS_OF_CARDS, _write, _Written, made_fleet
from helpers.history import default_url, open_history


def test_the_written_runs_of_two_nodes_are_those_that_were_made(tmp_path: Path) -> None:
    world = replace(WORLDS_OF_CARDS[0], nodes=2)
    rates, cards = made_fleet(world, {}, np.random.default_rng(1))
    url = default_url(tmp_path)
    written = _write(url, _Written(FLEET, "2026-11-22T02:00:00+00:00"), rates, cards, runs=2)
    # Of 12 cases 4 are measured on each of 8 cards.
    assert len(CASES) == 12 and written == 2 * 2 * (8 + 8 * 4)
    with open_history(url, writes=False) as history:
        runs = history.fleet_runs(FLEET, history.fleets()[FLEET])
    assert len(runs) == written
    found = {(run.node, run.card, run.case_id, run.log_rate) for run in runs}
    assert not any(run.why for run in runs) and len(found) == written
    one = [run.log_rate for run in runs if (run.node, run.card, run.case_id) == ("n0001", "3", CASES[0])]
    assert sorted(each or math.nan for each in one) == pytest.approx(sorted(cards["n0001"]["3"][CASES[0]][:2]))
