"""What would break a job off is found before it: by real mounts and networks where this user may make them."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.machine.leases import default_folder
from helpers.machine.surroundings import home_problem, loopback_problem
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DeviceError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes such surroundings")
@pytest.mark.parametrize(
    ("given", "prepared", "told"),
    [
        (
            "--mount", "mount --bind /dev/shm /dev/shm && mount -o remount,bind,ro /dev/shm",
            "/dev/shm cannot be written (Read-only file system)",
        ),
        ("--net", "true", "127.0.0.1 cannot be reached (Network is unreachable)"),
    ],
)  # fmt: skip
def test_surroundings_that_break_jobs_off_are_told(given: str, prepared: str, told: str) -> None:
    code = "from helpers.machine.devices import discover; print(discover('no NVML'))"
    done = subprocess.run(
        ["unshare", given, "sh", "-c", f'{prepared} || exit 77; exec "$@"', "sh", sys.executable, "-c", code],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode == 77 or done.stderr.startswith("unshare"):
        pytest.skip(f"not in this container: {done.stderr.strip()}")
    assert told in done.stdout


def test_a_home_in_which_paddle_can_make_no_folder_is_told(tmp_path: Path) -> None:
    """Root may write to /proc, by access(2), and can make nothing there."""
    told = home_problem({"HOME": "/proc"})
    assert told == "the home /proc cannot be written (No such file or directory)"
    (tmp_path / "home").mkdir()
    assert home_problem({"HOME": "/home"}, tmp_path) == ""
    assert list((tmp_path / "home").iterdir()) == []


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container has them that is started with a user id of its own."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda number: {}[number])
    assert "no list of users" in home_problem({})
    with pytest.raises(DeviceError, match="Set HOME"):
        default_folder("a-host")


def test_an_address_that_no_process_can_reach_is_told() -> None:
    assert loopback_problem() == ""
    # TEST-NET-1, which is no machine's (RFC 5737).
    assert loopback_problem("192.0.2.1") == "192.0.2.1 cannot be reached (Cannot assign requested address)"
