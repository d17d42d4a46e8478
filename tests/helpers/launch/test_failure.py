"""Why a process ended: the words and classes of failures, and which are worth another attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.launch import failure
from helpers.launch.failure import (
    crash_reason,
    ended_by_launcher,
    failed_first,
    failure_of_exit,
    failure_of_rank,
    is_consequence,
    last_words,
    launcher_tail,
    status_of,
    tail_of,
)

# As printed by Paddle 3.3.1 where nothing else is said.
TCP_STORE_ABORTS = """I1121 23:42:44.621788  2827 tcp_store.cc:336] create libuv server at port: 48517
python: /paddle/third_party/libuv/src/unix/core.c:314: uv__finish_close: Assertion failed.
1   phi::distributed::detail::TCPServer::create(unsigned short, int, int, bool)
FatalError: `Process abort signal` is detected by the operating system.
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.5GB memory", "out of GPU memory"),
        ("OSError: (External) CUDA error(2). [Hint: 'cudaErrorMemoryAllocation'.]", "out of GPU memory"),
        ("OSError: (External) CUBLAS error(3). CUBLAS_STATUS_ALLOC_FAILED", "out of GPU memory"),
        ("transport/shm.cc:590 NCCL WARN Cuda failure 2 'out of memory'", "out of GPU memory"),
        ("MemoryError: (ResourceExhausted) Fail to alloc memory of 17592186044416 size", "out of host memory"),
        ("MemoryError: ", "out of host memory"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[256,112,112,64] and type half on /job:worker/"
         "replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", "out of GPU memory"),
        ('MXNetError: ... "../src/storage/./cpu_device_storage.h", line 74 MXNetError: Failed to allocate CPU Memory',
         "out of host memory"),
        ("MXNetError: Check failed: e == cudaSuccess: CUDA: out of memory", "out of GPU memory"),
        ("MXNetError: cudaMalloc retry failed: out of memory", "out of GPU memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out of host memory"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", "disk full"),
        ("OSError: [Errno 122] Disk quota exceeded", "disk full"),
        ("ModuleNotFoundError: No module named 'paddle'", "framework missing"),
        ("ImportError: libcudnn.so.8: cannot open shared object file: No such file", "framework missing"),
        ("DatasetError: data /d: field 'train': expected a folder", "data fault"),
        ("LossError: step 5 (window): field 'loss': got nan", "training diverged"),
        ("OSError: [Errno 98] Address already in use", "port in use"),
        (TCP_STORE_ABORTS, "port in use"),
        ("ValueError: (InvalidArgument) IPv4 network x:50025 cannot be obtained. Details: Name or service not known.",
         "host name not resolvable"),
        # As printed by PyTorch 2.13.
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out of GPU memory"),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
         " tried to allocate 4000000000000000 bytes. Error code 12 (Cannot allocate memory)", "out of host memory"),
        ("RuntimeError: DataLoader worker (pid 26760) is killed by signal: Killed.", "killed by a signal"),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
         "disk full"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "host name not resolvable"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("started", [False, True])
def test_what_a_framework_prints_names_the_class(words: str, expected: str, started: bool) -> None:
    assert failure_of_rank(words, started).what == expected
    assert failure_of_exit(1, f"loading\n{words}\n", started).what == expected
    assert failure_of_exit(-6, f"loading\n{words}\n", started).what == expected


def test_the_loss_of_a_connection_is_another_fault_before_the_first_step_than_after_it() -> None:
    words = "RuntimeError: connect [10.0.0.2]:6170: Connection refused"
    assert failure_of_rank(words, started=False).what == "rendezvous unreachable"
    assert failure_of_rank(words, started=True).what == "rank lost"


@pytest.mark.parametrize(
    ("code", "tail", "expected"),
    [
        (-9, "", "killed by a signal"),
        (137, "", "killed by a signal"),
        (247, "", "non-zero exit"),
        (-15, "", "killed by a signal"),
        (-11, "", "native crash"),
        (139, "FatalError: `Segmentation fault` is detected", "native crash"),
        (-7, "", "native crash"),
        (-6, "", "native crash"),
        (1, "Traceback\nValueError: x", "Python exception"),
        (1, "RuntimeError: Connection reset by peer", "rank lost"),
        (5, "bye", "non-zero exit"),
        (None, "", "rank lost"),
    ],
)
def test_an_end_without_known_words_is_classed_by_how_it_ended(code: int | None, tail: str, expected: str) -> None:
    assert failure_of_exit(code, tail, started=True).what == expected


def test_only_what_may_end_otherwise_is_worth_another_attempt() -> None:
    known = [*vars(failure).values(), *(each for each, _ in failure._WORDS)]
    assert {each.what for each in known if isinstance(each, failure.Failure) and not each.retriable} == {
        "data fault",
        "node not ready",
        "training diverged",
        "framework missing",
        "disk full",
        "over the time limit",
    }


@pytest.mark.parametrize(
    ("reason", "consequence"),
    [
        ("RuntimeError: Connection reset by peer", True),
        ("[gloo/transport/tcp] Read error", True),
        ("NCCL error: unhandled system error", True),
        ("torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /x", True),
        # TensorFlow 2.21: what a worker prints when its peer was killed, and when the peer raised an error of its own.
        (
            "UnavailableError: Graph execution error: Collective ops is aborted by: "
            "recvmsg:Connection reset by peer Additional GRPC error information from remote target /job:worker/task:1",
            True,
        ),
        ("UnavailableError: Socket closed [Op:CollectiveReduceV2]", True),
        ("UnavailableError: Collective ops is aborted by: OOM when allocating tensor with shape[8] on GPU:0", False),
        ("DatasetError: train_list.txt is missing", False),
        # Names its own fault, whoever reported it.
        ("RuntimeError: NCCL error: Cuda failure 'out of memory'", False),
        ("[gloo] bind: Address already in use", False),
    ],
)
def test_the_loss_of_a_peer_is_told_from_an_own_failure(reason: str, consequence: bool) -> None:
    assert is_consequence(reason) is consequence


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        # An allocator's own word, though no exception followed; the named fault before the exception it led to.
        ("loading\nterminate called: 'std::bad_alloc'\n", "terminate called: 'std::bad_alloc'"),
        ("CUDA out of memory. Tried 2 GiB\nRuntimeError: step failed", "CUDA out of memory. Tried 2 GiB"),
        ("ValueError: first\nKeyError: 'second'", "KeyError: 'second'"),
        ("all is well", ""),
    ],
)
def test_the_last_words_are_the_fault_that_they_name_or_the_last_exception(tail: str, told: str) -> None:
    assert last_words(tail) == told


def test_paddles_launcher_names_the_rank_that_failed_and_how() -> None:
    # Printed by paddle.distributed.launch 3.3.1, which itself exits with 241 then.
    tail = "Container rank 1 status failed cmd ['python', '-u', '-m', 'm'] code -9 log launch_logs/workerlog.1\n"
    assert crash_reason(241, tail).startswith("rank 1 ended by SIGKILL")
    assert (status_of(241, tail), status_of(241, ""), status_of(None, "")) == (-9, 241, None)


# As printed by torch.distributed.run 2.13 in front of its own traceback.
TORCHRUN = """E1122 08:32:21.127000 25717 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9)\
 local_rank: 1 (pid: 25835) of binary: /opt/bin/python
Traceback (most recent call last):
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\u0020
=======================================================
helpers.trainers.common.rank_log FAILED
"""


def test_pytorchs_launcher_names_the_rank_that_failed_and_its_own_exception_says_nothing() -> None:
    assert crash_reason(1, TORCHRUN) == "rank 1 ended by SIGKILL (killed from outside)"
    assert (status_of(1, TORCHRUN), failed_first(TORCHRUN)) == (-9, 1)
    assert last_words(TORCHRUN) == ""


# Of two ranks gone within one of its looks torchrun names the lower one first, and lists both.
BOTH = """api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 41) of binary: /opt/bin/python
Failures:
[1]:
  time      : 2026-11-22_08:32:21
  host      : localhost
  rank      : 5 (local_rank: 1)
  exitcode  : {code} (pid: 42)  (SIGNAL)
  error_file: <N/A>
Root Cause (first observed failure):
[0]:
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 41)
"""


def test_a_rank_that_the_launcher_ended_itself_has_no_status_of_its_own() -> None:
    tail = BOTH.format(code=-15)
    assert ended_by_launcher(tail) == {1}
    assert ended_by_launcher(BOTH.format(code=-9)) == ended_by_launcher(tail.replace("-15", "0")) == frozenset()
    assert status_of(1, tail, 1) is None
    assert crash_reason(1, tail, 4, 1) == "rank 4 exited with 1"


def test_a_tail_is_short_and_cannot_forge_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"early\n" * 10_000 + b"\x1b[2J\x00\xffloading\rdone\n")
    lines = tail_of([tmp_path / "missing", path]).splitlines()
    assert len(lines) == 40 and lines[-1] == "done"
    assert all(char.isprintable() for line in lines for char in line)
    # A launcher's word is kept however much follows it.
    path.write_text(TORCHRUN + "noise\n" * 100)
    assert failed_first(launcher_tail(path)) == 1
