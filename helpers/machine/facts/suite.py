"""Finds the commit of the suite, which the tables name beside the framework's."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SECONDS = 10


def suite_commit(checkout: Path) -> str:
    """``e94319a0c2d1``, with ``-dirty`` where tracked files were changed.

    Raises OSError where git is missing, ValueError where ``checkout`` is no work tree of it.
    """
    argv = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"git does not answer within {_SECONDS} s") from error
    if done.returncode != 0:
        raise ValueError("git: " + (done.stderr.strip().splitlines() or ["no answer"])[-1])
    return done.stdout.strip()
