"""What may be shown of a history's URL: never its password, also where that was written without its escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from helpers.trainers.contract.errors import HistoryError

# What of a query says where the database is; the value of anything else may be a secret.
_SHOWN_IN_QUERY = ("dbname", "host", "port", "sslmode", "user")
_AUTHORITY = re.compile(r"(?P<scheme>[^:/?@]*://)(?P<rest>.*)", re.DOTALL)
# libpq's own way to write it: host=db password=secret. A value may hold quotes and blanks.
_WORDS = re.compile(r"(passw\w{0,40}\s{0,40}=).*", re.IGNORECASE | re.DOTALL)
# Where a URL begins in a text, and how far it may reach; lengths are limited so that no text takes long.
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.]{0,40}://[^\s'\"<>]{1,2000}")
_WORD_IN_TEXT = re.compile(r"(passw\w{0,10}\s{0,4}[=:]\s{0,4})('[^']{0,400}'|[^\s&;,]{1,400})", re.IGNORECASE)
_VARIABLE = re.compile(r"\w*(PASSW|SECRET|TOKEN)\w*", re.IGNORECASE)
# Of a password: a shorter one is in any text.
_LEAST_CHARACTERS = 4
_PLACE = r"(\[[^\]]*\]|[^:,\[]*)(:\d*)?"
_PLACES = re.compile(f"{_PLACE}(,{_PLACE})*")


def without_password(url: str) -> str:
    """``url`` as it may be shown: its password, and values of its query that may be one, as ``***``.

    A raw ``@``, ``/`` or ``?`` in a password makes the URL ambiguous; then more is hidden rather than less.
    """
    found = _AUTHORITY.fullmatch(url)
    if found is None:
        return _WORDS.sub(r"\1***", _hidden_after_colon(url) if "@" in url or url.count(":") > 1 else url)
    scheme, rest = found["scheme"], found["rest"]
    if scheme == "sqlite://":
        return url
    body, question, query = rest.partition("?")
    if "@" in query and ":" in body:
        # Where the password ends is anybody's guess.
        return scheme + _hidden_after_colon(body)
    if "@" in body:
        user, _, place = body.rpartition("@")
        body = f"{_hidden_after_colon(user)}@{place}"
    elif not _PLACES.fullmatch(body.partition("/")[0]):
        # What stands for a port is none: a password, and the host was forgotten.
        body = _hidden_after_colon(body)
    shown = [told for piece in query.split("&") if (told := _shown_parameter(piece))]
    return scheme + body + (question + "&".join(shown) if shown else "")


def refuse_ambiguous(url: str) -> None:
    """HistoryError on a password that another one may be read for: part of it would be taken for the host's name."""
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
    """HistoryError on an address with a password: every user of the machine reads it in the process list."""
    found = _AUTHORITY.fullmatch(url)
    if found is None or found["scheme"] == "sqlite://":
        return
    place, _, query = url.partition("?")
    if without_password(place) != place or "passw" in query.lower() or ("@" in query and ":" in found["rest"]):
        raise HistoryError(
            "--history",
            got=without_password(url),
            expected="an address without a password: all users of this machine read a command line",
            remedy="Put the password into ~/.pgpass (mode 600) or PGPASSWORD, or the whole address into perf.yaml's "
            "history.url",
        )


def refuse_in_open_file(url: str, path: Path) -> None:
    """HistoryError on an address with a password in a configuration that other users may read."""
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


def _hidden_after_colon(text: str) -> str:
    before, colon, _ = text.partition(":")
    return f"{before}:***" if colon else text.partition("@")[0]


def _shown_parameter(piece: str) -> str:
    name, equals, value = piece.partition("=")
    if not equals or not name.isidentifier():
        return ""
    return piece if name in _SHOWN_IN_QUERY and "@" not in value else f"{name}=***"


def without_secrets(text: str, passwords: Sequence[str] = ()) -> str:
    """A text of any origin without the ``passwords`` themselves, those of URLs, and what follows ``password=``."""
    for each in passwords:
        text = text.replace(each, "***")
    text = _IN_TEXT.sub(_shown_url, text)
    return _WORD_IN_TEXT.sub(r"\1***", text)


def passwords_in(given: Iterable[str | tuple[str, str]]) -> tuple[str, ...]:
    """The passwords that stand in words of a command line, and in variables (name, value): of URLs, and the values of
    variables that are named so. As written and without escapes, the longest first."""
    found: set[str] = set()
    for each in given:
        name, value = each if isinstance(each, tuple) else ("", each)
        if _VARIABLE.fullmatch(name) and not value.startswith("/"):
            found.add(value)
        # A password of blanks and quotes ends a URL in a text, and does not in a word of its own.
        for url in (*_IN_TEXT.findall(value), value if "://" in value else ""):
            user = url.partition("://")[2].rpartition("@")[0]
            found.add(user.partition(":")[2])
            found.update(piece.partition("=")[2] for piece in url.partition("?")[2].split("&") if "passw" in piece)
    found |= {unquote(each) for each in found}
    return tuple(sorted((each for each in found if len(each) >= _LEAST_CHARACTERS), key=len, reverse=True))


def _shown_url(found: re.Match[str]) -> str:
    return without_password(found[0])
