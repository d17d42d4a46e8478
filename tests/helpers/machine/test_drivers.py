"""The least driver of each CUDA: which drivers are too old for a build, and that it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.machine.drivers import least_driver, why_driver_too_old


@pytest.mark.parametrize(
    ("driver", "cuda", "least"),
    [
        ("418.226.00", "11.8", "450.80.02"),
        ("450.80.01", "11.8", "450.80.02"),
        ("450.80.02", "11.8", ""),
        ("470.256.02", "11.8", ""),
        ("520.61.05", "12.6", "525"),
        ("525.60.11", "12.6", ""),
        ("570.124.06", "13.0", "580"),
        # Not known: nothing is said.
        ("", "11.8", ""),
        ("418.226.00", "", ""),
        ("418.226.00", "99.0", ""),
    ],
)
def test_a_driver_is_too_old_below_the_least_of_its_cuda(driver: str, cuda: str, least: str) -> None:
    told = why_driver_too_old(driver, cuda)
    assert bool(told) == bool(least)
    if least:
        assert f"driver is {driver}; a build for CUDA {cuda} needs {least} or newer" in told
        assert least_driver(cuda) == least


def test_forward_compatibility_serves_a_newer_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_driver_too_old("470.82", "12.6", "11.4")
    assert why_driver_too_old("470.82", "12.6", "12.4") == ""
    compat = tmp_path / "cuda/compat"
    compat.mkdir(parents=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{compat}:/opt/other")
    assert why_driver_too_old("470.82", "12.6", "11.4")
    (compat / "libcuda.so.1").touch()
    assert why_driver_too_old("470.82", "12.6", "11.4") == ""
