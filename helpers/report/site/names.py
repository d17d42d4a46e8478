"""The names of the pages' files: readable, safe in file systems and addresses, and unique.

The names of cases, sessions, builds and machines come from outside. Names that differ only in special characters or in
upper and lower case have the same readable part; the digest behind it makes the file's name unique.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache

from helpers.history.listing import BuildKey, CaseKey, SessionKey

INDEX, STATE, LOCK = "index", "publish-state.json", "publish.lock"
# It is there while pages are written, and stays if the process is killed.
UNFINISHED = "publish-unfinished"
STYLE, SCRIPT = "style.css", "script.js"
AT_THE_TOP = ("index.html", "index.json", "feed.xml", STYLE, SCRIPT)
NIGHTS, BUILDS = "nights/index", "builds/index"
ALL_BADGE = "badges/all"
FOLDERS = ("badges", "builds", "cases", "machines", "nights")
_ODD = re.compile(r"[^a-z0-9._]+")
_LONGEST, _DIGEST = 80, 10
# The paths of files that the suite writes, besides its state and its lock.
_OURS = re.compile(
    rf"(index|feed|all-[0-9]{{1,6}})\.(html|json|xml)|style\.css|script\.js|({'|'.join(FOLDERS)})/[a-z0-9_][a-z0-9._-]{{0,120}}"
    r"\.(html|json|svg)"
)


def case_page(key: CaseKey) -> str:
    return f"cases/{_name(f'{key.case_id}-{key.target}', 'case', key.case_id, key.target, key.host)}"


def older_page(key: CaseKey, number: int) -> str:
    """The page of group ``number`` of the case's older nights, counted from 1, which is the oldest."""
    return f"{case_page(key)}.{number}"


def session_page(key: SessionKey) -> str:
    return f"nights/{_name(key.session, 'session', key.session, key.host)}"


def build_page(key: BuildKey) -> str:
    readable = f"{key.framework}-{key.version}-{key.commit[:12]}"
    return f"builds/{_name(readable, 'build', key.framework, key.version, key.commit)}"


def machine_page(host: str) -> str:
    return f"machines/{_name(host, 'machine', host)}"


def badge_of(page: str) -> str:
    """The badge that belongs to the page of a case or a machine."""
    return f"badges/{page.partition('/')[2]}"


def anchor(key: CaseKey) -> str:
    """The anchor of the case on the page of a session."""
    return f"c-{_digest(key.case_id, key.target, key.host)}"


def row_in_session(session: SessionKey, case: CaseKey) -> str:
    """The address of the case's row on the page of a session."""
    return f"{session_page(session)}.html#{anchor(case)}"


def part(page: str, number: int) -> str:
    """Part ``number`` of a page, counted from 1."""
    return page if number == 1 else f"{page}.part{number}"


def index_part(number: int) -> str:
    """Part ``number`` of the first page, counted from 1."""
    return INDEX if number == 1 else f"all-{number}"


def is_ours(path: str) -> bool:
    """Whether a file of this name, relative to the site's folder, can be one that the suite wrote."""
    return _OURS.fullmatch(path) is not None


@lru_cache(maxsize=2**16)
def _name(readable: str, *key: str) -> str:
    shown = _ODD.sub("-", readable.lower().encode("ascii", "replace").decode()).strip("-._")[:_LONGEST].strip("-._")
    return f"{shown or 'x'}-{_digest(*key)}"


@lru_cache(maxsize=2**16)
def _digest(*key: str) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()[:_DIGEST]
