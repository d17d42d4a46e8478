"""A history's URL: which parts of it may be shown, where it may be written, and whether its database answers.

A password is never shown, not even one that was written without its escapes.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from helpers.trainers.contract.errors import HistoryError

# These parameters of a query say where the database is; the value of any other may be a secret.
_SHOWN_IN_QUERY = ("dbname", "host", "port", "sslmode", "user")
_AUTHORITY = re.compile(r"(?P<scheme>[^:/?@]*://)(?P<rest>.*)", re.DOTALL)
# libpq's own way to write it: host=db password=secret. A value may hold quotes and blanks.
_WORDS = re.compile(r"(passw\w{0,40}\s{0,40}=).*", re.IGNORECASE | re.DOTALL)
# Finds URLs in a text. Lengths are limited so that no text takes long.
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.]{0,40}://[^\s'\"<>]{1,2000}")
_WORD_IN_TEXT = re.compile(r"(passw\w{0,10}\s{0,4}[=:]\s{0,4})('[^']{0,400}'|[^\s&;,]{1,400})", re.IGNORECASE)
_VARIABLE = re.compile(r"\w*(PASSW|SECRET|TOKEN)\w*", re.IGNORECASE)
# A shorter password would occur in any text.
_LEAST_CHARACTERS = 4
_HOST = r"(\[[^\]]*\]|[^:,\[]*)(:\d*)?"
_HOSTS = re.compile(f"{_HOST}(,{_HOST})*")
# A database that takes longer to answer has a problem.
_PATIENCE_SECONDS = 2.0
_POSTGRES_PORT = 5432


def without_password(url: str) -> str:
    """``url`` as it may be shown: with ``***`` for its password, and for values of its query that may be one.

    A raw ``@``, ``/`` or ``?`` in a password makes the URL ambiguous. Then rather too much is hidden than too little.
    """
    found = _AUTHORITY.fullmatch(url)
    if found is None:
        return _WORDS.sub(r"\1***", _hidden_after_colon(url) if "@" in url or url.count(":") > 1 else url)
    scheme, rest = found["scheme"], found["rest"]
    if scheme == "sqlite://":
        return url
    body, question, query = rest.partition("?")
    if "@" in query and ":" in body:
        # Nobody can tell where the password ends.
        return scheme + _hidden_after_colon(body)
    if "@" in body:
        user, _, host = body.rpartition("@")
        body = f"{_hidden_after_colon(user)}@{host}"
    elif not _HOSTS.fullmatch(body.partition("/")[0]):
        # The text in the port's place is a password: the host was forgotten.
        body = _hidden_after_colon(body)
    shown = [each for piece in query.split("&") if (each := _shown_parameter(piece))]
    return scheme + body + (question + "&".join(shown) if shown else "")


def refuse_ambiguous(url: str) -> None:
    """Raises HistoryError for a password whose end is not certain, because part of it would be taken for the host's
    name."""
    found = _AUTHORITY.fullmatch(url)
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
    found = _AUTHORITY.fullmatch(url)
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


def history_problem(url: str | None, patience_seconds: float = _PATIENCE_SECONDS) -> str:
    """Why the database of ``url`` does not answer at its address; empty if it does, or if it is a file that can be
    made.

    Nothing logs in. Whether the password is right shows when the session starts.
    """
    if url is None:
        return ""
    shown = without_password(url)
    if url.startswith("sqlite"):
        return _folder_problem(shown, Path(url.partition("///")[2]).absolute())
    _, scheme_ends, rest = url.partition("://")
    try:
        # A password may hold characters that would end a host's name, so it ends at the last @.
        parts = urlsplit(f"//{rest.rpartition('@')[2]}")
        host, port = parts.hostname, parts.port or _POSTGRES_PORT
    except ValueError:
        return f"{shown} is not a database URL"
    if not scheme_ends:
        return f"{shown} is not a database URL"
    if not host:
        # A socket of this machine, named in the query or by the library's own default.
        return ""
    try:
        socket.create_connection((host, port), patience_seconds).close()
    except OSError as error:
        return f"{shown} does not answer at {host}:{port}: {error}"
    return ""


def _hidden_after_colon(text: str) -> str:
    before, colon, _ = text.partition(":")
    return f"{before}:***" if colon else text.partition("@")[0]


def _shown_parameter(piece: str) -> str:
    name, equals, value = piece.partition("=")
    if not equals or not name.isidentifier():
        return ""
    return piece if name in _SHOWN_IN_QUERY and "@" not in value else f"{name}=***"


def without_secrets(text: str, passwords: Sequence[str] = ()) -> str:
    """A text of any origin without the ``passwords``, without those of its URLs, and without what follows
    ``password=``."""
    for each in passwords:
        text = text.replace(each, "***")
    text = _IN_TEXT.sub(_shown_url, text)
    return _WORD_IN_TEXT.sub(r"\1***", text)


def passwords_in(given: Iterable[str | tuple[str, str]]) -> tuple[str, ...]:
    """The passwords in words of a command line and in variables (name, value): those of URLs, and the values of
    variables whose names say so. Each as it is written and without escapes; the longest first."""
    found: set[str] = set()
    for each in given:
        name, value = each if isinstance(each, tuple) else ("", each)
        if _VARIABLE.fullmatch(name) and not value.startswith("/"):
            found.add(value)
        # Blanks and quotes end a URL in a text, but they may be part of a password in a word of its own.
        for url in (*_IN_TEXT.findall(value), value if "://" in value else ""):
            user = url.partition("://")[2].rpartition("@")[0]
            found.add(user.partition(":")[2])
            found.update(piece.partition("=")[2] for piece in url.partition("?")[2].split("&") if "passw" in piece)
    found |= {unquote(each) for each in found}
    return tuple(sorted((each for each in found if len(each) >= _LEAST_CHARACTERS), key=len, reverse=True))


def _shown_url(found: re.Match[str]) -> str:
    return without_password(found[0])


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
