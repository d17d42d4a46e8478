"""One rank's output in a file of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.trainers.common.rank_log import main
from helpers.trainers.contract.errors import ConfigError

ROOT = Path(__file__).parents[4]


def test_the_command_takes_the_process_and_its_output_goes_into_the_rank_s_file(tmp_path: Path) -> None:
    code = "import os, sys; print('out', os.getpid()); print('err', file=sys.stderr); sys.exit(7)"
    argv = [
        sys.executable,
        "-m",
        "helpers.trainers.common.rank_log",
        str(tmp_path / "logs"),
        *(sys.executable, "-c", code),
    ]
    environment = {**os.environ, "LOCAL_RANK": "3", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (7, b"")
    lines = (tmp_path / "logs/rank3.log").read_text().splitlines()
    assert sorted(lines) == sorted([f"out {process.pid}", "err"])


@pytest.mark.parametrize("rank", ["", "-1", "one"])
def test_without_a_launcher_s_rank_nothing_is_started(rank: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LOCAL_RANK"):
        main([str(tmp_path), "true"], {"LOCAL_RANK": rank})
