from pathlib import Path

import pytest

from helpers.launch.crash import crash_reason, exit_text, is_consequence, tail_of


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "ended by SIGKILL (killed from outside: often the kernel, out of memory)"),
        (137, "ended by SIGKILL (killed from outside: often the kernel, out of memory)"),
        (247, "ended by SIGKILL (killed from outside: often the kernel, out of memory)"),
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
    ("tail", "meaning"),
    [
        ("ResourceExhaustedError: Out of memory error on GPU 0.", "out of GPU memory"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried", "out of GPU memory"),
        ("OSError: [Errno 28] No space left on device: 'x'", "the disk is full"),
        ("ModuleNotFoundError: No module named 'paddle'", "a module is not installed"),
        ("MemoryError", "out of host memory"),
        ("terminate called after throwing 'std::bad_alloc'", "out of host memory"),
    ],
)
def test_known_last_words_are_classed(tail: str, meaning: str) -> None:
    reason = crash_reason(1, f"Traceback\n{tail}\n")
    assert reason.startswith(f"exited with 1: {meaning}")


def test_the_last_exception_is_quoted() -> None:
    assert crash_reason(1, "ValueError: first\nduring that\nKeyError: 'second'") == "exited with 1: KeyError: 'second'"


def test_paddles_launcher_names_the_rank_that_failed_and_how() -> None:
    # Printed by paddle.distributed.launch 3.3.1, which itself exits with 241 then.
    tail = "Container rank 1 status failed cmd ['python', '-u', '-m', 'm'] code -9 log launch_logs/workerlog.1\n"
    assert crash_reason(241, tail).startswith("rank 1 ended by SIGKILL")


def test_silence_is_told_as_such() -> None:
    assert crash_reason(None, "") == "ended without a word"


@pytest.mark.parametrize(
    ("reason", "consequence"),
    [
        ("RuntimeError: Connection reset by peer", True),
        ("[gloo/transport/tcp] Read error", True),
        ("NCCL error: unhandled system error", True),
        ("DatasetError: train_list.txt is missing", False),
    ],
)
def test_the_loss_of_a_peer_is_told_from_an_own_failure(reason: str, consequence: bool) -> None:
    assert is_consequence(reason) is consequence


def test_a_tail_is_short_and_cannot_forge_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"early\n" * 10_000 + b"\x1b[2J\x00\xffloading\rdone\n")
    lines = tail_of([tmp_path / "missing", path]).splitlines()
    assert len(lines) == 40 and lines[-1] == "done"
    assert all(char.isprintable() for line in lines for char in line)
