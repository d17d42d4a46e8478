"""The ranks of a static program agree through their hosts, by Paddle's own store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract import ROOT
from tests.helpers.trainers.paddle.agreement_worker import SLOW_STEPS

WORKER = Path(__file__).with_name("agreement_worker.py")


@pytest.mark.slow
def test_ranks_of_a_static_program_stop_at_the_same_step_when_the_last_one_is_steady(tmp_path: Path) -> None:
    launch = ["-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--devices", ",", "--host", "127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *launch, "--log_dir", str(tmp_path / "log"), str(WORKER), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PADDLE_DISTRI_BACKEND": "gloo"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    logs = [read_step_log(tmp_path / f"rank{rank}.jsonl") for rank in SLOW_STEPS]
    assert [len(log.warmup) for log in logs] == [12, 12]
    assert [len(log.window) for log in logs] == [3, 3]
