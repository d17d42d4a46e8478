"""perfgate as a wheel installs it. The suite stands in the folder ``suite`` as it does in its checkout.

Its packages (``helpers``, ``fixtures``) are imported in perfgate's own processes alone, and there before any others of
these names. A program that imports ``perfgate`` still has its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

SUITE = Path(__file__).resolve().parent / "suite"


def main() -> int:
    """Run the command ``perfgate`` in this process, and return its exit code."""
    sys.path.insert(0, str(SUITE))
    from helpers.commands.__main__ import main as perfgate

    return perfgate(sys.argv[1:])
