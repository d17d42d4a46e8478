"""Where the user's own files are: perf.yaml, baselines, runs, environments and caches."""

from __future__ import annotations

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
