import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.steplog_reader import MOST_LINE_BYTES
from helpers.launch.tail import EXTENDED, LineTail, RankWatch
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import WARMUP, WINDOW

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x2-synthetic-dynamic")


def job(folder: Path) -> JobSpec:
    return JobSpec("job", CASE, 1, str(folder), "cpu", warmup_steps=2, window_steps=4)


def write(path: Path, *records: dict[str, object]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def step(number: int, phase: str = WARMUP) -> dict[str, object]:
    times = {"start": number * 2.0, "end": number * 2.0 + 2.0}
    return {"kind": "step", "step": number, "phase": phase, "samples": 8, **times}


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LineTail(path)
    path.write_bytes(b'{"a": 1}\n{"b"')
    assert tail.new_records() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b': 2}\nnot json\n[3]\n\xff\n{"c": 3}\n')
    assert tail.new_records() == [{"b": 2}, {"c": 3}]
    assert tail.new_records() == []


def test_progress_has_the_phase_of_the_heartbeat_then_the_steps_rate_of_all_ranks_and_time_left(tmp_path: Path) -> None:
    spec = job(tmp_path)
    watch = RankWatch(spec, 0)
    watch.poll(1.0)
    assert (watch.phase, watch.last_growth) == ("start", None)
    write(spec.heartbeat_path(0), {"phase": "import framework", "step": 0})
    watch.poll(2.0)
    progress = watch.progress()
    assert (progress.phase, progress.step, progress.steps, progress.samples_per_s) == ("import framework", 0, 6, None)
    assert watch.last_growth == 2.0
    write(spec.step_log_path(0), {"kind": "header", "pid": 77}, step(1), step(2))
    watch.poll(3.0)
    assert (watch.pid, watch.phase) == (77, "warm-up")
    write(spec.step_log_path(0), step(3, WINDOW))
    watch.poll(4.0)
    progress = watch.progress()
    assert (progress.phase, progress.step, progress.replicate) == ("window", 3, 1)
    assert progress.samples_per_s == pytest.approx(2 * 8 / 2.0)
    assert progress.seconds_left == pytest.approx(3 * 2.0)


def test_an_extended_warm_up_is_called_so_and_the_steps_grow_with_it(tmp_path: Path) -> None:
    spec = replace(job(tmp_path), warmup_steps=6, steady_window_steps=2, most_warmup_steps=9)
    watch = RankWatch(spec, 0)
    seen = []
    for number in range(1, 13):
        phase = WARMUP if number <= 9 else WINDOW
        write(spec.step_log_path(0), step(number, phase))
        write(spec.heartbeat_path(0), {"phase": phase, "step": number})
        watch.poll(float(number))
        seen.append((watch.progress().phase, watch.progress().steps))
    assert seen[:6] == [(WARMUP, 10)] * 6
    # In windows of two steps, the last one cut by the budget.
    assert seen[6:9] == [(EXTENDED, 12), (EXTENDED, 12), (EXTENDED, 13)]
    assert seen[9:] == [(WINDOW, 13)] * 3
    assert watch.progress().seconds_left == pytest.approx(2.0)


def test_nonsense_in_the_files_never_breaks_the_watch(tmp_path: Path) -> None:
    spec = job(tmp_path)
    write(spec.step_log_path(0), {"kind": "header", "pid": "x"}, {"kind": "step"}, {"kind": "footer", "status": None})
    write(spec.heartbeat_path(0), {"phase": 3, "step": "many"})
    watch = RankWatch(spec, 0)
    watch.poll(1.0)
    assert (watch.pid, watch.step, watch.footer_status, watch.footer_reason) == (None, 1, "None", "")
    assert watch.progress().samples_per_s is None


def test_a_file_with_a_line_without_end_is_read_no_further_and_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n' + b"x" * (3 * MOST_LINE_BYTES) + b'\n{"b": 2}\n')
    tail = LineTail(path)
    assert tail.new_records() == [{"a": 1}]
    assert tail.new_records() == []


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_log_has_no_lines_and_never_holds_the_watch(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    if kind == "link":
        (tmp_path / "other").write_text('{"a": 1}\n')
        path.symlink_to(tmp_path / "other")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert LineTail(path).new_records() == []
