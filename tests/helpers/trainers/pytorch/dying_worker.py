"""Prints what a loader says whose pipe breaks: argv[1] is "dead" where a worker of it died, else "alive"."""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

from helpers.trainers.pytorch import data


class Batches:
    """A DataLoader's iterator whose worker closes its pipe."""

    def __init__(self, worker: Any) -> None:
        self._workers = (worker,)

    def __next__(self) -> Any:
        raise ConnectionResetError(104, "Connection reset by peer")


if __name__ == "__main__":
    worker = multiprocessing.Process(target=time.sleep, args=(600,), daemon=True)
    worker.start()
    data._DYING_SECONDS = 0.5 if sys.argv[1] == "alive" else 60.0
    if sys.argv[1] == "dead":
        worker.kill()
    try:
        next(data._while_workers_live(Batches(worker)))
    except (RuntimeError, OSError) as error:
        print(f"{type(error).__name__}: {error}".replace(str(worker.pid), "PID"))
    worker.kill()
