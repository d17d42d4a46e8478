"""A trainer's double for the supervisor's tests: each rank does, in tenths of a second, what it is told.

``stand_in.py SPEC RANK=BEHAVIOUR ...`` is the launcher of several ranks, ``--rank N BEHAVIOUR SPEC`` one
rank. The launcher's own behaviours: ``launcher=dies`` leaves its ranks alone, ``launcher=stays`` does not
exit when they end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.job import JobSpec
from helpers.steplog import COMPLETE, FAILED, REFUSED, WARMUP, WINDOW, Footer, Header, Heartbeat, Step, StepLogWriter

STEP_SECONDS = 0.02


def main(arguments: list[str]) -> int:
    if arguments[0] == "--rank":
        return train(int(arguments[1]), arguments[2], Path(arguments[3]))
    behaviours = dict(argument.split("=") for argument in arguments[1:])
    launcher = behaviours.pop("launcher", "")
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
    return next((code for code in codes if code), 0)


def train(rank: int, behaviour: str, spec_path: Path) -> int:
    spec = JobSpec.from_json(spec_path.read_text())
    if behaviour == "no-module":
        raise ModuleNotFoundError("No module named 'paddle'")
    heartbeat = Heartbeat(spec.heartbeat_path(rank))
    heartbeat.beat("import framework")
    if behaviour == "never-starts":
        time.sleep(60)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job_id = "another-job" if behaviour == "foreign" else spec.job_id
    header = Header(
        job_id, spec.case.id, spec.replicate, rank, spec.case.cards, "host", os.getpid(), "paddle", "0", "", spec.device
    )
    log = StepLogWriter(spec.step_log_path(rank), header)
    if behaviour == "refuses":
        log.footer(Footer(REFUSED, "bf16 needs AVX512_BF16"))
        return 3
    steps = spec.steps - 1 if behaviour == "short" else spec.steps
    end = time.monotonic()
    for number in range(1, steps + 1):
        if number == spec.warmup_steps + 2:
            misbehave(behaviour, log)
        start, end = end, max(end + 1e-6, busy_until(end + STEP_SECONDS))
        phase = WARMUP if number <= spec.warmup_steps else WINDOW
        log.step(Step(0, number, phase, start, end, spec.case.batch_size_per_card, 0.0))
        heartbeat.beat(phase, number)
    if behaviour == "no-footer":
        return 0
    log.footer(Footer(COMPLETE))
    if behaviour == "crashes-at-exit":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "hangs-at-exit":
        time.sleep(60)
    return 0


def misbehave(behaviour: str, log: StepLogWriter) -> None:
    if behaviour in ("hangs", "stubborn", "waits-for-peer"):
        time.sleep(60)
    elif behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "raises":
        print("ValueError: labels out of range", flush=True)
        log.footer(Footer(FAILED, "ValueError: labels out of range"))
        sys.exit(1)
    elif behaviour == "floods":
        sys.stdout.write("x" * (5 * 2**20))
        sys.stdout.flush()
    elif behaviour == "loses-peer":
        time.sleep(0.1)
        log.footer(Footer(FAILED, "RuntimeError: Connection reset by peer"))
        sys.exit(1)
    elif behaviour == "out-of-disk":
        raise OSError(28, "No space left on device")
    elif behaviour == "truncates":
        log._file.write('{"kind": "step", "epo')
        log._file.flush()
        os._exit(0)


def busy_until(time_seconds: float) -> float:
    while time.monotonic() < time_seconds:
        pass
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
