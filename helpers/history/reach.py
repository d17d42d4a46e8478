"""Whether the history's database can be reached from here, without logging in."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from helpers.history.address import without_password

# A database that takes longer has a problem of its own.
_PATIENCE_SECONDS = 2.0
_POSTGRES_PORT = 5432


def history_problem(url: str | None, patience_seconds: float = _PATIENCE_SECONDS) -> str:
    """Why the database of ``url`` does not answer at its address; empty where it does, or is a file that may be made.

    Nobody logs in: whether the password is right shows when the session starts.
    """
    if url is None:
        return ""
    shown = without_password(url)
    if url.startswith("sqlite"):
        return _folder_problem(shown, Path(url.partition("///")[2]).absolute())
    _, scheme_ends, rest = url.partition("://")
    try:
        # A password may hold what would end a host's name: it ends at the last @.
        parts = urlsplit(f"//{rest.rpartition('@')[2]}")
        host, port = parts.hostname, parts.port or _POSTGRES_PORT
    except ValueError:
        return f"{shown} is no URL of a database"
    if not scheme_ends:
        return f"{shown} is no URL of a database"
    if not host:
        # A socket of this machine, named in the query or by the library's own default.
        return ""
    try:
        socket.create_connection((host, port), patience_seconds).close()
    except OSError as error:
        return f"{shown} does not answer at {host}:{port}: {error}"
    return ""


def _folder_problem(shown: str, file: Path) -> str:
    """The session makes the file, and its folder too."""
    try:
        nearest = next(path for path in file.parents if path.exists())
    except OSError as error:
        return f"{shown} cannot be reached: {error}"
    if not nearest.is_dir():
        return f"{shown}: {nearest} is no folder"
    if not os.access(file if file.exists() else nearest, os.W_OK):
        return f"{shown} cannot be written"
    return ""
