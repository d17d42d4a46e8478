"""The benchmark of the page: what it prints, and when it fails."""

from __future__ import annotations

import sys

import pytest

from benchmarks import page


@pytest.mark.parametrize(
    ("seconds", "most_bytes", "status"), [(0.5, 3_000_000, 0), (1.0, 3_000_000, 1), (0.5, 1000, 1)]
)
def test_a_page_that_is_too_large_or_too_slow_misses_its_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, most_bytes: int, status: int
) -> None:
    uses = [page.Use(seconds, 0.2, "", 1)] * 3
    monkeypatch.setattr(page, "measured", lambda program, file, times: ("1.2", uses[:times]))
    monkeypatch.setattr(page, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(sys, "argv", ["page", "--cases", "2", "--nights", "2", "--browser", "chromium"])
    assert page.main() == status
    size, use, thread = capsys.readouterr().out.splitlines()
    assert size.startswith("2 cases of 2 nights: 0.")
    assert use.startswith(
        f"Chromium 1.2: opened, filtered and sorted in {seconds:.2f} s by the clock, the median of 3 "
    )
    assert thread.startswith("the page's own thread worked 0.20 s of it; the load before was ")
    assert [line.endswith("MISSED") for line in (size, use)] == [most_bytes == 1000, seconds == 1.0]
