"""Downloads and opens wheels, and checks them: the digest, whether the file is whole, and whether it is for the right
Python."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import ssl
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from packaging import tags
from packaging.utils import parse_wheel_filename

from helpers.builds.naming import BuildSource, BuildUnavailable, Why
from helpers.common.files import named_by_user, open_regular
from helpers.common.masking import without_password

_BLOCK = 1 << 20
# The largest download. A wheel of Paddle for CUDA has 2 GB.
_MOST_BYTES = 20 * 1024**3
# The longest download, as long as uv has for its own, and the rate below which one is given up.
_MOST_SECONDS = 3600.0
_LEAST_BYTES_PER_SECOND = 10_000
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
    clock: Callable[[], float] = time.monotonic,
) -> Fetched:
    """Download the wheel into ``folder``; with ``known``, only if the server has another version of it now.

    Raises BuildUnavailable if the server does not answer, answers with an error, redirects to something else than http
    or https, or sends less than 10 kB/s for ``silence_seconds``, if the file ends early or is not whole after an hour,
    and if the disk is full.
    """
    download = _Download(source, folder, silence_seconds, known, cert)
    download.start()
    start, counted = clock(), 0
    try:
        # A thread of its own, since a time limit of a socket is one of each answer: a server that sends a byte now and
        # then, of its headers or of the file, never exceeds it.
        while download.is_alive():
            download.join(silence_seconds)
            done = download.done - counted
            if not download.is_alive():
                break
            if clock() - start >= _MOST_SECONDS:
                raise _slow(source, download.done, clock() - start)
            if done < _LEAST_BYTES_PER_SECOND * silence_seconds:
                raise _slow(source, done, silence_seconds)
            counted += done
            progress(f"fetching {wheel_name(source)}: {counted >> 20} MB")
    finally:
        download.given_up = True
    if download.error is not None:
        raise download.error
    assert download.found is not None
    return download.found


class _Download(threading.Thread):
    """A download, which ends with ``found`` or with ``error``."""

    def __init__(
        self, source: BuildSource, folder: Path, silence_seconds: float, known: Fetched | None, cert: str | None
    ) -> None:
        # A daemon, so that a server that hangs does not hold up the end of the suite.
        super().__init__(daemon=True)
        self._source, self._path, self._cert = source, folder / wheel_name(source), cert
        self._silence_seconds, self._known = silence_seconds, known
        self.found: Fetched | None = None
        self.error: Exception | None = None
        # Bytes.
        self.done = 0
        self.given_up = False

    def run(self) -> None:
        try:
            self.found = self._fetched()
        except Exception as error:  # noqa: BLE001 - raised by fetch
            self.error = error

    def _fetched(self) -> Fetched:
        source = self._source
        request = urllib.request.Request(_without_user(source.url), headers=_headers(self._known))
        if user := _authorization(source.url):
            # Unredirected: the password must not be sent to another host if the address redirects there.
            request.add_unredirected_header("Authorization", user)
        try:
            context = ssl.create_default_context(cafile=self._cert) if source.url.startswith("https:") else None
            with _web(context).open(request, timeout=self._silence_seconds) as answer:
                sha256 = self._save(answer)
                headers = answer.headers
                return Fetched(self._path.name, sha256, headers.get("ETag", ""), headers.get("Last-Modified", ""))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == _NOT_MODIFIED and self._known is not None:
                return self._known
            raise BuildUnavailable(
                source.text, Why.NOT_FETCHED, f"HTTP {error.code} {error.reason} of {without_password(source.url)}",
                "a wheel", "Look whether that build was made, and where",
            ) from error  # fmt: skip
        except (http.client.HTTPException, OSError) as error:
            raise _failed(source, error, self._silence_seconds) from error

    def _save(self, answer: http.client.HTTPResponse) -> str:
        length = answer.headers.get("Content-Length") or ""
        digest = hashlib.sha256()
        with self._path.open("wb") as file:
            # read1, since read waits for a whole block.
            while not self.given_up and (block := answer.read1(_BLOCK)):
                file.write(block)
                digest.update(block)
                self.done += len(block)
                if self.done > _MOST_BYTES:
                    raise OSError(errno.EFBIG, f"more than {_MOST_BYTES} bytes")
        if length.isdecimal() and self.done < int(length):
            raise http.client.IncompleteRead(b"", int(length) - self.done)
        return digest.hexdigest()


def _web(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """urllib's opener for http and https alone; by itself it would follow a redirect to ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPRedirectHandler(), urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(), urllib.request.UnknownHandler(),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


def _failed(source: BuildSource, error: Exception, silence_seconds: float) -> BuildUnavailable:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return _slow(source, 0, silence_seconds)
    if getattr(cause, "errno", None) in _FULL:
        return BuildUnavailable(source.text, Why.NO_SPACE, str(cause), remedy="Free the disk")
    return BuildUnavailable(
        source.text, Why.NOT_FETCHED, f"{cause} of {without_password(source.url)}", "a whole wheel",
        "Look whether the address is right and its server answers, and try it again",
    )  # fmt: skip


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


def _slow(source: BuildSource, size: int, seconds: float) -> BuildUnavailable:
    return BuildUnavailable(
        source.text, Why.NOT_FETCHED,
        f"{f'{size} bytes' if size else 'nothing'} in {seconds:.3g} s from {without_password(source.url)}",
        f"a wheel within {_MOST_SECONDS:.0f} s, and {_LEAST_BYTES_PER_SECOND // 1000} kB/s at least",
        "Try it again later, fetch it by other means and name the file, or raise builds.silence_seconds in perf.yaml",
    )  # fmt: skip
