import os
from pathlib import Path

import pytest

from helpers.launch.crash import (
    crash_reason,
    ended_by_launcher,
    exit_text,
    failed_first,
    last_words,
    launcher_tail,
    status_of,
    tail_of,
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "ended by SIGKILL (killed from outside)"),
        (137, "ended by SIGKILL (killed from outside)"),
        (247, "ended by SIGKILL (killed from outside)"),
        (-11, "ended by SIGSEGV (a crash in native code)"),
        (139, "ended by SIGSEGV (a crash in native code)"),
        (-1, "ended by SIGHUP"),
        (1, "exited with 1"),
        (128, "exited with 128"),
        (193, "exited with 193"),
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
    assert crash_reason(None, "") == "ended without a word"


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
