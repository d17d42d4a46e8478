"""What may be shown and kept of addresses and other texts: no user, password or token.

A password is never shown, not even one that was written without its escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from helpers.common.inherited import SECRET

# These parameters of a query say where the database is; the value of any other may be a secret.
_SHOWN_IN_QUERY = ("dbname", "host", "port", "sslmode", "user")
AUTHORITY = re.compile(r"(?P<scheme>[^:/?@]*://)(?P<rest>.*)", re.DOTALL)
# libpq's own way to write it: host=db password=secret. A value may hold quotes and blanks.
_WORDS = re.compile(r"(passw\w{0,40}\s{0,40}=).*", re.IGNORECASE | re.DOTALL)
# Finds URLs in a text. Lengths are limited so that no text takes long.
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.]{0,40}://[^\s'\"<>]{1,2000}")
_WORD_IN_TEXT = re.compile(r"(passw\w{0,10}\s{0,4}[=:]\s{0,4})('[^']{0,400}'|[^\s&;,]{1,400})", re.IGNORECASE)
# A shorter password would occur in any text.
_LEAST_CHARACTERS = 4
# A value in a query that is shorter is no key.
_LEAST_OF_KEY = 12
_HOST = r"(\[[^\]]*\]|[^:,\[]*)(:\d*)?"
_HTTP = ("http://", "https://")
_HOSTS = re.compile(f"{_HOST}(,{_HOST})*")
# The passwords that this process has read from files, such as perf.yaml.
_remembered: set[str] = set()


def without_password(url: str) -> str:
    """``url`` as it may be shown: with ``***`` for its password, and for values of its query that may be one.

    Of an address of http the user and the whole query are left out: both may be a key. A raw ``@``, ``/`` or ``?`` in
    a password makes the URL ambiguous. Then rather too much is hidden than too little.
    """
    found = AUTHORITY.fullmatch(url)
    if found is None:
        return _WORDS.sub(r"\1***", _hidden_after_colon(url) if "@" in url or url.count(":") > 1 else url)
    scheme, rest = found["scheme"], found["rest"]
    if scheme == "sqlite://":
        return url
    if scheme.lower().endswith(_HTTP):
        return scheme + _shown_http(rest)
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


def without_secrets(text: str, passwords: Sequence[str] = ()) -> str:
    """A text of any origin without the ``passwords`` and those that were remembered, without those of its URLs, and
    without what follows ``password=``."""
    for each in sorted({*passwords, *_remembered}, key=len, reverse=True):
        text = text.replace(each, "***")
    text = _IN_TEXT.sub(_shown_url, text)
    return _WORD_IN_TEXT.sub(r"\1***", text)


def shown_words(words: Iterable[str]) -> tuple[str, ...]:
    """The words of a command line as they may be shown and kept. In a word of its own, blanks and quotes are part of
    an address."""
    return tuple(
        option + equals + without_password(value) if "://" in value else without_secrets(word)
        for word in words
        for option, equals, value in [word.partition("=") if word.startswith("-") else ("", "", word)]
    )


def masked(values: Any, name: str = "") -> Any:
    """The content of a configuration as it may be kept elsewhere; ``name`` is the key of ``values``."""
    if isinstance(values, Mapping):
        return {key: masked(each, str(key)) for key, each in values.items()}
    if isinstance(values, list):
        return [masked(each, name) for each in values]
    if not isinstance(values, str):
        return values
    return "***" if SECRET.fullmatch(name) else shown_words([values])[0]


def remember(values: object, name: str = "") -> None:
    """From now on ``without_secrets`` leaves out the passwords in the content of a configuration."""
    if isinstance(values, Mapping):
        for key, each in values.items():
            remember(each, str(key))
    elif isinstance(values, list):
        for each in values:
            remember(each, name)
    elif isinstance(values, str):
        _remembered.update(passwords_in([(name, values)]))


def remembered() -> tuple[str, ...]:
    """The passwords of the configurations that this process has read."""
    return tuple(_remembered)


def passwords_in(given: Iterable[str | tuple[str, str]]) -> tuple[str, ...]:
    """The passwords in words of a command line and in variables (name, value): those of URLs, and the values of
    variables whose names say so. Each as it is written and without escapes; the longest first."""
    found: set[str] = set()
    for each in given:
        name, value = each if isinstance(each, tuple) else ("", each)
        if SECRET.fullmatch(name) and not value.startswith("/"):
            found.add(value)
        # Blanks and quotes end a URL in a text, but they may be part of a password in a word of its own.
        for url in (*_IN_TEXT.findall(value), value if "://" in value else ""):
            user, colon, password = url.partition("://")[2].rpartition("@")[0].partition(":")
            # A user without a password may be a token.
            found.add(password if colon or _HTTP[1] not in url else user)
            pieces = [piece.partition("=") for piece in url.partition("#")[0].partition("?")[2].split("&")]
            keys = [value for name, _, value in pieces if SECRET.fullmatch(name) or len(value) >= _LEAST_OF_KEY]
            found.update(value for value in keys if not value.startswith("/"))
    found |= {unquote(each) for each in found}
    return tuple(sorted((each for each in found if len(each) >= _LEAST_CHARACTERS), key=len, reverse=True))


def _shown_url(found: re.Match[str]) -> str:
    # What follows an address in a sentence is not part of its port.
    url = found[0].rstrip(").,;:")
    return without_password(url) + found[0][len(url) :]


def _hidden_after_colon(text: str) -> str:
    before, colon, _ = text.partition(":")
    return f"{before}:***" if colon else text.partition("@")[0]


def _shown_parameter(piece: str) -> str:
    name, equals, value = piece.partition("=")
    if not equals or not name.isidentifier():
        return ""
    return piece if name in _SHOWN_IN_QUERY and "@" not in value else f"{name}=***"


def _shown_http(rest: str) -> str:
    address, sign, fragment = rest.partition("#")
    address, question, _ = address.partition("?")
    authority, slash, path = address.partition("/")
    host = authority.rpartition("@")[2]
    if not _HOSTS.fullmatch(host) or "@" in rest[len(authority) :]:
        # Nobody can tell where the password ends.
        return "***"
    digest = fragment if fragment.startswith("sha256=") else "…"
    return f"{host}{slash}{path}{'?…' if question else ''}{sign}{digest if sign else ''}"
