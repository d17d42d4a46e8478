"""A trainer's double for the supervisor's tests: each rank does, in tenths of a second, what it is told.

``stand_in.py SPEC RANK=BEHAVIOUR ...`` is the launcher of several ranks, ``--rank N BEHAVIOUR SPEC`` one
rank. The launcher's own behaviours: ``launcher=dies`` leaves its ranks alone, ``launcher=stays`` does not
exit when they end, ``launcher=hides`` leaves a daemon without the job's variables (its id in the file ``daemon``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import (
    COMPLETE,
    FAILED,
    PROFILE,
    REFUSED,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Heartbeat,
    Step,
    StepLogWriter,
)

STEP_SECONDS = 0.02


def main(arguments: list[str]) -> int:
    if arguments[0] == "--rank":
        return train(int(arguments[1]), arguments[2], Path(arguments[3]))
    behaviours = dict(argument.split("=") for argument in arguments[1:])
    launcher = behaviours.pop("launcher", "")
    if launcher == "hides":
        hide(Path(arguments[0]).parent)
    ranks = [
        subprocess.Popen([sys.executable, __file__, "--rank", rank, behaviour, arguments[0]], start_new_session=True)
        for rank, behaviour in behaviours.items()
    ]
    if launcher == "dies":
        while not all(
            JobSpec.from_json(Path(arguments[0]).read_text()).step_log_path(int(r)).exists() for r in behaviours
        ):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    codes = [rank.wait() for rank in ranks]
    if launcher == "stays":
        time.sleep(60)
    # A signal as a shell has it.
    return next((128 - code if code < 0 else code for code in codes if code), 0)


def hide(folder: Path) -> None:
    """As a daemon does (daemon(7)), and with an empty environment: a process that only its parents betray."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            told = folder / "daemon.new"
            told.write_text(str(os.getpid()))
            told.rename(folder / "daemon")
            os.execve("/bin/sleep", ["sleep", "60"], {})
        os._exit(0)
    os.wait()
    while not (folder / "daemon").exists():
        time.sleep(0.01)


def train(rank: int, behaviour: str, spec_path: Path) -> int:
    spec = JobSpec.from_json(spec_path.read_text())
    heartbeat = Heartbeat(spec.heartbeat_path(rank))
    heartbeat.beat("import framework")
    if behaviour in ("never-starts", "never-meets"):
        if behaviour == "never-meets":
            print("[c10d] The client socket has failed to connect to [n0]:29500", file=sys.stderr, flush=True)
        time.sleep(60)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour in ENDS:
        words, code = ENDS[behaviour]
        print(words, flush=True)
        return code
    about = (spec.job_id, spec.case.id, spec.replicate, rank, spec.case.cards)
    header = Header(*about, "host", os.getpid(), "paddle", "0", "", spec.device)
    log = StepLogWriter(spec.step_log_path(rank), header)
    if behaviour == "refuses":
        log.footer(Footer(REFUSED, "bf16 needs AVX512_BF16"))
        return 3
    end = time.monotonic()
    for number in range(1, spec.steps + 1):
        if number == spec.warmup_steps + 2:
            misbehave(behaviour, log)
        start, end = end, max(end + 1e-6, busy_until(end + STEP_SECONDS))
        phase = WARMUP if number <= spec.warmup_steps else WINDOW
        log.step(Step(0, number, phase, start, end, spec.case.batch_size_per_card, 0.0, 6.9))
        heartbeat.beat(phase, number)
    if behaviour == "out-of-memory":
        log.footer(Footer(FAILED, "MemoryError: "))
        return 1
    log.footer(Footer(COMPLETE))
    if behaviour == "crashes-profiling":
        heartbeat.beat(PROFILE)
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "hangs-at-exit":
        time.sleep(60)
    return 0


# What a rank says last, and how it ends, before its log has a header.
ENDS = {
    "exits-5": ("goodbye", 5),
    "cuda-memory": ("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2GB", 1),
}


def misbehave(behaviour: str, log: StepLogWriter) -> None:
    if behaviour in ("hangs", "stubborn", "waits-for-peer"):
        time.sleep(60)
    elif behaviour == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "raises":
        print("ValueError: labels out of range", flush=True)
        log.footer(Footer(FAILED, "ValueError: labels out of range"))
        sys.exit(1)
    elif behaviour == "loses-peer":
        time.sleep(0.1)
        log.footer(Footer(FAILED, "RuntimeError: Connection reset by peer"))
        sys.exit(1)


def busy_until(time_seconds: float) -> float:
    while time.monotonic() < time_seconds:
        pass
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
