"""Finds what of this machine would break a job off, or let it hang, before the job is started: the home, /dev/shm, the
loopback interface."""

from __future__ import annotations

import os
import pwd
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework

SHARED_MEMORY_REMEDY = (
    "Mount it: mount -t tmpfs -o size=64g tmpfs /dev/shm; in a container docker run --shm-size=64g, or --ipc=host"
)
HOME_REMEDY = "Set HOME to a folder that this user can write to; in a container docker run --env HOME=/tmp"
LOOPBACK_REMEDY = "Bring the loopback interface up: ip link set lo up; free ports, if none is left (ss -s)"
# Paddle makes it when it is imported (paddle/dataset/common.py).
_PADDLE_FOLDER = ".cache/paddle/dataset"


def shared_memory_problem(root: Path = Path("/")) -> str:
    """Why processes cannot share memory through /dev/shm; empty if they can."""
    folder = root / "dev/shm"
    if not folder.is_dir():
        return "there is no /dev/shm"
    why = _not_writable(folder)
    return why and f"/dev/shm cannot be written ({why})"


def home_problem(variables: Mapping[str, str], root: Path = Path("/")) -> str:
    """Why Paddle, which makes a folder in the home when it is imported, cannot; empty if it can."""
    try:
        home = variables["HOME"] if "HOME" in variables else pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return f"there is no HOME, and user {os.getuid()} is in no list of users"
    folder = root / f"{home}/{_PADDLE_FOLDER}".lstrip("/")
    if folder.is_dir():
        return ""
    why = _not_writable(next(each for each in folder.parents if os.path.exists(each)))  # noqa: PTH110 - never raises
    return why and f"the home {home or '/'} cannot be written ({why})"


def refuse_home(framework: Framework, problem: str) -> None:
    """Raise DeviceError if the framework's import would fail for this ``home_problem``."""
    if problem and framework is Framework.PADDLE:
        expected = f"one in which Paddle can make {_PADDLE_FOLDER} when it is imported"
        raise DeviceError("home", got=problem, expected=expected, remedy=HOME_REMEDY)


def loopback_problem(address: str = "127.0.0.1") -> str:
    """Why two processes of this machine cannot connect through a port of ``address``; empty if they can."""
    try:
        with socket.create_server((address, 0)) as server, socket.create_connection(server.getsockname(), 1.0):
            return ""
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else error
        return f"{address} cannot be reached ({why})"


def _not_writable(folder: Path) -> str:
    """Why no folder can be made in ``folder``; empty if one can. It is tried, because in /proc access(2) tells root
    that it can."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".perfgate-"):
            return ""
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
