"""Step logs: what the writer wrote is read back; everything else is refused with file and line."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
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
HEADER_LINE, STEP_LINES, FOOTER_LINE = 1, (2, 3, 4, 5), 6


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


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(1e-6, 10), st.integers(1, 512), st.none() | st.floats(-100, 100)),
        min_size=1,
        max_size=20,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reads_back_any_consistent_steps(tmp_path: Path, drawn: list[tuple[float, float, int, float | None]]) -> None:
    steps: list[Step] = []
    now = 0.0
    for number, (wait, seconds, samples, loss) in enumerate(drawn, 1):
        start = now + wait
        now = start + seconds
        steps.append(Step(0, number, WINDOW, start, now, samples, wait, loss))
    path = tmp_path / "drawn.jsonl"
    path.unlink(missing_ok=True)
    assert read_step_log(write(path, tuple(steps))).steps == tuple(steps)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("start", -1.0), ("start", math.nan), ("end", None), ("end", math.inf), ("end", 10**400), ("end", 1e300),
        ("reader_seconds", -0.1), ("reader_seconds", True), ("samples", 0), ("samples", 8.0), ("samples", "8"),
        ("epoch", True), ("epoch", -1), ("step", "2"), ("loss", math.nan), ("loss", "6.9"), ("loss", {}),
        ("phase", "cool-down"), ("phase", ["window"]), ("kind", "note"),
    ],
)  # fmt: skip
def test_refuses_a_step_value_that_no_run_gives(log: Path, name: str, value: Any) -> None:
    edit(log, 3, **{name: value})
    assert refused(log, 3).field == name


@pytest.mark.parametrize("end", [1.0, 0.5])
def test_refuses_a_step_that_ends_before_it_took_any_time(log: Path, end: float) -> None:
    edit(log, 3, end=end)
    assert refused(log, 3).field == "end"


@pytest.mark.parametrize(
    ("line", "place"), [(3, (0, 3)), (3, (0, 1)), (4, (2, 1)), (4, (1, 2)), (2, (0, 2))],
    ids=["a gap", "a step twice", "a skipped epoch", "an epoch that begins late", "a log that begins late"],
)  # fmt: skip
def test_refuses_steps_that_do_not_follow_each_other(log: Path, line: int, place: tuple[int, int]) -> None:
    edit(log, line, epoch=place[0], step=place[1])
    assert refused(log, line).got == list(place)


def test_refuses_steps_that_overlap(log: Path) -> None:
    edit(log, 4, start=1.9)
    assert refused(log, 4).field == "start"


def test_refuses_a_warm_up_step_after_the_window_began(log: Path) -> None:
    edit(log, 4, phase=WARMUP)
    assert "window has begun" in str(refused(log, 4))


def test_refuses_a_foreign_job_and_a_foreign_rank(log: Path) -> None:
    assert refused(log, 1, job_id="j2").field == "job_id"
    assert refused(log, 1, rank=0).field == "rank"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (HEADER_LINE, ["schema", *(name for name in asdict(HEADER) if name != "facts")]),
        (STEP_LINES[1], [name for name in asdict(STEPS[0]) if name != "loss"]),
        (FOOTER_LINE, ["status"]),
    ],
)
def test_refuses_a_missing_key(log: Path, line: int, names: list[str]) -> None:
    whole = log.read_text()
    for name in names:
        log.write_text(whole)
        edit(log, line, **{name: ...})
        assert name in str(refused(log, line))


@pytest.mark.parametrize("line", [HEADER_LINE, STEP_LINES[1], FOOTER_LINE])
def test_refuses_an_unknown_key(log: Path, line: int) -> None:
    edit(log, line, extra=1)
    assert refused(log, line).field == "extra"


def test_refuses_a_key_that_stands_twice(log: Path) -> None:
    log.write_text(log.read_text().replace('"samples": 8,', '"samples": 8, "samples": 800,', 1))
    assert "each key once" in str(refused(log, 2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rank", True), ("rank", -1), ("rank", 2), ("world_size", 0), ("pid", "7"), ("replicate", 0.5),
        ("facts", []), ("facts", None), ("host", 5), ("framework_version", None), ("job_id", 1), ("schema", 0),
        ("schema", 3), ("schema", "1"), ("cards_per_process", 0), ("cards_per_process", True),
    ],
)  # fmt: skip
def test_refuses_a_header_value_of_the_wrong_kind(log: Path, name: str, value: Any) -> None:
    edit(log, 1, **{name: value})
    assert refused(log, 1).field in (name, "rank")


@pytest.mark.parametrize(("name", "value"), [("status", "fine"), ("reason", 1), ("peak_host_bytes", -1)])
def test_refuses_a_footer_value_of_the_wrong_kind(log: Path, name: str, value: Any) -> None:
    edit(log, FOOTER_LINE, **{name: value})
    assert refused(log, FOOTER_LINE).field == name


def test_a_log_without_a_footer_is_a_crashed_run(log: Path) -> None:
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    error = refused(log, 5)
    assert (error.field, "died" in str(error)) == ("footer", True)


def test_refuses_a_last_line_cut_while_being_written(log: Path) -> None:
    log.write_text(log.read_text()[:-1])
    assert "cut" in str(refused(log, FOOTER_LINE))


@pytest.mark.parametrize("line", [1, 2, 6])
def test_refuses_lines_after_the_footer(log: Path, line: int) -> None:
    text = log.read_text()
    log.write_text(text + text.splitlines(keepends=True)[line - 1])
    assert "nothing after the footer" in str(refused(log, 7))


def test_refuses_a_second_header(log: Path) -> None:
    first, rest = log.read_text().split("\n", 1)
    log.write_text(f"{first}\n{first}\n{rest}")
    assert "one header" in str(refused(log, 2))


@pytest.mark.parametrize("byte", [b"\xff", b"\xc3\n", b"\xed\xa0\x80"])
def test_refuses_bytes_that_are_not_utf8_with_their_line(log: Path, byte: bytes) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines[2] = byte + lines[2]
    log.write_bytes(b"".join(lines))
    assert "UTF-8" in str(refused(log, 3))


@pytest.mark.parametrize("depth", [500, 900, 950, 980, 990, 1000, 100_000])
def test_refuses_nesting_of_any_depth(log: Path, depth: int) -> None:
    lines = log.read_text().splitlines()
    lines[2] = '{"kind": "step", "extra": ' + "[" * depth + "]" * depth + "}"
    log.write_text("\n".join(lines) + "\n")
    refused(log, 3)


@pytest.mark.parametrize("line", ["", "[]", "7", "null", "{", '"text"', "\x00"])
def test_refuses_a_line_that_is_no_record(log: Path, line: str) -> None:
    lines = log.read_text().splitlines()
    lines[2] = line
    log.write_text("\n".join(lines) + "\n")
    refused(log, 3)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.binary(max_size=300) | st.lists(VALUES.map(json.dumps)).map(lambda lines: "\n".join(lines).encode()))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arbitrary_bytes_are_refused_in_words(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "arbitrary.jsonl"
    path.write_bytes(data)
    with pytest.raises(StepLogError):
        read_step_log(path)


# Most values are such as a log has: of other changed logs hardly any would be read.
@given(
    line=st.integers(0, 5), key=st.integers(0, 15), value=VALUES | st.floats(0, 10) | st.integers(0, 5) | st.just("a")
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_one_changed_value_is_refused_or_keeps_the_log_consistent(
    tmp_path: Path, line: int, key: int, value: object
) -> None:
    path = tmp_path / "changed.jsonl"
    path.unlink(missing_ok=True)
    write(path)
    lines = path.read_text().splitlines()
    record = json.loads(lines[line])
    record[sorted(record)[key % len(record)]] = value
    lines[line] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")
    try:
        log = read_step_log(path)
    except StepLogError:
        return
    assert all(step.step_seconds > 0 and step.samples > 0 for step in log.steps)
    assert len(log.steps) == len(STEPS)


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


@pytest.mark.slow
@pytest.mark.parametrize("window_steps", [3, 10, 40])
def test_one_look_turns_away_at_most_one_stationary_warm_up_of_a_hundred(window_steps: int) -> None:
    random, looks = Random(2), 4000
    unsteady = sum(
        not steadiness(stationary(random, 3 * window_steps), window_steps, looked_once=True).steady
        for _ in range(looks)
    )
    # Of 1% one finds 59 or more in 4000 looks once in 1000 times.
    assert unsteady < 59


def test_looks_after_every_window_turn_away_hardly_any_stationary_warm_up() -> None:
    random, runs = Random(4), 500
    never = 0
    for _ in range(runs):
        warmup = stationary(random, 220)
        never += not any(steadiness(warmup[:made], 20).steady for made in range(60, 221, 20))
    assert never / runs <= 0.01


def test_one_look_still_sees_a_warm_up_that_is_not_over() -> None:
    random = Random(5)
    # 3% faster from each window to the next.
    looks = [
        steadiness([step * 0.97 ** (at // 20) for at, step in enumerate(stationary(random, 60))], 20, looked_once=True)
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
