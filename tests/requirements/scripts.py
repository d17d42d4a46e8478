"""The scripts of requirements/, which are no package, as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def load(name: str) -> ModuleType:
    """The module, with those that it imports from beside itself."""
    sys.path.insert(0, str(REQUIREMENTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(REQUIREMENTS))
