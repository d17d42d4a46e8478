"""Why a process ended: the words and classes of failures, and which are worth another attempt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.failure import (
    class_of_exit,
    class_of_failure,
    crash_reason,
    ended_by_launcher,
    exit_text,
    failed_first,
    is_consequence,
    last_words,
    launcher_tail,
    signal_of,
    status_of,
    tail_of,
    waits_for_rendezvous,
    words_of_class,
)

# As printed by Paddle 3.3.1 where nothing else is said.
TCP_STORE_ABORTS = """I1121 23:42:44.621788  2827 tcp_store.cc:336] create libuv server at port: 48517
python: /paddle/third_party/libuv/src/unix/core.c:314: uv__finish_close: Assertion failed.
1   phi::distributed::detail::TCPServer::create(unsigned short, int, int, bool)
FatalError: `Process abort signal` is detected by the operating system.
"""
RETRIES = "tcp_utils.cc:109] Retry to connect to 10.0.0.2:59265 while the server is not yet listening.\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.5GB memory", FailureClass.GPU_MEMORY),
        ("OSError: (External) CUDA error(2). [Hint: 'cudaErrorMemoryAllocation'.]", FailureClass.GPU_MEMORY),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FailureClass.GPU_MEMORY),
        ("OSError: (External) CUBLAS error(3). CUBLAS_STATUS_ALLOC_FAILED", FailureClass.GPU_MEMORY),
        ("RuntimeError: (External) CUDNN error(2), CUDNN_STATUS_ALLOC_FAILED", FailureClass.GPU_MEMORY),
        ("transport/shm.cc:590 NCCL WARN Cuda failure 2 'out of memory'", FailureClass.GPU_MEMORY),
        ("MemoryError: (ResourceExhausted) Fail to alloc memory of 17592186044416 size", FailureClass.HOST_MEMORY),
        ("MemoryError: ", FailureClass.HOST_MEMORY),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[256,112,112,64] and type half on /job:worker/"
         "replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc", FailureClass.GPU_MEMORY),
        ('MXNetError: ... "../src/storage/./cpu_device_storage.h", line 74 MXNetError: Failed to allocate CPU Memory',
         FailureClass.HOST_MEMORY),
        ("MXNetError: Check failed: e == cudaSuccess: CUDA: out of memory", FailureClass.GPU_MEMORY),
        ("MXNetError: cudaMalloc retry failed: out of memory", FailureClass.GPU_MEMORY),
        ("terminate called after throwing an instance of 'std::bad_alloc'", FailureClass.HOST_MEMORY),
        ("OSError: [Errno 12] Cannot allocate memory", FailureClass.HOST_MEMORY),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", FailureClass.DISK_FULL),
        ("OSError: [Errno 122] Disk quota exceeded", FailureClass.DISK_FULL),
        ("ModuleNotFoundError: No module named 'paddle'", FailureClass.FRAMEWORK_MISSING),
        ("ImportError: libcudnn.so.8: cannot open shared object file: No such file", FailureClass.FRAMEWORK_MISSING),
        ("DatasetError: data /d: field 'train': expected a folder", FailureClass.DATA_FAULT),
        ("LossError: step 5 (window): field 'loss': got nan", FailureClass.DIVERGED),
        ("OSError: [Errno 98] Address already in use", FailureClass.PORT_IN_USE),
        ("RuntimeError: [gloo/transport/tcp/device.cc:83] bind: Address already in use", FailureClass.PORT_IN_USE),
        (TCP_STORE_ABORTS, FailureClass.PORT_IN_USE),
        ("ValueError: (InvalidArgument) IPv4 network x:50025 cannot be obtained. Details: Name or service not known.",
         FailureClass.UNRESOLVABLE),
        # As printed by PyTorch 2.13.
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", FailureClass.GPU_MEMORY),
        ("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you"
         " tried to allocate 4000000000000000 bytes. Error code 12 (Cannot allocate memory)", FailureClass.HOST_MEMORY),
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
         " port: 22223, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
         FailureClass.PORT_IN_USE),
        ("[c10d] The IPv6 network addresses of (no.such.host.invalid, 44549) cannot be retrieved (gai error: -2 - Name"
         " or service not known).", FailureClass.UNRESOLVABLE),
        ("RuntimeError: DataLoader worker (pid 26760) is killed by signal: Killed.", FailureClass.KILLED),
        ("RuntimeError: DataLoader worker (pid(s) 5680) exited unexpectedly", FailureClass.KILLED),
        ("ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
         FailureClass.DISK_FULL),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", FailureClass.UNRESOLVABLE),
    ],
)  # fmt: skip
@pytest.mark.parametrize("started", [False, True])
def test_what_a_framework_prints_names_the_class(words: str, expected: FailureClass, started: bool) -> None:
    assert class_of_failure(words, started) is expected
    assert class_of_exit(1, f"loading\n{words}\n", started) is expected
    assert class_of_exit(-6, f"loading\n{words}\n", started) is expected


def test_the_loss_of_a_connection_is_another_fault_before_the_first_step_than_after_it() -> None:
    words = "RuntimeError: connect [10.0.0.2]:6170: Connection refused"
    assert class_of_failure(words, started=False) is FailureClass.UNREACHABLE
    assert class_of_failure(words, started=True) is FailureClass.RANK_LOST


@pytest.mark.parametrize(
    "words",
    [
        "torch.distributed.DistNetworkError: The client socket has timed out after 2000ms while trying to connect to"
        " (127.0.0.1, 44549).",
        "torch.distributed.DistStoreError: Timed out after 3 seconds waiting for clients. 1/2 clients joined.",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has"
        " failed.",
    ],
)
def test_pytorch_s_rendezvous_that_nobody_answers_is_unreachable(words: str) -> None:
    assert class_of_failure(words, started=False) is FailureClass.UNREACHABLE
    assert class_of_exit(1, words, started=False) is FailureClass.UNREACHABLE
    assert class_of_failure(words, started=True) is FailureClass.RANK_LOST


@pytest.mark.parametrize(
    "words",
    [
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2013, remote process exited or there"
        " was a network error, NCCL version 2.27.5",
        "RuntimeError: [gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:27121",
        "torch.distributed.DistStoreError: wait timeout after 2000ms, keys: /x",
    ],
)
def test_pytorch_s_rank_that_lost_its_peer_is_no_first_cause(words: str) -> None:
    assert is_consequence(words)
    assert class_of_failure(words, started=True) is FailureClass.RANK_LOST


def test_a_rank_that_only_waited_for_the_rendezvous_is_told_so_unless_it_crashed() -> None:
    assert waits_for_rendezvous(RETRIES * 3) and not waits_for_rendezvous(RETRIES + "training\n" * 20)
    assert class_of_exit(-15, RETRIES * 3, started=False) is FailureClass.UNREACHABLE
    assert class_of_exit(-11, RETRIES * 3, started=False) is FailureClass.NATIVE_CRASH
    assert class_of_exit(-9, RETRIES * 3, started=False) is FailureClass.KILLED


@pytest.mark.parametrize(
    ("code", "tail", "expected"),
    [
        (-9, "", FailureClass.KILLED),
        (137, "", FailureClass.KILLED),
        (247, "", FailureClass.KILLED),
        (255, "", FailureClass.BAD_EXIT),
        (-15, "", FailureClass.KILLED),
        (-11, "", FailureClass.NATIVE_CRASH),
        (139, "FatalError: `Segmentation fault` is detected", FailureClass.NATIVE_CRASH),
        (-7, "", FailureClass.NATIVE_CRASH),
        (-6, "", FailureClass.NATIVE_CRASH),
        (-4, "", FailureClass.NATIVE_CRASH),
        (-8, "", FailureClass.NATIVE_CRASH),
        (1, "Traceback\nValueError: x", FailureClass.EXCEPTION),
        (1, "RuntimeError: Connection reset by peer", FailureClass.RANK_LOST),
        (5, "bye", FailureClass.BAD_EXIT),
        (None, "", FailureClass.RANK_LOST),
    ],
)
def test_an_end_without_known_words_is_classed_by_how_it_ended(
    code: int | None, tail: str, expected: FailureClass
) -> None:
    assert class_of_exit(code, tail, started=True) is expected


def test_an_exit_status_that_is_no_signals_is_none() -> None:
    assert [signal_of(code) for code in (0, 1, 128, 193, 254, 255)] == [None] * 6


def test_only_what_may_end_otherwise_is_worth_another_attempt() -> None:
    final = {each for each in FailureClass if not each.retriable}
    assert final == {
        FailureClass.DATA_FAULT,
        FailureClass.DIVERGED,
        FailureClass.FRAMEWORK_MISSING,
        FailureClass.DISK_FULL,
        FailureClass.TIMED_OUT,
    }


@pytest.mark.parametrize(
    ("reason", "consequence"),
    [
        ("RuntimeError: Connection reset by peer", True),
        ("[gloo/transport/tcp] Read error", True),
        ("NCCL error: unhandled system error", True),
        # TensorFlow 2.21: what a worker prints when its peer was killed, and when the peer raised an error of its own.
        (
            "UnavailableError: Graph execution error: Collective ops is aborted by: "
            "recvmsg:Connection reset by peer Additional GRPC error information from remote target /job:worker/task:1",
            True,
        ),
        ("UnavailableError: Graph execution error: Collective ops is aborted by: Socket closed", True),
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


def test_the_line_that_names_the_class_is_found() -> None:
    assert words_of_class("a\n  std::bad_alloc\nb") == "std::bad_alloc"
    assert words_of_class("nothing here") == ""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "ended by SIGKILL (killed from outside)"),
        (137, "ended by SIGKILL (killed from outside)"),
        (-11, "ended by SIGSEGV (a crash in native code)"),
        (139, "ended by SIGSEGV (a crash in native code)"),
        (-1, "ended by SIGHUP"),
        (1, "exited with 1"),
        (128, "exited with 128"),
        (193, "exited with 193"),
        # A rank's -9 by Paddle's launcher, and exit(-1).
        (247, "ended by SIGKILL (killed from outside)"),
        (255, "exited with 255"),
    ],
)
def test_an_exit_status_is_told_in_words(code: int, text: str) -> None:
    assert exit_text(code) == text


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        # An allocator's own word, though no exception followed; the named fault before the exception it led to.
        ("loading\nterminate called: 'std::bad_alloc'\n", "terminate called: 'std::bad_alloc'"),
        ("CUDA out of memory. Tried 2 GiB\nRuntimeError: step failed", "CUDA out of memory. Tried 2 GiB"),
        ("OSError: [Errno 28] No space left on device: 'x'\nbye", "OSError: [Errno 28] No space left on device: 'x'"),
        ("ValueError: first\nKeyError: 'second'", "KeyError: 'second'"),
        ("all is well", ""),
    ],
)  # fmt: skip
def test_the_last_words_are_the_fault_that_they_name_or_the_last_exception(tail: str, told: str) -> None:
    assert last_words(tail) == told


def test_the_last_exception_is_quoted() -> None:
    assert crash_reason(1, "ValueError: first\nduring that\nKeyError: 'second'") == "exited with 1: KeyError: 'second'"


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


def test_the_status_of_the_guilty_rank_is_read_from_the_list_of_all() -> None:
    tail = BOTH.format(code=-9)
    assert (failed_first(tail), status_of(1, tail), status_of(1, tail, 0), status_of(1, tail, 1)) == (0, 1, 1, -9)
    assert crash_reason(1, tail, 4, 1) == "rank 5 ended by SIGKILL (killed from outside)"
    assert crash_reason(1, tail, 4) == "rank 4 exited with 1"


def test_a_rank_that_the_launcher_ended_itself_has_no_status_of_its_own() -> None:
    tail = BOTH.format(code=-15)
    assert ended_by_launcher(tail) == {1}
    assert ended_by_launcher(BOTH.format(code=-9)) == ended_by_launcher(tail.replace("-15", "0")) == frozenset()
    assert status_of(1, tail, 1) is None
    assert crash_reason(1, tail, 4, 1) == "rank 4 exited with 1"


def test_a_launchers_word_is_kept_however_much_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_text(TORCHRUN + "noise\n" * 100)
    assert failed_first(launcher_tail(path)) == 1


def test_silence_is_told_as_such() -> None:
    assert crash_reason(None, "") == "ended without a message"


def test_a_tail_is_short_and_cannot_forge_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"early\n" * 10_000 + b"\x1b[2J\x00\xffloading\rdone\n")
    lines = tail_of([tmp_path / "missing", path]).splitlines()
    assert len(lines) == 40 and lines[-1] == "done"
    assert all(char.isprintable() for line in lines for char in line)


def test_a_tail_of_what_is_no_file_is_empty_and_never_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_text("token")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert tail_of([tmp_path / name for name in ("pipe", "folder", "link")]) == ""
