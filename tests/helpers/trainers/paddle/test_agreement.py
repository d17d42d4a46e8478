"""The ranks of a static program agree through their hosts: with a store of the test's own, and with Paddle's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest

from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract import ROOT
from helpers.trainers.paddle import device as paddle_device
from helpers.trainers.paddle.device import HostAgreement, host_agreement
from tests.helpers.trainers.paddle.agreement_worker import SLOW_STEPS

WORKER = Path(__file__).with_name("agreement_worker.py")
PATIENCE_SECONDS = 60


class Store:
    """Paddle's, in one process: ``get`` waits until the key is there."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sums: dict[str, int] = {}
        self._values: dict[str, bytes] = {}

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            self._sums[key] = self._sums.get(key, 0) + amount
            return self._sums[key]

    def set(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, PATIENCE_SECONDS)
            return self._values[key]


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([True] * 8, True),
        ([True] * 7 + [False], False),
        ([False] * 8, False),
    ],
)
def test_all_are_steady_when_every_rank_says_so(said: list[bool], agreed: bool) -> None:
    assert answers(said) == [agreed] * len(said)


def test_a_build_without_the_store_has_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle_device.paddle.base, "core", SimpleNamespace())
    assert host_agreement(2) is None


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
    assert hasattr(paddle.base.core, "create_or_get_global_tcp_store")


def answers(said: list[bool]) -> list[bool]:
    store = Store()
    with ThreadPoolExecutor(len(said)) as pool:
        return list(pool.map(lambda own: HostAgreement(store, len(said))(own), said))
