"""What a page shows of a run: its steps by the logs of all ranks, and its environment."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from helpers.session.case_details import environment_changes, steps_of
from helpers.trainers.contract.steplog import (
    COMPLETE,
    STEP_LOG_SCHEMA_VERSION,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
)
from tests.helpers.history.made import run

RUN = run("u", step_seconds=(0.1, 0.2))


def write_log(folder: Path, rank: int, *seconds: float) -> None:
    """The last two steps are the window's."""
    header = Header("j", "c", 0, rank, 2, "h", 1, "paddle", "3.3.1", "c0", "cpu", {})
    lines = [{"kind": "header", "schema": STEP_LOG_SCHEMA_VERSION, **asdict(header)}]
    start = 0.0
    for at, second in enumerate(seconds):
        phase = WINDOW if at >= len(seconds) - 2 else WARMUP
        lines.append({"kind": "step", **asdict(Step(0, at + 1, phase, start, start + second, 4, 0.0))})
        start += second
    lines.append({"kind": "footer", **asdict(Footer(COMPLETE))})
    (folder / f"rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_steps_time_is_that_of_the_slowest_rank_in_the_warm_up_too(tmp_path: Path) -> None:
    write_log(tmp_path, 0, 0.5, 0.25, 0.125, 0.125)
    write_log(tmp_path, 1, 0.25, 0.5, 0.125, 0.125)
    found = steps_of(RUN, str(tmp_path))
    assert (found.warmup, found.window, found.unknown) == ((0.5, 0.5), (0.1, 0.2), "")


def test_a_log_that_is_gone_or_damaged_takes_only_the_warm_up_with_it(tmp_path: Path) -> None:
    assert "holds no step log" in steps_of(RUN, str(tmp_path)).unknown
    write_log(tmp_path, 0, 0.5, 0.25, 0.125)
    with (tmp_path / "rank0.jsonl").open("a") as file:
        file.write("{}\n")
    found = steps_of(RUN, str(tmp_path))
    assert (found.warmup, found.window) == ((), (0.1, 0.2)) and "rank0.jsonl" in found.unknown


def test_changes_name_section_fact_and_both_values() -> None:
    before = replace(RUN, environment={"driver": "535"}, system={"CPU": {"cores": "4"}, "gone": {"a": "b"}})
    texts = [each.text for each in environment_changes(before, replace(RUN, environment={"driver": "550", "new": "x"}))]
    assert texts == ["CPU: cores: 4 → 2", "run: driver: 535 → 550", "run: new: nothing → x"]
