"""Runs in the interpreter of a workshop's jobs, before anything else: puts the fault, and the double, in place.

The fault is a Python file that may define

- ``at_start(spec, rank)``: called in each rank before its trainer runs;
- ``at_step(spec, rank, phase, number)``: called in each rank before step ``number`` (from 1, warm-up counted);
- ``in_launcher(spec_path)``: called in a thread of the process that starts the ranks of a job of several.

and that calls ``mark()``, which is among its names, each time that it makes the fault.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

FAULT_VARIABLE = "PERFGATE_FAULT_FILE"
DOUBLE_VARIABLE = "PERFGATE_FAULT_DOUBLE"
TRAINER = "helpers.trainers.paddle.trainer"
LOOP = "helpers.trainers.common.loop"
MARKS = "marks.jsonl"


def arm() -> None:
    """Called by the workshop's sitecustomize; does nothing in processes that are no job's."""
    words = sys.orig_argv
    if "-m" not in words or FAULT_VARIABLE not in os.environ:
        return
    module = words[words.index("-m") + 1]
    if module not in (TRAINER, "paddle.distributed.launch"):
        return
    fault = _load(Path(os.environ[FAULT_VARIABLE]))
    if module == TRAINER:
        sys.meta_path.insert(0, _Finder(fault, os.environ.get(DOUBLE_VARIABLE, "")))
        if "at_start" in fault:
            fault["at_start"](_spec(Path(words[-1])), _rank())
    elif "in_launcher" in fault:
        threading.Thread(target=fault["in_launcher"], args=(Path(words[-1]),), daemon=True).start()


def _load(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"mark": lambda: _mark(path.parent / MARKS)}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names


def _mark(path: Path) -> None:
    """Write for the workshop that the fault is made now, and in which job."""
    record = {"at": time.monotonic(), "job_id": os.environ.get("PERFGATE_JOB_ID", ""), "pid": os.getpid()}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _rank() -> int:
    return int(os.environ.get("PADDLE_TRAINER_ID", "0"))


def _spec(path: Path) -> Any:
    from helpers.trainers.contract.job import JobSpec

    return JobSpec.from_json(path.read_text(encoding="utf-8"))


class _Finder(MetaPathFinder):
    """Finds the double in the trainer's place, and the training loop with the fault in it."""

    def __init__(self, fault: dict[str, Any], double: str) -> None:
        self._fault = fault
        self._double = double

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == TRAINER and self._double:
            return spec_from_file_location(name, self._double)
        if name != LOOP or "at_step" not in self._fault:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.loader is not None:
            found.loader = _FaultyLoop(found.loader, self._fault["at_step"])
        return found


class _FaultyLoop(Loader):
    def __init__(self, real: Any, at_step: Any) -> None:
        self._real = real
        self._at_step = at_step

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None if self._real.create_module(spec) is None else self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        step, at_step, rank = module.Training._step, self._at_step, _rank()
        spec = _spec(Path(sys.orig_argv[-1]))

        def faulty(run: Any, phase: str, last: bool) -> None:
            at_step(spec, rank, phase, run._number + 1)
            step(run, phase, last)

        module.Training._step = faulty
