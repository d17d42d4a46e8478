"""The guard of one job: a small process between the suite and the job. It alone ends jobs.

``python -I -S guard.py MARK GRACE_SECONDS FOLDER WORD ...`` is started by ``guarded``, with a socket to the suite as
standard input. It starts the launcher (the words) in FOLDER, in a session of its own and with its own variables, but
for MARK (``NAME=VALUE``) in place of the guard's mark. It answers in lines: ``started PID`` or ``failed ERRNO``, then
``exited CODE``. When the suite sends a byte (the guard answers ``ending``) or dies, the guard ends all its descendants
and all processes of its user whose environment holds MARK: with SIGTERM, and with SIGKILL after the grace or a second
byte. It frees their shared memory, prints who is left, and exits.

``guard.py MARK GRACE_SECONDS PID ...`` starts nothing. It ends what a killed guard or suite left: the processes with
the mark and those with these ids, and their descendants.

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
# GUARD_VARIABLE of helpers/machine/watch/processes.py.
_GUARD_MARK = b"PERFGATE_GUARD_OF="
# A process inside a system call ends only after the call, even on SIGKILL.
_KILL_SECONDS = 10.0
_SHARED_MEMORY = "/dev/shm"
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
# Python ignores SIGPIPE and SIGXFSZ, but a program expects the default (subprocess restores them too).
_RESTORED = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)


def main(mark: bytes, grace_seconds: float, words: list[bytes]) -> int:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    pids = set(map(int, words)) if words[0].isdigit() else set()
    if not pids:
        # If this is not allowed (prctl returns -1), the processes are found by their marks and parents alone.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        children = _wake_at_childs_end()
        launcher = _start(mark, *words)
        if launcher is not None:
            _watch(launcher, children)
    found: set[int] = set()
    left = _end_all(mark, grace_seconds, pids, found)
    _free_segments(found)
    for pid in left:
        os.write(1, _read(f"/proc/{pid}/comm").strip() + b" (%d)\n" % pid)
    return 1 if left else 0


def _wake_at_childs_end() -> int:
    """A file descriptor that becomes readable when a child ends."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _is_told() -> bool:
    """Receive a byte of the suite; False if it is gone."""
    try:
        return bool(os.read(_SOCKET, 1))
    except ConnectionError:
        return False


def _send_line(text: str) -> None:
    try:
        os.write(_SOCKET, text.encode() + b"\n")
    except OSError:
        # The suite is gone; the caller notices it when the socket ends.
        return


def _start(mark: bytes, folder: bytes, *argv: bytes) -> int | None:
    """Start the launcher and send its process id, or the error. Returns the id, or None."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(mark, folder, argv, write)
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


def _become(mark: bytes, folder: bytes, argv: tuple[bytes, ...], failure: int) -> None:
    """Runs in the child: becomes the launcher, or writes the error to ``failure``. Never returns."""
    number = 0
    try:
        # As they were given to this process: Python itself adds LC_CTYPE to them.
        with os.fdopen(os.open("/proc/self/environ", os.O_RDONLY), "rb") as environ:
            given = [each for each in environ.read().split(b"\0") if b"=" in each]
        variables = dict(each.split(b"=", 1) for each in [mark, *given] if not each.startswith(_GUARD_MARK))
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
    """Sleep until the suite asks for the end or is gone; meanwhile tell it of the launcher's end, and reap orphans."""
    poller = select.poll()
    poller.register(_SOCKET, select.POLLIN)
    poller.register(children, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poller.poll()]
        if children in ready:
            os.read(children, 4096)
            _reap(launcher)
        if _SOCKET in ready:
            if _is_told():
                _send_line("ending")
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


def _end_all(mark: bytes, grace_seconds: float, roots: set[int], everyone: set[int]) -> set[int]:
    """Send SIGTERM, and after the grace SIGKILL, until no process is found. Returns those that are left 10 s later: a
    process inside a system call cannot be killed.

    The ids of all processes that were found are added to ``everyone``.
    """
    found = _alive(mark, roots)
    everyone |= found
    _send(found, signal.SIGTERM, signal.SIGCONT)
    deadline = time.monotonic() + grace_seconds
    while found and time.monotonic() < deadline and not _hurried():
        found = _alive(mark, roots)
    deadline = time.monotonic() + _KILL_SECONDS
    # After a search that finds none, search once more, because a process may have been started during the search.
    while left := found or _alive(mark, roots):
        if time.monotonic() >= deadline:
            return left
        everyone |= left
        _send(left, signal.SIGKILL)
        time.sleep(0.02)
        found = _alive(mark, roots)
    return set()


def _hurried(seconds: float = 0.05) -> bool:
    """Whether the suite, within this time, asks for an end without grace. It no longer can once it is gone."""
    began = time.monotonic()
    hurried = bool(select.select([_SOCKET], [], [], seconds)[0]) and _is_told()
    time.sleep(0.0 if hurried else max(0.0, began + seconds - time.monotonic()))
    return hurried


def _free_segments(pids: set[int]) -> None:
    """Remove the shared memory of the job's processes: nothing else does, and it would fill /dev/shm night by night.

    Paddle's and PyTorch's loaders pass batches in files whose names contain the process id of the maker. Files of
    another user stay.
    """
    for name in os.listdir(_SHARED_MEMORY) if pids else ():  # noqa: PTH208
        kind, *numbers = name.split("_")
        if kind not in ("paddle", "torch") or len(numbers) < 2 or not all(each.isdigit() for each in numbers):
            continue
        if int(numbers[0]) in pids and not _read(f"/proc/{numbers[0]}/stat"):
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


def _alive(mark: bytes, roots: set[int]) -> set[int]:
    """All processes with the mark, ``roots``, and all descendants of these and of this process, except zombies."""
    _reap()
    this, parents, dead = os.getpid(), {}, set()
    found = {pid for pid in roots if _is_of_this_user(str(pid))}
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
        if mark in _read(f"/proc/{name}/environ").split(b"\0") and _is_of_this_user(name):
            found.add(pid)
    found.add(this)
    grew = True
    while grew:
        below = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= below
        grew = bool(below)
    return found - dead - {this}


def _is_of_this_user(pid: str) -> bool:
    """Does the same as Processes: any user can give a process this environment."""
    lines = _read(f"/proc/{pid}/status").split(b"\n")
    ids = [line.split()[1:] for line in lines if line.startswith(b"Uid:")]
    return bool(ids) and {int(each) for each in ids[0]} <= set(os.getresuid())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    # The suite waits for the guard's end, and Python's own shutdown would only take time.
    _mark, _grace, *_words = map(os.fsencode, sys.argv[1:])
    os._exit(main(_mark, float(_grace), _words))
