"""The scripts of requirements/, which are no package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

REQUIREMENTS = Path(__file__).parents[2] / "requirements"


def load(name: str) -> ModuleType:
    """A module of its own at each call. What the script does to ``sys.path`` is undone."""
    spec = importlib.util.spec_from_file_location(name, REQUIREMENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module
