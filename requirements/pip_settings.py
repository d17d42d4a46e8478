"""The caller's way to packages: pip's settings and uv's own variables, as uv takes them. helpers/builds/uv.py uses it.

Only settings that say where packages come from and how that place is reached are passed on. Those that move, withhold
or choose packages (target, prefix, user, constraint and others) are not: what is installed is pinned, and goes into one
environment.
"""

import ast
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
# pip's name of a setting -> uv's variables for it. uv has no variable for no-index, only an option.
PASSED = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("--no-index",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "proxy": _PROXIES,
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
}
_RANKS = {"global": 0, "install": 1, ":env:": 2}
# If the caller has set one of these, pip's settings of where packages are do not count.
_OWN_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_WHERE = ("index-url", "extra-index-url", "find-links", "no-index")
# uv's own variables of the caller that reach it; all others move or choose packages.
_UV = (
    *_OWN_INDEX, "UV_INDEX_", "UV_INSECURE_HOST", "UV_CACHE_DIR", "UV_NO_CACHE", "UV_LINK_MODE", "UV_HTTP_",
    "UV_CONCURRENT_", "UV_KEYRING_PROVIDER", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_COMPILE_BYTECODE",
    "UV_CONFIG_FILE", "UV_OFFLINE",
)  # fmt: skip


class PipError(Exception):
    """pip did not say its settings."""


def read(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of the pip of ``python`` that are passed on, by pip's names; empty without a pip. Raises PipError
    where pip cannot read its own files."""
    # With these of the caller's pip would print nothing here, or another Python's settings.
    own = {"PIP_QUIET": "0", "PIP_PYTHON": python, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [python, "-m", "pip", "config", "list"]
    done = subprocess.run(
        command, env={**environ, **own}, capture_output=True, text=True, errors="replace", timeout=120
    )
    if done.returncode != 0 and "No module named pip" not in done.stderr:
        raise PipError(f"'{' '.join(command)}' ended with {done.returncode}: {masked(done.stderr)[-500:].strip()}")
    return settings_of(done.stdout)


def settings_of(listed: str) -> dict[str, str]:
    """The settings in the output of ``pip config list`` that are passed on. As in pip, a variable takes precedence over
    a file, and the section ``install`` over ``global``."""
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        key, _, value = line.strip().partition("=")
        section, _, name = key.rpartition(".")
        name, rank = name.removeprefix("default-"), _RANKS.get(section, -1)
        if name in PASSED and rank >= found.get(name, (0, ""))[0]:
            found[name] = rank, str(ast.literal_eval(value)).strip()
    return {name: value for name, (_, value) in found.items() if value}


def for_pip(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables with these settings and no others of pip, and none of its files."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PIP_")}
    given = {"PIP_" + name.upper().replace("-", "_"): value for name, value in settings.items()}
    return {**kept, **given, "PIP_CONFIG_FILE": os.devnull}


def for_uv(settings: Mapping[str, str], environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """uv's variables and options with these settings. The caller's own variables of uv take precedence."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("PIP_", "UV_")) or (value and name.startswith(_UV))
    }
    own_index = any(environ.get(name) for name in _OWN_INDEX)
    found: dict[str, str] = {}
    for bundle in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        if environ.get(bundle) and not environ.get("SSL_CERT_FILE"):
            # pip takes them as well.
            found["SSL_CERT_FILE"] = environ[bundle]
    for name, value in settings.items():
        if not (own_index and name in _WHERE):
            found.update(dict.fromkeys(PASSED[name], _translated(name, value)))
    options = ["--no-index"] if found.pop("--no-index", "").lower() in ("1", "true", "yes", "on") else []
    if {"UV_DEFAULT_INDEX", "UV_INDEX"} & set(found):
        # As pip does: the best of all indexes. By default uv takes what the first index with the package has.
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {**found, **kept, **{name: found[name] for name in found if not name.startswith("UV_")}}, options


def _translated(name: str, value: str) -> str:
    if name == "find-links":
        # pip warns of a folder that does not exist; uv ends.
        return ",".join(word for word in value.split() if "://" in word or Path(word).expanduser().exists())
    if name == "proxy" and "://" not in value:
        return f"http://{value}"
    return " ".join(value.split())


def masked(text: str) -> str:
    """``text`` without the user and password of addresses in it."""
    return re.sub(r"(://)[^/@\s'\"]*@", r"\1", text)
