"""Trains the runs of benchmarks.explain in a framework's own Python: ``python -m benchmarks.explain_worker FRAMEWORK``.

Reads one request a line: ``{"spec": PATH, "plant": {...} or null}``; answers each with a line: the exit statuses of the
ranks, and the seconds for which they used a core. The framework is imported once. Each rank of a run is a process of
its own, forked before anything is computed, in which the framework's own trainer runs. A plant makes something slower
there.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import mmap
import os
import re
import secrets
import signal
import socket
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.explain_changes import spin

Plant = Mapping[str, Any]
# A fork that hangs is ended.
_RUN_SECONDS = 300
# Arrays are shifted by less than so many bytes: a large page.
_LARGE_PAGE, _ALIGNED = 2 << 20, 16


def main() -> int:
    framework = sys.argv[1]
    _set_image_size(int(os.environ["PERFGATE_EXPLAIN_IMAGE_SIZE"]))
    trainer = importlib.import_module(f"helpers.trainers.{framework}.trainer")
    plants = importlib.import_module(f"benchmarks.explain_plants_{framework}")
    plants.prepare()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line), framework, trainer, plants)), flush=True)
    return 0


def _set_image_size(pixels: int) -> None:
    """Before any trainer is imported: smaller images make shorter steps, and so more runs in an hour."""
    from helpers.trainers.contract import models

    models.IMAGE_SIZE = pixels


def _run(request: Mapping[str, Any], framework: str, trainer: Any, plants: Any) -> dict[str, Any]:
    spec = json.loads(Path(request["spec"]).read_text(encoding="utf-8"))
    ranks = len(spec["cores"])
    ports = [_free_port() for _ in range(ranks + 1)]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            place = _place(framework, rank, ranks, ports)
            _rank(request, spec, rank, place, ports[0], trainer, plants)
        children.append(child)
    return {"statuses": [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]}


def _rank(
    request: Mapping[str, Any], spec: Mapping[str, Any], rank: int, place: Mapping[str, str], port: int, trainer: Any,
    plants: Any,
) -> None:  # fmt: skip
    """The forked process of one rank; it does not return. Rank 0 listens at ``port``."""
    status = 1
    try:
        signal.alarm(_RUN_SECONDS)
        log = os.open(str(Path(spec["run_folder"]) / f"rank{rank}.out"), os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(place)
        if rank:
            _wait_for_listener(port)
        kept = _elsewhere_in_memory()
        plant: Plant = request["plant"]
        cause = plant["cause"] if plant else ""
        # With a link nobody looks for a slow rank, and the all-reduce varies more if cores are exchanged.
        if len(spec["cores"]) > 1 and cause != "slow-network":
            _exchange_cores(rank, [core for each in spec["cores"] for core in each])
        if cause:
            arm = _PLANTS.get(cause) or plants.PLANTS[cause]
            arm(plant, rank, spec)
        status = trainer.run([request["spec"]], trainer.RANK_VARIABLES, trainer.program)
        kept.close()
    except Exception:  # noqa: BLE001 - the process must end here, whatever went wrong
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Nothing of the parent's is ended twice.
        os._exit(status)


def _elsewhere_in_memory() -> mmap.mmap:
    """Give this run's arrays other addresses than any other run's; what is returned must stay open.

    How fast an operator is depends on where its arrays lie (Mytkowicz et al., "Producing Wrong Data Without Doing
    Anything Obviously Wrong!", 2009). Processes that are started anew get their addresses at random. All runs here are
    forks of one process, so all runs of a build would have their arrays in the same places, and another build in
    others: a difference in each pair that is none of the builds.
    """
    heap = ctypes.CDLL(None).sbrk
    heap.argtypes, heap.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    heap(secrets.randbelow(_LARGE_PAGE // _ALIGNED) * _ALIGNED)
    kept = mmap.mmap(-1, (1 + secrets.randbelow(_LARGE_PAGE // mmap.PAGESIZE)) * mmap.PAGESIZE)
    # Pages that are written take memory of the machine, so the next ones lie elsewhere there, too.
    for first in range(0, len(kept), mmap.PAGESIZE):
        kept[first] = 1
    return kept


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for_listener(port: int) -> None:
    """Until rank 0 listens for the others. Paddle's ranks that come before it try again only 3 s later."""
    listens = re.compile(rf":{port:04X} \S+ 0A ")
    while not any(listens.search(Path(table).read_text()) for table in ("/proc/net/tcp", "/proc/net/tcp6")):
        time.sleep(0.005)


def _place(framework: str, rank: int, ranks: int, ports: list[int]) -> dict[str, str]:
    """What the framework's launcher would set."""
    if ranks == 1:
        return {}
    if framework == "pytorch":
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        return {
            **{name: str(value) for name, value in own.items()},
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(ports[0]),
        }
    ends = [f"127.0.0.1:{port}" for port in ports[1:]]
    return {
        "PADDLE_TRAINER_ID": str(rank), "PADDLE_GLOBAL_RANK": str(rank), "PADDLE_LOCAL_RANK": str(rank),
        "PADDLE_RANK_IN_NODE": str(rank), "PADDLE_TRAINERS_NUM": str(ranks), "PADDLE_GLOBAL_SIZE": str(ranks),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(ends), "PADDLE_CURRENT_ENDPOINT": ends[rank],
        "PADDLE_MASTER": f"127.0.0.1:{ports[0]}", "PADDLE_DISTRI_BACKEND": "gloo",
    }  # fmt: skip


# ---- plants that need nothing of a framework


def _after_each_beat(do: Callable[[str, int], None]) -> None:
    """``do`` is called with the phase and the step when the loop says that a step is done, or that another phase is
    begun; then the step is 0."""
    from helpers.trainers.common.process import Trainer

    beat = Trainer.beat

    def longer(trainer: Any, phase: str, step: int = 0) -> None:
        beat(trainer, phase, step)
        do(phase, step)

    Trainer.beat = longer  # type: ignore[method-assign]


def _python_work(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """Python between the steps: in what the loop calls when a step is done."""
    _after_each_beat(lambda phase, step: spin(plant["seconds"]) if step else None)


def _slow_rank(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """The last rank computes as on a slower core (explain_slow_parts.c)."""
    if rank != len(spec["cores"]) - 1:
        return
    slow_core = ctypes.CDLL(os.environ["LD_PRELOAD"]).slow_core
    if slow_core(ctypes.c_double(plant["percent"] / 100)):
        raise RuntimeError("the timer of slow_core is not set")


def _slow_decoder(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """Every image takes longer to decode."""
    import cv2

    decode = cv2.imdecode
    batch = plant["batch"]

    def slower(*arguments: Any) -> Any:
        image = decode(*arguments)
        spin(plant["seconds"] / batch)
        return image

    cv2.imdecode = slower


def _slow_network(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """Every megabyte that is sent takes so long (explain_slow_parts.c)."""
    os.environ["PERFGATE_EXPLAIN_SECONDS_PER_MB"] = repr(plant["seconds"] / plant["megabytes"])


def _step_cost(plant: Plant, rank: int, spec: Mapping[str, Any]) -> None:
    """Writes how long a step computes, by the process's own clock: what others do on the core does not count."""
    from helpers.trainers.contract.steplog import WINDOW

    began, costs = [0.0], []

    def measured(phase: str, step: int) -> None:
        now = time.process_time()
        if phase == WINDOW:
            costs.append(now - began[0])
            (Path(spec["run_folder"]) / f"cost-rank{rank}.json").write_text(json.dumps(statistics.median(costs)))
        began[0] = now

    _after_each_beat(measured)


def _exchange_cores(rank: int, cores: list[int]) -> None:
    """Let the ranks exchange their cores after each step. Else what others do on a core is as a slow rank."""
    turns = itertools.count(rank + 1)

    def move(phase: str, step: int) -> None:
        core = cores[next(turns) % len(cores)]
        for task in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), {core})

    _after_each_beat(move)


_PLANTS: dict[str, Callable[[Plant, int, Mapping[str, Any]], None]] = {
    "python-work": _python_work,
    "slow-rank": _slow_rank,
    "slow-decoder": _slow_decoder,
    "slow-network": _slow_network,
    "step-cost": _step_cost,
}


if __name__ == "__main__":
    sys.exit(main())
