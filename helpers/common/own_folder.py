"""Where the user's own files are: perf.yaml, baselines, runs, environments and caches."""

from __future__ import annotations

import sys
from pathlib import Path

from helpers.trainers.contract import ROOT

# Stands in every checkout; a wheel does not hold it.
_OF_A_CHECKOUT = ROOT / "Makefile"


def is_installed() -> bool:
    """Whether this suite came from a wheel, and is no checkout."""
    return not _OF_A_CHECKOUT.is_file()


def own_folder() -> Path:
    """The checkout; for a suite that a wheel installed, the folder in which it is called. Raises OSError if that folder
    is gone."""
    return Path.cwd() if is_installed() else ROOT


def program_path() -> str:
    """The program ``perfgate`` of this environment, as it is typed in the current folder."""
    return _from_here(Path(sys.executable).with_name("perfgate"))


def pytest_words(*tests: str) -> tuple[str, ...]:
    """What runs tests of the suite, as it is typed in the current folder: ``tests`` are paths from its root, each maybe
    with a test's name."""
    return _from_here(Path(sys.executable)), "-m", "pytest", *(_from_here(ROOT / each) for each in tests)


def _from_here(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
