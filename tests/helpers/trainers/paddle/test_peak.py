"""The event clock with a stand-in for the driver, and Paddle's program for real with a tiny matrix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.judging.utilisation import Peak
from helpers.trainers.paddle.peak import event_timer
from tests.helpers.trainers.cores import own_cores

ROOT = Path(__file__).parents[4]


class Driver:
    """Counts: every product is a second of the card's; keeps what was recorded and given back."""

    def __init__(self) -> None:
        self.now = 0.0
        self.held: list[float] = []
        self.waited: list[float] = []

    def record(self) -> float:
        self.held.append(self.now)
        return self.now

    def wait(self, event: Any) -> None:
        self.waited.append(event)

    def seconds_between(self, first: Any, second: Any) -> float:
        assert self.waited[-1] == second
        return float(second - first)

    def release(self, event: Any) -> None:
        self.held.remove(event)


def test_products_are_timed_by_the_cards_events_which_are_given_back() -> None:
    driver = Driver()

    def product() -> None:
        driver.now += 1.0

    assert event_timer(driver)(product, 5) == 5.0
    assert driver.held == []


def probe(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "helpers.trainers.paddle.peak", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.parametrize(("precision", "way"), [("fp32", ""), ("bf16", "in a static program ")])
def test_the_program_measures_a_tiny_matrix_on_the_cpu(precision: str, way: str) -> None:
    done = probe(precision, "cpu", "--largest", "64", "--cores", str(own_cores()[0]))
    assert done.returncode == 0, done.stderr[-2000:]
    peak = Peak.from_record(json.loads(done.stdout.splitlines()[-1]))
    assert (peak.precision, peak.device, peak.size, peak.uuid) == (precision, "cpu", 64, "")
    assert f"{way}of square random matrices, timed by the monotonic clock, 1 threads" in peak.how
    assert peak.tflops > 0


@pytest.mark.slow
def test_half_precision_on_a_cpu_is_refused_in_a_line() -> None:
    done = probe("fp16", "cpu")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1] == "refused: Paddle computes no fp16 on a CPU"
