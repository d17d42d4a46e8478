"""What may be shown of a history's URL: never its password, also where that was written without its escapes."""

from __future__ import annotations

import re

from helpers.errors import HistoryError

# What of a query says where the database is; the value of anything else may be a secret.
_SHOWN_IN_QUERY = ("dbname", "host", "port", "sslmode", "user")
_AUTHORITY = re.compile(r"(?P<scheme>[^:/?@]*://)(?P<rest>.*)", re.DOTALL)
# libpq's own way to write it: host=db password=secret. A value may hold quotes and blanks.
_WORDS = re.compile(r"(passw\w*\s*=).*", re.IGNORECASE | re.DOTALL)
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


def _hidden_after_colon(text: str) -> str:
    before, colon, _ = text.partition(":")
    return f"{before}:***" if colon else text.partition("@")[0]


def _shown_parameter(piece: str) -> str:
    name, equals, value = piece.partition("=")
    if not equals or not name.isidentifier():
        return ""
    return piece if name in _SHOWN_IN_QUERY and "@" not in value else f"{name}=***"
