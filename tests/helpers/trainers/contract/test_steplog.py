"""Step logs: what the writer wrote is read back; everything else is refused with file and line (tests/fuzz draws more
of both)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.steplog import (
    COMPLETE,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Heartbeat,
    Step,
    StepLog,
    StepLogWriter,
    steadiness,
)

HEADER = Header(
    job_id="j1",
    case_id="paddle-vgg16-fp32-bs8-1x2-dali-static",
    replicate=0,
    rank=1,
    world_size=2,
    host="h",
    pid=7,
    framework="paddle",
    framework_version="3.0",
    framework_commit="abc",
    device="cpu",
    facts={"tf32": "off"},
)
FOOTER = Footer(COMPLETE, peak_host_bytes=10)
STEPS = (
    Step(0, 1, WARMUP, 0.0, 1.0, 8, 0.1, 6.9),
    Step(0, 2, WINDOW, 1.0, 2.0, 8, 0.1),
    Step(1, 1, WINDOW, 2.5, 3.0, 8, 0.1, 6.8),
    Step(1, 2, WINDOW, 3.0, 4.0, 8, 0.1),
)
HEADER_LINE, FOOTER_LINE = 1, 6


def write(path: Path, steps: tuple[Step, ...] = STEPS) -> Path:
    writer = StepLogWriter(path, HEADER)
    writer.step(steps[0])
    writer.steps(steps[1:])
    writer.footer(FOOTER)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "rank1.jsonl")


def edit(path: Path, line: int, **changes: Any) -> None:
    """Set keys of a line's record; the value ``...`` removes the key."""
    lines = path.read_text().splitlines()
    record = {**json.loads(lines[line - 1]), **changes}
    lines[line - 1] = json.dumps({name: value for name, value in record.items() if value is not ...})
    path.write_text("\n".join(lines) + "\n")


def refused(path: Path, line: int, **read: Any) -> StepLogError:
    with pytest.raises(StepLogError) as caught:
        read_step_log(path, **read)
    assert caught.value.about == f"step log {path}:{line}"
    return caught.value


def test_reads_back_what_was_written(log: Path) -> None:
    assert read_step_log(log, job_id="j1", rank=1) == StepLog(str(log), HEADER, STEPS, FOOTER)
    assert read_step_log(log).window == STEPS[1:]
    assert STEPS[2].step_seconds == 0.5


def test_never_overwrites_a_log(log: Path) -> None:
    with pytest.raises(FileExistsError):
        StepLogWriter(log, HEADER)


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (HEADER_LINE, "rank", 2), (HEADER_LINE, "rank", True), (HEADER_LINE, "pid", "7"), (HEADER_LINE, "facts", []),
        (HEADER_LINE, "schema", 3), (HEADER_LINE, "schema", ...), (HEADER_LINE, "host", ...), (HEADER_LINE, "extra", 1),
        (HEADER_LINE, "cards_per_process", 0), (3, "start", -1.0), (3, "start", math.nan), (3, "end", math.inf),
        (3, "end", 10**400), (3, "end", 1e300), (3, "end", 1.0), (3, "reader_seconds", -0.1), (3, "samples", 0),
        (3, "samples", 8.0), (3, "samples", ...), (3, "epoch", True), (3, "loss", math.nan), (3, "loss", "6.9"),
        (3, "phase", "cool-down"), (3, "kind", "note"), (3, "extra", 1), (4, "start", 1.9), (4, "phase", WARMUP),
        (FOOTER_LINE, "status", "fine"), (FOOTER_LINE, "status", ...), (FOOTER_LINE, "peak_host_bytes", -1),
    ],
)  # fmt: skip
def test_refuses_a_value_that_no_run_gives(log: Path, line: int, name: str, value: Any) -> None:
    edit(log, line, **{name: value})
    error = refused(log, line)
    assert name == error.field or name in str(error)


@pytest.mark.parametrize(
    ("line", "place"), [(3, (0, 3)), (3, (0, 1)), (4, (2, 1)), (4, (1, 2)), (2, (0, 2))],
    ids=["a gap", "a step twice", "a skipped epoch", "an epoch that begins late", "a log that begins late"],
)  # fmt: skip
def test_refuses_steps_that_do_not_follow_each_other(log: Path, line: int, place: tuple[int, int]) -> None:
    edit(log, line, epoch=place[0], step=place[1])
    assert refused(log, line).got == list(place)


def test_refuses_a_foreign_job_and_a_foreign_rank(log: Path) -> None:
    assert refused(log, 1, job_id="j2").field == "job_id"
    assert refused(log, 1, rank=0).field == "rank"


def test_a_log_without_a_footer_is_a_crashed_run(log: Path) -> None:
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    assert refused(log, 5).field == "footer"


def test_refuses_a_last_line_cut_while_being_written(log: Path) -> None:
    log.write_text(log.read_text()[:-1])
    refused(log, FOOTER_LINE)


@pytest.mark.parametrize("line", [1, 2, 6])
def test_refuses_lines_after_the_footer(log: Path, line: int) -> None:
    text = log.read_text()
    log.write_text(text + text.splitlines(keepends=True)[line - 1])
    refused(log, 7)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{", b"\x00", b"\xed\xa0\x80", b'{"kind": "step", "step": ' + b"9" * 5000 + b"}",
        b'{"kind": "step", "extra": ' + b"[" * 990 + b"]" * 990 + b"}", b"[" * 100_000,
        b'{"kind": "step", "samples": 8, "samples": 800}',
    ],
)  # fmt: skip
def test_refuses_a_line_that_is_no_record(log: Path, line: bytes) -> None:
    lines = log.read_bytes().split(b"\n")
    lines[2] = line
    log.write_bytes(b"\n".join(lines))
    refused(log, 3)


# ---- whether warm-up is over


def test_three_windows_that_agree_within_a_third_of_a_percent_are_steady() -> None:
    found = steadiness([9.0, 9.0, 1.0, 1.0, 1.002, 1.002, 1.0, 1.0], 2)
    assert found.means == (1.0, 1.002, 1.0)
    assert (found.limit, found.steady) == (0.003, True)
    assert found.spread == pytest.approx(0.002, rel=1e-2)


def test_a_fall_beyond_the_limit_is_not_steady_and_noise_widens_the_limit() -> None:
    assert not steadiness([1.004, 1.004, 1.0, 1.0, 1.0, 1.0], 2).steady
    noisy = steadiness([1.014, 0.994, 1.01, 0.99, 1.01, 0.99], 2)
    # The deviation of 1 ± 0.01 is 0.01414, of a mean of two 0.01; three times that.
    assert noisy.limit == pytest.approx(0.03, rel=1e-2)
    assert noisy.steady


@pytest.mark.parametrize("first", [[30.0, 1.3], [1.3, 30.0]])
def test_one_wild_step_makes_no_room_for_a_difference(first: list[float]) -> None:
    assert not steadiness([*first, 1.2, 1.21, 1.0, 1.01], 2).steady


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_fewer_than_three_windows_are_never_steady(steps: int) -> None:
    assert not steadiness([1.0] * steps, 2).steady


def test_a_window_of_one_step_has_no_deviation_and_is_refused() -> None:
    with pytest.raises(StepLogError, match="2 or more steps a window"):
        steadiness([1.0] * 9, 1)


@given(seconds=st.lists(st.floats(0.01, 100), min_size=6, max_size=30), factor=st.floats(0.01, 100))
def test_the_answer_does_not_hang_on_the_clocks_unit(seconds: list[float], factor: float) -> None:
    one, other = steadiness(seconds, 2), steadiness([each * factor for each in seconds], 2)
    assert other.spread == pytest.approx(one.spread, rel=1e-6, abs=1e-9)
    assert other.limit == pytest.approx(one.limit, rel=1e-6, abs=1e-9)


def stationary(random: Random, steps: int) -> list[float]:
    """Steps of 1 s with 1% of noise and an autocorrelation of 0.3."""
    deviation = random.gauss(0.0, 0.01)
    seconds = []
    for _ in range(steps):
        seconds.append(1.0 + deviation)
        deviation = 0.3 * deviation + random.gauss(0.0, 0.01 * (1 - 0.3**2) ** 0.5)
    return seconds


def test_looks_after_every_window_turn_away_hardly_any_stationary_warm_up() -> None:
    random, runs = Random(4), 500
    never = 0
    for _ in range(runs):
        warmup = stationary(random, 220)
        never += not any(steadiness(warmup[:made], 20).steady for made in range(60, 221, 20))
    assert never / runs <= 0.01


def test_one_look_sees_a_warm_up_that_is_not_over() -> None:
    random = Random(5)
    # 3% faster from each window to the next.
    looks = [
        steadiness([step * 0.97 ** (at // 20) for at, step in enumerate(stationary(random, 60))], 20)
        for _ in range(200)
    ]
    assert [look.steady for look in looks].count(True) <= 2


def test_a_sign_of_life_goes_through_no_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "rank0.heartbeat"
    victim.write_text("")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        Heartbeat(path)
    assert victim.read_text() == ""
