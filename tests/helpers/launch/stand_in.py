"""A trainer's double for the supervisor's tests: each rank does, in tenths of a second, what it is told.

``stand_in.py SPEC RANK=BEHAVIOUR ...`` is the launcher of several ranks, ``--rank N BEHAVIOUR SPEC`` one
rank. The launcher's own behaviours: ``launcher=dies`` leaves its ranks alone, ``launcher=stays`` does not
exit when they end, ``launcher=hides`` leaves a daemon without the job's variables (its id in the file ``daemon``),
``launcher=hides-and-dies`` does both at once. A rank that is ``absent`` it forgets to start.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from helpers.trainers.contract.device_time import PROFILE
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import (
    COMPLETE,
    FAILED,
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
    if launcher.startswith("hides"):
        hide(Path(arguments[0]).parent)
    ranks = [
        subprocess.Popen([sys.executable, __file__, "--rank", rank, behaviour, arguments[0]], start_new_session=True)
        for rank, behaviour in behaviours.items()
        if behaviour != "absent"
    ]
    if launcher == "hides-and-dies":
        os.kill(os.getpid(), signal.SIGKILL)
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
    if behaviour == "no-module":
        raise ModuleNotFoundError("No module named 'paddle'")
    heartbeat = Heartbeat(spec.heartbeat_path(rank))
    heartbeat.beat("import framework")
    if behaviour == "never-starts":
        time.sleep(60)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour in ENDS:
        end_so(behaviour)
    job_id = "another-job" if behaviour == "foreign" else spec.job_id
    header = Header(
        job_id, spec.case.id, spec.replicate, rank, spec.case.cards, "host", os.getpid(), "paddle", "0", "", spec.device
    )
    if behaviour == "claims-rank-0":
        header = replace(header, rank=0)
    if behaviour == "claims-launchers-pid":
        header = replace(header, pid=os.getppid())
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
        step = Step(0, number, phase, start, end, spec.case.batch_size_per_card, 0.0, 6.9)
        for told in altered(behaviour, step) if number == spec.warmup_steps + 2 else (step,):
            log.step(told)
        heartbeat.beat(phase, number)
    if behaviour == "no-footer":
        return 0
    spoil(behaviour, spec.step_log_path(rank), log)
    log.footer(Footer(COMPLETE))
    displace(behaviour, spec.step_log_path(rank))
    if behaviour.endswith("-profiling"):
        heartbeat.beat(PROFILE)
    if behaviour in ("crashes-at-exit", "crashes-profiling"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour in ("hangs-at-exit", "hangs-profiling"):
        time.sleep(60)
    return 0


# What a rank says last, and how it ends, before its log has a header.
ENDS = {
    "segfaults": ("", signal.SIGSEGV),
    "aborts": ("", signal.SIGABRT),
    "bad-alloc": ("terminate called after throwing an instance of 'std::bad_alloc'", signal.SIGABRT),
    "exits-5": ("goodbye", 5),
    "cuda-memory": ("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2GB", 1),
    "port-taken": ("OSError: [Errno 98] Address already in use", 1),
    "no-such-host": ("ValueError: IPv4 network x:1 cannot be obtained. Details: Name or service not known.", 1),
    "nobody-there": ("RuntimeError: connect to 10.0.0.2:6170: Connection refused", 1),
}


def end_so(behaviour: str) -> None:
    words, how = ENDS[behaviour]
    print(words, flush=True)
    if isinstance(how, signal.Signals):
        os.kill(os.getpid(), how)
    sys.exit(how)


def altered(behaviour: str, step: Step) -> tuple[Step, ...]:
    """The step as such a trainer would record it."""
    wrong = {
        "loses-loss": replace(step, loss=math.nan),
        "loses-time": replace(step, end=math.nan),
        "goes-back": replace(step, start=-1.0),
        "skips-a-step": replace(step, step=step.step + 1),
    }
    return (step, step) if behaviour == "tells-twice" else (wrong.get(behaviour, step),)


def spoil(behaviour: str, path: Path, log: StepLogWriter) -> None:
    """Write what is no record between the steps and the footer."""
    if behaviour == "writes-bytes":
        log._file.buffer.write(b"\xff\xfe\n")
    elif behaviour == "writes-a-gigabyte":
        # A hole: the line is as long as it says, and takes no room.
        log._file.buffer.seek(2**30)
        log._file.buffer.write(b"\n")
    elif behaviour == "leaves-a-stray-log":
        path.with_name("rank7.jsonl").write_text("{}\n")
    elif behaviour == "out-of-memory":
        log.footer(Footer(FAILED, "MemoryError: "))
        sys.exit(1)
    elif behaviour == "bad-data":
        log.footer(Footer(FAILED, "DatasetError: data /d: field 'train': expected a folder"))
        sys.exit(1)
    elif behaviour == "diverges":
        log.footer(Footer(FAILED, "LossError: step 5 (window): field 'loss': got nan"))
        sys.exit(1)


def displace(behaviour: str, path: Path) -> None:
    """Put something else where the finished log was."""
    if behaviour not in ("leaves-a-link", "leaves-a-folder", "leaves-a-pipe"):
        return
    path.rename(path.with_name("moved"))
    if behaviour == "leaves-a-link":
        path.symlink_to(path.with_name("moved"))
    elif behaviour == "leaves-a-folder":
        path.mkdir()
    else:
        os.mkfifo(path)


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
