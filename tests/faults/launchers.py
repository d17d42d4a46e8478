"""Row 4: who started the trainers dies and they live on, or they leave children that hide from their parents."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from helpers.machine.watch.processes import Process, Processes
from tests.faults.fault import Fault, Seen, expect
from tests.faults.handled import infra_error, measured, one_attempt
from tests.faults.ranks import no_launcher
from tests.faults.workshop import TWO_CARDS, Workshop

# The launcher dies when every rank has taken some steps, which then go on.
_LAUNCHER_DIES = """
import os, signal, time
from pathlib import Path

def in_launcher(spec_path):
    logs = [spec_path.with_name(f"rank{rank}.jsonl") for rank in (0, 1)]
    while not all(log.exists() and len(log.read_bytes().splitlines()) > 3 for log in logs):
        time.sleep(0.02)
    mark()
    os.kill(os.getpid(), signal.SIGKILL)
"""
# Each rank has a grandchild without parent and environment, in a session of its own, that ignores all it can.
_HIDES = """
import os, subprocess, sys, time
from pathlib import Path

_HIDDEN = '''
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\\\n")
time.sleep(600)
'''

def at_start(spec, rank):
    pids = Path(os.environ["PERFGATE_FAULT_FILE"]).with_name("hidden.txt")
    before = len(pids.read_text().split()) if pids.exists() else 0
    subprocess.run([sys.executable, "-c", _HIDDEN, str(pids)], env={}, start_new_session=True, check=True)
    while not pids.exists() or len(pids.read_text().split()) <= before:
        time.sleep(0.01)
"""
_CRAWLS = """
import time

def at_step(spec, rank, phase, number):
    time.sleep(0.2)
"""


def _hidden(workshop: Workshop, wanted: int) -> tuple[list[Process], tuple[str, ...]]:
    """End the hidden processes that still live; returns them, and what is wrong with them."""
    path = workshop.folder / "hidden.txt"
    pids = [int(word) for word in path.read_text(encoding="utf-8").split()] if path.exists() else []
    looked = [Processes().look(pid) for pid in pids]
    alive = [process for process in looked if process is not None and process.alive and _is_ours(process, path)]
    for process in alive:
        os.kill(process.pid, signal.SIGKILL)
    return alive, expect((len(pids) >= wanted, f"{len(pids)} processes hid themselves, {wanted} wanted"))


def _is_ours(process: Process, path: Path) -> bool:
    """Whether its command line names the workshop's file, since a process id may belong to somebody else by now."""
    try:
        return str(path).encode() in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return False


def _with_hidden(seen: Seen, alive: list[Process], wrong: tuple[str, ...]) -> Seen:
    names = tuple(f"hidden process {process.pid} lives" for process in alive)
    return Seen(
        seen.status, seen.exit_code, seen.message, seen.seconds, seen.left + len(alive), seen.lost,
        (*seen.wrong, *wrong, *names),
    )  # fmt: skip


def _launcher_dies(workshop: Workshop) -> Seen:
    one_attempt(workshop)
    done = workshop.run(fault=_LAUNCHER_DIES + _CRAWLS + _HIDES, case=TWO_CARDS)
    return _with_hidden(infra_error(workshop, done, "launcher died", "SIGKILL", words=False), *_hidden(workshop, 2))


def _ends_well(workshop: Workshop) -> Seen:
    return _with_hidden(measured(workshop, workshop.run(fault=_HIDES)), *_hidden(workshop, 1))


FAULTS = [
    Fault(
        4, "the launcher dies, children hide",
        "paddle.distributed.launch gets SIGKILL, its two ranks live on, and so does a hidden child of each",
        _launcher_dies, no_launcher,
    ),
    Fault(4, "a hidden child after a good end", "a job that ends well leaves a hidden child", _ends_well),
]  # fmt: skip
