"""A history's URL: where it may be written, and whether its database answers."""

from __future__ import annotations

import os
from pathlib import Path

from helpers.common.masking import AUTHORITY, without_password
from helpers.trainers.contract.errors import HistoryError, NoHistory

# A database that takes longer to answer has a problem.
_PATIENCE_SECONDS = 4.0
_FILE = "sqlite:///"


def refuse_ambiguous(url: str) -> None:
    """Raises HistoryError for a password whose end is not certain, because part of it would be taken for the host's
    name."""
    found = AUTHORITY.fullmatch(url)
    if found is None or found["scheme"].startswith("sqlite"):
        return
    body, _, query = found["rest"].partition("?")
    user = body.rpartition("@")[0]
    if "@" in user or (":" in body and "@" in query):
        raise HistoryError(
            "history URL",
            field="password",
            got=without_password(url),
            expected="one '@', before the host",
            remedy="Write @ in a password, and behind a question mark, as %40, / as %2F and ? as %3F",
        )


def refuse_in_command_line(url: str) -> None:
    """Raises HistoryError for an address with a password, because every user of the machine can read it in the process
    list."""
    found = AUTHORITY.fullmatch(url)
    if found is None or found["scheme"] == "sqlite://":
        return
    address, _, query = url.partition("?")
    if without_password(address) != address or "passw" in query.lower() or ("@" in query and ":" in found["rest"]):
        raise HistoryError(
            "--history",
            got=without_password(url),
            expected="an address without a password: all users of this machine read a command line",
            remedy="Put the password into ~/.pgpass (mode 600) or PGPASSWORD, or the whole address into perf.yaml's "
            "history.url",
        )


def refuse_in_open_file(url: str, path: Path) -> None:
    """Raises HistoryError for an address with a password in a configuration that other users may read."""
    try:
        refuse_in_command_line(url)
    except HistoryError:
        mode = path.stat().st_mode & 0o077
        if mode:
            raise HistoryError(
                str(path),
                field="history.url",
                got=f"{without_password(url)} in a file that other users may read",
                expected="no password, or a file of mode 600",
                remedy=f"Put the password into ~/.pgpass (mode 600) or PGPASSWORD, or: chmod 600 {path}",
            ) from None


def named_address(given: str | None, configured: str | None, file: Path) -> str | None:
    """The address of the command line, else that of the configuration ``file``; None if neither names one.

    A relative file of the command line is in the working folder, one of ``file`` is in the folder of ``file``, and
    ``~`` is the user's home. Raises HistoryError for a home of nobody, and for a password that other users may read.
    """
    if given is not None:
        return _absolute(given, Path.cwd(), "--history")
    if configured is None:
        return None
    refuse_in_open_file(configured, file)
    return _absolute(configured, file.absolute().parent, f"{file}: history.url")


def _absolute(url: str, folder: Path, about: str) -> str:
    name = url.removeprefix(_FILE)
    # A history in memory is refused by its name.
    if name in (url, "", ":memory:"):
        return url
    try:
        return f"{_FILE}{folder / Path(name).expanduser()}"
    except RuntimeError as error:
        raise HistoryError(
            about, got=f"{url} ({error})", expected=f"{_FILE}FILE", remedy="Write the whole path of the file"
        ) from error


def history_problem(url: str | None) -> str:
    """Why the database of ``url`` cannot be used; empty if it can, or if it is a file or tables that can be made."""
    if url is None:
        return ""
    shown = without_password(url)
    if url.startswith("sqlite"):
        return _folder_problem(shown, Path(url.partition("///")[2]).absolute())
    from helpers.history import open_history

    try:
        open_history(url, writes=False, wait_seconds=_PATIENCE_SECONDS, answer_seconds=_PATIENCE_SECONDS).close()
    except NoHistory:
        return ""
    except HistoryError as error:
        return str(error)
    return ""


def _folder_problem(shown: str, file: Path) -> str:
    """Why the file cannot be made. The session makes it, and its folder too."""
    try:
        nearest = next(path for path in file.parents if path.exists())
    except OSError as error:
        return f"{shown} cannot be reached: {error}"
    if not nearest.is_dir():
        return f"{shown}: {nearest} is no folder"
    if not os.access(file if file.exists() else nearest, os.W_OK):
        return f"{shown} cannot be written"
    return ""
