"""Workers take turns: who runs when, who is stopped, and what is left when one breaks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.blocks import Block, Stopwatch
from benchmarks.lockstep import Arm, Plan, Worker, take_turns
from helpers.trainers.contract.errors import LaunchError

ROOT = Path(__file__).parents[2]

# Serves a loop that notes in a file who ran, and takes as many "seconds" as its name has letters.
WORKER = """
import sys
from benchmarks.blocks import Block, serve
name, notes = sys.argv[1:]
def loop(steps):
    with open(notes, "a") as file:
        file.write(f"{name}{steps} ")
    return Block(steps, float(len(name) * steps), 0.5, losses=(1.5,))
print("a library's own words")
serve({"loop": loop, "other": lambda steps: Block(steps, 7.0, 7.0)}, {"name": name})
"""


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def arm(name: str, notes: Path, loop: str = "loop") -> Arm:
    return Arm(f"{name}.{loop}", (sys.executable, "-c", WORKER, name, str(notes)), loop)


def test_every_round_gives_each_arm_one_turn_and_turns_the_order_round(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    blocks = take_turns([arm("a", notes), arm("bb", notes)], Plan(rounds=3, steps_per_block=2, warmup_steps=5))
    assert notes.read_text().split() == ["a5", "bb5", "a2", "bb2", "bb2", "a2", "a2", "bb2"]
    assert blocks == {
        "a.loop": [Block(2, 2.0, 0.5, losses=(1.5,))] * 3,
        "bb.loop": [Block(2, 4.0, 0.5, losses=(1.5,))] * 3,
    }
    assert blocks["bb.loop"][0].step_seconds == 2.0
    assert blocks["bb.loop"][0].step_cpu_seconds == 0.25


def test_arms_of_one_command_share_a_process(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    both = (arm("a", notes), arm("a", notes, loop="other"))
    assert both[0].process == both[1].process
    blocks = take_turns(both, Plan(rounds=1, warmup_steps=1))
    assert blocks["a.other"] == [Block(1, 7.0, 7.0)]


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
        take_turns([arm("a", tmp_path / "notes"), broken], Plan(rounds=1))


def test_a_worker_has_the_variables_of_its_arm() -> None:
    program = "import os; from benchmarks.blocks import serve; serve({}, {'kernels': os.environ['KERNELS']})"
    worker = Worker((sys.executable, "-c", program), {"KERNELS": "7"})
    try:
        worker.wait_until_ready()
        assert worker.facts == {"kernels": "7"}
    finally:
        worker.end()


def test_the_time_on_the_cores_counts_a_child_that_lives_on() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        stopwatch = Stopwatch()
        own = time.process_time()
        assert child.stdout is not None and child.stdout.readline() == b"done\n"
        _, cpu_seconds = stopwatch.read()
        assert cpu_seconds - (time.process_time() - own) > 0.15
        child.communicate(b"\n")
