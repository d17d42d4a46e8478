"""The guard of one job: a small process between the suite and the job that ends the job when the suite ends, for
whatever reason.

``python -I -S guard.py MARK GRACE_SECONDS`` is started by ``guarded``, with a socket to the suite as standard input. It
receives an order (``guarded.order``), starts the launcher in a session of its own, and answers in lines: ``started
PID`` or ``failed ERRNO``, then ``exited CODE``. When the suite closes the socket or dies, the guard ends all its
descendants and all processes whose environment holds MARK (``NAME=VALUE``), frees their shared memory, and exits.

It imports little, and only from the standard library: a guard is started for each run, and it must work even if the
checkout was removed.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

# prctl(2): orphaned descendants of this process become its children, whatever session or environment they have.
_PR_SET_CHILD_SUBREAPER = 36
_SOCKET = 0
_LENGTH_BYTES = 4
# As in processes.end_processes: a process inside a system call ends only after the call, even on SIGKILL.
_KILL_SECONDS = 10.0
_SHARED_MEMORY = "/dev/shm"
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
# Python ignores SIGPIPE and SIGXFSZ, but a program expects the default (subprocess restores them too).
_RESTORED = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def main(mark: bytes, grace_seconds: float) -> int:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # If this is not allowed (prctl returns -1), the processes are found by their marks and parents alone.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    children = _wake_at_childs_end()
    order = _order()
    if order is None:
        return 0
    launcher = _start(order)
    if launcher is not None:
        _watch(launcher, children)
    found: set[int] = set()
    ended = _end_all(mark, grace_seconds, found)
    _free_segments(found)
    return 0 if ended else 1


def _wake_at_childs_end() -> int:
    """A file descriptor that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _order() -> list[bytes] | None:
    """The parts of the order: folder, number of words, words, variables. None if the suite died before it had sent all
    of it."""
    head = _receive(_LENGTH_BYTES)
    body = _receive(int.from_bytes(head, "big")) if head else None
    return body.split(b"\0") if body else None


def _receive(count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            part = os.read(_SOCKET, count - len(data))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return data


def _send_line(text: str) -> None:
    try:
        os.write(_SOCKET, text.encode() + b"\n")
    except OSError:
        # The suite is gone; the caller notices it when the socket ends.
        return


def _start(order: list[bytes]) -> int | None:
    """Start the launcher and send its process id, or the error. Returns the id, or None."""
    folder, count, *rest = order
    argv, variables = rest[: int(count)], dict(each.split(b"=", 1) for each in rest[int(count) :])
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(folder, argv, variables, write)
    os.close(write)
    # It is closed, with nothing written, when the program has replaced the child.
    failure = os.read(read, 16)
    os.close(read)
    if failure:
        os.waitpid(pid, 0)
        _send_line(f"failed {failure.decode()}")
        return None
    _send_line(f"started {pid}")
    return pid


def _become(folder: bytes, argv: list[bytes], variables: dict[bytes, bytes], failure: int) -> None:
    """Runs in the child: becomes the launcher, or writes the error to ``failure``. Never returns."""
    number = 0
    try:
        signal.set_wakeup_fd(-1)
        for each in _RESTORED:
            signal.signal(each, signal.SIG_DFL)
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), _SOCKET)
        os.execvpe(argv[0], argv, variables)
    except OSError as error:
        number = error.errno or 0
    finally:
        os.write(failure, str(number).encode())
        os._exit(127)


def _watch(launcher: int, children: int) -> None:
    """Sleep until the suite is gone; meanwhile report the launcher's end to it, and reap orphans."""
    poller = select.poll()
    poller.register(_SOCKET, select.POLLIN)
    poller.register(children, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if children in ready:
            os.read(children, 4096)
            _reap(launcher)
        if _SOCKET in ready and _receive(1) is None:
            return


def _reap(launcher: int = 0) -> None:
    """Collect the exit statuses of children that have ended, so that no zombies are left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == launcher:
            _send_line(f"exited {os.waitstatus_to_exitcode(status)}")


def _end_all(mark: bytes, grace_seconds: float, everyone: set[int]) -> bool:
    """Send SIGTERM, and after the grace SIGKILL, until no process is found. Returns whether none is left.

    The ids of all processes that were found are added to ``everyone``.
    """
    found = _alive(mark)
    everyone |= found
    _send(found, signal.SIGTERM, signal.SIGCONT)
    deadline = time.monotonic() + grace_seconds
    while found and time.monotonic() < deadline:
        time.sleep(0.05)
        found = _alive(mark)
    deadline = time.monotonic() + _KILL_SECONDS
    # After a search that finds none, search once more, because a process may have been started during the search.
    while left := found or _alive(mark):
        if time.monotonic() >= deadline:
            return False
        everyone |= left
        _send(left, signal.SIGKILL)
        time.sleep(0.02)
        found = _alive(mark)
    return True


def _free_segments(pids: set[int]) -> None:
    """Does the same as supervisor.free_segments, in case the suite is dead."""
    for name in os.listdir(_SHARED_MEMORY) if pids else ():  # noqa: PTH208
        kind, _, rest = name.partition("_")
        pid = rest.partition("_")[0]
        if kind in ("paddle", "torch") and pid.isdigit() and int(pid) in pids and not _read(f"/proc/{pid}/stat"):
            try:
                if os.lstat(f"{_SHARED_MEMORY}/{name}").st_uid == os.geteuid():
                    os.unlink(f"{_SHARED_MEMORY}/{name}")  # noqa: PTH108
            except OSError:
                continue


def _send(pids: set[int], *numbers: int) -> None:
    for pid in pids:
        for number in numbers:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                break


def _alive(mark: bytes) -> set[int]:
    """All processes with the mark, and all descendants of these and of this process, except zombies."""
    _reap()
    this, parents, dead, found = os.getpid(), {}, set(), set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to load than all the rest
        if not name.isdigit():
            continue
        pid = int(name)
        stat = _read(f"/proc/{name}/stat")
        if not stat:
            continue
        state, parent = stat[stat.rindex(b")") + 2 :].split()[:2]
        parents[pid] = int(parent)
        if state in (b"Z", b"X"):
            dead.add(pid)
        if mark in _read(f"/proc/{name}/environ").split(b"\0"):
            found.add(pid)
    found.add(this)
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= below
        grew = bool(below)
    return found - dead - {this}


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    # The suite waits for the guard's end, and Python's own shutdown would only take time.
    os._exit(main(os.fsencode(sys.argv[1]), float(sys.argv[2])))
