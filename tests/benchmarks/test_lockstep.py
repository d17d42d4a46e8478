"""Workers take turns: who runs when, who is stopped, what is left when one breaks; and the ratios of their blocks."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

import pytest

import benchmarks.lockstep
from benchmarks.blocks import StepBlock
from benchmarks.lockstep import Arm, Turns, Worker, pair_ratio, ratio_of, take_turns
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError, SuiteError

# Serves a loop that notes in a file who ran, and takes as many "seconds" as its name has letters.
WORKER = """
import sys
from benchmarks.blocks import StepBlock, serve
name, notes = sys.argv[1:]
def loop(steps):
    with open(notes, "a") as file:
        file.write(f"{name}{steps} ")
    return StepBlock(steps, float(len(name) * steps), 0.5)
print("a library's own words")
serve({"loop": loop, "other": lambda steps: StepBlock(steps, 7.0, 7.0)}, {"name": name})
"""


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def arm(name: str, notes: Path, loop: str = "loop") -> Arm:
    return Arm(f"{name}.{loop}", (sys.executable, "-c", WORKER, name, str(notes)), loop)


def test_every_round_gives_each_arm_one_turn_and_turns_the_order_round(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    blocks = take_turns([arm("a", notes), arm("bb", notes)], Turns(rounds=3, steps_per_block=2, warmup_steps=5))
    assert notes.read_text().split() == ["a5", "bb5", "a2", "bb2", "bb2", "a2", "a2", "bb2"]
    assert blocks == {
        "a.loop": [StepBlock(2, 2.0, 0.5)] * 3,
        "bb.loop": [StepBlock(2, 4.0, 0.5)] * 3,
    }
    assert blocks["bb.loop"][0].step_seconds == 2.0
    assert blocks["bb.loop"][0].step_cpu_seconds == 0.25


def test_a_worker_is_stopped_while_it_has_no_turn(tmp_path: Path) -> None:
    worker = Worker(arm("a", tmp_path / "notes").argv, {})
    try:
        worker.wait_until_ready()
        assert worker.facts == {"name": "a"}
        assert becomes(worker, "T")
        worker.run("loop", 1)
        assert becomes(worker, "T")
    finally:
        worker.end()
    assert not Path(f"/proc/{worker.pid}").exists()


def becomes(worker: Worker, state: str) -> bool:
    """Whether the worker reaches a state of proc(5); the kernel takes its time to stop one."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if Path(f"/proc/{worker.pid}/stat").read_text().rpartition(") ")[2].startswith(state):
            return True
        os.sched_yield()
    return False


def test_a_worker_that_breaks_is_named_with_its_last_words(tmp_path: Path) -> None:
    broken = Arm("broken", (sys.executable, "-c", "raise SystemExit('no such core')"), "loop")
    with pytest.raises(LaunchError, match="exit status 1: no such core"):
        take_turns([arm("a", tmp_path / "notes"), broken], Turns(rounds=1))


def test_a_worker_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.lockstep, "_ANSWER_SECONDS", 0.0)
    worker = Worker((sys.executable, "-c", "input()"), {})
    try:
        with pytest.raises(LaunchError, match="no answer for 0 s"):
            worker.wait_until_ready()
    finally:
        worker.end()


# ---- ratios of pairs


def test_a_round_in_which_one_was_disturbed_does_not_move_its_pair() -> None:
    assert pair_ratio([1.0, 1.0, 9.0], [2.0, 2.0, 2.0]) == pytest.approx(0.5)


def test_the_interval_is_students_over_the_logarithms() -> None:
    # Logarithms 0 and 2d: mean d, standard deviation d * sqrt(2), t of 1 degree of freedom 12.7062.
    found = ratio_of([1.0, math.exp(0.02)])
    assert found.centre == pytest.approx(math.exp(0.01))
    assert found.low == pytest.approx(math.exp(0.01 - 12.7062 * 0.01))
    assert found.high == pytest.approx(math.exp(0.01 + 12.7062 * 0.01))
    assert found.n == 2


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_measure_is_refused_by_name(value: float) -> None:
    with pytest.raises(SuiteError, match="finite number above 0"):
        pair_ratio([1.0, value], [1.0, 1.0])
    with pytest.raises(SuiteError, match="finite number above 0"):
        ratio_of([1.0, value])


def test_one_pair_has_no_interval() -> None:
    with pytest.raises(SuiteError, match="2 or more"):
        ratio_of([1.0])


def test_a_worker_finds_its_environment_s_libraries(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    links = tmp_path / "lib/perfgate-cuda"
    links.mkdir(parents=True)
    program = "import os, sys; sys.exit(os.environ['LD_LIBRARY_PATH'])"
    worker = Worker((str(tmp_path / "bin/python"), "-c", program), {"LD_LIBRARY_PATH": "/opt/other"})
    with pytest.raises(LaunchError, match=f"{links}:/opt/other"):
        worker.wait_until_ready()
    worker.end()
