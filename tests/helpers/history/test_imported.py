"""Imported runs in a real history: stored by several processes at once they are one result, and nobody's past."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.commands.main import main
from helpers.history import open_history
from helpers.logs.results import SESSION
from helpers.session.gate import EXIT_OK

ROOT = Path(__file__).parents[3]
LOG = ROOT / "tests/helpers/logs/samples/resnet50_gpu2_fp32_bs32.txt"
CASE = "paddle-resnet50v1.5-fp32-bs32-1x2-unstated-static"


def words(url: str, log: Path, *options: str) -> list[str]:
    return ["import-log", str(log), "--store", "--history", url, *options]


def start(url: str, log: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "helpers.commands", *words(url, log)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def last_line(process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate(timeout=120)
    # On a busy machine one of them waits for the other beyond a second, and says so.
    assert [line for line in errors.splitlines() if not line.startswith("waiting for history ")] == []
    assert process.returncode == 0
    return printed.splitlines()[-1]


def stored_here(url: str, log: Path, *options: str) -> str:
    """The last line of the same command in this process."""
    out = io.StringIO()
    assert main(words(url, log, *options), out) == EXIT_OK
    return out.getvalue().splitlines()[-1]


@pytest.mark.slow
def test_processes_that_store_one_log_leave_one_result_that_is_nobodys_past(url: str, tmp_path: Path) -> None:
    for line in [last_line(each) for each in [start(url, LOG) for _ in range(2)]]:
        assert line.startswith(("stored ", "stored already "))
    packed = tmp_path / "gpu2_fp32_bs32.txt.gz"
    packed.write_bytes(gzip.compress(LOG.read_bytes()))
    again = stored_here(url, packed, "--framework", "paddle", "--model", "resnet50v1.5")
    otherwise = stored_here(url, LOG, "--gpu", "V100", "--rule", "paddleclas-mean")
    assert f"{CASE} [unstated]" in again
    assert otherwise.startswith(f"replaced {CASE} [v100]")
    with open_history(url) as history:
        (stored,) = history.results_of(session=SESSION)
        assert (stored.result.origin, stored.result.target, stored.unlearned) == ("imported", "v100", "imported")
        assert history.cases() == ()
        for host in ("", "h"):
            past = history.past(CASE, "v100", {"host": host}, 2, "tonight")
            assert (past.nights, past.siblings) == ((), ())
