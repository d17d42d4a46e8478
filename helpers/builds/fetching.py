"""Downloads and opens wheels, and checks them: the digest, whether the file is whole, and whether it is for the right
Python."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging import tags
from packaging.utils import parse_wheel_filename

from helpers.builds.naming import BuildSource, BuildUnavailable, Why, shown_url
from helpers.machine.files import named_by_user, open_regular

_BLOCK = 1 << 20
# The largest download. A wheel of Paddle for CUDA has 2 GB.
_MOST_BYTES = 20 * 1024**3
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_MODIFIED = 304


@dataclass(frozen=True)
class Wheel:
    """A checked wheel on this machine."""

    path: Path
    sha256: str
    distribution: str
    version: str


@dataclass(frozen=True)
class Fetched:
    """A download: the file's name and digest, and the ETag and date by which the server identifies its version."""

    name: str
    sha256: str
    etag: str = ""
    modified: str = ""


def wheel_name(source: BuildSource) -> str:
    """The wheel's file name."""
    if source.path is not None:
        return source.path.name
    return unquote(urlsplit(source.url).path.rpartition("/")[2])


def check_python(source: BuildSource, name: str, version: tuple[int, int]) -> None:
    """Raise BuildUnavailable if a wheel of that name is not for Python ``version`` on this system."""
    theirs = parse_wheel_filename(name)[3]
    interpreter = f"cp{version[0]}{version[1]}"
    ours = {*tags.cpython_tags(version), *tags.compatible_tags(version, interpreter)}
    if not theirs & ours:
        found = ", ".join(sorted(map(str, theirs)))
        raise BuildUnavailable(
            source.text, Why.WRONG_PYTHON, found, f"a wheel for Python {version[0]}.{version[1]} ({interpreter}) here",
            "Name the wheel for it, or another Python under builds.python in perf.yaml",
        )  # fmt: skip


def open_wheel(source: BuildSource, path: Path, sha256: str) -> Wheel:
    """The wheel at ``path``. Raises BuildUnavailable if it is incomplete, or is not the wheel that was asked for."""
    check_digest(source, sha256)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise BuildUnavailable(
            source.text, Why.NOT_INSTALLED, f"{error} ({path.stat().st_size} bytes)", "a whole wheel", "Fetch it again"
        ) from error
    if not any(name.endswith(".dist-info/METADATA") for name in names):
        raise BuildUnavailable(source.text, Why.NOT_INSTALLED, "an archive without .dist-info/METADATA", "a wheel")
    distribution, version, _, _ = parse_wheel_filename(path.name)
    return Wheel(path, sha256, distribution, str(version))


def check_digest(source: BuildSource, sha256: str) -> None:
    """Raise BuildUnavailable if the source names another digest."""
    if source.sha256 and source.sha256 != sha256:
        raise BuildUnavailable(
            source.text,
            Why.WRONG_DIGEST,
            f"sha256 {sha256}",
            source.sha256,
            "Find out which of the two is right, the file or the digest",
        )


def digest_of(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with open_regular(named_by_user(path)) as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK):
            digest.update(block)
        return digest.hexdigest()


def fetch(
    source: BuildSource,
    folder: Path,
    silence_seconds: float,
    known: Fetched | None = None,
    cert: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Fetched:
    """Download the wheel into ``folder``; with ``known``, only if the server has another version of it now.

    Raises BuildUnavailable if the server does not answer, answers with an error or falls silent, if the file ends
    early, and if the disk is full.
    """
    request = urllib.request.Request(_without_user(source.url), headers=_headers(known))
    if user := _authorization(source.url):
        # Unredirected: the password must not be sent to another host if the address redirects there.
        request.add_unredirected_header("Authorization", user)
    try:
        context = ssl.create_default_context(cafile=cert) if source.url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=silence_seconds, context=context) as answer:
            sha256 = _save(answer, folder / wheel_name(source), progress)
            return Fetched(
                wheel_name(source), sha256, answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
            )
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == _NOT_MODIFIED and known is not None:
            return known
        raise BuildUnavailable(
            source.text, Why.NOT_FETCHED, f"HTTP {error.code} {error.reason} of {shown_url(source.url)}", "a wheel",
            "Look whether that build was made, and where",
        ) from error  # fmt: skip
    except TimeoutError as error:
        raise _silent(source, silence_seconds) from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            raise _silent(source, silence_seconds) from error
        if getattr(cause, "errno", None) in _FULL:
            raise BuildUnavailable(source.text, Why.NO_SPACE, str(cause), remedy="Free the disk") from error
        raise BuildUnavailable(
            source.text, Why.NOT_FETCHED, f"{cause} of {shown_url(source.url)}", "a whole wheel",
            "Look whether the address is right and its server answers, and try it again",
        ) from error  # fmt: skip


def _save(answer: http.client.HTTPResponse, path: Path, progress: Callable[[str], None]) -> str:
    length = answer.headers.get("Content-Length") or ""
    total, done, reported = int(length) if length.isdecimal() else None, 0, 0
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while block := answer.read(_BLOCK):
            file.write(block)
            digest.update(block)
            done += len(block)
            if done > _MOST_BYTES:
                raise OSError(errno.EFBIG, f"more than {_MOST_BYTES} bytes")
            if done - reported >= 100 * _BLOCK:
                reported = done
                progress(f"fetching {path.name}: {done >> 20} of {(total or 0) >> 20 or '?'} MB")
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)
    return digest.hexdigest()


def _authorization(url: str) -> str:
    parts = urlsplit(url)
    if not parts.username:
        return ""
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(user.encode()).decode()


def _headers(known: Fetched | None) -> dict[str, str]:
    headers = {"User-Agent": "perfgate", "Accept-Encoding": "identity"}
    if known is not None and known.etag:
        headers["If-None-Match"] = known.etag
    elif known is not None and known.modified:
        headers["If-Modified-Since"] = known.modified
    return headers


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _silent(source: BuildSource, seconds: float) -> BuildUnavailable:
    return BuildUnavailable(
        source.text, Why.NOT_FETCHED, f"nothing for {seconds:g} s from {shown_url(source.url)}", "an answer",
        "Try it again later, or raise builds.silence_seconds in perf.yaml",
    )  # fmt: skip
